"""The DynamoDB that the functions see: moto's data with DynamoDB's limits, prices, errors and faults, in one process.

`python -m tools.local.dynamodb JSON`: the port, the limits, a seed, and the tables to make. moto neither throttles nor
sizes. Around each call of its handler, this looks at the items before and after in moto's own tables, and computes what
was consumed with the functions that the writer uses to count its load. Reads are admitted while anything is left and
charged for what was read; writes are admitted for the cost that is known, and charged for the cost that was.

Two things are done for speed alone: requests go to moto's handler without its own server in between (which opens a
connection for each), and a query sorts the items of its own partition instead of all items of the table.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from io import BytesIO
from itertools import chain
from typing import Any

import moto.dynamodb.models as dynamodb_models
from aiohttp import web
from moto.core.request import Request as MotoRequest
from moto.core.responses import ActionResult
from moto.dynamodb.models import dynamodb_backends
from moto.dynamodb.models.dynamo_type import DynamoType
from moto.dynamodb.models.dynamo_type import Item as MotoItem
from moto.dynamodb.models.table import Table
from moto.dynamodb.responses import DynamoHandler

from hotpartition.core.capacity import Item, item_size_bytes, read_units
from tools.limits import Demand, Kind, Partitions, Resource, Throttle
from tools.limits.request_tokens import RequestTokenError, RequestTokens
from tools.local import faults
from tools.local.events import ACCOUNT, REGION
from tools.local.faults import Fault, FaultPolicy, ServiceError, cancelled, service_error, throttling_error
from tools.local.metering import Meter, Shape, Write, describe_costs, queried_key

Request = dict[str, Any]

_TRANSACTION_FACTOR = 2
_CONTENT_TYPE = "application/x-amz-json-1.0"
_MAX_BODY_BYTES = 32 * 1024 * 1024
_UNPRICED = frozenset({"ExecuteStatement", "BatchExecuteStatement", "ExecuteTransaction", "TransactGetItems"})
"""What these cost is not worked out here, so they are refused rather than let through for nothing."""
_PLAIN_OPERATIONS = frozenset({"PutItem", "GetItem", "UpdateItem", "DeleteItem", "Query", "Scan", "BatchGetItem"})
"""Operations whose results hold no dates, so that plain JSON is what the protocol's serializer would make of them."""
_QUERY, _SCAN = inspect.signature(Table.query), inspect.signature(Table.scan)
_AUTHORIZATION = f"AWS4-HMAC-SHA256 Credential=local/20260101/{REGION}/dynamodb/aws4_request, SignedHeaders=host"
"""moto checks no signature; it reads the region out of its scope."""


class PartitionedTable(Table):
    """A moto table that looks only at the partition that a query names, and keeps what its last read looked at."""

    __module__ = Table.__module__  # moto files its classes under the service that their module names

    looked_at: Sequence[MotoItem] = ()
    _queried_hash_key: Any = None

    def query(self, *args: Any, **kwargs: Any) -> Any:
        """Query as moto does, with `all_items` narrowed to the queried partition unless an index is queried."""
        bound = _QUERY.bind(self, *args, **kwargs)
        self._queried_hash_key = None if bound.arguments.get("index_name") else bound.arguments["hash_key"]
        try:
            return self._look(Table.query, bound, "projection_expressions")
        finally:
            self._queried_hash_key = None

    def scan(self, *args: Any, **kwargs: Any) -> Any:
        """Scan as moto does."""
        return self._look(Table.scan, _SCAN.bind(self, *args, **kwargs), "projection_expression")

    def all_items(self) -> list[Any]:
        """List the items of the queried partition, or of the whole table outside of a query."""
        if self._queried_hash_key is None or not self.range_key_attr:
            return super().all_items()
        return list(self.items.get(self._queried_hash_key, {}).values())

    def _look(self, method: Callable[..., Any], bound: inspect.BoundArguments, projection: str) -> Any:
        """Read whole items, which are what a read costs, and only then filter and project them as moto does."""
        chosen, paths = (bound.arguments.get(name) for name in ("filter_expression", projection))
        bound.arguments |= {"filter_expression": None, projection: None}
        self.looked_at, scanned_count, last_key = method(*bound.args, **bound.kwargs)
        found = [item for item in self.looked_at if chosen is None or chosen.expr(item)]
        return [item.project(paths) for item in found] if paths else found, scanned_count, last_key


class _Handler(DynamoHandler):
    """moto's handler with plain JSON for the operations that carry items."""

    def serialized(self, action_result: ActionResult) -> Any:
        """Serialize a result; errors and everything that may hold dates go the usual way."""
        if isinstance(action_result.result, Exception) or self._get_action() not in _PLAIN_OPERATIONS:
            return super().serialized(action_result)
        return 200, dict(self.response_headers), json.dumps(action_result.result, default=_encode_bytes)


def _encode_bytes(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"moto responded with a {type(value).__name__}")


def build_request(operation: str, body: bytes) -> MotoRequest:
    """Build a request as moto's handler takes it; werkzeug's own builder takes ten times as long."""
    return MotoRequest(
        {
            "REQUEST_METHOD": "POST",
            "SCRIPT_NAME": "",
            "PATH_INFO": "/",
            "QUERY_STRING": "",
            "SERVER_NAME": "127.0.0.1",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "CONTENT_TYPE": _CONTENT_TYPE,
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_HOST": "127.0.0.1",
            "HTTP_AUTHORIZATION": _AUTHORIZATION,
            "HTTP_X_AMZ_TARGET": f"DynamoDB_20120810.{operation}",
            "wsgi.input": BytesIO(body),
            "wsgi.url_scheme": "http",
        }
    )


def forward(operation: str, body: bytes) -> tuple[int, bytes]:
    """Let moto's handler carry out a request, and return status and body."""
    request = build_request(operation, body)
    status, _, text = _Handler.dispatch(request, "http://127.0.0.1/", request.headers)
    return status, text if isinstance(text, bytes) else text.encode()


def call_moto(operation: str, request: Mapping[str, Any]) -> Request:
    """Let moto carry out a request and return its result, or raise `ServiceError` with moto's response."""
    status, body = forward(operation, json.dumps(request).encode())
    result: Request = json.loads(body) if body else {}
    if status != 200:
        raise ServiceError(status, result)
    return result


def find_table(name: str) -> PartitionedTable:
    """Find moto's own table; an unknown one is a `ServiceError`."""
    tables: Any = dynamodb_backends[ACCOUNT][REGION].tables
    if name not in tables:
        call_moto("DescribeTable", {"TableName": name})
    found: PartitionedTable = tables[name]
    return found


def _plain(item: MotoItem) -> Item:
    plain: Item = item.to_json()["Attributes"]
    return plain


class Operations:
    """Every operation on items, with its limits and prices. One request at a time, so each is atomic.

    `limits` are those of each table and index.
    """

    def __init__(self, meter: Meter, limits: Partitions) -> None:
        self.meter = meter
        self._limits = limits
        self._resources: dict[str, Resource] = {}
        self._tokens = RequestTokens()
        self._named: Mapping[str, Callable[[str, Request], tuple[Request, list[Demand]]]] = {
            **dict.fromkeys(("GetItem", "BatchGetItem"), self._read),
            **dict.fromkeys(("Query", "Scan"), self._page),
            **dict.fromkeys(("PutItem", "UpdateItem", "DeleteItem"), self._change),
            "BatchWriteItem": self._write_batch,
            "TransactWriteItems": self._write_transaction,
        }

    def __contains__(self, operation: str) -> bool:
        return operation in self._named

    def carry_out(self, operation: str, request: Request) -> Request:
        """Carry out a request, or raise `ServiceError`; the result says as much of its cost as was asked for."""
        mode = request.pop("ReturnConsumedCapacity", "NONE")
        result, demands = self._named[operation](operation, request)
        if mode == "NONE":
            return result
        costs = describe_costs(demands, mode, is_transaction=operation.startswith("Transact"))
        return {**result, "ConsumedCapacity": costs if operation.startswith(("Batch", "Transact")) else costs[0]}

    def shape(self, name: str) -> Shape:
        """Describe a table; an unknown one is a `ServiceError`."""
        table = find_table(name)
        keys = tuple(filter(None, (table.hash_key_attr, table.range_key_attr)))
        indexes = []
        for index in table.global_indexes:
            projected: frozenset[str] | None = None
            if index.projection.get("ProjectionType", "ALL") != "ALL":
                named = index.projection.get("NonKeyAttributes", ())
                projected = frozenset((*keys, *index.schema_key_attrs, *named))
            resource = self._resource(f"{table.table_arn}/index/{index.name}", is_index=True)
            indexes.append(Shape(index.name, resource, tuple(index.schema_key_attrs), projected=projected))
        return Shape(name, self._resource(table.table_arn), keys, tuple(indexes))

    def _resource(self, arn: str, *, is_index: bool = False) -> Resource:
        if arn not in self._resources:
            self._resources[arn] = Resource(arn, self._limits, is_index=is_index)
        return self._resources[arn]

    def _item(self, table: Shape, key: Item) -> Item | None:
        """Look at an item as it is now."""
        hash_key, *range_key = (DynamoType(dict(key[name])) for name in table.keys)
        found: Any = find_table(table.name).items.get(hash_key)
        if range_key:
            found = (found or {}).get(range_key[0])
        return None if found is None else _plain(found)

    # Reads.

    def _read(self, operation: str, request: Request) -> tuple[Request, list[Demand]]:
        """Read items by their keys; one that is not there costs the minimum.

        What a partition refuses of a batch comes back unprocessed; all of it refused is an error.
        """
        is_batch = "RequestItems" in request
        wanted = request["RequestItems"] if is_batch else {request["TableName"]: {**request, "Keys": [request["Key"]]}}
        accepted: dict[str, Request] = {}
        left: dict[str, Request] = {}
        throttles: list[Throttle] = []
        for name, asked in wanted.items():
            table = self.shape(name)
            for key in asked["Keys"]:
                throttle = self.meter.refuse_read(table, table.partition_key(key))
                throttles += [] if throttle is None else [throttle]
                part = accepted if throttle is None else left
                part.setdefault(name, {**asked, "Keys": []})["Keys"].append(key)
        if left and not accepted:
            raise throttling_error(throttles)
        result = call_moto(operation, {"RequestItems": accepted} if is_batch else request)
        for name, asked in result.get("UnprocessedKeys", {}).items():
            left.setdefault(name, {**asked, "Keys": []})["Keys"] += asked["Keys"]
        demands = []
        for name, asked in accepted.items():
            table, is_strong = self.shape(name), bool(asked.get("ConsistentRead"))
            keys = [key for key in asked["Keys"] if key not in left.get(name, {}).get("Keys", ())]
            demands += [self._read_demand(table, key, is_strong=is_strong) for key in keys]
        self.meter.settle(demands)
        return ({**result, "UnprocessedKeys": left} if is_batch else result), demands

    def _page(self, operation: str, request: Request) -> tuple[Request, list[Demand]]:
        """Query or scan a page: the sum of what was read is charged, filtered and projected or not.

        A scan spans partitions: it is never refused, and charged to each in proportion to its bytes.
        """
        table = self.shape(request["TableName"])
        asked = next((index for index in table.indexes if index.name == request.get("IndexName")), table)
        key = queried_key(request, asked.keys[0]) if operation == "Query" else None
        if key is not None and (throttle := self.meter.refuse_read(asked, key)):
            raise throttling_error([throttle])
        result = call_moto(operation, request)
        items = [_plain(item) for item in find_table(table.name).looked_at]
        sizes = [(asked.partition_key(item), item_size_bytes(item)) for item in items]
        total = sum(size for _, size in sizes)
        units = read_units(total, is_strong=bool(request.get("ConsistentRead")))
        shares = [(key, units)] if key is not None else [(own, units * size / total) for own, size in sizes]
        self.meter.settle([Demand(asked.resource, Kind.READ, own, share) for own, share in shares])
        return result, [Demand(asked.resource, Kind.READ, "", units)]

    def _read_demand(self, table: Shape, key: Item, *, is_strong: bool, factor: int = 1) -> Demand:
        item = self._item(table, key)
        units = factor * read_units(0 if item is None else item_size_bytes(item), is_strong=is_strong)
        return Demand(table.resource, Kind.READ, table.partition_key(key), units)

    # Writes.

    def _change(self, operation: str, request: Request) -> tuple[Request, list[Demand]]:
        """Put, update or delete one item; an item that is not there costs the minimum."""
        write = self._plan(operation.removesuffix("Item"), request)
        # DynamoDB learns how large a replaced item was when it replaces it: a put is admitted for what it brings.
        known = (replace(write, old=None) if operation == "PutItem" else write).demands()
        if refusal := self.meter.admit(known):
            raise throttling_error([refusal.throttle])
        return self._make(operation, request, [write], known)

    def _write_batch(self, operation: str, request: Request) -> tuple[Request, list[Demand]]:
        """Write a batch; what a partition refuses comes back unprocessed, all of it refused is an error."""
        accepted: dict[str, list[Request]] = {}
        left: dict[str, list[Request]] = {}
        writes: list[Write] = []
        admitted: list[Demand] = []
        for name, entries in request["RequestItems"].items():
            for entry in entries:
                ((asked, action),) = entry.items()
                write = self._plan(asked.removesuffix("Request"), {"TableName": name, **action})
                demands = write.demands()
                if self.meter.admit(demands) is None:
                    accepted.setdefault(name, []).append(entry)
                    writes.append(write)
                    admitted += demands
                else:
                    left.setdefault(name, []).append(entry)
        if left and not accepted:
            raise throttling_error()
        result, demands = self._make(operation, {"RequestItems": accepted}, writes, admitted)
        return {**result, "UnprocessedItems": left}, demands

    def _write_transaction(self, operation: str, request: Request) -> tuple[Request, list[Demand]]:
        """Write a transaction at twice the cost, unless its token says that it was: then its items are only read."""
        actions = [next(iter(element.items())) for element in request["TransactItems"]]
        try:
            done = self._tokens.once(
                request, self.meter.clock(), lambda: self._write_together(operation, request, actions)
            )
        except RequestTokenError as error:
            raise service_error(error.code, "The client request token does not let this transaction happen") from error
        if done is not None:
            return done
        writes = (self._plan(*action) for action in actions)
        demands = [self._read_demand(w.table, w.key, is_strong=True, factor=_TRANSACTION_FACTOR) for w in writes]
        self.meter.settle(demands)
        return {}, demands

    def _write_together(
        self, operation: str, request: Request, actions: Sequence[tuple[str, Request]]
    ) -> tuple[Request, list[Demand]]:
        """Write all that a transaction names, or nothing."""
        writes = [self._plan(*action) for action in actions]
        known = [write.demands(_TRANSACTION_FACTOR) for write in writes]
        admitted = [*chain.from_iterable(known)]
        if refusal := self.meter.admit(admitted):
            refused = refusal.demand.resource, refusal.demand.key
            raise cancelled([refused in [(each.resource, each.key) for each in demands] for demands in known])
        return self._make(operation, request, writes, admitted, factor=_TRANSACTION_FACTOR)

    def _plan(self, kind: str, action: Request) -> Write:
        """Say what one action does to its item; an update's outcome is not known, and taken for no change."""
        table = self.shape(action["TableName"])
        item = action.get("Item") or action["Key"]
        if any(name not in item for name in table.keys):
            message = "The provided key element does not match the schema"
            raise service_error("ValidationException", message, package=faults.VALIDATE)
        key = {name: item[name] for name in table.keys}
        old = self._item(table, key)
        return Write(table, key, old, {"Put": action.get("Item"), "Delete": None}.get(kind, old))

    def _make(
        self, operation: str, request: Request, writes: Sequence[Write], admitted: Sequence[Demand], factor: int = 1
    ) -> tuple[Request, list[Demand]]:
        """Write what was admitted; return moto's result, and what each write took."""
        try:
            result = call_moto(operation, request)
        except ServiceError as error:
            # What a condition refused costs as well; what was no valid request does not.
            failed = {
                "ConditionalCheckFailedException": [write.table_demand() for write in writes],
                "TransactionCanceledException": admitted,
            }
            self.meter.settle(failed.get(error.code, []), admitted)
            raise
        made = [replace(write, new=self._item(write.table, write.key)) for write in writes]
        actual = [demand for write in made for demand in write.demands(factor)]
        self.meter.settle(actual, admitted)
        return result, actual


class LocalDynamoDB:
    """The server: DynamoDB's protocol on `/`, and what the control API shows and sets, in JSON, beside it.

    Without operations it has neither prices nor limits nor faults: it is moto.
    """

    def __init__(self, operations: Operations | None, policy: FaultPolicy) -> None:
        self._operations = operations
        self._policy = policy

    def app(self) -> web.Application:
        """Build the server."""
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.router.add_post("/", self._serve)
        app.router.add_get("/timeline", self._say_timeline)
        app.router.add_get("/faults", self._say_faults)
        app.router.add_put("/faults", self._set_faults)
        return app

    async def _serve(self, request: web.Request) -> web.Response:
        operation = request.headers.get("X-Amz-Target", "").rpartition(".")[2]
        body = await request.read()
        if self._operations is not None:
            try:
                if operation in _UNPRICED:
                    message = f"{operation} is not supported by the local run"
                    raise service_error("UnknownOperationException", message, package=faults.CORAL)
                if operation in self._operations:
                    return await self._serve_priced(self._operations, request, operation, body)
            except ServiceError as error:
                return _respond(error.status, error.body)
        status, response = forward(operation, body)
        return web.Response(status=status, body=response, content_type=_CONTENT_TYPE)

    async def _serve_priced(
        self, operations: Operations, request: web.Request, operation: str, body: bytes
    ) -> web.Response:
        """Carry out one request, with the faults that it meets."""
        asked = json.loads(body)
        struck = self._policy.strike(operation)
        await asyncio.sleep(faults.delay_seconds(struck, Fault.DELAY))
        for rule in struck:
            if rule.fault in faults.REFUSALS:
                raise faults.build_refusal(rule, _refusing_arn(operations, rule, asked))
        try:
            response = _respond(200, operations.carry_out(operation, asked))
            await asyncio.sleep(faults.delay_seconds(struck, Fault.LATE_ANSWER))
        finally:
            # An error's response is lost like any other: whatever is sent after this goes nowhere.
            if any(rule.fault is Fault.LOSE_ANSWER for rule in struck) and request.transport is not None:
                request.transport.abort()
        return response

    async def _say_timeline(self, request: web.Request) -> web.Response:
        since_ms = int(request.query.get("since_ms", "0"))
        rows = self._operations.meter.rows_since(since_ms) if self._operations else ()
        return web.json_response({"buckets": [asdict(row) for row in rows]})

    async def _say_faults(self, _: web.Request) -> web.Response:
        return web.json_response(self._policy.describe())

    async def _set_faults(self, request: web.Request) -> web.Response:
        """Replace all rules; an empty list ends all faults."""
        try:
            self._policy.rules = faults.parse_rules(await request.read())
        except ValueError as error:
            return web.json_response({"message": str(error)}, status=400)
        return await self._say_faults(request)


def _refusing_arn(operations: Operations, rule: faults.FaultRule, asked: Request) -> str:
    """Name the table, or for a reason of an index the one that is asked, or else the table's first."""
    if not rule.reason:
        return ""
    table = operations.shape(asked["TableName"])
    indexes = [i for i in table.indexes if i.name == asked.get("IndexName")] or table.indexes
    return (indexes[0] if rule.reason.startswith("Index") and indexes else table).resource.arn


def _respond(status: int, body: Request) -> web.Response:
    return web.Response(status=status, text=json.dumps(body), content_type=_CONTENT_TYPE)


def main(options: Mapping[str, Any]) -> None:
    """Make the tables, and serve until killed; without `limits` it is moto alone."""
    setattr(dynamodb_models, "Table", PartitionedTable)  # noqa: B010 - moto does not export what it looks up here
    for request in options.get("tables", ()):
        call_moto("CreateTable", request)
    operations = None
    if "limits" in options:
        meter = Meter(time.monotonic, lambda: time.time_ns() // 1_000_000)
        operations = Operations(meter, Partitions(**options["limits"]))
    server = LocalDynamoDB(operations, FaultPolicy(random.Random(options.get("seed", 0))))
    web.run_app(server.app(), host="127.0.0.1", port=options["port"], access_log=None, print=None)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
