"""The load items in DynamoDB: `LoadItems` over a client (`calls.py`). `core/fleet_load.py` describes their form."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from hotpartition.core.capacity import Item
from hotpartition.core.fleet_load import LOAD_PLACES, Cell, FleetLoad, bucket_name, parse_bucket
from hotpartition.core.times import StoreClock
from hotpartition.dynamodb.calls import DynamoDBCalls, Response, date_of
from hotpartition.dynamodb.table import JournalPlace

MAX_STALE = 50
"""Cells that one request takes away: an expression must not get too long."""


class DynamoDBLoadItems:
    """`LoadItems` beside a table's routing items."""

    def __init__(
        self, calls: DynamoDBCalls, place: JournalPlace, store_clock: StoreClock, now_ms: Callable[[], int]
    ) -> None:
        """Use a client; each response sets `store_clock` by the process's clock, `now_ms` (Unix ms)."""
        self._calls = calls
        self._place = place
        self._store_clock = store_clock
        self._now_ms = now_ms

    def add(self, collection: str, place: int, cell: Cell, wcu: float, *, stale: Sequence[Cell] = ()) -> FleetLoad:
        """Implement `LoadItems.add`."""
        return _read(self._add(collection, place, cell.name, wcu, [old.name for old in stale if old != cell]))

    def get(self, collection: str) -> FleetLoad:
        """Implement `LoadItems.get`."""
        total: defaultdict[Cell, float] = defaultdict(float)
        for place in range(LOAD_PLACES):
            item = self._call(*self._place.build_load_get(collection, place)).get("Item", {})
            for cell, wcu in _read(item).items():
                total[cell] += wcu
        return total

    def add_to_bucket(
        self, collection: str, bucket: int, wcu: float, *, stale: Sequence[int] = ()
    ) -> Mapping[int, float]:
        """Implement `LoadItems.add_to_bucket`."""
        names = [bucket_name(old) for old in stale if old != bucket]
        return _read_buckets(self._add(collection, 0, bucket_name(bucket), wcu, names))

    def buckets(self, collection: str) -> Mapping[int, float]:
        """Implement `LoadItems.buckets`."""
        return _read_buckets(self._call(*self._place.build_load_get(collection, 0)).get("Item", {}))

    def _add(self, collection: str, place: int, name: str, wcu: float, stale: Sequence[str]) -> Item:
        """Add to an attribute of a load item, and take others away; return the item."""
        names = {f"#s{position}": old for position, old in enumerate(stale[:MAX_STALE])}
        remove = f" REMOVE {', '.join(names)}" if names else ""
        request = {
            "TableName": self._place.table_name,
            "Key": self._place.load_key_of(collection, place),
            "UpdateExpression": f"ADD #c :w{remove}",
            "ExpressionAttributeNames": {"#c": name, **names},
            "ExpressionAttributeValues": {":w": {"N": f"{wcu:g}"}},
            "ReturnValues": "ALL_NEW",
        }
        item: Item = self._call("UpdateItem", request).get("Attributes", {})
        return item

    def _call(self, operation: str, request: Mapping[str, object]) -> Response:
        sent_ms = self._now_ms()
        response = self._calls.call(operation, request)
        self._store_clock.learn(date_of(response), sent_ms, self._now_ms())
        return response


def _read_buckets(item: Item) -> dict[int, float]:
    return {n: float(value["N"]) for name, value in item.items() if (n := parse_bucket(name)) is not None}


def _read(item: Item) -> dict[Cell, float]:
    """Read a load item; other attributes are left out."""
    return {cell: float(value["N"]) for name, value in item.items() if "N" in value and (cell := Cell.parse(name))}
