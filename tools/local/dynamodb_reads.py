"""Reads through the proxy: admitted while anything is left, charged for what the backend really read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hotpartition.core.capacity import Item, item_size_bytes
from tools.local.dynamodb_backend import Backend
from tools.local.dynamodb_costs import (
    Cost,
    item_read_units,
    page_read_units,
    queried_key,
    reads_everything,
    sizing_request,
)
from tools.local.dynamodb_meter import Meter, throttling_error
from tools.local.dynamodb_tables import TableShape, key_text
from tools.local.partitions import PartitionKey, Throttle

_TRANSACTION_FACTOR = 2
Request = dict[str, Any]


class Reads:
    """GetItem, Query, Scan, BatchGetItem and TransactGetItems."""

    def __init__(self, backend: Backend, meter: Meter) -> None:
        self._backend = backend
        self._meter = meter

    async def get_item(self, request: Request) -> Request:
        """Read one item; one that is not there costs the minimum."""
        table = await self._backend.table(request["TableName"])
        key = table.partition_key(request["Key"])
        self._admit(key)
        result = await self._backend.call("GetItem", request)
        item = result.get("Item")
        if item is not None and not reads_everything(request):
            item = await self._backend.read_item(table.name, request["Key"])
        units = item_read_units(item, is_strong=bool(request.get("ConsistentRead")))
        self._meter.charge_read(key, units)
        return {**result, "ConsumedCapacity": Cost(units).describe(table.name)}

    async def query(self, request: Request) -> Request:
        """Query a page; the sum of what was read is charged, filtered and projected or not."""
        table = await self._backend.table(request["TableName"])
        key = _partition_of_query(table, request)
        if key is not None:
            self._admit(key)
        result, read = await self._page("Query", request)
        cost = _page_cost(table, request, read)
        if key is not None:
            self._meter.charge_read(key, cost.total)
        return {**result, "ConsumedCapacity": cost.describe(table.name)}

    async def scan(self, request: Request) -> Request:
        """Scan a page. It spans partitions: never refused, and charged to each in proportion to its bytes."""
        table = await self._backend.table(request["TableName"])
        result, read = await self._page("Scan", request)
        cost = _page_cost(table, request, read)
        total = sum(map(item_size_bytes, read))
        index = table.index(request.get("IndexName", ""))
        for item in read:
            key = index.partition_key(item) if index else table.partition_key(item)
            self._meter.charge_read(key, cost.total * item_size_bytes(item) / total)
        return {**result, "ConsumedCapacity": cost.describe(table.name)}

    async def batch_get_item(self, request: Request) -> Request:
        """Read up to 100 items; what a partition refuses comes back unprocessed, all of it refused is an error."""
        accepted: dict[str, Request] = {}
        unprocessed: dict[str, Request] = {}
        throttles: list[Throttle] = []
        for name, wanted in request["RequestItems"].items():
            table = await self._backend.table(name)
            refused = [self._meter.refuse_read(table.partition_key(key)) for key in wanted["Keys"]]
            throttles += [throttle for throttle in refused if throttle is not None]
            for target, is_refused in ((accepted, False), (unprocessed, True)):
                keys = [k for k, t in zip(wanted["Keys"], refused, strict=True) if (t is not None) is is_refused]
                if keys:
                    target[name] = {**wanted, "Keys": keys}
        if unprocessed and not accepted:
            raise throttling_error(throttles)
        result = await self._backend.call("BatchGetItem", {"RequestItems": accepted})
        consumed = []
        for name, wanted in accepted.items():
            table = await self._backend.table(name)
            left = result.get("UnprocessedKeys", {}).get(name, {}).get("Keys", [])
            read = await self._whole_items(name, wanted, result["Responses"].get(name, []))
            cost = self._charge_items(table, wanted, [key for key in wanted["Keys"] if key not in left], read)
            consumed.append(cost.describe(name))
        _merge_unprocessed(result, unprocessed)
        return {**result, "ConsumedCapacity": consumed}

    async def transact_get_items(self, request: Request) -> Request:
        """Read items in one transaction, at twice the cost."""
        gets = [element["Get"] for element in request["TransactItems"]]
        tables = [await self._backend.table(get["TableName"]) for get in gets]
        throttles = [self._meter.refuse_read(t.partition_key(g["Key"])) for t, g in zip(tables, gets, strict=True)]
        refused = [throttle for throttle in throttles if throttle is not None]
        if refused:
            raise throttling_error(refused)
        result = await self._backend.call("TransactGetItems", request)
        keys = [get["Key"] for get in gets]
        read = [(t, key, await self._backend.read_item(t.name, key)) for t, key in zip(tables, keys, strict=True)]
        return {**result, "ConsumedCapacity": charge_transaction(self._meter, read)}

    def _admit(self, key: PartitionKey) -> None:
        throttle = self._meter.refuse_read(key)
        if throttle is not None:
            raise throttling_error([throttle])

    async def _page(self, operation: str, request: Request) -> tuple[Request, list[Item]]:
        """Return the client's page and the whole items behind it, asked for apart where the page does not hold them."""
        result = await self._backend.call(operation, request)
        if reads_everything(request):
            return result, result["Items"]
        whole = await self._backend.call(operation, sizing_request(request))
        return result, whole["Items"]

    async def _whole_items(self, name: str, wanted: Request, items: list[Item]) -> list[Item]:
        if reads_everything(wanted):
            return items
        bare = {"RequestItems": {name: {"Keys": wanted["Keys"], "ConsistentRead": True}}}
        whole: list[Item] = (await self._backend.call("BatchGetItem", bare))["Responses"].get(name, [])
        return whole

    def _charge_items(self, table: TableShape, wanted: Request, keys: list[Item], read: list[Item]) -> Cost:
        found = {_identity(table, item): item for item in read}
        is_strong = bool(wanted.get("ConsistentRead"))
        cost = Cost()
        for key in keys:
            units = item_read_units(found.get(_identity(table, key)), is_strong=is_strong)
            self._meter.charge_read(table.partition_key(key), units)
            cost.table += units
        return cost


def charge_transaction(meter: Meter, read: Iterable[tuple[TableShape, Item, Item | None]]) -> list[Request]:
    """Charge the items that a transaction read, at twice the cost; returns what it consumed of each table."""
    costs: dict[str, Cost] = {}
    for table, key, item in read:
        units = item_read_units(item, is_strong=True, factor=_TRANSACTION_FACTOR)
        meter.charge_read(table.partition_key(key), units)
        costs.setdefault(table.name, Cost()).add(Cost(units))
    return [cost.describe(name, transaction="Read") for name, cost in costs.items()]


def _partition_of_query(table: TableShape, request: Request) -> PartitionKey | None:
    index = table.index(request.get("IndexName", ""))
    keys, arn = (index.key_attributes, index.arn) if index else (table.key_attributes, table.arn)
    value = queried_key(request, keys[0])
    return None if value is None else PartitionKey(arn, key_text(value))


def _page_cost(table: TableShape, request: Request, read: list[Item]) -> Cost:
    units = page_read_units(read, is_strong=bool(request.get("ConsistentRead")))
    index = table.index(request.get("IndexName", ""))
    return Cost(indexes={index.name: units}) if index else Cost(units)


def _identity(table: TableShape, item: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(key_text(item[name]) for name in table.key_attributes)


def _merge_unprocessed(result: Request, unprocessed: Mapping[str, Request]) -> None:
    merged = result.setdefault("UnprocessedKeys", {})
    for name, refused in unprocessed.items():
        keys = merged.get(name, {}).get("Keys", [])
        merged[name] = {**refused, "Keys": [*keys, *refused["Keys"]]}
