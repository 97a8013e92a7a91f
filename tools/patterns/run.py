"""One run: a pattern, a workload and a seed, ten minutes of writes on a virtual clock, and reads at their end."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import islice
from math import inf
from random import Random
from typing import NamedTuple

from hotpartition.core.backoff import BASE_DELAY_MS, MAX_DELAY_MS
from hotpartition.core.capacity import read_units
from hotpartition.core.keys import KeyForm
from hotpartition.core.merge import KeyQuery, PageMerge, PageRange, QueryResponse
from hotpartition.core.reports import WriteReport
from hotpartition.core.route import EMPTY_ROUTE, Route, choose_shards
from hotpartition_messages.message_ids import first_message_id_at, message_time_ms, mint_message_id
from tools.partition_model import (
    READ_PROFILE,
    REFUSAL_PROFILE,
    WRITE_PROFILE,
    IndexConfig,
    Kind,
    Latency,
    OnDemand,
    Partitions,
    Resource,
    Table,
    TableConfig,
)
from tools.patterns.model import (
    DEVICES,
    INDEX_BACKLOG_SECONDS,
    INDEX_LAG_SECONDS,
    ITEM_BYTES,
    TABLE_PARTITIONS,
    TEN_MINUTES,
    TRANSFER_SECONDS_PER_MB,
    WRITES_PER_SECOND,
    Buckets,
    Course,
    Hashed,
    Pattern,
    Workload,
)
from tools.patterns.routing import ENVIRONMENTS, AdaptiveRouting, FixedRouting, Place, Raised, Routing
from tools.simulation.engine import Engine

EPOCH_MS = 1_800_000_000_000
INDEX = "by-time"
BUDGET_SECONDS = 0.3
PAGE_BYTES = 1_000_000
NEWEST_ITEMS = 50
READS = {"range": 100, "targeted": 100, "newest": 300}
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

    @classmethod
    def empty(cls) -> ReadKind:
        """Start with no reads."""
        return cls([], [], [], [])


@dataclass(slots=True)
class Sample:
    """What one run counted. Shares of attempts are of the close-ups, writes are of all ten minutes."""

    offered: float = 0.0
    failed: float = 0.0
    attempts: int = 0
    refused: int = 0
    refused_by_index: int = 0
    index_refusals_after_raise: float = 0.0
    write_seconds: list[float] = field(default_factory=list)
    lag_seconds: list[float] = field(default_factory=list)
    wcu_per_write: float = 0.0
    final_shard_count: int = 0
    failed_share_by_window: dict[str, float] = field(default_factory=dict)
    raises: list[Raised] = field(default_factory=list)
    reads: dict[str, ReadKind] = field(default_factory=dict)


class Event(NamedTuple):
    """What is stored of one event."""

    sort_key: str
    device: int
    visible_at: float

    @property
    def rank(self) -> str:
        """What orders copies; there are none."""
        return self.sort_key

    def has_same_content(self, other: Event) -> bool:
        """Compare copies."""
        return self == other


@dataclass(slots=True)
class _Merge(PageMerge[str, Event]):
    """The product's merge, over keys that are known beforehand."""

    keys: tuple[str, ...] = ()

    def _needed(self, route: Route, edge: str | None) -> tuple[str, ...]:
        del route, edge
        return self.keys


@dataclass(slots=True, eq=False)
class Write:
    """One event on its way, with the client's patience."""

    created_at: float
    device: int
    sort_key: str
    environment: int
    rounds: int = 0
    report: WriteReport | None = None


@lru_cache(maxsize=200_000)
def _shards_of(hashed: str, shard_count: int, choices: int) -> tuple[int, ...]:
    return choose_shards(hashed, shard_count, choices=choices)


def simulate(pattern: Pattern, workload: Workload, seed: int, course: Course = TEN_MINUTES) -> Sample:
    """Run one pattern; the seed decides all that is left to chance."""
    run = _Run(pattern, workload, seed, course)
    try:
        return run.play()
    finally:
        run.engine.close()


class _Run:
    """The parts of one run."""

    def __init__(self, pattern: Pattern, workload: Workload, seed: int, course: Course) -> None:
        self.pattern, self.workload = pattern, workload
        self.sample = Sample()
        self.engine = Engine()
        self.course = course
        self.base = f"SENSOR_READING#{seed}"
        random = Random(f"patterns/{seed}")
        warm = OnDemand(warm_wcu=1_000.0 * TABLE_PARTITIONS)
        partitions = Partitions(count=TABLE_PARTITIONS)
        indexes = (
            {} if pattern.buckets is Buckets.NONE else {INDEX: IndexConfig(throughput=warm, partitions=partitions)}
        )
        self.table = Table(
            TableConfig(throughput=warm, partitions=partitions, indexes=indexes), Random(f"patterns/{seed}/table")
        )
        self.index: Resource | None = self.table.indexes.get(INDEX)
        self.routing: Routing = (
            AdaptiveRouting(self.engine, self.base, Random(f"patterns/{seed}/fleet"), EPOCH_MS)
            if pattern.shards is None
            else FixedRouting(pattern.shards)
        )
        self.random = random
        self.write_latency = Latency(WRITE_PROFILE, random)
        self.read_latency = Latency(READ_PROFILE, random)
        self.refusal_latency = Latency(REFUSAL_PROFILE, random)
        self.stored: dict[str, list[Event]] = {}
        self.indexed: dict[str, list[Event]] = {}
        self.stored_count = 0.0
        self.keeps_items = False

    def play(self) -> Sample:
        """Play the run."""
        engine, sample = self.engine, self.sample
        engine.after(self.random.expovariate(WRITES_PER_SECOND), self._arrive)
        engine.run_until(self.course.close_up)
        self._note_window("beginning", 0.0, 0.0)
        if self.course.reads:
            self._play_middle()
            offered, failed = sample.offered, sample.failed
            self.keeps_items = True
            engine.after(self.random.expovariate(WRITES_PER_SECOND), self._arrive)
            self._plan_reads()
            engine.run_until(self.course.whole + 2.0)
            self._note_window("end", offered, failed)
        sample.raises = list(self.routing.raises)
        sample.final_shard_count = self.routing.route.max_shard_count
        resources = [self.table, *self.table.indexes.values()]
        sample.wcu_per_write = sum(each.consumed(Kind.WRITE) for each in resources) / max(1.0, self.stored_count)
        return sample

    def _note_window(self, name: str, offered_before: float, failed_before: float) -> None:
        offered = self.sample.offered - offered_before
        self.sample.failed_share_by_window[name] = (self.sample.failed - failed_before) / max(1.0, offered)

    # Writes, one by one.

    def _arrive(self) -> None:
        engine, random = self.engine, self.random
        now = engine.now
        if now >= (self.course.whole if self.keeps_items else self.course.close_up):
            return
        engine.after(random.expovariate(WRITES_PER_SECOND), self._arrive)
        self.sample.offered += 1
        sort_key = mint_message_id(EPOCH_MS + int(now * 1000), random.getrandbits)
        write = Write(now, self._draw_device(), sort_key, random.randrange(ENVIRONMENTS))
        self._begin(write)

    def _draw_device(self) -> int:
        """Device 0 has its share of the events; the others are alike."""
        if self.random.random() < self.workload.share:
            return 0
        return self.random.randrange(1, DEVICES)

    def _begin(self, write: Write) -> None:
        """Begin a round of attempts, with the route as it is known now."""
        now_ms = self._now_ms()
        route = self.routing.known_to(write.environment, now_ms)
        places = self._places(route, write.device, write.sort_key, now_ms)
        places = self.routing.order(write.environment, places, now_ms)
        if not write.rounds:
            write.report = self.routing.count(write.environment, now_ms, places[0].shard_count)
        write.rounds += 1
        self._try(write, places, 0)

    def _places(self, route: Route, device: int, sort_key: str, now_ms: int) -> Sequence[Place]:
        shard_count = route.shard_count_at(now_ms)
        bucket = self._bucket_key(now_ms)
        if not shard_count:
            return (Place(self.base, 0, bucket),)
        return [
            Place(f"{self.base}#_{shard}", shard_count, self._index_key(bucket, shard))
            for shard in self._choose(device, sort_key, shard_count)
        ]

    def _choose(self, device: int, sort_key: str, shard_count: int) -> tuple[int, ...]:
        match self.pattern.hashed:
            case Hashed.AT_RANDOM:
                return (self.random.randrange(shard_count),)
            case Hashed.BY_SORT_KEY:
                return choose_shards(sort_key, shard_count, choices=self.pattern.choices)
            case Hashed.BY_ATTRIBUTE:
                return _shards_of(f"dev-{device}", shard_count, self.pattern.choices)

    def _bucket_key(self, now_ms: int) -> str | None:
        if self.index is None:
            return None
        is_next_hour = now_ms - EPOCH_MS >= self.course.edge * 1000
        return f"{self.base}#2026-11-21T{'10' if is_next_hour else '09'}"

    def _index_key(self, bucket: str | None, shard: int) -> str | None:
        return f"{bucket}#_{shard}" if bucket and self.pattern.buckets is Buckets.SHARDED else bucket

    def _try(self, write: Write, places: Sequence[Place], number: int) -> None:
        place = places[number]
        now = self.engine.now
        self.sample.attempts += 1
        if self._is_refused(place, now):
            self.sample.refused += 1
            self.routing.note_refusal(write.environment, place.partition_key, self._now_ms())
            is_last = number + 1 == len(places)
            then = partial(self._wait, write) if is_last else partial(self._try, write, places, number + 1)
            self.engine.after(self.refusal_latency.draw(), then)
            return
        done_at = now + self.write_latency.draw()
        self.sample.write_seconds.append(done_at - write.created_at)
        self.stored_count += 1
        self._store(place, write, now)

    def _is_refused(self, place: Place, now: float) -> bool:
        """Ask the index first, which refuses once it has fallen behind, and then the table's partition."""
        if self.index is not None and place.index_key is not None:
            buckets = self.index.buckets(Kind.WRITE, place.index_key, now)
            if max(bucket.spent for bucket in buckets) - now > INDEX_BACKLOG_SECONDS:
                self.sample.refused_by_index += 1
                self._note_index_refusals(1.0, now)
                return True
        return self.table.write(place.partition_key, 1.0, now) is not None

    def _note_index_refusals(self, count: float, now: float) -> None:
        """Count refusals of the index from the moment on when every writer has the raised route."""
        raises = self.routing.raises
        learnt_by = raises[0].at_seconds + 2.0 if raises else 0.0 if self.pattern.shards else inf
        if now >= learnt_by:
            self.sample.index_refusals_after_raise += count

    def _store(self, place: Place, write: Write, now: float) -> None:
        if self.index is not None and place.index_key is not None:
            self.index.charge(Kind.WRITE, place.index_key, 1.0, now)
            behind = max(b.spent - now for b in self.index.buckets(Kind.WRITE, place.index_key, now))
            lag = max(0.0, behind) + self.random.expovariate(1 / INDEX_LAG_SECONDS)
            self.sample.lag_seconds.append(lag)
            if self.keeps_items:
                insort(self.indexed.setdefault(place.index_key, []), Event(write.sort_key, write.device, now + lag))
        if self.keeps_items:
            insort(self.stored.setdefault(place.partition_key, []), Event(write.sort_key, write.device, now))

    def _wait(self, write: Write) -> None:
        """Wait before the next round, or give up."""
        self.routing.refused_everywhere(write.environment, self._now_ms(), write.report)
        ceiling_ms = min(MAX_DELAY_MS, BASE_DELAY_MS * 2 ** (write.rounds - 1))
        delay = self.random.random() * ceiling_ms / 1000
        if self.engine.now + delay >= write.created_at + BUDGET_SECONDS:
            self.sample.failed += 1
            return
        self.engine.after(delay, partial(self._begin, write))

    def _now_ms(self) -> int:
        return EPOCH_MS + int(self.engine.now * 1000)

    # Writes, second by second.

    def _play_middle(self) -> None:
        """Play what lies between the close-ups, each second's demand at once."""
        now = self.course.close_up
        while now < self.course.whole - self.course.close_up:
            now += 1.0
            self.engine.run_until(now)
            now_ms = self._now_ms()
            for places, units in self._demands(now_ms):
                left = units
                for place in places:
                    left -= self._take(place, left, now)
                    if left <= 0:
                        break
                self.sample.offered += units
                self.sample.failed += left
                self.stored_count += units - left

    def _take(self, place: Place, units: float, now: float) -> float:
        if self.index is not None and place.index_key is not None:
            admitted = self.index.write_many(place.index_key, units, now, 1.0).units
            if admitted < units:
                self._note_index_refusals(units - admitted, now)
            units = admitted
        return self.table.write_many(place.partition_key, units, now, 1.0).units

    def _demands(self, now_ms: int) -> Iterator[tuple[Sequence[Place], float]]:
        """List a second's writes by where they may go. What a shard refuses of many small hashes goes to all others."""
        route = self.routing.route
        shard_count = route.shard_count_at(now_ms)
        if not shard_count:
            yield self._places(route, 0, "", now_ms), WRITES_PER_SECOND
            return
        bucket = self._bucket_key(now_ms)
        share = self.workload.share
        rates: defaultdict[tuple[int, ...], float] = defaultdict(float)
        if self.pattern.hashed is Hashed.BY_ATTRIBUTE:
            rates[self._choose(0, "", shard_count)] += share * WRITES_PER_SECOND
            each = (1 - share) * WRITES_PER_SECOND / (DEVICES - 1)
            for device in range(1, DEVICES):
                rates[self._choose(device, "", shard_count)] += each
        else:
            spill = self.pattern.choices > 1
            for shard in range(shard_count):
                others = tuple((shard + step) % shard_count for step in range(1, self.pattern.choices)) if spill else ()
                rates[(shard, *others)] += WRITES_PER_SECOND / shard_count
        for shards, rate in rates.items():
            yield (
                [Place(f"{self.base}#_{s}", shard_count, self._index_key(bucket, s)) for s in shards],
                rate,
            )

    # Reads.

    def _plan_reads(self) -> None:
        begin = self.course.whole - self.course.reads
        for name, read in (
            ("range", self._read_range),
            ("targeted", self._read_targeted),
            ("newest", self._read_newest),
        ):
            self.sample.reads[name] = ReadKind.empty()
            step = (self.course.reads - 1.0) / READS[name]
            for number in range(READS[name]):
                self.engine.at(begin + (number + self.random.random()) * step, partial(self._start, read))

    def _start(self, read: Callable[[], None]) -> None:
        self.engine.spawn(read)

    def _read_range(self) -> None:
        """Read every event of one second, from all keys that hold some, as the source's readers do."""
        self._read_whole("range", self._keys(), lambda _: True)

    def _read_targeted(self) -> None:
        """Read the events of device 0 in one second; what is of others is filtered out after it was read and paid."""
        keys = self._keys()
        if self.pattern.hashed is Hashed.BY_ATTRIBUTE:
            shard_count = self.routing.route.shard_count_at(self._now_ms())
            keys = [self.base, *(f"{self.base}#_{s}" for s in self._choose(0, "", shard_count))]
        self._read_whole("targeted", keys, lambda event: event.device == 0)

    def _read_whole(self, name: str, keys: Sequence[str], matches: Callable[[Event], bool]) -> None:
        started = self.engine.now
        end = EPOCH_MS + int((started - SETTLED_SECONDS) * 1000)
        first, last = first_message_id_at(end - int(RANGE_SECONDS * 1000)), first_message_id_at(end)
        counts = []
        items = 0
        for key in keys:
            events = self._events(key)
            found = events[bisect_left(events, (first,)) : bisect_left(events, (last,))]
            counts.append(len(found))
            items += sum(matches(event) for event in found)
        page = PAGE_BYTES // ITEM_BYTES
        queries, rcu = 0, 0.0
        while counts:
            asked = [(key, min(count, page)) for key, count in zip(keys, counts, strict=True)]
            queries += len(asked)
            rcu += self._round(asked)
            left = [(key, count - page) for key, count in zip(keys, counts, strict=True) if count >= page]
            keys, counts = [key for key, _ in left], [count for _, count in left]
        self._note(name, queries, rcu, started, items)

    def _read_newest(self) -> None:
        """Read the newest page by the product's merge: little of each key at first, and more where it lies."""
        started = self.engine.now
        merge = _Merge(
            PageRange(self.base, newest_first=True, limit=NEWEST_ITEMS),
            KeyForm(),
            message_time_ms,
            keys=tuple(self._keys()),
        )
        queries, rcu = 0, 0.0
        while asked := merge.next_queries(EMPTY_ROUTE):
            queries += len(asked)
            counts = []
            for query in asked:
                page = self._page_of(query, started)
                merge.add(query, QueryResponse(tuple(page), is_exhausted=len(page) < query.limit))
                counts.append((query.partition_key, len(page)))
            rcu += self._round(counts)
        self._note("newest", queries, rcu, started, len(merge.page().items))

    def _page_of(self, query: KeyQuery[str], now: float) -> Sequence[Event]:
        """List what a query for the newest of a key gets: what an index does not have yet is not seen."""
        after = query.after
        visible = (
            event
            for event in reversed(self._events(query.partition_key))
            if event.visible_at <= now and (after is None or event.sort_key < after)
        )
        return [event for event in islice(visible, query.limit) if query.first is None or event.sort_key >= query.first]

    def _keys(self) -> list[str]:
        """List the keys that can hold events of now: base key and shards, of the table or of the index's bucket."""
        now_ms = self._now_ms()
        count = self.routing.route.shard_count_at(now_ms)
        bucket = self._bucket_key(now_ms)
        base = bucket or self.base
        if self.pattern.buckets is Buckets.PLAIN:
            return [base]
        return [base, *(f"{base}#_{shard}" for shard in range(count))]

    def _events(self, key: str) -> list[Event]:
        return (self.stored if self.index is None else self.indexed).get(key, [])

    def _round(self, asked: Sequence[tuple[str, int]]) -> float:
        """Ask keys for so many items each, side by side; what is refused is asked again. Returns the RCU."""
        resource: Resource = self.table if self.index is None else self.index
        rcu, slowest, open_queries, tries = 0.0, 0.0, list(asked), 0
        while open_queries:
            again = []
            for key, count in open_queries:
                units = read_units(count * ITEM_BYTES, is_strong=False)
                if Resource.read(resource, key, units, self.engine.now) is not None:
                    again.append((key, count))
                    continue
                rcu += units
                transfer = count * ITEM_BYTES / 1e6 * TRANSFER_SECONDS_PER_MB
                slowest = max(slowest, self.read_latency.draw() + transfer)
            self.engine.sleep(slowest)
            open_queries = again
            if again:
                tries += 1
                self.engine.sleep(self.random.random() * min(MAX_DELAY_MS, BASE_DELAY_MS * 2**tries) / 1000)
        return rcu

    def _note(self, name: str, queries: int, rcu: float, started: float, items: int) -> None:
        kind = self.sample.reads[name]
        kind.queries.append(queries)
        kind.rcu.append(rcu)
        kind.seconds.append(self.engine.now - started)
        kind.items.append(items)
