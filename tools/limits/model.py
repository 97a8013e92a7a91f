"""A table or an index as far as throughput goes: its partitions and its own limits.

A request passes two buckets: the gate of the whole resource (the account's quota), and then the bucket of the partition
that holds the key. That is the order in which DynamoDB itself asks, at the request router first and at the storage node
then (M. Elhemali and others, "Amazon DynamoDB: A Scalable, Predictably
Performant, and Fully Managed NoSQL Database Service", USENIX ATC 2022, on global admission control).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from hashlib import blake2b
from typing import Final

from tools.limits.config import OnDemand, Partitions, TableConfig
from tools.limits.reasons import Kind, Limit, Throttle

SPAN: Final = 2**64
"""Number of positions; a key's position is a hash of 64 bits."""
TOLERANCE_SECONDS: Final = 1e-6
"""How far a bucket may be overdrawn, so that sums of fractions do not refuse the last unit. At 1,000 units a second it
is a thousandth of a unit."""
WINDOW_SECONDS: Final = 1.0
"""What a partition and a table on demand save up. Burst capacity does not lift a partition's limit (re:Post, "How does
DynamoDB handle spiky workloads in short intervals")."""


def position_of(key: str) -> int:
    """Return a key's position: the same on every machine, for ever.

    DynamoDB hashes the partition key as well ("Partitions and data distribution in DynamoDB"); its function is not
    published, so which keys meet on one partition is as likely here as there, but not the same.
    """
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "big")


@dataclass(slots=True, eq=False)
class Bucket:
    """A token bucket, kept as one moment: `spent`, up to which the capacity is used up.

    What is left at `now` is the capacity between `spent` and `now`, at most a second of it. Taking units moves
    `spent` on by `units * seconds_per_unit`; beyond `now` the bucket is in debt. This needs no refilling and is what
    the generic cell rate algorithm does.
    """

    rate: InitVar[float]
    throttle: Throttle
    spent: float = field(default=-math.inf, init=False)
    seconds_per_unit: float = field(init=False)

    def __post_init__(self, rate: float) -> None:
        self.seconds_per_unit = 1 / rate

    def level(self, now: float) -> float:
        """Return the moment up to which the capacity is used up, once what is too old to keep is forgotten."""
        return max(self.spent, now - WINDOW_SECONDS)

    def lacks(self, units: float, now: float) -> bool:
        """Say whether the bucket refuses; one that is full admits any request, and may then be in debt."""
        return self.level(now) + min(units * self.seconds_per_unit, WINDOW_SECONDS) > now + TOLERANCE_SECONDS

    def take(self, units: float, now: float) -> None:
        """Take units without asking; negative ones give back."""
        self.spent = self.level(now) + units * self.seconds_per_unit

    def take_over(self, units: float, now: float, seconds: float) -> float:
        """Take units that came in the course of `seconds` up to `now`, as far as there are any; return how many."""
        level = self.level(now - seconds)
        taken = min(units, max(0.0, (now - level) / self.seconds_per_unit)) if self.seconds_per_unit else units
        self.spent = level + taken * self.seconds_per_unit
        return taken


class Resource:
    """A table or index. Times are seconds of a clock that does not go back; start it near 0 (see `TOLERANCE_SECONDS`).

    `throttled` counts the requests that each reason refused.
    """

    def __init__(self, arn: str, throughput: OnDemand, partitions: Partitions, *, is_index: bool = False) -> None:
        self.arn = arn
        self.is_index = is_index
        self.throttled: Counter[str] = Counter()
        self._rates = {Kind.WRITE: partitions.write_limit_wcu, Kind.READ: partitions.read_limit_rcu}
        self._is_apart = partitions.is_key_apart
        quotas = {Kind.WRITE: throughput.quota_wcu, Kind.READ: throughput.quota_rcu}
        self._gates = {kind: Bucket(quotas[kind] or math.inf, self._throttle(kind, Limit.ACCOUNT)) for kind in Kind}
        self._places: dict[Kind, dict[str, Bucket]] = {kind: {} for kind in Kind}
        count = 0 if self._is_apart else partitions.count_for(throughput.warm_wcu, throughput.warm_rcu)
        self._partitions = [self._partition() for _ in range(count)]
        self._lows = [index * SPAN // count for index in range(count)]

    @property
    def partition_count(self) -> int:
        """Number of physical partitions; with keys that are partitions of their own, of those in use."""
        return len(self._places[Kind.WRITE]) if self._is_apart else len(self._partitions)

    def partition_index(self, key: str) -> int:
        """Return the index, in the order of positions, of the partition that holds a key; not for keys apart."""
        return bisect_right(self._lows, position_of(key)) - 1

    # Requests.

    def read(self, key: str, rcu: float, now: float) -> Throttle | None:
        """Take a read's units, or say what refused it: its cost is known once it was read, and may leave a debt."""
        throttle = self.refuses(Kind.READ, key, now)
        if throttle is None:
            self.charge(Kind.READ, key, rcu, now)
        return throttle

    def write(self, key: str, wcu: float, now: float) -> Throttle | None:
        """Take a write's units, or say what refused them. Indexes are the table's business."""
        refusal = admit([Demand(self, Kind.WRITE, key, wcu)], now)
        return None if refusal is None else refusal.throttle

    def refuses(self, kind: Kind, key: str, now: float) -> Throttle | None:
        """Say what refuses a request of yet unknown cost: something does when nothing is left.

        Charge the cost afterwards; it may leave a debt.
        """
        for bucket in self.buckets(kind, key):
            if bucket.spent >= now - TOLERANCE_SECONDS:
                return self.note_refusal(bucket)
        return None

    def charge(self, kind: Kind, key: str, units: float, now: float) -> None:
        """Take units without asking; negative ones give back."""
        for bucket in self.buckets(kind, key):
            bucket.take(units, now)

    def write_evenly(self, wcu: float, now: float, seconds: float) -> float:
        """Take as much as goes of `wcu` units that fall on all positions alike in the course of `seconds` up to `now`.

        For the other traffic of a table with very many keys, whose refusals do not count. Not for tables whose keys are
        kept apart. Against single writes within the interval it comes last.
        """
        if self._is_apart:
            raise ValueError("keys that are partitions of their own have no share of the positions")
        share = self._gates[Kind.WRITE].take_over(wcu, now, seconds) / len(self._partitions)
        return sum(partition[Kind.WRITE].take_over(share, now, seconds) for partition in self._partitions)

    # For requests that touch several resources.

    def buckets(self, kind: Kind, key: str) -> tuple[Bucket, Bucket]:
        """Return the buckets that a request passes, in the order in which they are asked."""
        return self._gates[kind], self._places[kind].get(key) or self._locate(kind, key)

    def note_refusal(self, bucket: Bucket) -> Throttle:
        """Count a refusal."""
        self.throttled[bucket.throttle.reason] += 1
        return bucket.throttle

    def _throttle(self, kind: Kind, limit: Limit) -> Throttle:
        return Throttle(f"{'Index' if self.is_index else 'Table'}{kind}{limit}", self.arn)

    # Partitions.

    def _partition(self) -> dict[Kind, Bucket]:
        return {kind: Bucket(rate, self._throttle(kind, Limit.KEY_RANGE)) for kind, rate in self._rates.items()}

    def _locate(self, kind: Kind, key: str) -> Bucket:
        partition = self._partition() if self._is_apart else self._partitions[self.partition_index(key)]
        for each, bucket in partition.items():
            self._places[each][key] = bucket
        return partition[kind]


class Table(Resource):
    """A table: throughput of its own. See the package for what it models."""

    def __init__(self, config: TableConfig) -> None:
        super().__init__(config.arn, config.throughput, config.partitions)
        self.config = config


@dataclass(frozen=True, slots=True)
class Demand:
    """Units that one request asks of one partition key of a table or index."""

    resource: Resource
    kind: Kind
    key: str
    units: float


@dataclass(frozen=True, slots=True)
class Refusal:
    """Which of several demands was refused, and why."""

    demand: Demand
    throttle: Throttle


def admit(demands: Sequence[Demand], now: float) -> Refusal | None:
    """Take all that is demanded, or nothing, and then say what refused.

    Several demands on one partition are one demand of their sum. `now` is in seconds.
    """
    wanted: dict[Bucket, tuple[float, Demand]] = {}
    for demand in demands:
        for bucket in demand.resource.buckets(demand.kind, demand.key):
            units, first = wanted.get(bucket, (0.0, demand))
            wanted[bucket] = (units + demand.units, first)
    for bucket, (units, demand) in wanted.items():
        if bucket.lacks(units, now):
            return Refusal(demand, demand.resource.note_refusal(bucket))
    for bucket, (units, _) in wanted.items():
        bucket.take(units, now)
    return None
