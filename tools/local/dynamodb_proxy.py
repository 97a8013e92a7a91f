"""The DynamoDB that the functions see: the backend's data, and DynamoDB's limits, errors and prices.

moto neither throttles nor sizes; this proxy in front of it enforces the partition model (`partitions`) for tables on
demand and reports true consumed capacity. What a request costs is computed from whole items, with the same functions
that the writer uses to count its load. Reads are admitted while anything is left, and charged for what the backend
really read; writes are admitted for the cost that is known, and charged for the cost that was.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from aiohttp import web

from hotpartition.core.capacity import Item, item_size_bytes, read_units
from tools.local.dynamodb_backend import (
    THROTTLING_MESSAGE,
    Backend,
    IndexShape,
    ServiceError,
    TableShape,
    key_text,
    service_error,
    throttling_error,
)
from tools.local.dynamodb_costs import (
    Cost,
    Meter,
    cost_of,
    item_read_units,
    queried_key,
    reads_everything,
    sizing_request,
    table_demand,
    write_demands,
)
from tools.local.dynamodb_faults import FaultPolicy, FaultRule, build_refusal
from tools.partition_model import Demand, Throttle
from tools.request_tokens import RequestTokenError, RequestTokens

_TRANSACTION_FACTOR = 2
Request = dict[str, Any]

_CONTENT_TYPE = "application/x-amz-json-1.0"
_CORAL = "com.amazon.coral.service"
_MAX_BODY_BYTES = 32 * 1024 * 1024


class Operations:
    """Every operation on items, by its name in snake case."""

    def __init__(self, backend: Backend, meter: Meter) -> None:
        self._backend = backend
        self._meter = meter
        self._tokens = RequestTokens(meter.clock)

    async def get_item(self, request: Request) -> Request:
        """Read one item; one that is not there costs the minimum."""
        table = await self._backend.table(request["TableName"])
        key = table.partition_key(request["Key"])
        self._admit_read(table, key)
        result = await self._backend.call("GetItem", request)
        item = result.get("Item")
        if item is not None and not reads_everything(request):
            item = await self._backend.read_item(table.name, request["Key"])
        units = item_read_units(item, is_strong=bool(request.get("ConsistentRead")))
        self._meter.charge_read(table, key, units)
        return {**result, "ConsumedCapacity": Cost(units).describe(table.name)}

    async def query(self, request: Request) -> Request:
        """Query a page; the sum of what was read is charged, filtered and projected or not."""
        table = await self._backend.table(request["TableName"])
        shape = _shape_of_query(table, request)
        key = queried_key(request, shape.key_attributes[0])
        if key is not None:
            self._admit_read(shape, key_text(key))
        result, read = await self._page("Query", request)
        cost = _page_cost(table, request, read)
        if key is not None:
            self._meter.charge_read(shape, key_text(key), cost.total)
        return {**result, "ConsumedCapacity": cost.describe(table.name)}

    async def scan(self, request: Request) -> Request:
        """Scan a page. It spans partitions: never refused, and charged to each in proportion to its bytes."""
        table = await self._backend.table(request["TableName"])
        result, read = await self._page("Scan", request)
        cost = _page_cost(table, request, read)
        total = sum(map(item_size_bytes, read))
        shape = _shape_of_query(table, request)
        for item in read:
            self._meter.charge_read(shape, shape.partition_key(item), cost.total * item_size_bytes(item) / total)
        return {**result, "ConsumedCapacity": cost.describe(table.name)}

    async def batch_get_item(self, request: Request) -> Request:
        """Read up to 100 items; what a partition refuses comes back unprocessed, all of it refused is an error."""
        accepted: dict[str, Request] = {}
        unprocessed: dict[str, Request] = {}
        throttled: list[Throttle] = []
        for name, wanted in request["RequestItems"].items():
            table = await self._backend.table(name)
            refused = [self._meter.refuse_read(table, table.partition_key(key)) for key in wanted["Keys"]]
            throttled += filter(None, refused)
            for target, is_refused in ((accepted, False), (unprocessed, True)):
                keys = [k for k, t in zip(wanted["Keys"], refused, strict=True) if (t is not None) is is_refused]
                if keys:
                    target[name] = {**wanted, "Keys": keys}
        if unprocessed and not accepted:
            raise throttling_error((throttle.reason, throttle.resource) for throttle in throttled)
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

    def _admit_read(self, shape: TableShape | IndexShape, key: str) -> None:
        if throttle := self._meter.refuse_read(shape, key):
            raise throttling_error([(throttle.reason, throttle.resource)])

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
            self._meter.charge_read(table, table.partition_key(key), units)
            cost.table += units
        return cost

    async def put_item(self, request: Request) -> Request:
        """Put an item. The replaced one comes back from the backend with the same call, so that its size is known."""
        table = await self._backend.table(request["TableName"])
        new: Item = request["Item"]
        known = write_demands(table, None, new, new)
        self._admit_write(known)
        sent = {**request, "ReturnValues": "ALL_OLD"}
        if "ConditionExpression" in request:
            sent["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        try:
            result = await self._backend.call("PutItem", sent)
        except ServiceError as error:
            wants_blocking = request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
            blocking = error.body.get("Item") if wants_blocking else error.body.pop("Item", None)
            self._settle_failure(error, table, known, (blocking, new), new)
            raise
        old = result.get("Attributes") or None
        if request.get("ReturnValues") != "ALL_OLD":
            result.pop("Attributes", None)
        return self._settle(table, known, write_demands(table, old, new, new), result)

    async def delete_item(self, request: Request) -> Request:
        """Delete an item; an item that is not there costs the minimum."""
        return await self._change(request, "DeleteItem")

    async def update_item(self, request: Request) -> Request:
        """Update an item."""
        return await self._change(request, "UpdateItem")

    async def _change(self, request: Request, operation: str) -> Request:
        """Change an item in place. It is read before and after, since the backend returns one of the two at most."""
        table = await self._backend.table(request["TableName"])
        key: Item = request["Key"]
        old = await self._backend.read_item(table.name, key)
        known = [table_demand(table, (old,), key)]
        self._admit_write(known)
        try:
            result = await self._backend.call(operation, request)
        except ServiceError as error:
            self._settle_failure(error, table, known, (old,), key)
            raise
        new = await self._backend.read_item(table.name, key)
        return self._settle(table, known, write_demands(table, old, new, key), result)

    async def batch_write_item(self, request: Request) -> Request:
        """Write a batch; what a partition refuses comes back unprocessed, all of it refused is an error."""
        unprocessed: dict[str, list[Request]] = {}
        accepted: dict[str, list[Request]] = {}
        charges: dict[str, list[Demand]] = {}
        for name, entries in request["RequestItems"].items():
            table = await self._backend.table(name)
            for entry in entries:
                new = entry.get("PutRequest", {}).get("Item")
                key = table.primary_key(new or entry["DeleteRequest"]["Key"])
                actual = write_demands(table, await self._backend.read_item(table.name, key), new, key)
                if self._meter.admit_write(actual) is None:
                    accepted.setdefault(name, []).append(entry)
                    charges.setdefault(name, []).extend(actual)
                else:
                    unprocessed.setdefault(name, []).append(entry)
        if unprocessed and not accepted:
            raise throttling_error(())
        admitted = list(chain.from_iterable(charges.values()))
        try:
            result = await self._backend.call("BatchWriteItem", {"RequestItems": accepted})
        except ServiceError:
            self._meter.settle_write(admitted, [])
            raise
        self._meter.settle_write(admitted, admitted)
        tables = [await self._backend.table(name) for name in charges]
        consumed = [cost_of(table, charges[table.name]).describe(table.name) for table in tables]
        return {**result, "UnprocessedItems": unprocessed, "ConsumedCapacity": consumed}

    async def transact_write_items(self, request: Request) -> Request:
        """Write a transaction, unless its token says that it was written before: then its items are only read."""
        try:
            is_new = self._tokens.begin(request)
        except RequestTokenError as error:
            raise _token_refusal(error.code) from error
        if not is_new:
            return await self._read_again(request)
        is_done = False
        try:
            result = await self._write_transaction(request)
            is_done = True
        finally:
            self._tokens.end(request, is_done=is_done)
        return result

    async def _read_again(self, request: Request) -> Request:
        """Charge a repetition what it consumes: the reading of its items, at twice the cost."""
        costs: dict[str, Cost] = {}
        for element in request["TransactItems"]:
            table, key, item = await self._locate(next(iter(element.values())))
            units = item_read_units(item, is_strong=True, factor=_TRANSACTION_FACTOR)
            self._meter.charge_read(table, table.partition_key(key), units)
            costs.setdefault(table.name, Cost()).add(Cost(units))
        return {"ConsumedCapacity": [cost.describe(name, transaction="Read") for name, cost in costs.items()]}

    async def _write_transaction(self, request: Request) -> Request:
        """Write a transaction at twice the cost; one refused partition cancels it."""
        planned: list[tuple[str, TableShape, Item, Item | None, Item | None]] = []
        for element in request["TransactItems"]:
            ((kind, action),) = element.items()
            table, key, old = await self._locate(action)
            new = {"Put": action.get("Item"), "Delete": None}.get(kind, old)
            planned.append((kind, table, key, old, new))
        known = [write_demands(table, old, new, key, factor=_TRANSACTION_FACTOR) for _, table, key, old, new in planned]
        admitted = list(chain.from_iterable(known))
        if refusal := self._meter.admit_write(admitted):
            refused = refusal.demand.resource, refusal.demand.key
            raise _cancelled([refused in [(d.resource, d.key) for d in demands] for demands in known])
        try:
            result = await self._backend.call("TransactWriteItems", request)
        except ServiceError as error:
            # A cancelled transaction costs as well.
            self._meter.settle_write(admitted, admitted if error.code == "TransactionCanceledException" else [])
            raise
        actual: list[Demand] = []
        costs: dict[str, Cost] = {}
        for kind, table, key, old, new in planned:
            if kind == "Update":
                new = await self._backend.read_item(table.name, key)  # noqa: PLW2901 - known only now
            demands = write_demands(table, old, new, key, factor=_TRANSACTION_FACTOR)
            actual += demands
            costs.setdefault(table.name, Cost()).add(cost_of(table, demands))
        self._meter.settle_write(admitted, actual)
        return {**result, "ConsumedCapacity": [c.describe(name, transaction="Write") for name, c in costs.items()]}

    async def _locate(self, action: Mapping[str, Any]) -> tuple[TableShape, Item, Item | None]:
        table = await self._backend.table(action["TableName"])
        key = table.primary_key(action.get("Item") or action["Key"])
        return table, key, await self._backend.read_item(table.name, key)

    def _admit_write(self, demands: Sequence[Demand]) -> None:
        if refusal := self._meter.admit_write(demands):
            raise throttling_error([(refusal.throttle.reason, refusal.throttle.resource)])

    def _settle(self, table: TableShape, admitted: list[Demand], actual: list[Demand], result: Request) -> Request:
        self._meter.settle_write(admitted, actual)
        return {**result, "ConsumedCapacity": cost_of(table, actual).describe(table.name)}

    def _settle_failure(
        self, error: ServiceError, table: TableShape, admitted: list[Demand], items: tuple[Item | None, ...], key: Item
    ) -> None:
        """A failed condition is charged for the larger of both items; a request that was refused otherwise, nothing."""
        is_charged = error.code == "ConditionalCheckFailedException"
        self._meter.settle_write(admitted, [table_demand(table, items, key)] if is_charged else [])


def _shape_of_query(table: TableShape, request: Request) -> TableShape | IndexShape:
    return table.index(request.get("IndexName", "")) or table


def _page_cost(table: TableShape, request: Request, read: list[Item]) -> Cost:
    """Compute the cost of a page of Query or Scan: the page's sum is rounded, not each item."""
    units = read_units(sum(map(item_size_bytes, read)), is_strong=bool(request.get("ConsistentRead")))
    index = table.index(request.get("IndexName", ""))
    return Cost(indexes={index.name: units}) if index else Cost(units)


def _identity(table: TableShape, item: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(key_text(item[name]) for name in table.key_attributes)


def _merge_unprocessed(result: Request, unprocessed: Mapping[str, Request]) -> None:
    merged = result.setdefault("UnprocessedKeys", {})
    for name, refused in unprocessed.items():
        keys = merged.get(name, {}).get("Keys", [])
        merged[name] = {**refused, "Keys": [*keys, *refused["Keys"]]}


def _cancelled(refused: Sequence[bool]) -> ServiceError:
    throttled = {"Code": "ThrottlingError", "Message": THROTTLING_MESSAGE}
    reasons = [throttled if is_refused else {"Code": "None"} for is_refused in refused]
    codes = ", ".join(reason["Code"] for reason in reasons)
    return service_error(
        "TransactionCanceledException",
        f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]",
        CancellationReasons=reasons,
    )


def _token_refusal(code: str) -> ServiceError:
    messages = {
        "IdempotentParameterMismatchException": "The request used the same client token as a previous, but "
        "non-identical request.",
        "TransactionInProgressException": "The transaction with the given request token is already in progress.",
    }
    return service_error(code, messages[code])


_TABLE_CHANGES = frozenset({"CreateTable", "UpdateTable", "DeleteTable"})
_UNPRICED = frozenset({"ExecuteStatement", "BatchExecuteStatement", "ExecuteTransaction", "TransactGetItems"})
"""What these cost is not worked out here, so they are refused rather than let through for nothing."""


class DynamoDBProxy:
    """Speaks DynamoDB's protocol. Limits are a policy of its meter; other faults only come from `faults`' rules."""

    def __init__(self, backend: Backend, meter: Meter, faults: FaultPolicy | None = None) -> None:
        self.meter = meter
        self._faults = faults or FaultPolicy(random.Random())
        self._backend = backend
        items = Operations(backend, meter)
        self._operations: dict[str, Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]] = {
            "GetItem": items.get_item,
            "Query": items.query,
            "Scan": items.scan,
            "BatchGetItem": items.batch_get_item,
            "PutItem": items.put_item,
            "UpdateItem": items.update_item,
            "DeleteItem": items.delete_item,
            "BatchWriteItem": items.batch_write_item,
            "TransactWriteItems": items.transact_write_items,
        }

    def app(self) -> web.Application:
        """Build the server."""
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.router.add_post("/", self._serve)
        return app

    async def _serve(self, request: web.Request) -> web.Response:
        operation = request.headers.get("X-Amz-Target", "").rpartition(".")[2]
        self.meter.requests[operation] += 1
        body = await request.read()
        try:
            if operation in _UNPRICED:
                message = f"{operation} is not supported by the local run"
                raise service_error("UnknownOperationException", message, package=_CORAL)
            if operation in self._operations:
                return await self._serve_item_operation(request, operation, body)
            status, response = await self._backend.forward(operation, body, request.headers)
        except ServiceError as error:
            return _respond(error.status, error.body)
        if operation in _TABLE_CHANGES:
            self._backend.forget_tables()
        return web.Response(status=status, body=response, content_type=_CONTENT_TYPE)

    async def _serve_item_operation(self, request: web.Request, operation: str, body: bytes) -> web.Response:
        """Carry out one request, with the faults that it meets."""
        try:
            asked = json.loads(body)
        except ValueError as error:
            raise service_error("SerializationException", "the body is not JSON", package=_CORAL) from error
        mode = asked.pop("ReturnConsumedCapacity", "NONE")
        injection = self._faults.choose(operation)
        if injection.delay_ms:
            await asyncio.sleep(injection.delay_ms / 1000)
        if injection.refusal is not None:
            raise build_refusal(injection.refusal, await self._refusing_resource(injection.refusal, asked))
        try:
            response = _respond(200, _reduce_capacity(await self._operations[operation](asked), mode))
            if injection.response_delay_ms:
                await asyncio.sleep(injection.response_delay_ms / 1000)
        finally:
            # An error's response is lost like any other: whatever is sent after this goes nowhere.
            if injection.is_response_lost and request.transport is not None:
                request.transport.abort()
        return response

    async def _refusing_resource(self, rule: FaultRule, asked: dict[str, Any]) -> str:
        """Name the table, or for a reason of an index the one that is asked, or else the table's first."""
        if not rule.reason:
            return ""
        table = await self._backend.table(asked["TableName"])
        if not rule.reason.startswith("Index"):
            return table.resource.arn
        index = table.index(asked.get("IndexName", "")) or next(iter(table.indexes), None)
        return (index or table).resource.arn


def _reduce_capacity(result: dict[str, Any], mode: str) -> dict[str, Any]:
    """Leave as much of ConsumedCapacity as was asked for: NONE, TOTAL or INDEXES."""
    consumed = result.pop("ConsumedCapacity")
    if mode == "TOTAL":
        for each in consumed if isinstance(consumed, list) else [consumed]:
            each.pop("Table")
            each.pop("GlobalSecondaryIndexes", None)
    return result if mode == "NONE" else {**result, "ConsumedCapacity": consumed}


def _respond(status: int, body: dict[str, Any]) -> web.Response:
    return web.Response(status=status, text=json.dumps(body), content_type=_CONTENT_TYPE)
