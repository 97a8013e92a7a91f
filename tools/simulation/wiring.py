"""The product's functions on the simulated outside: as `hotpartition.runtime.wiring` builds them, with other ends.

Everything in between is the product's own: jobs, cache, counter, hedging, retries, and the adapters for DynamoDB and
redis-py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import lru_cache, partial
from random import Random
from typing import Any

from hotpartition.control.consumer import Consumer
from hotpartition.core.backoff import Clock
from hotpartition.core.hedging import HEDGE_CONNECTIONS, HedgePolicy
from hotpartition.core.merge import Page
from hotpartition.core.metrics import MetricName
from hotpartition.core.sampler import LoadSampler, ReadSampler
from hotpartition.dynamodb.counter_store import DynamoDBCounterStore, decode_cell
from hotpartition.dynamodb.item_store import DynamoDBItemStore
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.routing_items import DynamoDBRoutingItems
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.dynamodb.threads import ThreadedCalls
from hotpartition.engine.counters import Adder, Summer
from hotpartition.engine.gatherer import Gatherer
from hotpartition.engine.newest_pages import NewestPages
from hotpartition.engine.page_cache import PageCache
from hotpartition.engine.raising import Raiser
from hotpartition.engine.read_counting import ReadCounting
from hotpartition.engine.route_cache import RouteCache, RouteSource
from hotpartition.engine.writer import Writer
from hotpartition.ports import JournalReading
from hotpartition.redis.pages import RedisPageStore
from hotpartition.redis.registry import RedisRegistry
from hotpartition.redis.reports import RedisReportSink, RedisReportSource
from hotpartition.runtime.background import BackgroundThread
from hotpartition.runtime.settings import ReaderSettings, WriterSettings
from hotpartition.runtime.table_settings import ConsumerSettings
from hotpartition.runtime.thresholds import build_read_thresholds, build_thresholds
from hotpartition.runtime.wiring import PATIENT_TIMEOUTS_MS
from hotpartition.runtime.wiring_pages import build_page_limits
from hotpartition.table import ShardedTable
from hotpartition.table.adaptive import REPORTS_PAUSE_SECONDS, AdaptiveRoutes, Limits
from hotpartition.table.schema import Schema
from hotpartition_messages import Message
from hotpartition_messages.changing import MessageChanger
from hotpartition_messages.counters import CounterReader, CounterWriter, describe_counter_table
from hotpartition_messages.keys import describe_table, position_of
from hotpartition_messages.page_codec import MessagePageCodec
from hotpartition_messages.reading import CACHED_LIMITS, MessageReader
from hotpartition_messages.writing import MessageWriter
from tools.partition_model import Table, TableConfig
from tools.simulation.engine import MOST_SKEW_MS, Engine, Process, SimulatedExecutor, wait_for
from tools.simulation.redis_model import RedisServer, SimulatedConnection
from tools.simulation.store import READER, Network, Observer, Store

TABLE_NAME = "simulated"
TABLE = describe_table(TABLE_NAME, index_name="routing-index")
COUNTERS = describe_counter_table(TABLE_NAME)
HOST = "simulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The classes that a run is built from; a test breaks the protocol on purpose by replacing one."""

    routes: type[RouteSource] = RouteSource
    writer: type[Writer] = Writer
    gatherer: type[Gatherer[Message]] = Gatherer
    consumer: type[Consumer] = Consumer
    changer: type[MessageChanger] = MessageChanger
    page_cache: type[PageCache[Any]] = PageCache
    store: type[DynamoDBItemStore[Message]] = DynamoDBItemStore
    message: type[Message] = Message
    adder: type[Adder] = Adder
    summer: type[Summer] = Summer


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductSettings:
    """The three functions' settings; the defaults are the product's."""

    writer: WriterSettings = field(default_factory=lambda: WriterSettings(table_name=TABLE_NAME, registry_host=HOST))
    reader: ReaderSettings = field(default_factory=lambda: ReaderSettings(table_name=TABLE_NAME, registry_host=HOST))
    consumer: ConsumerSettings = field(
        default_factory=lambda: ConsumerSettings(table_name=TABLE_NAME, registry_host=HOST)
    )


@dataclass(slots=True)
class World:
    """What all functions of a run share."""

    engine: Engine
    seed: int
    table: Table
    store: Any
    """A `Network` with a client for each role: `Store`, or another one for the table that a run brings along."""
    redis: RedisServer
    settings: ProductSettings
    parts: Parts
    skew_ms: float = 0.0
    """Standard deviation of the environments' clocks."""
    counters: Counter[str] = field(default_factory=Counter)
    """The product's metrics, summed over all environments."""

    def random(self, name: str) -> Random:
        """Make a source of chance of its own, so that nothing depends on who draws first."""
        return Random(f"{self.seed}/{name}")  # a text's seed goes through SHA-512, not through hash()

    def clock(self, random: Random) -> Clock:
        """Build the clock of one environment."""
        skew_ms = round(max(-MOST_SKEW_MS, min(MOST_SKEW_MS, random.gauss(0.0, self.skew_ms)))) if self.skew_ms else 0
        engine = self.engine
        return Clock(now_ms=lambda: skew_ms + engine.now_ms(), sleep=engine.sleep, random=random.random)

    def timer(self) -> float:
        """Tell a monotonic time in seconds."""
        return self.engine.now

    def connect(self, timeout_ms: int, owner: Process | None = None) -> SimulatedConnection:
        """Connect to Redis; `owner`: whose writes of routes are its last at times (`FaultPlan.consumer_crash`)."""
        cooldown_ms = self.settings.writer.registry_rest_ms
        return SimulatedConnection(self.redis, timeout_ms=timeout_ms, cooldown_ms=cooldown_ms, owner=owner)

    def charge_others(self, wcu: float, every_seconds: float) -> None:
        """Charge the table with other traffic from now on, `wcu` units a second on all its partitions alike."""

        def charge() -> None:
            self.table.write_evenly(wcu * every_seconds, self.engine.now, every_seconds)
            self.engine.after(every_seconds, charge)

        self.engine.after(every_seconds, charge)


def build_world(
    engine: Engine,
    seed: int,
    parts: Parts | None = None,
    *,
    table: TableConfig,
    redis_nodes: int,
    settings: ProductSettings,
    observer: Observer,
    skew_ms: float = 0.0,
    on_report: Callable[[], None] = lambda: None,
    store: Network | None = None,
    seeds: str = "",
) -> World:
    """Build what all functions of a run share; `seeds` goes before the names of the sources of chance."""
    prefix = f"{seed}/{seeds}"
    throughput = Table(table, Random(f"{prefix}table"))
    if store is None:
        store = Store(engine, throughput, table_name=TABLE_NAME, random=Random(f"{prefix}store"), observer=observer)
    return World(
        engine=engine,
        seed=seed,
        table=throughput,
        store=store,
        redis=RedisServer(engine, nodes=redis_nodes, random=Random(f"{prefix}redis"), on_report=on_report),
        settings=settings,
        parts=parts or Parts(),
        skew_ms=skew_ms,
    )


class SharedTelemetry:
    """`Telemetry` that only counts."""

    def __init__(self, world: World) -> None:
        self._counters, self._observer = world.counters, world.store.observer

    def count(self, metric: str, value: float = 1.0) -> None:
        """Implement `Telemetry.count`."""
        self._counters[metric] += value  # type: ignore[assignment]  # floats add up as well
        if metric == MetricName.WRITES_REFUSED_EVERYWHERE:
            self._observer.waited()

    def event(self, message: str, **facts: object) -> None:
        """Implement `Telemetry.event`."""

    def flush(self) -> None:
        """Implement `Telemetry.flush`."""


def build_writer(world: World, process: Process, index: int) -> MessageWriter:
    """Build one environment of the write function."""
    settings = world.settings.writer
    random = world.random(f"writer-{index}")
    clock = world.clock(random)
    telemetry = SharedTelemetry(world)
    calls = ThreadedCalls(world.store.client("writer").call)
    connection = world.connect(settings.registry_command_timeout_ms)
    writer = world.parts.writer(
        routes=world.parts.routes(
            cache=_build_cache(settings, random.random),
            registry=RedisRegistry(connection, TABLE_NAME),
            telemetry=telemetry,
            timer=world.timer,
            journal=DynamoDBJournal(calls, TABLE.journal),
        ),
        sampler=LoadSampler(
            environment_id=f"{index:032x}",
            sampling_distance_wcu=settings.sampling_distance_wcu,
            random=random.random,
        ),
        reports=RedisReportSink(
            connection,
            TABLE_NAME,
            partitions=settings.stream_partitions,
            background=BackgroundThread(executor=SimulatedExecutor(world.engine, process, 1)),
            now_ms=clock.now_ms,
        ),
        telemetry=telemetry,
        clock=clock,
        budget_ms=settings.request_budget_ms,
        form=TABLE.keys,
    )
    store = world.parts.store(calls, TABLE, world.parts.message.from_item)
    return MessageWriter(writer, store, now_ms=clock.now_ms, random_bits=random.getrandbits)


def build_counter_writer(world: World, process: Process, index: int) -> CounterWriter:
    """Build one environment of the write function, for its counters."""
    calls = ThreadedCalls(world.store.client("writer").call)
    adder = world.parts.adder(
        build_writer(world, process, index).writer,
        DynamoDBCounterStore(calls, COUNTERS),
        journal=DynamoDBJournal(calls, COUNTERS.journal),
        form=COUNTERS.keys,
        clock=world.clock(world.random(f"adder-{index}")),
        budget_ms=world.settings.writer.request_budget_ms,
    )
    return CounterWriter(adder, TABLE_NAME)


def build_counter_reader(world: World, process: Process, index: int) -> CounterReader:
    """Build one environment of the read function, for its counters."""
    settings = world.settings.reader
    summer = world.parts.summer(
        DynamoDBItemStore(open_reader_calls(world, process, None), COUNTERS, decode_cell),
        build_reader(world, process, index).gatherer.routes,
        has_journal=True,
        is_alone=True,
        form=COUNTERS.keys,
        telemetry=SharedTelemetry(world),
        clock=world.clock(world.random(f"summer-{index}")),
        budget_ms=settings.request_budget_ms,
    )
    return CounterReader(summer)


def build_changer(world: World, process: Process, index: int) -> MessageChanger:
    """Build one environment of the write function, for its edits and deletions."""
    messages = build_writer(world, process, index)
    clock = world.clock(world.random(f"changer-{index}"))
    telemetry = SharedTelemetry(world)
    gatherer = world.parts.gatherer(
        store=messages.store,
        registry=None,
        routes=messages.writer.routes,
        background=BackgroundThread(executor=SimulatedExecutor(world.engine, process, 1)),
        telemetry=telemetry,
        clock=clock,
        budget_ms=world.settings.writer.request_budget_ms,
        form=TABLE.keys,
        position_of=position_of,
    )
    return world.parts.changer(
        messages, gatherer, telemetry=telemetry, clock=clock, budget_ms=world.settings.writer.request_budget_ms
    )


def build_reader(world: World, process: Process, index: int) -> MessageReader:
    """Build one environment of the read function."""
    settings = world.settings.reader
    random = world.random(f"reader-{index}")
    clock = world.clock(random)
    telemetry = SharedTelemetry(world)
    engine = world.engine
    policy = HedgePolicy(quantile=settings.hedge_quantile) if settings.hedge_quantile else None
    calls = open_reader_calls(world, process, policy)
    connection = world.connect(settings.registry_command_timeout_ms)
    routes = world.parts.routes(
        cache=_build_cache(settings, random.random),
        registry=RedisRegistry(connection, TABLE_NAME),
        telemetry=telemetry,
        timer=world.timer,
    )
    background = BackgroundThread(executor=SimulatedExecutor(engine, process, 1))
    counting = ReadCounting(
        sampler=ReadSampler(
            environment_id=f"{index:032x}",
            sampling_distance_rcu=settings.read_sampling_distance_rcu,
            random=world.random(f"read-counter-{index}").random,
        ),
        reports=RedisReportSink(
            connection,
            TABLE_NAME,
            partitions=settings.stream_partitions,
            background=background,
            now_ms=clock.now_ms,
        ),
        telemetry=telemetry,
        now_ms=clock.now_ms,
    )
    gatherer = world.parts.gatherer(
        store=world.parts.store(calls, TABLE, world.parts.message.from_item),
        registry=RedisRegistry(connection, TABLE_NAME),
        routes=routes,
        background=background,
        telemetry=telemetry,
        clock=clock,
        budget_ms=settings.request_budget_ms,
        form=TABLE.keys,
        position_of=position_of,
        counting=counting,
    )
    cache = world.parts.page_cache(
        store=RedisPageStore(connection, TABLE_NAME, telemetry),
        codec=_RememberingCodec(),
        limits=build_page_limits(settings),
        telemetry=telemetry,
        clock=clock,
        timer=world.timer,
        environment_id=f"{index:032x}",
        max_entries=settings.page_l1_entries,
        max_bytes=settings.page_l1_bytes,
    )
    newest = NewestPages(
        gatherer, routes=routes, cache=cache, limits=CACHED_LIMITS, counting=counting, now_ms=clock.now_ms
    )
    return MessageReader(gatherer, now_ms=clock.now_ms, settle_ms=settings.settle_seconds * 1000, newest=newest)


class _RememberingCodec(MessagePageCodec):
    """The product's codec, which decodes a text once for all environments: a thousand of them get the same one."""

    def decode(self, text: str) -> Page[Message]:
        """Implement `PageCodec.decode`."""
        return _decode_page(text)


@lru_cache(maxsize=8)
def _decode_page(text: str) -> Page[Message]:
    return MessagePageCodec().decode(text)


def open_reader_calls(world: World, process: Process, policy: HedgePolicy | None) -> ThreadedCalls:
    """Open what a read function sends its rounds of queries with; its threads are tasks of the engine."""
    parallel = world.settings.reader.fan_out_threads
    return ThreadedCalls(
        world.store.client(READER).call,
        SimulatedExecutor(world.engine, process, parallel + HEDGE_CONNECTIONS),
        parallel=parallel,
        policy=policy,
        timer=world.timer,
        wait=partial(wait_for, world.engine),
    )


def build_consumer(world: World, process: Process, index: int) -> Consumer:
    """Build one environment of the stream consumer."""
    settings = world.settings.consumer
    _, command_timeout_ms = PATIENT_TIMEOUTS_MS
    connection = world.connect(command_timeout_ms, process)
    calls = ThreadedCalls(world.store.client("consumer", process).call)
    return world.parts.consumer(
        source=RedisReportSource(connection, TABLE_NAME),
        journal=DynamoDBJournal(calls, TABLE.journal),
        routing_items=DynamoDBRoutingItems(calls, TABLE.journal),
        registry=RedisRegistry(connection, TABLE_NAME),
        telemetry=SharedTelemetry(world),
        clock=world.clock(world.random(f"consumer-{index}")),
        thresholds=build_thresholds(settings),
        read_thresholds=build_read_thresholds(settings),
        stream_partitions=settings.stream_partitions,
        form=TABLE.keys,
    )


def build_raiser(world: World, process: Process, index: int, place: JournalPlace) -> Raiser:
    """Build one environment that raises by hand, as operators do."""
    _, command_timeout_ms = PATIENT_TIMEOUTS_MS
    return Raiser(
        journal=DynamoDBJournal(ThreadedCalls(world.store.client("operator", process).call), place),
        registry=RedisRegistry(world.connect(command_timeout_ms, process), TABLE_NAME),
        telemetry=SharedTelemetry(world),
        clock=world.clock(world.random(f"raiser-{index}")),
    )


def _build_cache(settings: WriterSettings | ReaderSettings, random: Callable[[], float]) -> RouteCache:
    return RouteCache(ttl_seconds=settings.route_cache_seconds, max_entries=settings.route_cache_entries, random=random)


class SimulatedTable(ShardedTable):
    """A `ShardedTable` whose threads are tasks of one process of the engine."""

    simulated: Executor

    def _open_executor(self, threads: int) -> Executor:
        """Run the queries of a page at the same time, on the virtual clock."""
        del threads
        return self.simulated


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedShards:
    """What a `ShardedTable` takes as its shards in one environment: `adaptive()` on the simulated Redis."""

    world: World
    process: Process
    process_id: str
    table_name: str
    place: JournalPlace
    journal: JournalReading
    timeout_ms: int
    stream_partitions: int
    route_cache_seconds: float
    routes: type[AdaptiveRoutes] = AdaptiveRoutes

    def build_routes(self, table: Any, schema: Schema, clock: Clock, budget_ms: float) -> AdaptiveRoutes:
        """Build the routes, as `Adaptive.build_routes` does."""
        del table
        world, connection = self.world, self.world.connect(self.timeout_ms)

        def background() -> BackgroundThread:
            return BackgroundThread(executor=SimulatedExecutor(world.engine, self.process, 1))

        return self.routes(
            registry=RedisRegistry(connection, self.table_name),
            reports=RedisReportSink(
                connection,
                self.table_name,
                partitions=self.stream_partitions,
                background=background(),
                now_ms=clock.now_ms,
                pause=lambda: clock.sleep(REPORTS_PAUSE_SECONDS),
            ),
            journal=self.journal,
            place=self.place,
            background=background(),
            telemetry=SharedTelemetry(world),
            clock=clock,
            schema=schema,
            choices=3,
            limits=Limits(
                route_cache_seconds=self.route_cache_seconds,
                route_cache_entries=100,
                sampling_distance_wcu=5.0,
                budget_ms=budget_ms,
            ),
            timer=world.timer,
            process_id=self.process_id,
        )
