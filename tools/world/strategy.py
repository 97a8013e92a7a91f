"""How the write and the read function of a run are built: by the product, with its consumer or in band."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from hotpartition.control.consumer import RunSummary
from hotpartition_messages.changing import MessageChanger
from hotpartition_messages.reading import MessageReader
from tools.world.clients import Lookup, ReadHandler, ReadRequest, ReadResponse, WriteHandler
from tools.world.clock import Process
from tools.world.functions import Function, FunctionConfig, NoResponseError, TooManyRequestsError
from tools.world.product import World, build_consumer, build_in_band_jobs, build_reader, build_write_jobs
from tools.world.scenario import Scenario

CONSUMERS = 3
"""The consumer's reserved concurrency."""
CONSUMER_RUN_SECONDS = 170.0


@dataclass(slots=True)
class Strategy(ABC):
    """One way to deal with a hot key."""

    name: str
    """What it is called in results."""
    skipped_seconds: float = field(default=0.0, kw_only=True)
    """How much of the rush is left out, because nothing changes in it before this strategy acts."""
    watchers: Function[float, RunSummary] | None = field(default=None, init=False)
    """The function that watches the load, once it is started."""

    def start(self, world: World, scenario: Scenario) -> None:
        """Start what runs beside the requests: nothing."""
        del world, scenario

    def shard_count(self, scenario: Scenario) -> int:
        """Return the N of the hot conversation as long as nothing is raised; 0: its own key only."""
        del scenario
        return 0

    @abstractmethod
    def build_writer(self, world: World, process: Process, index: int) -> WriteHandler:
        """Build one environment of the write function."""

    @abstractmethod
    def build_reader(self, world: World, process: Process, index: int) -> ReadHandler:
        """Build one environment of the read function."""

    def build_changer(self, world: World, process: Process, index: int) -> MessageChanger:
        """Build one environment of the write function, for edits and deletions."""
        return build_write_jobs(world, process, index)[1].changer


@dataclass(slots=True)
class Ours(Strategy):
    """The product."""

    name: str = "ours"

    def start(self, world: World, scenario: Scenario) -> None:
        """Start the consumer now, and again each period."""
        engine, random = world.engine, world.random("schedule")

        def build(process: Process, index: int) -> Callable[[float], RunSummary]:
            consumer = build_consumer(world, process, index)
            return lambda run_seconds: consumer.run(run_seconds * 1000)

        config = FunctionConfig(concurrency=CONSUMERS, warm=1)
        consumers = self.watchers = Function(engine, config, build, world.random("consumers"))

        def run() -> None:
            # One that is refused or dies is not missed: the next one begins where it ended.
            with suppress(TooManyRequestsError, NoResponseError):
                consumers.invoke(CONSUMER_RUN_SECONDS, timeout_seconds=CONSUMER_RUN_SECONDS + 10)

        def schedule(index: int) -> None:
            base = index * scenario.period_seconds
            engine.at(base + random.random() * scenario.jitter_seconds, lambda: engine.spawn(run))
            engine.at(base + scenario.period_seconds, lambda: schedule(index + 1))

        engine.spawn(run)
        schedule(1)

    def build_writer(self, world: World, process: Process, index: int) -> WriteHandler:
        """Implement `Strategy.build_writer`."""
        return build_write_jobs(world, process, index)[1].messages.write

    def build_reader(self, world: World, process: Process, index: int) -> ReadHandler:
        """Implement `Strategy.build_reader`."""
        return _read_by(build_reader(world, process, index))


def _read_by(reader: MessageReader) -> ReadHandler:
    def read(request: ReadRequest) -> ReadResponse:
        if isinstance(request, Lookup):
            return reader.read_message(request.conversation_id, request.message_id, is_strong=True)
        return reader.read_page(request)

    return read


@dataclass(slots=True)
class InBand(Strategy):
    """The product without Redis and consumer: writers find what is hot."""

    name: str = "in_band"

    def build_writer(self, world: World, process: Process, index: int) -> WriteHandler:
        """Implement `Strategy.build_writer`."""
        return build_in_band_jobs(world, process, index)[0].write

    def build_changer(self, world: World, process: Process, index: int) -> MessageChanger:
        """Implement `Strategy.build_changer`."""
        return build_in_band_jobs(world, process, index)[1]

    def build_reader(self, world: World, process: Process, index: int) -> ReadHandler:
        """Implement `Strategy.build_reader`."""
        return _read_by(build_reader(world, process, index, is_in_band=True))
