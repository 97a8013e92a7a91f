"""The journal as operators look through it: `RoutingItems` over a client (`calls.py`).

Routing items that lie in their collections are listed by a sparse index, or by the directory; those in a table of their
own by reading it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from hotpartition.core.capacity import Item
from hotpartition.core.errors import InvalidRequestError, RetryLaterError
from hotpartition.core.ports import RoutingItem
from hotpartition.dynamodb.calls import DynamoDBCalls
from hotpartition.dynamodb.stored_route import ROUTING_PARTITIONS, read_routing_item
from hotpartition.dynamodb.table import LOAD_PREFIX, JournalPlace


class DynamoDBRoutingItems:
    """`RoutingItems` of one table."""

    def __init__(self, calls: DynamoDBCalls, place: JournalPlace) -> None:
        self._calls = calls
        self._place = place

    def read(self, collection: str) -> RoutingItem | None:
        """Implement `RoutingItems.read`."""
        operation, request = self._place.build_get(collection, is_strong=True)
        item = self._calls.call(operation, request).get("Item")
        return None if item is None else self._read(item)

    def page(self, cursor: str | None, limit: int) -> tuple[Sequence[RoutingItem], str | None]:
        """Implement `RoutingItems.page`. A cursor is a partition of the index, and the keys of the last item there."""
        partition, start = self._parse_cursor(cursor)
        items: list[RoutingItem] = []
        while True:
            found, last = self._list(partition, limit - len(items), start=start)
            items.extend(self._read(item) for item in found)
            start = last
            if start is None:
                partition += 1
            if partition == self._partitions:
                return items, None
            if len(items) >= limit:
                return items, self._build_cursor(partition, start)

    def newest(self, limit: int) -> Sequence[RoutingItem]:
        """Implement `RoutingItems.newest`."""
        found: list[Item] = []
        for partition in range(self._partitions):
            found += self._newest_of(partition, limit)
        found.sort(key=lambda item: (_updated_at(item), item[self._place.partition_key]["S"]), reverse=True)
        return [self._read(item) for item in found[:limit]]

    @property
    def _partitions(self) -> int:
        return 1 if self._place.is_apart else ROUTING_PARTITIONS

    def _read(self, item: Item) -> RoutingItem:
        return read_routing_item(item, self._place)

    def _newest_of(self, partition: int, limit: int) -> Sequence[Item]:
        if self._place.index_name:
            return self._query(partition, limit, start=None, newest_first=True)[0]
        # Without an index there is no order by time: whatever was ever hot is read.
        found: list[Item] = []
        start: Item | None = None
        while True:
            items, start = self._list(partition, None, start=start)
            found = sorted([*found, *items], key=_updated_at, reverse=True)[:limit]
            if start is None:
                return found

    def _list(self, partition: int, limit: int | None, *, start: Item | None) -> tuple[Sequence[Item], Item | None]:
        """Read routing items of one partition of the listing; return them, and where to go on."""
        if self._place.is_apart:
            return self._scan(limit, start=start)
        if self._place.has_directory:
            return self._look_up(partition, limit, start=start)
        return self._query(partition, limit, start=start)

    def _look_up(self, partition: int, limit: int | None, *, start: Item | None) -> tuple[Sequence[Item], Item | None]:
        """Read routing items that the directory names; a raise that was interrupted has left none."""
        key = self._place.directory_key(f"{partition:02d}")
        request = {"TableName": self._place.table_name, "Key": key, "ConsistentRead": True}
        directory = self._calls.call("GetItem", request).get("Item", {})
        after = start[self._place.partition_key]["S"] if start else ""
        names = sorted(name for name in directory.get("collections", {}).get("SS", ()) if name > after)
        chosen = names[:limit]
        calls = [self._place.build_get(name, is_strong=True) for name in chosen]
        items: list[Item] = []
        for outcome in self._calls.call_many(calls, is_hedged=False).outcomes:
            if isinstance(outcome, RetryLaterError):
                raise outcome
            items += [outcome["Item"]] if "Item" in outcome else []
        return items, self._place.key_of(chosen[-1]) if len(chosen) < len(names) else None

    def _scan(self, limit: int | None, *, start: Item | None) -> tuple[Sequence[Item], Item | None]:
        request: dict[str, Any] = {"TableName": self._place.table_name}
        if limit is not None:
            request["Limit"] = limit
        if start is not None:
            request["ExclusiveStartKey"] = start
        response = self._calls.call("Scan", request)
        key = self._place.partition_key
        items = [item for item in response["Items"] if not item[key]["S"].startswith(LOAD_PREFIX)]
        return items, response.get("LastEvaluatedKey")

    def _query(
        self, partition: int, limit: int | None, *, start: Item | None, newest_first: bool = False
    ) -> tuple[Sequence[Item], Item | None]:
        request = {
            "TableName": self._place.table_name,
            "IndexName": self._place.index_name,
            "KeyConditionExpression": "routing_partition = :p",
            "ExpressionAttributeValues": {":p": {"S": f"{partition:02d}"}},
            **({} if limit is None else {"Limit": limit}),
            "ScanIndexForward": not newest_first,
            **({} if start is None else {"ExclusiveStartKey": start}),
        }
        response = self._calls.call("Query", request)
        return response["Items"], response.get("LastEvaluatedKey")

    def _build_cursor(self, partition: int, start: Item | None) -> str:
        if start is None:
            return json.dumps([partition])
        last = [start[self._place.partition_key]["S"]]
        return json.dumps([partition, *last, *([start["updated_at"]["S"]] if self._place.index_name else [])])

    def _parse_cursor(self, cursor: str | None) -> tuple[int, Item | None]:
        """Read a place in the listing.

        Raises:
            InvalidRequestError: not a cursor returned by `page`.
        """
        if cursor is None:
            return 0, None
        with suppress(ValueError):
            match json.loads(cursor):
                case [int(partition)] if 0 <= partition < self._partitions:
                    return partition, None
                case [int(partition), str(key)] if not self._place.index_name and 0 <= partition < self._partitions:
                    return partition, self._place.key_of(key)
                case [int(partition), str(key), str(updated_at)] if (
                    self._place.index_name and 0 <= partition < self._partitions
                ):
                    start = {"routing_partition": {"S": f"{partition:02d}"}, "updated_at": {"S": updated_at}}
                    return partition, {**self._place.key_of(key), **start}
        raise InvalidRequestError.of("cursor", "should be the cursor of the last response")


def _updated_at(item: Item) -> str:
    updated_at: str = item.get("updated_at", {}).get("S", "")
    return updated_at
