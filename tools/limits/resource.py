"""A table or an index as far as throughput goes: its partitions and its own limits.

A request passes two buckets: the gate of the whole resource (the account's quota), and then the bucket of the partition
that holds the key. That is the order in which DynamoDB itself asks, at the request router first and at the storage node
then (M. Elhemali and others, "Amazon DynamoDB: A Scalable, Predictably
Performant, and Fully Managed NoSQL Database Service", USENIX ATC 2022, on global admission control).
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections import Counter
from typing import Final, NamedTuple

from tools.limits.buckets import Bucket, Partition
from tools.limits.config import OnDemand, Partitions
from tools.limits.ranges import even_bounds, position_of
from tools.limits.throttles import Kind, Limit, Throttle, build_throttle

_MAX_PLACES: Final = 2_000_000
_SWEEP_AT_LEAST: Final = 1024


class Admission(NamedTuple):
    """How many of the demanded units an interval took, and what refused the rest, if anything did."""

    units: float
    throttle: Throttle | None


class Resource:
    """A table or index. Times are seconds of a clock that does not go back; start it near 0 (see `TOLERANCE_SECONDS`).

    `throttled` counts the requests that each reason refused. An interval (`write_many`, `write_evenly`) that was not
    taken whole counts as one.
    """

    def __init__(
        self,
        arn: str,
        throughput: OnDemand,
        partitions: Partitions,
        *,
        is_index: bool = False,
    ) -> None:
        self.arn = arn
        self.is_index = is_index
        self.throttled: Counter[str] = Counter()
        self._throughput = throughput
        self._rules = partitions
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
        self._retired = {Kind.WRITE: 0.0, Kind.READ: 0.0}

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
            return self._pass(gate, bucket, wcu, now)
        gate.spent = gate_spent
        bucket.spent = spent
        bucket.units += wcu
        return None

    def refuses(self, kind: Kind, key: str, now: float) -> Throttle | None:
        """Say what refuses a request of yet unknown cost: something does when nothing is left.

        Charge the cost afterwards; it may leave a debt.
        """
        for bucket in self.buckets(kind, key, now):
            if bucket.is_empty(now):
                return self.note_refusal(bucket)
        return None

    def charge(self, kind: Kind, key: str, units: float, now: float) -> None:
        """Take units without asking; negative ones give back."""
        for bucket in self.buckets(kind, key, now):
            bucket.take(units, now)

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
        if taken >= wcu:
            return Admission(wcu, None)
        return Admission(taken, self.note_refusal(gate if rooms[0] <= rooms[1] else bucket))

    def write_evenly(self, wcu: float, now: float, seconds: float) -> Admission:
        """Take as much as goes of `wcu` units that fall on all positions alike in the course of `seconds` up to `now`.

        For the other traffic of a table with very many keys: each partition gets its share of the positions. Not for
        tables whose keys are kept apart.
        """
        if self._is_apart:
            raise ValueError("keys that are partitions of their own have no share of the positions")
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
            taken += part
        gate.take_over(taken, now, seconds)
        if refusing is None:
            return Admission(wcu, None)
        self.throttled[refusing.throttle.reason] += 1
        return Admission(taken, refusing.throttle)

    # For requests that touch several resources.

    def buckets(self, kind: Kind, key: str, now: float) -> tuple[Bucket, Bucket]:
        """Return the buckets that a request passes, in the order in which they are asked."""
        bucket = self._places(kind).get(key)
        if bucket is None:
            bucket = self._locate(key, now).bucket(kind)
        return self._gate_of(kind), bucket

    def note_refusal(self, bucket: Bucket) -> Throttle:
        """Count a refusal."""
        self.throttled[bucket.throttle.reason] += 1
        return bucket.throttle

    def _pass(self, gate: Bucket, bucket: Bucket, units: float, now: float) -> Throttle | None:
        for each in (gate, bucket):
            if each.lacks(units, now):
                return self.note_refusal(each)
        gate.take(units, now)
        bucket.take(units, now)
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
                for kind, bucket in ((Kind.WRITE, write), (Kind.READ, self._read_places[key])):
                    self._retired[kind] += bucket.units
                del self._write_places[key], self._read_places[key]
        self._sweep_at = max(_SWEEP_AT_LEAST, 2 * len(self._write_places))
