"""What a request costs a table and its indexes, the limits that it meets there, and a timeline of both. No I/O.

The limits are the simulator's model (`tools/limits`). Here it is asked about keys of any table and index, and
it knows no limits but the partitions': no quota, no maximum, no split.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from hotpartition.core.capacity import Item, item_size_bytes, write_units
from tools.limits import Demand, Kind, Refusal, Resource, Throttle, admit

SLOT_MS: Final = 250
"""Length of the timeline's slots."""


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


@dataclass(frozen=True, slots=True)
class Shape:
    """The keys and limits of a table, or of one of its indexes; `projected` is None where all attributes are."""

    name: str
    resource: Resource
    keys: tuple[str, ...]
    indexes: tuple[Shape, ...] = ()
    projected: frozenset[str] | None = None

    def partition_key(self, item: Item) -> str:
        """Return the partition key of an item, an entry or a key, as text."""
        return key_text(item[self.keys[0]])

    def entry(self, item: Item | None) -> dict[str, Any] | None:
        """Build the index entry of an item, or None if the item lacks one of the index's keys (sparse index)."""
        if item is None or any(name not in item for name in self.keys):
            return None
        return {name: value for name, value in item.items() if self.projected is None or name in self.projected}


def key_text(value: Mapping[str, Any]) -> str:
    """Return a key attribute's content as text, whatever its type."""
    return str(next(iter(value.values())))


@dataclass(frozen=True, slots=True)
class Write:
    """One item before and after a write."""

    table: Shape
    key: Item
    old: Item | None
    new: Item | None

    def demands(self, factor: int = 1) -> list[Demand]:
        """Compute what the write asks of the table's partition and of each index's."""
        of_indexes = (_index_demands(index, self.old, self.new, factor) for index in self.table.indexes)
        return [self.table_demand(factor), *chain.from_iterable(of_indexes)]

    def table_demand(self, factor: int = 1) -> Demand:
        """Compute what it asks of the table: by the larger of both items, or the minimum without any."""
        size = max(_size(self.old), _size(self.new))
        return Demand(self.table.resource, Kind.WRITE, self.table.partition_key(self.key), factor * write_units(size))


def _index_demands(index: Shape, old_item: Item | None, new_item: Item | None, factor: int) -> list[Demand]:
    """Charge each entry that is written: one when its key stays, two when it moves, none when nothing changes."""
    old, new = index.entry(old_item), index.entry(new_item)
    if old == new:
        return []
    if old is not None and new is not None and all(old[name] == new[name] for name in index.keys):
        written = [(new, max(_size(old), _size(new)))]
    else:
        written = [(entry, _size(entry)) for entry in (old, new) if entry is not None]
    return [
        Demand(index.resource, Kind.WRITE, index.partition_key(entry), factor * write_units(size))
        for entry, size in written
    ]


def _size(item: Item | None) -> int:
    return 0 if item is None else item_size_bytes(item)


def describe_costs(demands: Sequence[Demand], mode: str, *, is_transaction: bool) -> list[dict[str, Any]]:
    """Build ConsumedCapacity of each table that took part: of all of it, or with `mode` INDEXES of each part."""
    tables: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for demand in demands:
        table, index = _place(demand.resource)
        tables[table][index] += demand.units
    kind = f"{demands[0].kind}CapacityUnits" if is_transaction else "CapacityUnits"
    return [_describe_cost(table, units, mode, kind) for table, units in tables.items()]


def _place(resource: Resource) -> tuple[str, str]:
    """Name a table, and its index where it is one."""
    _, table, *index = resource.arn.split("/")
    return table, "".join(index[1:])


def _describe_cost(table: str, units: dict[str, float], mode: str, kind: str) -> dict[str, Any]:
    def described(value: float) -> dict[str, float]:
        return {"CapacityUnits": value, kind: value}

    cost = {"TableName": table, **described(sum(units.values()))}
    if mode == "INDEXES":
        cost["Table"] = described(units.pop("", 0.0))
        cost |= {"GlobalSecondaryIndexes": {name: described(value) for name, value in units.items()}} if units else {}
    return cost


def queried_key(request: Mapping[str, Any], key_attribute: str) -> str | None:
    """Find the partition key that a Query names, or None if its form is not understood."""
    names = request.get("ExpressionAttributeNames", {})
    pattern = r"([#A-Za-z_][A-Za-z0-9_.\-]*)\s*=\s*(:[A-Za-z0-9_]+)"
    for name, value in re.findall(pattern, request.get("KeyConditionExpression", "")):
        if names.get(name, name) == key_attribute:
            found = request.get("ExpressionAttributeValues", {}).get(value)
            return None if found is None else key_text(found)
    return None


@dataclass(slots=True)
class Meter:
    """Admits, charges, and keeps a timeline: a row for each slot and key that was used; the oldest slots are dropped.

    `clock` returns seconds that never go back, `wall_ms` Unix time for the timeline.
    """

    clock: Callable[[], float]
    wall_ms: Callable[[], int]
    max_rows: int = 200_000
    _slots: dict[int, dict[tuple[Resource, str], TimelineRow]] = field(default_factory=dict)
    _rows: int = 0

    def admit(self, demands: Sequence[Demand]) -> Refusal | None:
        """Take the units of a write, or record all and return what was refused."""
        refusal = admit(demands, self.clock())
        if refusal is not None:
            self._note(demands, is_refused=True)
        return refusal

    def refuse_read(self, shape: Shape, key: str) -> Throttle | None:
        """Return why a read of a partition key, of yet unknown cost, is refused if it is, and record it then."""
        throttle = shape.resource.refuses(Kind.READ, key, self.clock())
        if throttle is not None:
            self._note([Demand(shape.resource, Kind.READ, key, 0.0)], is_refused=True)
        return throttle

    def settle(self, actual: Sequence[Demand], admitted: Sequence[Demand] = ()) -> None:
        """Charge what a request really cost beyond what was taken when it was admitted, and record it."""
        now = self.clock()
        for sign, demands in ((1, actual), (-1, admitted)):
            for demand in demands:
                demand.resource.charge(demand.kind, demand.key, sign * demand.units, now)
        self._note(actual)

    def rows_since(self, since_ms: int) -> list[TimelineRow]:
        """List the rows of the slots that start at `since_ms` or later, oldest first."""
        return [row for at_ms in sorted(self._slots) if at_ms >= since_ms for row in self._slots[at_ms].values()]

    def _note(self, demands: Sequence[Demand], *, is_refused: bool = False) -> None:
        """Record what was taken of tables, or what was refused and how much it asked for."""
        at_ms = self.wall_ms() // SLOT_MS * SLOT_MS
        for demand in demands:
            if demand.resource.is_index:
                continue
            row = self._row(demand.resource, demand.key, at_ms)
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

    def _row(self, resource: Resource, key: str, at_ms: int) -> TimelineRow:
        rows = self._slots.setdefault(at_ms, {})
        if (resource, key) not in rows:
            rows[resource, key] = TimelineRow(at_ms, key, table=_place(resource)[0])
            self._rows += 1
            while self._rows > self.max_rows and len(self._slots) > 1:
                self._rows -= len(self._slots.pop(min(self._slots)))
        return rows[resource, key]
