"""The journal as operators look through it: `RoutingItems` over a client (`calls.py`) and the table's sparse index."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress

from hotpartition.core.capacity import Item
from hotpartition.core.keys import ROUTING_SORT_KEY
from hotpartition.dynamodb.calls import DynamoDBCalls
from hotpartition.dynamodb.stored_route import ROUTING_PARTITIONS, build_get, build_key, read_routing_item
from hotpartition.errors import InvalidRequestError
from hotpartition.ports import RoutingItem


class DynamoDBRoutingItems:
    """`RoutingItems` on the same table and its sparse index."""

    def __init__(self, calls: DynamoDBCalls, table_name: str, index_name: str) -> None:
        self._calls = calls
        self._table_name = table_name
        self._index_name = index_name

    def read(self, collection: str) -> RoutingItem | None:
        """See `RoutingItems.read`."""
        operation, request = build_get(self._table_name, collection, is_strong=True)
        item = self._calls.call(operation, request).get("Item")
        return None if item is None else read_routing_item(item)

    def page(self, cursor: str | None, limit: int) -> tuple[Sequence[RoutingItem], str | None]:
        """See `RoutingItems.page`. A cursor is a partition of the index, and the keys of the last item there."""
        partition, start = _parse_cursor(cursor)
        items: list[RoutingItem] = []
        while True:
            found, last = self._query(partition, limit - len(items), start=start)
            items.extend(read_routing_item(item) for item in found)
            start = last
            if start is None:
                partition += 1
            if partition == ROUTING_PARTITIONS:
                return items, None
            if len(items) >= limit:
                return items, _build_cursor(partition, start)

    def newest(self, limit: int) -> Sequence[RoutingItem]:
        """See `RoutingItems.newest`."""
        found = [
            item for p in range(ROUTING_PARTITIONS) for item in self._query(p, limit, start=None, newest_first=True)[0]
        ]
        found.sort(key=lambda item: (item["updated_at"]["S"], item["pk"]["S"]), reverse=True)
        return [read_routing_item(item) for item in found[:limit]]

    def _query(
        self, partition: int, limit: int, *, start: Item | None, newest_first: bool = False
    ) -> tuple[Sequence[Item], Item | None]:
        """Read routing items of one partition of the sparse index; return them, and where to go on."""
        request = {
            "TableName": self._table_name,
            "IndexName": self._index_name,
            "KeyConditionExpression": "routing_partition = :p",
            "ExpressionAttributeValues": {":p": {"S": f"{partition:02d}"}},
            "Limit": limit,
            "ScanIndexForward": not newest_first,
            **({} if start is None else {"ExclusiveStartKey": start}),
        }
        response = self._calls.call("Query", request)
        return response["Items"], response.get("LastEvaluatedKey")


def _build_cursor(partition: int, start: Item | None) -> str:
    last = () if start is None else (start["pk"]["S"], start["updated_at"]["S"])
    return json.dumps([partition, *last])


def _parse_cursor(cursor: str | None) -> tuple[int, Item | None]:
    """Read a place in the index.

    Raises:
        InvalidRequestError: it is none that `page` gave.
    """
    if cursor is None:
        return 0, None
    with suppress(ValueError):
        match json.loads(cursor):
            case [int(partition)] if 0 <= partition < ROUTING_PARTITIONS:
                return partition, None
            case [int(partition), str(key), str(updated_at)] if 0 <= partition < ROUTING_PARTITIONS:
                start = {"routing_partition": {"S": f"{partition:02d}"}, "updated_at": {"S": updated_at}}
                return partition, {**build_key(key, ROUTING_SORT_KEY), **start}
    raise InvalidRequestError.of("cursor", "should be the cursor of the last answer")
