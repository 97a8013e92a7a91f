"""A table or an index as far as throughput goes: its partitions, its own limits, and how both change with traffic.

A request passes two buckets: the gate of the whole resource (the account's quota), and then the bucket of the partition
that holds the key. That is the order in which DynamoDB itself asks, at the request router first and at the storage node
then (M. Elhemali and others, "Amazon DynamoDB: A Scalable, Predictably
Performant, and Fully Managed NoSQL Database Service", USENIX ATC 2022, on global admission control).
"""

from __future__ import annotations

import itertools
import math
import random
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from tools.limits.buckets import Bucket, Partition
from tools.limits.config import HeatSplits, OnDemand, Partitions
from tools.limits.ranges import best_cut, even_bounds, position_of
from tools.limits.throttles import Kind, Limit, Throttle, build_throttle

CHECK_SECONDS: Final = 1.0
"""How often partitions are looked at for heat, and the traffic for a new peak."""

PEAK_SECONDS: Final = 60.0
"""A peak is the mean of one minute, as CloudWatch counts consumed capacity."""

_LOOK_EVERY_UNITS: Final = 20.0
"""Mean distance, in units, between two requests to a hot partition whose keys are noted."""

_MAX_PLACES: Final = 2_000_000
_SWEEP_AT_LEAST: Final = 1024
_SPREAD_POINTS: Final = 16


class Cause(StrEnum):
    """Why partitions were added."""

    HEAT = "heat"
    """A hot partition was cut in two."""
    GROWTH = "growth"
    """A table on demand saw a new peak."""


@dataclass(frozen=True, slots=True)
class Split:
    """An event: from `at` on (seconds) the resource had so many partitions."""

    at: float
    cause: Cause
    partitions: int


class Admission(NamedTuple):
    """How many of the demanded units an interval took, and what refused the rest, if anything did."""

    units: float
    throttle: Throttle | None


class Resource:
    """A table or index. Times are seconds of a clock that does not go back; start it near 0 (see `TOLERANCE_SECONDS`).

    `splits` is what happened to the partitions, `throttled` how many requests each reason refused. An interval
    (`write_many`, `write_evenly`) that was not taken whole counts as one.
    """

    def __init__(
        self,
        arn: str,
        throughput: OnDemand,
        partitions: Partitions,
        *,
        random: random.Random,
        heat: HeatSplits | None = None,
        is_index: bool = False,
    ) -> None:
        self.arn = arn
        self.is_index = is_index
        self.splits: list[Split] = []
        self.throttled: Counter[str] = Counter()
        self._throughput = throughput
        self._rules = partitions
        self._heat = heat
        self._random = random
        self._is_apart = partitions.is_key_apart
        self._write_gate = self._gate(Kind.WRITE)
        self._read_gate = self._gate(Kind.READ)
        self._write_places: dict[str, Bucket] = {}
        self._read_places: dict[str, Bucket] = {}
        self._sweep_at = _SWEEP_AT_LEAST
        self._partitions: list[Partition] = []
        self._lows: list[int] = []
        if not self._is_apart:
            bounds = even_bounds(partitions.count_for(throughput.warm_wcu, throughput.warm_rcu))
            self._replace([self._partition(low, high) for low, high in itertools.pairwise(bounds)])
        self._checked_at = self._minute_start = 0.0
        self._check_at = math.inf if self._is_apart else CHECK_SECONDS
        self._minute_base = {Kind.WRITE: 0.0, Kind.READ: 0.0}
        self._retired = {Kind.WRITE: 0.0, Kind.READ: 0.0}
        self._peaks = {Kind.WRITE: 0.0, Kind.READ: 0.0}
        self._due_growth: deque[tuple[float, Kind, float]] = deque()

    # What it is like now.

    @property
    def partition_count(self) -> int:
        """Number of physical partitions; with keys that are partitions of their own, of those in use."""
        return len(self._write_places) if self._is_apart else len(self._partitions)

    @property
    def shares(self) -> list[float]:
        """Which part of all positions each partition has, in their order."""
        return [partition.share for partition in self._partitions]

    def partition_index(self, key: str) -> int:
        """Return the index, in the order of positions, of the partition that holds a key; not for keys apart."""
        return bisect_right(self._lows, position_of(key)) - 1

    def consumed(self, kind: Kind) -> float:
        """Return the units taken since the start."""
        if self._is_apart:
            return self._retired[kind] + sum(bucket.units for bucket in self._places(kind).values())
        return self._retired[kind] + sum(partition.bucket(kind).units for partition in self._partitions)

    # Requests.

    def read(self, key: str, rcu: float, now: float) -> Throttle | None:
        """Take a read's units, or say what refused it: its cost is known once it was read, and may leave a debt."""
        throttle = self.refuses(Kind.READ, key, now)
        if throttle is None:
            self.charge(Kind.READ, key, rcu, now)
        return throttle

    def write(self, key: str, wcu: float, now: float) -> Throttle | None:
        """Take a write's units, or say what refused them. Indexes are the table's business."""
        if now >= self._check_at:
            self._check(now)
        bucket = self._write_places.get(key)
        if bucket is None:
            bucket = self._locate(key, now).write
        gate = self._write_gate
        # What `Bucket.lacks` and `Bucket.take` do, written out, and without calling `max`: most of a simulation's time
        # is spent here. The numbers are WINDOW_SECONDS and TOLERANCE_SECONDS.
        floor = now - 1.0
        gate_spent = gate.spent
        if gate_spent < floor:  # noqa: PLR1730
            gate_spent = floor
        gate_spent += wcu * gate.seconds_per_unit
        spent = bucket.spent
        if spent < floor:  # noqa: PLR1730
            spent = floor
        spent += wcu * bucket.seconds_per_unit
        floor = now + 1e-6
        if gate_spent > floor or spent > floor:
            return self._pass(gate, bucket, key, wcu, now)
        gate.spent = gate_spent
        bucket.spent = spent
        bucket.units = units = bucket.units + wcu
        if units >= bucket.watch_at:
            self._look(bucket, key)
        return None

    def refuses(self, kind: Kind, key: str, now: float) -> Throttle | None:
        """Say what refuses a request of yet unknown cost: something does when nothing is left.

        Charge the cost afterwards; it may leave a debt.
        """
        for bucket in self.buckets(kind, key, now):
            if bucket.is_empty(now):
                self.note_refusal(bucket, key, 0.0)
                return bucket.throttle
        return None

    def charge(self, kind: Kind, key: str, units: float, now: float) -> None:
        """Take units without asking; negative ones give back."""
        for bucket in self.buckets(kind, key, now):
            bucket.take(units, now)
            if bucket.units >= bucket.watch_at:
                self._look(bucket, key)

    def write_many(self, key: str, wcu: float, now: float, seconds: float) -> Admission:
        """Take as much as goes of `wcu` units to one key, demanded evenly in the course of `seconds` up to `now`.

        For traffic that is too much to be simulated write by write. It is exact for writes that are small against what
        a partition takes in the interval. Against single writes within the interval it comes last.
        """
        gate, bucket = self.buckets(Kind.WRITE, key, now)
        rooms = gate.room(now, seconds), bucket.room(now, seconds)
        taken = min(wcu, *rooms)
        gate.take_over(taken, now, seconds)
        bucket.take_over(taken, now, seconds)
        self.note_taken(bucket, key)
        if taken >= wcu:
            return Admission(wcu, None)
        return Admission(taken, self.note_refusal(gate if rooms[0] <= rooms[1] else bucket, key, wcu - taken))

    def write_evenly(self, wcu: float, now: float, seconds: float) -> Admission:
        """Take as much as goes of `wcu` units that fall on all positions alike in the course of `seconds` up to `now`.

        For the other traffic of a table with very many keys: each partition gets its share of the positions. Not for
        tables whose keys are kept apart.
        """
        if self._is_apart:
            raise ValueError("keys that are partitions of their own have no share of the positions")
        if now >= self._check_at:
            self._check(now)
        gate = self._write_gate
        wanted = min(wcu, gate.room(now, seconds))
        refusing = gate if wanted < wcu else None
        taken = 0.0
        for partition in self._partitions:
            bucket = partition.write
            share = wanted * partition.share
            part = min(share, bucket.room(now, seconds))
            if part < share:
                refusing = refusing or bucket
            bucket.take_over(part, now, seconds)
            if bucket.units >= bucket.watch_at:
                self._look_at_spread(bucket, partition)
            taken += part
        gate.take_over(taken, now, seconds)
        if refusing is None:
            return Admission(wcu, None)
        self.throttled[refusing.throttle.reason] += 1
        return Admission(taken, refusing.throttle)

    # For requests that touch several resources.

    def buckets(self, kind: Kind, key: str, now: float) -> tuple[Bucket, Bucket]:
        """Return the buckets that a request passes, in the order in which they are asked."""
        if now >= self._check_at:
            self._check(now)
        bucket = self._places(kind).get(key)
        if bucket is None:
            bucket = self._locate(key, now).bucket(kind)
        return self._gate_of(kind), bucket

    def note_refusal(self, bucket: Bucket, key: str, units: float) -> Throttle:
        """Count a refusal, and the demand behind it as heat of its partition."""
        self.throttled[bucket.throttle.reason] += 1
        if bucket.watch_at < math.inf and self._random.random() * _LOOK_EVERY_UNITS < units:
            self._saw(bucket, key, max(1.0, units / _LOOK_EVERY_UNITS))
        return bucket.throttle

    def note_taken(self, bucket: Bucket, key: str) -> None:
        """Look at the key of an admitted request, if it is time to."""
        if bucket.units >= bucket.watch_at:
            self._look(bucket, key)

    def _pass(self, gate: Bucket, bucket: Bucket, key: str, units: float, now: float) -> Throttle | None:
        for each in (gate, bucket):
            if each.lacks(units, now):
                return self.note_refusal(each, key, units)
        gate.take(units, now)
        bucket.take(units, now)
        self.note_taken(bucket, key)
        return None

    # Limits.

    def _gate_of(self, kind: Kind) -> Bucket:
        return self._write_gate if kind is Kind.WRITE else self._read_gate

    def _places(self, kind: Kind) -> dict[str, Bucket]:
        return self._write_places if kind is Kind.WRITE else self._read_places

    def _limit(self, kind: Kind) -> float:
        return self._rules.write_limit_wcu if kind is Kind.WRITE else self._rules.read_limit_rcu

    def _gate(self, kind: Kind) -> Bucket:
        quota = self._throughput.quota_wcu if kind is Kind.WRITE else self._throughput.quota_rcu
        return Bucket(quota or math.inf, self._throttle(kind, Limit.ACCOUNT))

    def _throttle(self, kind: Kind, limit: Limit) -> Throttle:
        return build_throttle(self.arn, is_index=self.is_index, kind=kind, limit=limit)

    # Partitions.

    def _partition(self, low: int, high: int) -> Partition:
        write = Bucket(self._rules.write_limit_wcu, self._throttle(Kind.WRITE, Limit.KEY_RANGE))
        read = Bucket(self._rules.read_limit_rcu, self._throttle(Kind.READ, Limit.KEY_RANGE))
        return Partition(low, high, write, read)

    def _replace(self, partitions: list[Partition]) -> None:
        self._partitions = partitions
        self._lows = [partition.low for partition in partitions]
        self._write_places.clear()
        self._read_places.clear()

    def _locate(self, key: str, now: float) -> Partition:
        position = position_of(key)
        if self._is_apart:
            if len(self._write_places) >= self._sweep_at:
                self._sweep(now)
            partition = self._partition(position, position + 1)
        else:
            if len(self._write_places) >= _MAX_PLACES:
                self._replace(self._partitions)
            partition = self._partitions[bisect_right(self._lows, position) - 1]
        self._write_places[key] = partition.write
        self._read_places[key] = partition.read
        return partition

    def _sweep(self, now: float) -> None:
        """Forget the keys whose buckets are full: a new one would be the same."""
        for key, write in list(self._write_places.items()):
            if write.is_full(now) and self._read_places[key].is_full(now):
                self._retire(write.partition)
                del self._write_places[key], self._read_places[key]
        self._sweep_at = max(_SWEEP_AT_LEAST, 2 * len(self._write_places))

    def _check(self, now: float) -> None:
        """Look at the traffic since the last time: for hot partitions, and for a new peak."""
        elapsed = now - self._checked_at
        heat = self._heat
        if heat is not None:
            due = [partition for partition in self._partitions if self._is_split_due(partition, heat, elapsed, now)]
            for partition in due:
                self._split(partition, now)
        self._follow_growth(now)
        self._checked_at = now
        self._check_at = now + CHECK_SECONDS

    # Split for heat.

    def _is_split_due(self, partition: Partition, heat: HeatSplits, elapsed: float, now: float) -> bool:
        if self._was_hot(partition, elapsed, heat.hot_share):
            if partition.hot_since == math.inf:
                partition.hot_since = self._checked_at
                self._watch(partition)
            if partition.split_at == math.inf and now - partition.hot_since >= heat.sustained_seconds:
                partition.split_at = now + heat.delay_seconds
        elif partition.hot_since < math.inf and partition.split_at == math.inf:
            partition.forget_heat()
        return now >= partition.split_at

    def _was_hot(self, partition: Partition, elapsed: float, hot_share: float) -> bool:
        hot = False
        for kind in Kind:
            bucket = partition.bucket(kind)
            used = bucket.units - bucket.units_at_check
            bucket.units_at_check = bucket.units
            hot = hot or used * bucket.seconds_per_unit >= hot_share * elapsed
        return hot

    def _watch(self, partition: Partition) -> None:
        for bucket in (partition.write, partition.read):
            bucket.watch_at = bucket.units + self._random.expovariate(1 / _LOOK_EVERY_UNITS)

    def _look(self, bucket: Bucket, key: str) -> None:
        """Note the key of the request that took `units` past `watch_at`, once for each look that fell due."""
        while bucket.watch_at <= bucket.units:
            self._saw(bucket, key, 1.0)
            bucket.watch_at += self._random.expovariate(1 / _LOOK_EVERY_UNITS)

    def _look_at_spread(self, bucket: Bucket, partition: Partition) -> None:
        """Note traffic that has no keys at evenly spaced positions."""
        width = partition.high - partition.low
        looks = 0.0
        while bucket.watch_at <= bucket.units:
            looks += 1.0
            bucket.watch_at += self._random.expovariate(1 / _LOOK_EVERY_UNITS)
        for point in range(_SPREAD_POINTS):
            position = partition.low + (2 * point + 1) * width // (2 * _SPREAD_POINTS)
            partition.seen[position] = partition.seen.get(position, 0.0) + looks / _SPREAD_POINTS

    def _saw(self, bucket: Bucket, key: str, weight: float) -> None:
        partition = bucket.partition
        position = position_of(key)
        partition.seen[position] = partition.seen.get(position, 0.0) + weight

    def _split(self, partition: Partition, now: float) -> None:
        """Cut a hot partition where its traffic is halved; one item collection alone on it stays whole."""
        cut = best_cut(partition.seen)
        if cut is None or self.partition_count >= self._rules.max_count:
            partition.forget_heat()
            return
        self._cut({partition: cut})
        self.splits.append(Split(now, Cause.HEAT, self.partition_count))

    def _cut(self, cuts: Mapping[Partition, int]) -> None:
        partitions: list[Partition] = []
        for partition in self._partitions:
            cut = cuts.get(partition)
            if cut is None:
                partitions.append(partition)
                continue
            for low, high in ((partition.low, cut), (cut, partition.high)):
                part = self._partition(low, high)
                part.write.spent, part.read.spent = partition.write.spent, partition.read.spent
                partitions.append(part)
            self._retire(partition)
        self._replace(partitions)

    def _retire(self, partition: Partition) -> None:
        for kind in Kind:
            self._retired[kind] += partition.bucket(kind).units

    # Growth of a table on demand.

    def _follow_growth(self, now: float) -> None:
        while self._due_growth and self._due_growth[0][0] <= now:
            _, kind, target = self._due_growth.popleft()
            self._grow(kind, target, now)
        minute = now - self._minute_start
        if minute < PEAK_SECONDS:
            return
        for kind in Kind:
            consumed = self.consumed(kind)
            # What was saved up before the minute is no sustained traffic.
            mean = min((consumed - self._minute_base[kind]) / minute, self._partition_capacity(kind))
            self._minute_base[kind] = consumed
            if mean > self._peaks[kind]:
                self._peaks[kind] = mean
                if 2 * mean > self._partition_capacity(kind):
                    self._due_growth.append((now + self._throughput.growth_delay_seconds, kind, 2 * mean))
        self._minute_start = now

    def _partition_capacity(self, kind: Kind) -> float:
        return self._limit(kind) / max(partition.share for partition in self._partitions)

    def _grow(self, kind: Kind, target: float, now: float) -> None:
        """Halve the widest ranges until evenly spread traffic of `target` units a second fits."""
        widest = self._limit(kind) / target
        before = self.partition_count
        while self.partition_count < self._rules.max_count:
            wide = [partition for partition in self._partitions if partition.share > widest * (1 + 1e-6)]
            if not wide:
                break
            self._cut({partition: (partition.low + partition.high) // 2 for partition in wide})
        if self.partition_count > before:
            self.splits.append(Split(now, Cause.GROWTH, self.partition_count))
