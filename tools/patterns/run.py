"""One run: a pattern, a workload and a seed, ten minutes of writes on a virtual clock, and reads at their end.

Every write and read is a call of a `ShardedTable`, each in an environment that serves one call at a time. Where shards
are adaptive, the product's own consumer raises them. Only DynamoDB and Redis are models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from random import Random
from typing import Any, NamedTuple

from boto3.dynamodb.conditions import Attr, ConditionBase, Key
from botocore.exceptions import ClientError

from hotpartition.core.route import Generation
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.dynamodb.threads import ThreadedCalls
from hotpartition.table import TimeBuckets, at_random, by_attribute, by_sort_key, fixed
from hotpartition.table.indexes import time_of_text
from hotpartition.table.routes import Shards
from hotpartition.table.sharding import Hashing
from tools.patterns.model import (
    DEVICES,
    TEN_MINUTES,
    WRITES_PER_SECOND,
    Buckets,
    Course,
    Hashed,
    Pattern,
    Workload,
)
from tools.patterns.table import COARSE_SECONDS, INDEX, INDEX_KEY, Client, Counts, Lump, Server
from tools.simulation.engine import EPOCH_MS, Engine, Process, SimulatedExecutor
from tools.simulation.scenarios import STEP, TABLE_NAME
from tools.simulation.store import Observer
from tools.simulation.wiring import (
    TABLE,
    InBandShards,
    SimulatedShards,
    SimulatedTable,
    World,
    build_consumer,
)

BUDGET_MS = 300.0
PATIENT_MS = 10_000.0
"""How long a reader tries again: what it waits for is part of what the read takes."""
LUMPS_PER_SECOND = 50
"""Puts that stand for a whole second's in the middle of a run."""
LEARNT_SECONDS = 2.0
"""After a raise every writer has the route: the TTL of a cached one."""
NEWEST_ITEMS = 50
READS = {"range": 15, "targeted": 40, "newest": 80}
"""How many reads of each kind are sampled."""
RANGE_SECONDS = 1.0
SETTLED_SECONDS = 1.5
"""How far before now a range ends: what was refused and repeated, and what an index lags by, lies behind it."""


class ReadKind(NamedTuple):
    """What one kind of read took, read by read."""

    queries: list[int]
    rcu: list[float]
    seconds: list[float]
    items: list[int]


class Raised(NamedTuple):
    """A generation that was added."""

    at_seconds: float
    shard_count: int
    reason: str


@dataclass(slots=True)
class Sample:
    """What one run counted. Shares of attempts are of the close-ups, writes are of all ten minutes."""

    offered: float = 0.0
    failed: float = 0.0
    counts: Counts = field(default_factory=Counts)
    index_refusals_after_raise: float = 0.0
    failed_after_raise: float = 0.0
    write_seconds: list[float] = field(default_factory=list)
    wcu_per_write: float = 0.0
    final_shard_count: int = 0
    failed_share_at_end: float = 0.0
    raises: list[Raised] = field(default_factory=list)
    reads: dict[str, ReadKind] = field(default_factory=dict)


class Raises(Observer):
    """Notes what the consumer raises."""

    def __init__(self, engine: Engine) -> None:
        self.seen: list[Raised] = []
        self._engine = engine

    def raised(self, conversation_id: str, generations: Sequence[Generation], reason: str) -> None:
        """Implement `Observer.raised`."""
        del conversation_id
        self.seen += [Raised(round(self._engine.now, 3), each.shard_count, reason) for each in generations]


def simulate(pattern: Pattern, workload: Workload, seed: int, course: Course = TEN_MINUTES) -> Sample:
    """Run one pattern; the seed decides all that is left to chance."""
    run = _Run(pattern, workload, seed, course)
    with closing(run.engine):
        return run.play()


class _Run:
    """The parts of one run."""

    def __init__(self, pattern: Pattern, workload: Workload, seed: int, course: Course) -> None:
        self.pattern, self.workload, self.course = pattern, workload, course
        self.sample = Sample()
        engine = self.engine = Engine()
        self.raises = Raises(engine)
        self.world = World(engine, seed, STEP, observer=self.raises, seeds="patterns/")
        self.server = Server(self.world, pattern, seed)
        self.journal = DynamoDBJournal(ThreadedCalls(self.world.store.client("table").call), TABLE.journal)
        self.base = f"SENSOR_READING-{seed}"
        self.random = Random(f"patterns/{seed}")
        self.numbers = count()
        shift = timedelta(seconds=3_600 - course.edge)
        self.buckets = TimeBuckets("hour", INDEX, lambda sort_value: time_of_text(sort_value) + shift)
        self.idle: list[SimulatedTable] = []
        """Writing environments that wait for a call: each makes one at a time."""

    def _open(self, name: str, client: Client, budget_ms: float = BUDGET_MS) -> SimulatedTable:
        process, random = Process(), self.world.random(name)
        pattern = self.pattern
        table: Any = client
        index, place = next(self.numbers), JournalPlace(TABLE_NAME, "pk", sort_key="")
        shards: Shards
        if pattern.shards:
            shards = fixed(pattern.shards)
        elif pattern.is_in_band:
            calls = ThreadedCalls(self.world.store.client("in band").call)
            shards = InBandShards(world=self.world, index=index, place=place, journal=TABLE.journal, calls=calls)
        else:
            # One key alone: adaptive shards that no consumer raises.
            shards = SimulatedShards(world=self.world, process=process, index=index, place=place, journal=self.journal)
        opened = SimulatedTable(
            table,
            shards=shards,
            hashed=_hashing(pattern, random),
            position=_position if pattern.shards is None else None,
            indexes=[self.buckets] if pattern.buckets is Buckets.SHARDED else [],
            append_only=True,
            clock=self.world.clock(random),
            budget_ms=budget_ms,
        )
        opened.simulated = SimulatedExecutor(self.engine, process, client.meta.config.max_pool_connections)
        return opened

    def play(self) -> Sample:
        """Play the run."""
        course, engine, sample = self.course, self.engine, self.sample
        with_consumer = self.pattern.shards is None and not self.pattern.is_in_band
        consumer = self._start_consumer() if with_consumer else None
        self._write_until(course.close_up)
        engine.run_until(course.close_up)
        offered = failed = 0.0
        if course.reads:
            if consumer is not None:
                engine.kill(consumer)
            self._play_middle()
            if with_consumer:
                self._start_consumer()
            self.server.keeps_items = True
            offered, failed = sample.offered, sample.failed
            self._write_until(course.whole)
            self._plan_reads()
            engine.run_until(course.whole + 2.0)
        sample.failed_share_at_end = (sample.failed - failed) / max(1.0, sample.offered - offered)
        sample.counts = self.server.counts
        sample.raises = self.raises.seen
        sample.final_shard_count = max([each.shard_count for each in sample.raises] or [self.pattern.shards or 0])
        sample.wcu_per_write = self.server.wcu_per_write
        refusals = self.server.counts.index_refusals
        sample.index_refusals_after_raise = sum(units for at, units in refusals if at >= self._learnt_at)
        return sample

    def _note_failed(self, writes: float) -> None:
        self.sample.failed += writes
        self.sample.failed_after_raise += writes * (self.engine.now >= self._learnt_at)

    @property
    def _learnt_at(self) -> float:
        """From when on every writer has the raised route; with a fixed N, from the beginning."""
        if self.raises.seen:
            return self.raises.seen[0].at_seconds + LEARNT_SECONDS
        return 0.0 if self.pattern.shards else float("inf")

    def _start_consumer(self) -> Process:
        process = Process()
        consumer = build_consumer(self.world, process, next(self.numbers))
        self.engine.spawn(lambda: consumer.run(self.course.whole * 1000), process)
        return process

    # Writes.

    def _write_until(self, end: float) -> None:
        """Plan a Poisson process of puts from now on."""

        def arrive() -> None:
            if self.engine.now >= end:
                return
            self.engine.after(self.random.expovariate(WRITES_PER_SECOND), arrive)
            self.sample.offered += 1
            self._spawn_put(self._new_item())

        self.engine.after(self.random.expovariate(WRITES_PER_SECOND), arrive)

    def _new_item(self) -> dict[str, Any]:
        """Build an event: device 0 has its share of them, the others are alike."""
        random = self.random
        device = 0 if random.random() < self.workload.share else random.randrange(1, DEVICES)
        sort_key = f"{_time_text(self.engine.now)}#{next(self.numbers):08}"
        item = {"PK": self.base, "SK": sort_key, "device": f"dev-{device}"}
        if self.pattern.buckets is Buckets.PLAIN:
            item[INDEX_KEY] = self._bucket_key(sort_key)
        return item

    def _bucket_key(self, sort_key: str) -> str:
        return f"{self.base}#{self.buckets.bucket_of(sort_key)}"

    def _spawn_put(self, item: dict[str, Any]) -> None:
        began, idle = self.engine.now, self.idle
        if idle:
            place = self.random.randrange(len(idle))
            idle[place], idle[-1] = idle[-1], idle[place]
        writer = idle.pop() if idle else self._open(f"writer-{next(self.numbers)}", Client(self.server))

        def put() -> None:
            try:
                writer.put_item(Item=item)
            except ClientError:
                self._note_failed(1.0)
            else:
                if item["SK"] not in self.server.lumps:
                    self.sample.write_seconds.append(self.engine.now - began)
            finally:
                idle.append(writer)

        self.engine.spawn(put)

    def _play_middle(self) -> None:
        """Play what lies between the close-ups, a hundredth of its puts, each of which stands for all hundred."""
        lumps, course = self.server.lumps, self.course
        units = WRITES_PER_SECOND * COARSE_SECONDS / LUMPS_PER_SECOND
        self.engine.run_until(course.close_up + COARSE_SECONDS)
        while self.engine.now < course.whole - course.close_up:
            for _ in range(LUMPS_PER_SECOND):
                item = self._new_item()
                lumps[item["SK"]] = Lump(units, self.pattern.choices if self.raises.seen else 1)
                self._spawn_put(item)
            self.engine.run_until(self.engine.now + COARSE_SECONDS)
            self.sample.offered += units * LUMPS_PER_SECOND
            self._note_failed(sum(lump.left for lump in lumps.values()))
            lumps.clear()

    # Reads.

    def _plan_reads(self) -> None:
        begin, seconds = self.course.whole - self.course.reads, self.course.reads - 1.0
        for name, queries in (
            ("range", self._range),
            ("targeted", self._targeted),
            ("newest", self._newest),
        ):
            client = Client(self.server)
            work = partial(
                self._read_often, name, client, self._open(f"reader-{name}", client, PATIENT_MS), queries, seconds
            )
            self.engine.at(begin, partial(self.engine.spawn, work))

    def _read_often(
        self, name: str, client: Client, table: SimulatedTable, build: Callable[[], dict[str, Any]], seconds: float
    ) -> None:
        """Read one kind again and again, with pauses, by one reader."""
        kind = self.sample.reads[name] = ReadKind([], [], [], [])
        for _ in range(READS[name]):
            began, queries, rcu = self.engine.now, client.queries, client.rcu
            request = build()
            pages = [table.query(**request)] if "Limit" in request else table.query_pages(**request)
            items = sum(len(page["Items"]) for page in pages)
            kind.queries.append(client.queries - queries)
            kind.rcu.append(client.rcu - rcu)
            kind.seconds.append(self.engine.now - began)
            kind.items.append(items)
            pause = seconds / READS[name] - (self.engine.now - began)
            self.engine.sleep(max(0.0, pause))

    def _range(self) -> dict[str, Any]:
        """Every event of one second."""
        end = self.engine.now - SETTLED_SECONDS
        return self._between(end - RANGE_SECONDS, end)

    def _targeted(self) -> dict[str, Any]:
        """The events of device 0 in one second; what is of others is filtered out after it was read and paid."""
        return {**self._range(), "FilterExpression": Attr("device").eq("dev-0")}

    def _newest(self) -> dict[str, Any]:
        newest = {"ScanIndexForward": False, "Limit": NEWEST_ITEMS}
        if self.pattern.buckets is Buckets.NONE:
            return {"KeyConditionExpression": Key("PK").eq(self.base), **newest}
        return {**self._between(self.engine.now - self.course.reads, self.engine.now), **newest}

    def _between(self, first: float, last: float) -> dict[str, Any]:
        """Build a query of a range of time: of the table, or of the index."""
        bounds = _time_text(first), _time_text(last)
        condition: ConditionBase = Key("PK").eq(self.base) & Key("SK").between(*bounds)
        if self.pattern.buckets is Buckets.NONE:
            return {"KeyConditionExpression": condition}
        if self.pattern.buckets is Buckets.PLAIN:
            condition = Key(INDEX_KEY).eq(self._bucket_key(bounds[0])) & Key("SK").between(*bounds)
        return {"IndexName": INDEX, "KeyConditionExpression": condition}


def _hashing(pattern: Pattern, random: Random) -> Hashing:
    match pattern.hashed:
        case Hashed.AT_RANDOM:
            return at_random(lambda: f"{random.getrandbits(64):016x}")
        case Hashed.BY_SORT_KEY:
            return by_sort_key()
        case Hashed.BY_ATTRIBUTE:
            return by_attribute("device")


def _time_text(seconds: float) -> str:
    """Write an instant of the run as sort keys begin."""
    return datetime.fromtimestamp(EPOCH_MS / 1000 + seconds, UTC).isoformat(timespec="milliseconds")


def _position(sort_value: Any) -> int:
    """Tell the time in a sort key, Unix ms."""
    return round(time_of_text(sort_value).timestamp() * 1000)
