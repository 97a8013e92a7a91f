"""A stage for whole detections on the simulator's engine: a fleet writes, consumers run, entries arrive on their way.

The counter, the route cache, the report codec and the consumer are the real ones. Each consumer is a process of the
engine, which can be paused or killed wherever it waits, also in the middle of a call to the journal or the registry.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar, NamedTuple

from hotpartition.control.consumer import Consumer, RunSummary
from hotpartition.control.ends import ControlEnds
from hotpartition.core.backoff import Clock
from hotpartition.core.ports import JournalEntry, StreamEntry
from hotpartition.core.reports import ReadReport, WriteReport, stream_partition_of
from hotpartition.core.route import MAX_CHOICES, Generation, Route
from hotpartition.core.route_history import Cause
from hotpartition.core.sampler import LoadSampler, ReadSampler
from hotpartition.engine.route_cache import RouteCache, RouteSource
from hotpartition_messages.keys import KEY_FORM
from support.builders import READ_THRESHOLDS, THRESHOLDS
from support.fakes import FakeJournal, FakeRegistry, FakeReports, FakeRoutingItems, FakeTable, FakeTelemetry
from support.fleet import START_MS, Arrival
from tools.limits import OnDemand, Partitions, Table, TableConfig
from tools.world.clock import Engine, Process

STREAM_PARTITIONS = 4
JOURNAL_CALL_MS = 6
REGISTRY_CALL_MS = 2
CACHE_SECONDS = 2.0
DISTANCE_WCU, DISTANCE_RCU = 10.0, 100.0
KEYS_APART = TableConfig(throughput=OnDemand(quota_wcu=None), partitions=Partitions(is_key_apart=True))
ONSET_MS = 3_137
"""When the heat of a trace begins, in ms since the trace began: not at a slot's edge."""


@dataclass(frozen=True)
class Shift:
    """When a consumer is there, in ms since the trace began: until it is killed, or else to the trace's end.

    In a pause it does not get to run, although its calls may have been sent.
    """

    start_ms: int = 0
    kill_ms: int | None = None
    pause_ms: tuple[int, int] | None = None


@dataclass
class Actor:
    """A consumer on the stage."""

    telemetry: StageTelemetry
    process: Process = field(default_factory=Process)
    summary: RunSummary = field(default_factory=lambda: RunSummary(ended="killed"))


class Stage:
    """The world between a fleet and its consumers. The engine's clock counts milliseconds of Unix time."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.now_ms = START_MS
        self.table = FakeTable()
        self.journal = StageJournal(self)
        self.registry = StageRegistry(self)
        self.reports = StageReports(STREAM_PARTITIONS)
        self.fleet: Fleet | None = None
        self.arrivals: list[tuple[int, int, WriteReport | ReadReport | str]] = []
        self.recording: list[tuple[int, str]] = []
        """When each stream entry arrived, and its text."""
        self._sequence = 0

    def play(self, duration_ms: int, shifts: Iterable[Shift] = (Shift(),)) -> list[Actor]:
        """Play a trace with these consumers, and a second more for what they began."""
        actors = [self._start_consumer(shift, duration_ms) for shift in shifts]
        try:
            self.engine.run_until(START_MS + duration_ms + 1_000)
        finally:
            self.engine.close()
        return actors

    def _start_consumer(self, shift: Shift, duration_ms: int) -> Actor:
        actor, engine = Actor(StageTelemetry(self)), self.engine
        if shift.kill_ms is not None:
            engine.at(START_MS + shift.kill_ms, lambda: engine.kill(actor.process))
        if shift.pause_ms is not None:
            engine.at(START_MS + shift.pause_ms[0], lambda: engine.freeze(actor.process))
            engine.at(START_MS + shift.pause_ms[1], lambda: engine.thaw(actor.process))

        def run() -> None:
            self._advance()
            actor.summary = self._consumer(actor.telemetry).run(duration_ms - shift.start_ms)

        def start() -> None:
            if actor.process.is_alive:
                engine.spawn(run, actor.process)

        engine.at(START_MS + shift.start_ms, start)
        return actor

    def _consumer(self, telemetry: StageTelemetry) -> Consumer:
        ends = ControlEnds(
            source=self.reports,
            journal=self.journal,
            routing_items=FakeRoutingItems(self.table),
            registry=self.registry,
            telemetry=telemetry,
            clock=Clock(now_ms=lambda: self.now_ms, sleep=self.sleep, random=lambda: 0.5),
            elapsed=lambda: self.now_ms / 1000,
            form=KEY_FORM,
        )
        return Consumer(
            ends,
            thresholds=THRESHOLDS,
            read_thresholds=READ_THRESHOLDS,
            stream_partitions=STREAM_PARTITIONS,
            max_raises_per_hour=1_000,
        )

    def routes(self) -> dict[str, Route]:
        """The routes as the journal holds them."""
        return {c: entry.route for c, entry in sorted(self.table.routes.items())}

    def sleep(self, seconds: float) -> None:
        """Let the consumer that runs wait; what was written meanwhile has arrived then."""
        self.engine.sleep(max(round(seconds * 1000), 1))
        self._advance()

    @contextmanager
    def taking(self, call_ms: int) -> Iterator[None]:
        """Make a call: half of its time before the effect, half after it."""
        self.sleep(call_ms / 2_000)
        yield
        self.sleep(call_ms / 2_000)

    def expect(self, at_ms: int, report: WriteReport | ReadReport | str) -> None:
        """Have an entry arrive in its stream at an instant."""
        self._sequence += 1
        heapq.heappush(self.arrivals, (at_ms, self._sequence, report))

    def _advance(self) -> None:
        to_ms = round(self.engine.now)
        if self.fleet:
            for arrival in self.fleet.advance(to_ms):
                self.expect(arrival.at_ms, arrival.report)
        while self.arrivals and self.arrivals[0][0] <= to_ms:
            at_ms, _, report = heapq.heappop(self.arrivals)
            text = report if isinstance(report, str) else report.encode()
            kind = ReadReport if ReadReport.is_one(text) else WriteReport
            partition = stream_partition_of(kind.decode(text).collection, STREAM_PARTITIONS)
            self.reports.append(partition, text, at_ms)
            self.recording.append((at_ms, text))
        self.now_ms = max(self.now_ms, to_ms)


class StageJournal(FakeJournal):
    """The journal with the time its calls take."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.table)
        self._stage = stage

    def get(self, collection: str, *, is_strong: bool) -> JournalEntry:
        with self._stage.taking(JOURNAL_CALL_MS):
            return super().get(collection, is_strong=is_strong)

    def add(
        self, collection: str, generations: Iterable[Generation], *, cause: Cause, now_ms: int, pause_ms: int = 0
    ) -> JournalEntry:
        with self._stage.taking(JOURNAL_CALL_MS):
            return super().add(collection, generations, cause=cause, now_ms=now_ms, pause_ms=pause_ms)


class StageRegistry(FakeRegistry):
    """Redis's sets, with the time a write of the consumer takes."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self._stage = stage
        self.whole = True
        self.marks: list[tuple[int, str, int]] = []

    def add(self, collection: str, generations: Iterable[Generation]) -> None:
        with self._stage.taking(REGISTRY_CALL_MS):
            super().add(collection, generations)

    def mark_read_hot(self, collection: str, copies: int) -> None:
        with self._stage.taking(REGISTRY_CALL_MS):
            super().mark_read_hot(collection, copies)
            self.marks.append((self._stage.now_ms, collection, copies))


class StageReports(FakeReports):
    """The streams, read by bisection: a stage sees hundreds of thousands of entries."""

    def __init__(self, partitions: int) -> None:
        super().__init__(partitions)
        self._ids: list[list[tuple[int, int]]] = [[] for _ in range(partitions)]

    def append(self, partition: int, text: str, at_ms: int) -> None:
        super().append(partition, text, at_ms)
        self._ids[partition].append((at_ms, self._sequence))

    def read(self, partition: int, after_id: str, limit: int) -> Sequence[StreamEntry]:
        self._check()
        milliseconds, sequence = after_id.split("-")
        first = bisect_right(self._ids[partition], (int(milliseconds), int(sequence)))
        return self.streams[partition][first : first + limit]


class StageTelemetry(FakeTelemetry):
    """Remembers events with the time they were logged at."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self._stage = stage
        self._times: list[int] = []

    def event(self, message: str, **facts: object) -> None:
        super().event(message, **facts)
        self._times.append(self._stage.now_ms)

    def timed(self, message: str) -> list[tuple[int, dict[str, object]]]:
        """List the events of one kind."""
        logged = zip(self._times, self.events, strict=True)
        return [(at_ms, facts) for at_ms, (said, facts) in logged if said == message]


@dataclass(frozen=True, kw_only=True)
class Load:
    """What is offered to one conversation: writes of 1 WCU, or pages.

    `rate` is how many a second, as a function of ms since the trace began; `age_ms` says how old a message is when it
    is offered, given the same offset.
    """

    rate: Callable[[int], float]
    about: str = ""
    age_ms: Callable[[Random, int], int] = lambda _random, _offset: 0


Deliver = Callable[[Random, WriteReport | ReadReport, int], list[Arrival]]


def deliver_soon(random: Random, report: WriteReport | ReadReport, now_ms: int) -> list[Arrival]:
    """One XADD of 5 to 35 ms."""
    return [Arrival(now_ms + 5 + random.randrange(30), report)]


def deliver_twice_and_in_disorder(random: Random, report: WriteReport | ReadReport, now_ms: int) -> list[Arrival]:
    """First within 5 to 125 ms, in any order; then up to twice more, up to 3 s later."""
    repeated = [Arrival(now_ms + 125 + random.randrange(3_000), report) for _ in range(random.randrange(3))]
    return [Arrival(now_ms + 5 + random.randrange(120), report), *repeated]


@dataclass(kw_only=True)
class Fleet:
    """Environments that share all conversations' requests at random, and make them one by one.

    `decision` is what a consumer calls its decisions about them.
    """

    decision: ClassVar = "decision"

    loads: Mapping[str, Load]
    registry: FakeRegistry
    seed: int = 1
    environments: int = 100
    deliver: Deliver = deliver_soon
    now_ms: int = START_MS
    offered: int = 0
    sent: int = 0

    def __post_init__(self) -> None:
        # One source of chance for each concern: what is delivered how must not change who asks for what.
        self._random, self._delivery = Random(self.seed), Random(f"{self.seed}-delivery")
        self._due = dict.fromkeys(self.loads, 0.0)

    def advance(self, to_ms: int) -> Iterable[Arrival]:
        """Make requests until an instant (excluded); return the reports on their way."""
        arrivals: list[Arrival] = []
        for now_ms in range(self.now_ms, to_ms):
            for collection, load in self.loads.items():
                due = self._due[collection] + load.rate(now_ms - START_MS) / 1000
                while due >= 1:
                    due -= 1
                    self.offered += 1
                    arrivals += self._request(collection, load, now_ms)
                self._due[collection] = due
        self.now_ms = max(self.now_ms, to_ms)
        return arrivals

    def _request(self, collection: str, load: Load, now_ms: int) -> list[Arrival]:
        raise NotImplementedError

    def _send(self, report: WriteReport | ReadReport, now_ms: int) -> list[Arrival]:
        arrivals = self.deliver(self._delivery, report, now_ms)
        self.sent += len(arrivals)
        return arrivals


@dataclass(kw_only=True)
class ReadingFleet(Fleet):
    """A fleet that reads pages, each through a real counter."""

    decision = "read decision"

    page_rcu: float = 8.5

    def __post_init__(self) -> None:
        super().__post_init__()
        self._counters = [
            ReadSampler(environment_id=f"e{i}", sampling_distance_rcu=DISTANCE_RCU, random=self._random.random)
            for i in range(self.environments)
        ]

    @property
    def sampling(self) -> str:
        return f"z = {DISTANCE_RCU:g} RCU, {self.page_rcu:g} RCU a page"

    def _request(self, collection: str, load: Load, now_ms: int) -> list[Arrival]:
        del load
        report = self._random.choice(self._counters).record(collection, self.page_rcu, now_ms)
        return [] if report is None else self._send(report, now_ms)


class Environment(NamedTuple):
    """One execution environment as far as detection goes."""

    index: int
    counter: LoadSampler
    routes: RouteSource


@dataclass(kw_only=True)
class WritingFleet(Fleet):
    """A fleet that writes, each message through a real counter, and follows the registry as writers do.

    A message's choices are drawn at random, which is what hashing its id does. A write that all of them refuse is
    reported as the writer reports it, and makes its environment ask Redis at once; it is offered once (clients do not
    repeat).
    """

    sampling: ClassVar = f"z = {DISTANCE_WCU:g} WCU"

    clock_offset_ms: Callable[[int, int], int] = lambda _environment, _offset: 0
    physical_key: Callable[[str, int | None], object] = lambda collection, index: (collection, index)
    throttled: int = 0
    last_throttle_ms: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._places = Random(f"{self.seed}-places")
        self._partitions = Table(KEYS_APART, self._places)
        self._environments = [self._environment(i) for i in range(self.environments)]

    def _environment(self, index: int) -> Environment:
        random = self._random.random
        counter = LoadSampler(environment_id=f"e{index}", sampling_distance_wcu=DISTANCE_WCU, random=random)
        cache = RouteCache(ttl_seconds=CACHE_SECONDS, max_entries=1_000, random=self._places.random)
        routes = RouteSource(cache=cache, registry=self.registry, telemetry=FakeTelemetry(), timer=lambda: 0.0)
        return Environment(index, counter, routes)

    def _request(self, collection: str, load: Load, now_ms: int) -> list[Arrival]:
        environment = self._random.choice(self._environments)
        offset = now_ms - START_MS
        local_ms = now_ms + self.clock_offset_ms(environment.index, offset)
        message_time_ms = local_ms - load.age_ms(self._random, offset)
        shard_count = environment.routes.get_route(collection, now_ms).shard_count_at(message_time_ms)
        crossing = environment.counter.record(collection, 1, local_ms)
        is_throttled = not self._take_capacity(collection, shard_count, now_ms)
        if is_throttled:
            self.throttled += 1
            self.last_throttle_ms = now_ms
            environment.routes.refresh_after_throttle(collection, now_ms)
        if crossing is None:
            return []
        report = WriteReport(
            collection, crossing.slot, crossing.source, crossing.value_wcu, message_time_ms, shard_count
        )
        arrivals = self._send(report, now_ms)
        return arrivals + self._send(report._replace(is_throttled=True), now_ms + 3) if is_throttled else arrivals

    def _take_capacity(self, collection: str, shard_count: int, now_ms: int) -> bool:
        """Try the message's choices, one after another."""
        if not shard_count:
            return self._take_of_key(collection, None, now_ms)
        untried = list(range(shard_count))
        return any(
            self._take_of_key(collection, untried.pop(self._places.randrange(len(untried))), now_ms)
            for _ in range(min(MAX_CHOICES, shard_count))
        )

    def _take_of_key(self, collection: str, index: int | None, now_ms: int) -> bool:
        key = str(self.physical_key(collection, index))
        return self._partitions.write(key, 1, (now_ms - START_MS) / 1000) is None


def in_seconds(milliseconds: int) -> str:
    """Write a time from onset."""
    return f"{milliseconds / 1000:+.3f}"
