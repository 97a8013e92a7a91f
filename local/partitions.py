"""DynamoDB's limit on one partition: a token bucket for each physical partition key, and a record of what it saw.

Pure: the clock's reading comes in as an argument. Source of the limits: DynamoDB Developer Guide, "Best practices for
designing and using partition keys": 1,000 write units and 3,000 read units a second for one partition. Burst capacity
does not lift them, so a bucket saves up one second's worth and no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

DEFAULT_WRITE_LIMIT_WCU: Final = 1000.0
DEFAULT_READ_LIMIT_RCU: Final = 3000.0

SLOT_MS: Final = 250
"""Length of the timeline's slots."""

_SWEEP_AT_LEAST: Final = 1024
"""Fewer buckets than this are never searched for idle ones."""


class Kind(StrEnum):
    """The two kinds of throughput, which are limited independently."""

    READ = "Read"
    WRITE = "Write"


@dataclass(frozen=True, slots=True)
class PartitionKey:
    """One physical partition key: the ARN of its table or index, and the key's value."""

    resource: str
    value: str

    @property
    def is_index(self) -> bool:
        """The key belongs to a secondary index."""
        return "/index/" in self.resource


@dataclass(frozen=True, slots=True)
class Demand:
    """Capacity that one request asks of one partition key."""

    key: PartitionKey
    kind: Kind
    units: float


@dataclass(frozen=True, slots=True)
class Throttle:
    """A refusal, in DynamoDB's words."""

    key: PartitionKey
    kind: Kind

    @property
    def reason(self) -> str:
        """DynamoDB's name for what limited the request."""
        return f"{'Index' if self.key.is_index else 'Table'}{self.kind.value}KeyRangeThroughputExceeded"


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


@dataclass(slots=True)
class PartitionModel:
    """Admits and charges requests. Times are seconds of any clock that does not go back.

    Memory: one bucket for each key that was used in the last second or is in debt; full ones are dropped.
    """

    write_limit_wcu: float = DEFAULT_WRITE_LIMIT_WCU
    read_limit_rcu: float = DEFAULT_READ_LIMIT_RCU
    _buckets: dict[tuple[PartitionKey, Kind], _Bucket] = field(default_factory=dict)
    _sweep_at: int = _SWEEP_AT_LEAST

    def admit(self, demands: Iterable[Demand], now: float) -> Throttle | None:
        """Take what is demanded if every bucket has it; otherwise take nothing and say which one refused.

        A demand of more than one second's worth is admitted by a full bucket, which then is in debt.
        """
        wanted = list(demands)
        for demand in wanted:
            if self._tokens(demand.key, demand.kind, now) < min(demand.units, self._limit(demand.kind)):
                return Throttle(demand.key, demand.kind)
        for demand in wanted:
            self.charge(demand, now)
        return None

    def refuses(self, key: PartitionKey, kind: Kind, now: float) -> Throttle | None:
        """Say whether a request of yet unknown cost is refused: it is when nothing is left.

        Its cost is charged afterwards and may leave a debt.
        """
        return Throttle(key, kind) if self._tokens(key, kind, now) <= 0 else None

    def charge(self, demand: Demand, now: float) -> None:
        """Take capacity without asking; negative units give it back."""
        tokens = min(self._tokens(demand.key, demand.kind, now) - demand.units, self._limit(demand.kind))
        self._buckets[demand.key, demand.kind] = _Bucket(tokens, now)
        if len(self._buckets) > self._sweep_at:
            self._sweep(now)

    def _limit(self, kind: Kind) -> float:
        return self.write_limit_wcu if kind is Kind.WRITE else self.read_limit_rcu

    def _tokens(self, key: PartitionKey, kind: Kind, now: float) -> float:
        limit = self._limit(kind)
        bucket = self._buckets.get((key, kind))
        return limit if bucket is None else min(limit, bucket.tokens + (now - bucket.at) * limit)

    def _sweep(self, now: float) -> None:
        full = [name for name in self._buckets if self._tokens(*name, now) >= self._limit(name[1])]
        for name in full:
            del self._buckets[name]
        self._sweep_at = max(_SWEEP_AT_LEAST, 2 * len(self._buckets))


@dataclass(slots=True)
class TimelineRow:
    """What one physical partition key saw in one slot of `SLOT_MS`."""

    at_ms: int
    key: str
    writes: int = 0
    write_wcu: float = 0.0
    throttled_writes: int = 0
    throttled_wcu: float = 0.0
    reads: int = 0
    read_rcu: float = 0.0
    throttled_reads: int = 0


@dataclass(slots=True)
class Timeline:
    """The last `max_rows` rows (one for each slot and key that was used); the oldest slots are dropped first."""

    slot_ms: int = SLOT_MS
    max_rows: int = 200_000
    _slots: dict[int, dict[str, TimelineRow]] = field(default_factory=dict)
    _rows: int = 0

    def write(self, key: str, units: float, now_ms: int) -> None:
        """Record an admitted write."""
        row = self._row(key, now_ms)
        row.writes += 1
        row.write_wcu += units

    def throttled_write(self, key: str, units: float, now_ms: int) -> None:
        """Record a refused write and the units it asked for."""
        row = self._row(key, now_ms)
        row.throttled_writes += 1
        row.throttled_wcu += units

    def read(self, key: str, units: float, now_ms: int) -> None:
        """Record an admitted read."""
        row = self._row(key, now_ms)
        row.reads += 1
        row.read_rcu += units

    def throttled_read(self, key: str, now_ms: int) -> None:
        """Record a refused read."""
        self._row(key, now_ms).throttled_reads += 1

    def rows_since(self, since_ms: int) -> list[TimelineRow]:
        """List the rows of the slots that start at `since_ms` or later, oldest first."""
        return [row for at_ms in sorted(self._slots) if at_ms >= since_ms for row in self._slots[at_ms].values()]

    def _row(self, key: str, now_ms: int) -> TimelineRow:
        at_ms = now_ms // self.slot_ms * self.slot_ms
        rows = self._slots.setdefault(at_ms, {})
        row = rows.get(key)
        if row is None:
            row = rows[key] = TimelineRow(at_ms, key)
            self._rows += 1
            while self._rows > self.max_rows and len(self._slots) > 1:
                self._rows -= len(self._slots.pop(min(self._slots)))
        return row
