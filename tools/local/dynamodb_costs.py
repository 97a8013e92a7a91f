"""What a request costs, for the table and each index, and the meter that applies the partition model to it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hotpartition.core.capacity import Item, item_size_bytes, read_units, write_units
from tools.local.dynamodb_backend import IndexShape, TableShape
from tools.local.partitions import Timeline
from tools.partition_model import Demand, Kind, Refusal, Throttle, admit

_NARROWING = ("ProjectionExpression", "AttributesToGet", "FilterExpression", "QueryFilter", "ScanFilter")
"""Members of a read that leave out some of what was read."""


@dataclass(slots=True)
class Cost:
    """Units that one request consumed on one table."""

    table: float = 0.0
    indexes: dict[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        """Table and indexes together."""
        return self.table + sum(self.indexes.values())

    def add(self, other: Cost) -> None:
        """Add another cost to this one."""
        self.table += other.table
        for name, units in other.indexes.items():
            self.indexes[name] = self.indexes.get(name, 0.0) + units

    def describe(self, table_name: str, *, transaction: str | None = None) -> dict[str, Any]:
        """Build ConsumedCapacity with all its details; `transaction` is Read or Write for transactions."""

        def units(value: float) -> dict[str, float]:
            described = {"CapacityUnits": value}
            if transaction:
                described[f"{transaction}CapacityUnits"] = value
            return described

        described: dict[str, Any] = {"TableName": table_name, **units(self.total), "Table": units(self.table)}
        if self.indexes:
            described["GlobalSecondaryIndexes"] = {name: units(value) for name, value in self.indexes.items()}
        return described


def write_demands(table: TableShape, old: Item | None, new: Item | None, key: Item, *, factor: int = 1) -> list[Demand]:
    """Compute what replacing `old` by `new` asks of the table's partition and of each index's.

    The table is charged for the larger of the two. An index is charged for each entry that it has to write: one when
    the entry's key stays, two when it moves, none when the entry does not change.
    """
    demands = [table_demand(table, (old, new), key, factor=factor)]
    for index in table.indexes:
        demands += _index_demands(index, index.entry(old), index.entry(new), factor)
    return demands


def table_demand(table: TableShape, items: Iterable[Item | None], key: Item, *, factor: int = 1) -> Demand:
    """Compute what a write asks of the table's partition: by the larger of the items, or the minimum without any."""
    size = max((item_size_bytes(item) for item in items if item is not None), default=0)
    return Demand(table.resource, Kind.WRITE, table.partition_key(key), factor * write_units(size))


def _index_demands(
    index: IndexShape, old: dict[str, Any] | None, new: dict[str, Any] | None, factor: int
) -> list[Demand]:
    if old == new:
        return []

    def demand(entry: Item, size: int) -> Demand:
        return Demand(index.resource, Kind.WRITE, index.partition_key(entry), factor * write_units(size))

    if old is not None and new is not None and all(old[name] == new[name] for name in index.key_attributes):
        return [demand(new, max(item_size_bytes(old), item_size_bytes(new)))]
    return [demand(entry, item_size_bytes(entry)) for entry in (old, new) if entry is not None]


def cost_of(table: TableShape, demands: Iterable[Demand]) -> Cost:
    """Sum demands into what the client is told."""
    names = {index.resource: index.name for index in table.indexes}
    cost = Cost()
    for demand in demands:
        if demand.resource is table.resource:
            cost.add(Cost(demand.units))
        else:
            cost.add(Cost(indexes={names[demand.resource]: demand.units}))
    return cost


def item_read_units(item: Item | None, *, is_strong: bool, factor: int = 1) -> float:
    """Compute the RCU of one GetItem; an item that is not there costs the minimum."""
    return factor * read_units(0 if item is None else item_size_bytes(item), is_strong=is_strong)


def reads_everything(request: Mapping[str, Any]) -> bool:
    """Say whether the response to a read holds every attribute of everything that was read."""
    return request.get("Select") not in ("COUNT", "SPECIFIC_ATTRIBUTES") and not any(map(request.get, _NARROWING))


def sizing_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """Build the request that reads the same items whole, for their sizes alone."""
    bare = {name: value for name, value in request.items() if name not in {*_NARROWING, "Select"}}
    used = set(re.findall(r"[#:][A-Za-z0-9_]+", request.get("KeyConditionExpression", "")))
    for names in ("ExpressionAttributeNames", "ExpressionAttributeValues"):
        kept = {name: value for name, value in request.get(names, {}).items() if name in used}
        bare.pop(names, None)
        if kept:
            bare[names] = kept
    return bare


def queried_key(request: Mapping[str, Any], key_attribute: str) -> dict[str, Any] | None:
    """Find the partition key's value that a Query names, or None if its form is not understood."""
    legacy = request.get("KeyConditions", {}).get(key_attribute)
    if legacy:
        return dict(legacy["AttributeValueList"][0])
    names = request.get("ExpressionAttributeNames", {})
    pattern = r"([#A-Za-z_][A-Za-z0-9_.\-]*)\s*=\s*(:[A-Za-z0-9_]+)"
    for name, value in re.findall(pattern, request.get("KeyConditionExpression", "")):
        if names.get(name, name) == key_attribute:
            found = request.get("ExpressionAttributeValues", {}).get(value)
            return None if found is None else dict(found)
    return None


@dataclass(slots=True)
class Meter:
    """Admits, charges and records. `clock` returns seconds that never go back, `wall_ms` Unix time for the timeline."""

    timeline: Timeline
    clock: Callable[[], float]
    wall_ms: Callable[[], int]
    requests: Counter[str] = field(default_factory=Counter)

    def admit_write(self, demands: Sequence[Demand]) -> Refusal | None:
        """Take the units of a write, or record all and return what was refused."""
        refusal = admit(demands, self.clock())
        if refusal is not None:
            self._note(*demands, is_refused=True)
        return refusal

    def settle_write(self, admitted: Sequence[Demand], actual: Sequence[Demand]) -> None:
        """Charge what a write really cost beyond what was taken when it was admitted, and record it."""
        now = self.clock()
        for sign, demands in ((1, actual), (-1, admitted)):
            for demand in demands:
                demand.resource.charge(demand.kind, demand.key, sign * demand.units, now)
        self._note(*actual)

    def refuse_read(self, shape: TableShape | IndexShape, key: str) -> Throttle | None:
        """Return why a read of a partition key, of yet unknown cost, is refused if it is, and record it then."""
        throttle = shape.resource.refuses(Kind.READ, key, self.clock())
        if throttle is not None:
            self._note(Demand(shape.resource, Kind.READ, key, 0.0), is_refused=True)
        return throttle

    def charge_read(self, shape: TableShape | IndexShape, key: str, units: float) -> None:
        """Charge and record a read; its cost may leave a debt."""
        shape.resource.charge(Kind.READ, key, units, self.clock())
        self._note(Demand(shape.resource, Kind.READ, key, units))

    def _note(self, *demands: Demand, is_refused: bool = False) -> None:
        now_ms = self.wall_ms()
        for demand in demands:
            if not demand.resource.is_index:
                self.timeline.note(demand, now_ms, is_refused=is_refused)
