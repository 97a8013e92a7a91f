"""A model of DynamoDB's throughput: who is throttled, when, and why, for tables on demand.

It holds no items: it is asked whether a request of so many units for a partition key is admitted now. It is
deterministic, does no I/O, imports the standard library alone, and knows no time but what it is given. `README.md` says
what is modelled, on what evidence, and what is not. Every default is DynamoDB's, or says that it is an assumption.

    >>> from tools.limits import Resource
    >>> table = Resource()                                    # a fresh table on demand
    >>> responses = [table.write("room-1", 1, now=0.0) for _ in range(1001)]
    >>> responses.count(None)                                 # one partition takes 1,000 units a second
    1000
    >>> responses[-1].reason, responses[-1].resource
    ('TableWriteKeyRangeThroughputExceeded', 'arn:aws:dynamodb:eu-central-1:123456789012:table/table')
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from enum import StrEnum
from hashlib import blake2b
from types import MappingProxyType
from typing import Final

PARTITION_WCU: Final = 1000.0
PARTITION_RCU: Final = 3000.0
"""One partition's limits a second, in both capacity modes (Developer Guide, "Best practices for designing and using
partition keys")."""

FRESH_PARTITIONS: Final = 4
"""A new table on demand takes 4,000 WCU and 12,000 RCU a second (Developer Guide, "DynamoDB on-demand capacity mode",
initial throughput): four partitions' worth of either."""

# Why a request was refused, in DynamoDB's words: API Reference, "ThrottlingReason", and Developer Guide, "DynamoDB
# throttling resolution guide". A reason is made of what is throttled, the operation's kind and the limit; it comes with
# the table's or index's ARN, and never names the partition key.


class Kind(StrEnum):
    """The two kinds of throughput, which are limited independently."""

    READ = "Read"
    WRITE = "Write"


class Limit(StrEnum):
    """What can be exceeded."""

    PROVISIONED = "ProvisionedThroughputExceeded"
    """The units that a table or index in provisioned mode was given, its saved-up burst capacity included."""
    ACCOUNT = "AccountLimitExceeded"
    """The account's quota for one table or index on demand."""
    KEY_RANGE = "KeyRangeThroughputExceeded"
    """What one physical partition takes. Only this one is cured by more or other partition keys."""
    MAX_ON_DEMAND = "MaxOnDemandThroughputExceeded"
    """The maximum that the owner set for a table or index on demand."""


REASONS: Final = frozenset(
    f"{target}{kind}{limit}" for target in ("Table", "Index") for kind in Kind for limit in Limit
)
"""All sixteen."""


@dataclass(frozen=True, slots=True)
class Throttle:
    """A refusal: DynamoDB's reason, and the ARN of the table or index that it names."""

    reason: str
    resource: str


# Partitions.


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitions:
    """The physical partitions of a table or index, and what one takes a second.

    They are `count` hash ranges of equal width. None: each partition key is a partition of its own, which shows a key's
    own limit and hides what sharing a partition costs.
    """

    write_limit_wcu: float = PARTITION_WCU
    read_limit_rcu: float = PARTITION_RCU
    count: int | None = FRESH_PARTITIONS

    def __post_init__(self) -> None:
        for name in ("write_limit_wcu", "read_limit_rcu", "count"):
            if (value := getattr(self, name)) is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} should be a number greater than 0, not {value!r}")


FRESH: Final = Partitions()
"""Those of a new table."""
EXAMPLE: Final = "arn:aws:dynamodb:eu-central-1:123456789012:table/table"
SPAN: Final = 2**64
"""Number of positions; a key's position is a hash of 64 bits."""
TOLERANCE_SECONDS: Final = 1e-6
"""How far a bucket may be overdrawn, so that sums of fractions do not refuse the last unit. At 1,000 units a second it
is a thousandth of a unit."""
WINDOW_SECONDS: Final = 1.0
"""What a partition saves up. Burst capacity does not lift its limit (re:Post, "How does DynamoDB handle spiky workloads
in short intervals")."""


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
        taken = min(units, max(0.0, (now - level) / self.seconds_per_unit))
        self.spent = level + taken * self.seconds_per_unit
        return taken


class Resource:
    """A table or index. Times are seconds of a clock that never goes back; start near 0 (see `TOLERANCE_SECONDS`)."""

    def __init__(self, arn: str = EXAMPLE, partitions: Partitions = FRESH, *, is_index: bool = False) -> None:
        self.arn = arn
        self.is_index = is_index
        self._rates = {Kind.WRITE: partitions.write_limit_wcu, Kind.READ: partitions.read_limit_rcu}
        self._places: dict[str, dict[Kind, Bucket]] = {}
        count = partitions.count or 0
        self._partitions = [self._partition() for _ in range(count)]
        self._lows = [index * SPAN // count for index in range(count)]

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
        bucket = self.bucket(kind, key)
        return bucket.throttle if bucket.spent >= now - TOLERANCE_SECONDS else None

    def charge(self, kind: Kind, key: str, units: float, now: float) -> None:
        """Take units without asking; negative ones give back."""
        self.bucket(kind, key).take(units, now)

    def write_evenly(self, wcu: float, now: float, seconds: float) -> float:
        """Take as much as goes of `wcu` units that fall on all positions alike in the course of `seconds` up to `now`.

        For the other traffic of a table with very many keys, whose refusals do not count. Not for tables whose keys are
        kept apart. Against single writes within the interval it comes last.
        """
        if not self._partitions:
            raise ValueError("keys that are partitions of their own have no share of the positions")
        share = wcu / len(self._partitions)
        return sum(partition[Kind.WRITE].take_over(share, now, seconds) for partition in self._partitions)

    # Partitions.

    def bucket(self, kind: Kind, key: str) -> Bucket:
        """Return the bucket that a request passes."""
        partition = self._places.get(key)
        if partition is None:
            shared = self._partitions[self.partition_index(key)] if self._partitions else None
            partition = self._places[key] = shared or self._partition()
        return partition[kind]

    def _partition(self) -> dict[Kind, Bucket]:
        target = "Index" if self.is_index else "Table"
        throttles = {kind: Throttle(f"{target}{kind}{Limit.KEY_RANGE}", self.arn) for kind in Kind}
        return {kind: Bucket(rate, throttles[kind]) for kind, rate in self._rates.items()}


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
        bucket = demand.resource.bucket(demand.kind, demand.key)
        units, first = wanted.get(bucket, (0.0, demand))
        wanted[bucket] = (units + demand.units, first)
    for bucket, (units, demand) in wanted.items():
        if bucket.lacks(units, now):
            return Refusal(demand, bucket.throttle)
    for bucket, (units, _) in wanted.items():
        bucket.take(units, now)
    return None


# How long a request takes. AWS promises "consistent single-digit millisecond performance at any scale" and no
# percentiles: the profiles are assumptions of that order. Give your own measurements where they matter.

Profile = Mapping[float, float]
"""Milliseconds by percentile, 0 to 100; both ends are there, and latencies rise."""
WRITE_PROFILE: Final[Profile] = MappingProxyType({0: 2.0, 50: 4.5, 90: 7.0, 99: 14.0, 99.9: 35.0, 100: 200.0})
READ_PROFILE: Final[Profile] = MappingProxyType({0: 1.2, 50: 2.8, 90: 5.0, 99: 11.0, 99.9: 30.0, 100: 200.0})


class Latency:
    """Draws latencies of one profile, in seconds; between two percentiles the logarithm is interpolated."""

    def __init__(self, profile: Profile, source: random.Random) -> None:
        self._random = source
        self._ranks = [percentile / 100 for percentile in profile]
        self._logs = [math.log(milliseconds / 1000) for milliseconds in profile.values()]

    def draw(self) -> float:
        """Return one latency in seconds."""
        return self.at(self._random.random())

    def at(self, rank: float) -> float:
        """Return the latency in seconds that the share `rank` (0 to 1) of all requests stays within."""
        right = min(bisect_right(self._ranks, rank), len(self._ranks) - 1)
        left = right - 1
        share = (rank - self._ranks[left]) / (self._ranks[right] - self._ranks[left])
        return math.exp(self._logs[left] + share * (self._logs[right] - self._logs[left]))
