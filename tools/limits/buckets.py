"""Token buckets and the partitions that own two of them each."""

from __future__ import annotations

import math
from dataclasses import InitVar, dataclass, field
from typing import Final

from tools.limits.ranges import SPAN
from tools.limits.throttles import Kind, Throttle

TOLERANCE_SECONDS: Final = 1e-6
"""How far a bucket may be overdrawn, so that sums of fractions do not refuse the last unit. At 1,000 units a second it
is a thousandth of a unit."""

WINDOW_SECONDS: Final = 1.0
"""What a partition and a table on demand save up. Burst capacity does not lift a partition's limit (re:Post, "How does
DynamoDB handle spiky workloads in short intervals")."""


@dataclass(slots=True, eq=False)
class Bucket:
    """A token bucket, kept as one moment: `spent`, up to which the capacity is used up.

    What is left at `now` is the capacity between `spent` and `now`, at most a second of it. Taking units moves
    `spent` on by `units * seconds_per_unit`; beyond `now` the bucket is in debt. This needs no refilling and is what
    the generic cell rate algorithm does. `units` counts what was taken in all.
    """

    rate: InitVar[float]
    throttle: Throttle
    spent: float = field(default=-math.inf, init=False)
    seconds_per_unit: float = field(init=False)
    units: float = field(default=0.0, init=False)

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
        self.units += units

    def is_empty(self, now: float) -> bool:
        """Nothing is left."""
        return self.spent >= now - TOLERANCE_SECONDS

    def is_full(self, now: float) -> bool:
        """As much as it can hold is there."""
        return self.spent <= now - WINDOW_SECONDS

    def room(self, now: float, seconds: float) -> float:
        """Return the units that an interval of `seconds` up to `now` can still take."""
        if not self.seconds_per_unit:  # no limit
            return math.inf
        return max(0.0, (now - self.level(now - seconds)) / self.seconds_per_unit)

    def take_over(self, units: float, now: float, seconds: float) -> None:
        """Take units that came in the course of `seconds` up to `now`."""
        self.spent = self.level(now - seconds) + units * self.seconds_per_unit
        self.units += units


@dataclass(slots=True, eq=False, repr=False)
class Partition:
    """One physical partition: the positions from `low` up to, and without, `high`.

    `share` is its part of all positions.
    """

    low: int
    high: int
    write: Bucket
    read: Bucket
    share: float = field(init=False)

    def __post_init__(self) -> None:
        self.share = (self.high - self.low) / SPAN

    def bucket(self, kind: Kind) -> Bucket:
        """Return the bucket of one kind of throughput."""
        return self.write if kind is Kind.WRITE else self.read
