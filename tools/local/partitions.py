"""What the local run limits and what it keeps of it: the partition model of `tools.partition_model`, and a timeline.

The model is the simulator's. Here it is asked about keys of any table and index, by their ARNs, and it knows no limits
but the partitions': no quota, no maximum, no split. Each partition key is a partition of its own unless a number of
partitions is given.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

from tools.partition_model import PARTITION_RCU, PARTITION_WCU, Demand, Kind, OnDemand, Partitions, Resource

DEFAULT_WRITE_LIMIT_WCU: Final = PARTITION_WCU
DEFAULT_READ_LIMIT_RCU: Final = PARTITION_RCU

SLOT_MS: Final = 250
"""Length of the timeline's slots."""

_UNLIMITED: Final = OnDemand(quota_wcu=None, quota_rcu=None)


@dataclass(slots=True)
class PartitionModel:
    """The limits of all tables and indexes, by their ARNs.

    `partitions` None: each key is a partition of its own. A number: so many hash ranges in each table and index, which
    keys share; they stay as they are.
    """

    write_limit_wcu: float = DEFAULT_WRITE_LIMIT_WCU
    read_limit_rcu: float = DEFAULT_READ_LIMIT_RCU
    partitions: int | None = None
    _resources: dict[str, Resource] = field(default_factory=dict)

    def resource(self, arn: str, *, is_index: bool = False) -> Resource:
        """Return the limits of one table or index."""
        if arn not in self._resources:
            partitions = Partitions(
                write_limit_wcu=self.write_limit_wcu,
                read_limit_rcu=self.read_limit_rcu,
                count=self.partitions,
                max_count=self.partitions or 1,
                is_key_apart=self.partitions is None,
            )
            # Nothing splits, so nothing is ever drawn from the random source.
            chance = random.Random(0)
            self._resources[arn] = Resource(arn, _UNLIMITED, partitions, is_index=is_index, random=chance)
        return self._resources[arn]


@dataclass(slots=True)
class TimelineRow:
    """What one physical partition key of a table saw in one slot of `SLOT_MS`."""

    at_ms: int
    key: str
    writes: int = 0
    write_wcu: float = 0.0
    throttled_writes: int = 0
    throttled_wcu: float = 0.0
    reads: int = 0
    read_rcu: float = 0.0
    throttled_reads: int = 0
    table: str = ""


@dataclass(slots=True)
class Timeline:
    """The last `max_rows` rows (one for each slot and key that was used); the oldest slots are dropped first."""

    max_rows: int = 200_000
    _slots: dict[int, dict[tuple[Resource, str], TimelineRow]] = field(default_factory=dict)
    _rows: int = 0

    def note(self, demand: Demand, now_ms: int, *, is_refused: bool = False) -> None:
        """Record what was taken, or what was refused and how much it asked for."""
        row = self._row(demand.resource, demand.key, now_ms)
        match demand.kind, is_refused:
            case Kind.WRITE, False:
                row.writes += 1
                row.write_wcu += demand.units
            case Kind.WRITE, True:
                row.throttled_writes += 1
                row.throttled_wcu += demand.units
            case _, False:
                row.reads += 1
                row.read_rcu += demand.units
            case _:
                row.throttled_reads += 1

    def rows_since(self, since_ms: int) -> list[TimelineRow]:
        """List the rows of the slots that start at `since_ms` or later, oldest first."""
        return [row for at_ms in sorted(self._slots) if at_ms >= since_ms for row in self._slots[at_ms].values()]

    def _row(self, resource: Resource, key: str, now_ms: int) -> TimelineRow:
        at_ms = now_ms // SLOT_MS * SLOT_MS
        rows = self._slots.setdefault(at_ms, {})
        row = rows.get((resource, key))
        if row is None:
            table = resource.arn.partition("/")[2].partition("/")[0]
            row = rows[resource, key] = TimelineRow(at_ms, key, table=table)
            self._rows += 1
            while self._rows > self.max_rows and len(self._slots) > 1:
                self._rows -= len(self._slots.pop(min(self._slots)))
        return row
