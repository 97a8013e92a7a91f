"""What the local run limits and what it keeps of it: the partition model of `tools.partition_model`, and a timeline.

The model is the simulator's. Here it is asked about keys of any table and index, by their ARNs, and it knows no limits
but the partitions': no quota, no maximum, no split. Each partition key is a partition of its own unless a number of
partitions is given.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tools import partition_model
from tools.partition_model import PARTITION_RCU, PARTITION_WCU, Kind, OnDemand, Partitions, Resource
from tools.partition_model.throttles import Limit, build_throttle

DEFAULT_WRITE_LIMIT_WCU: Final = PARTITION_WCU
DEFAULT_READ_LIMIT_RCU: Final = PARTITION_RCU

SLOT_MS: Final = 250
"""Length of the timeline's slots."""

_UNLIMITED: Final = OnDemand(quota_wcu=None, quota_rcu=None)


@dataclass(frozen=True, slots=True)
class PartitionKey:
    """One physical partition key: the ARN of its table or index, and the key's value."""

    resource: str
    value: str

    @property
    def table(self) -> str:
        """The name of its table."""
        return self.resource.partition("/")[2].partition("/")[0]

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

    @property
    def reason(self) -> str:
        """DynamoDB's name for what limits the request where the key's partition refuses it."""
        resource, is_index = self.key.resource, self.key.is_index
        return build_throttle(resource, is_index=is_index, kind=self.kind, limit=Limit.KEY_RANGE).reason


@dataclass(slots=True)
class PartitionModel:
    """Admits and charges requests. Times are seconds of any clock that does not go back.

    `partitions` None: each key is a partition of its own. A number: so many hash ranges in each table and index, which
    keys share; they stay as they are.
    """

    write_limit_wcu: float = DEFAULT_WRITE_LIMIT_WCU
    read_limit_rcu: float = DEFAULT_READ_LIMIT_RCU
    partitions: int | None = None
    _resources: dict[str, Resource] = field(default_factory=dict)

    def admit(self, demands: Iterable[Demand], now: float) -> Demand | None:
        """Take what is demanded if every bucket has it; otherwise take nothing and return what was refused.

        A demand of more than one second's worth is admitted by a full bucket, which then is in debt.
        """
        asked = [
            partition_model.Demand(self._resource(each.key), each.kind, each.key.value, each.units) for each in demands
        ]
        refusal = partition_model.admit(asked, now)
        if refusal is None:
            return None
        refused = refusal.demand
        return Demand(PartitionKey(refused.resource.arn, refused.key), refused.kind, refused.units)

    def refuses(self, key: PartitionKey, kind: Kind, now: float) -> bool:
        """Say whether a request of yet unknown cost is refused: it is when nothing is left.

        Its cost is charged afterwards and may leave a debt.
        """
        return self._resource(key).refuses(kind, key.value, now) is not None

    def charge(self, demand: Demand, now: float) -> None:
        """Take capacity without asking; negative units give it back."""
        self._resource(demand.key).charge(demand.kind, demand.key.value, demand.units, now)

    def _resource(self, key: PartitionKey) -> Resource:
        resource = self._resources.get(key.resource)
        if resource is None:
            resource = self._resources[key.resource] = self._new_resource(key)
        return resource

    def _new_resource(self, key: PartitionKey) -> Resource:
        is_apart = self.partitions is None
        partitions = Partitions(
            write_limit_wcu=self.write_limit_wcu,
            read_limit_rcu=self.read_limit_rcu,
            count=self.partitions,
            max_count=self.partitions or 1,
            is_key_apart=is_apart,
        )
        # Nothing splits, so nothing is ever drawn from the random source.
        return Resource(key.resource, _UNLIMITED, partitions, is_index=key.is_index, random=random.Random(0))


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
    _slots: dict[int, dict[PartitionKey, TimelineRow]] = field(default_factory=dict)
    _rows: int = 0

    def note(self, demand: Demand, now_ms: int, *, is_refused: bool = False) -> None:
        """Record what was taken, or what was refused and how much it asked for."""
        row = self._row(demand.key, now_ms)
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

    def _row(self, key: PartitionKey, now_ms: int) -> TimelineRow:
        at_ms = now_ms // SLOT_MS * SLOT_MS
        rows = self._slots.setdefault(at_ms, {})
        row = rows.get(key)
        if row is None:
            row = rows[key] = TimelineRow(at_ms, key.value, table=key.table)
            self._rows += 1
            while self._rows > self.max_rows and len(self._slots) > 1:
                self._rows -= len(self._slots.pop(min(self._slots)))
        return row
