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
from dataclasses import asdict, dataclass, field, replace
from io import BytesIO
from itertools import chain
from typing import Any

import moto.dynamodb.models as dynamodb_models
from aiohttp import web
from moto.core.request import Request as MotoRequest
from moto.core.responses import ActionResult
from moto.dynamodb.models import dynamodb_backends
from moto.dynamodb.models.dynamo_type import DynamoType
from moto.dynamodb.models.table import Table
from moto.dynamodb.responses import DynamoHandler

from hotpartition.core.capacity import Item, item_size_bytes, read_units
from tools.limits import Demand, Kind, Throttle
from tools.limits.request_tokens import RequestTokenError, RequestTokens
from tools.local.events import ACCOUNT, REGION
from tools.local.faults import (
    CORAL,
    VALIDATE,
    FaultPolicy,
    FaultRule,
    FaultRuleError,
    ServiceError,
    build_refusal,
    cancelled,
    parse_rules,
    service_error,
    throttling_error,
    token_error,
)
from tools.local.metering import (
    Meter,
    PartitionModel,
    Shape,
    Timeline,
    Write,
    describe_cost,
    queried_key,
    reads_everything,
    sizing_request,
)

Request = dict[str, Any]

_TRANSACTION_FACTOR = 2
_CONTENT_TYPE = "application/x-amz-json-1.0"
_MAX_BODY_BYTES = 32 * 1024 * 1024
_TABLE_CHANGES = frozenset({"CreateTable", "UpdateTable", "DeleteTable"})
_UNPRICED = frozenset({"ExecuteStatement", "BatchExecuteStatement", "ExecuteTransaction", "TransactGetItems"})
"""What these cost is not worked out here, so they are refused rather than let through for nothing."""
_PLAIN_OPERATIONS = frozenset({"PutItem", "GetItem", "UpdateItem", "DeleteItem", "Query", "Scan", "BatchGetItem"})
"""Operations whose results hold no dates, so that plain JSON is what the protocol's serializer would make of them."""
_QUERY = inspect.signature(Table.query)
_AUTHORIZATION = f"AWS4-HMAC-SHA256 Credential=local/20260101/{REGION}/dynamodb/aws4_request, SignedHeaders=host"
"""moto checks no signature; it reads the region out of its scope."""


class PartitionedTable(Table):
    """A moto table that looks only at the partition that a query names."""

    __module__ = Table.__module__  # moto files its classes under the service that their module names

    _queried_hash_key: Any = None

    def query(self, hash_key: Any, *args: Any, **kwargs: Any) -> Any:
        """Query as moto does, with `all_items` narrowed to the queried partition unless an index is queried."""
        index_name = _QUERY.bind(self, hash_key, *args, **kwargs).arguments.get("index_name")
        self._queried_hash_key = None if index_name else hash_key
        try:
            return super().query(hash_key, *args, **kwargs)
        finally:
            self._queried_hash_key = None

    def all_items(self) -> list[Any]:
        """List the items of the queried partition, or of the whole table outside of a query."""
        if self._queried_hash_key is None or not self.range_key_attr:
            return super().all_items()
        return list(self.items.get(self._queried_hash_key, {}).values())


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
    """Build a request as moto's handler takes it."""
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


@dataclass(slots=True)
class Moto:
    """moto's handler and its tables, whose limits are the model's."""

    model: PartitionModel
    _shapes: dict[str, Shape] = field(default_factory=dict)

    def forward(self, operation: str, body: bytes) -> tuple[int, bytes]:
        """Carry out a request, and return status and body."""
        request = build_request(operation, body)
        status, _, text = _Handler.dispatch(request, "http://127.0.0.1/", request.headers)
        if operation in _TABLE_CHANGES:
            self._shapes.clear()
        return status, text if isinstance(text, bytes) else text.encode()

    def call(self, operation: str, request: Mapping[str, Any]) -> Request:
        """Carry out a request and return its result, or raise `ServiceError` with moto's response."""
        status, body = self.forward(operation, json.dumps(request).encode())
        result: Request = json.loads(body) if body else {}
        if status != 200:
            raise ServiceError(status, result)
        return result

    def shape(self, name: str) -> Shape:
        """Return the shape of a table; an unknown one is a `ServiceError`."""
        if name not in self._shapes:
            table = self.call("DescribeTable", {"TableName": name})["Table"]
            keys = _key_names(table)
            indexes = tuple(self._index(each, table, keys) for each in table.get("GlobalSecondaryIndexes") or ())
            self._shapes[name] = Shape(name, self.model.resource(table["TableArn"]), keys, indexes)
        return self._shapes[name]

    def item(self, table: Shape, key: Mapping[str, Any]) -> Item | None:
        """Look at an item as it is now."""
        hash_key, *range_key = (DynamoType(key[name]) for name in table.keys)
        found: Any = dynamodb_backends[ACCOUNT][REGION].tables[table.name].items.get(hash_key)
        if range_key:
            found = (found or {}).get(range_key[0])
        return None if found is None else {name: value.to_json() for name, value in found.attrs.items()}

    def _index(self, index: Mapping[str, Any], table: Mapping[str, Any], table_keys: tuple[str, ...]) -> Shape:
        keys, projection = _key_names(index), index.get("Projection", {})
        projected: frozenset[str] | None = None
        if projection.get("ProjectionType", "ALL") != "ALL":
            projected = frozenset((*keys, *table_keys, *projection.get("NonKeyAttributes", ())))
        resource = self.model.resource(f"{table['TableArn']}/index/{index['IndexName']}", is_index=True)
        return Shape(index["IndexName"], resource, keys, projected=projected)


def _key_names(described: Mapping[str, Any]) -> tuple[str, ...]:
    ordered = sorted(described["KeySchema"], key=lambda element: element["KeyType"] != "HASH")
    return tuple(element["AttributeName"] for element in ordered)


@dataclass(slots=True)
class Operations:
    """Every operation on items, by its name in snake case. One request at a time, so each is atomic."""

    moto: Moto
    meter: Meter
    _tokens: RequestTokens = field(init=False)

    def __post_init__(self) -> None:
        """Start without transaction tokens."""
        self._tokens = RequestTokens(self.meter.clock)

    def named(self) -> dict[str, Callable[[Request], Request]]:
        """Map DynamoDB's names to what carries them out."""
        singles = {name: lambda request, name=name: self.change(name, request) for name in ("Put", "Update", "Delete")}
        return {
            "GetItem": self.get_item,
            "Query": lambda request: self.page("Query", request),
            "Scan": lambda request: self.page("Scan", request),
            "BatchGetItem": self.batch_get_item,
            **{f"{name}Item": operation for name, operation in singles.items()},
            "BatchWriteItem": self.batch_write_item,
            "TransactWriteItems": self.transact_write_items,
        }

    def get_item(self, request: Request) -> Request:
        """Read one item; one that is not there costs the minimum."""
        table = self.moto.shape(request["TableName"])
        self._admit_read(table, table.partition_key(request["Key"]))
        result = self.moto.call("GetItem", request)
        demand = self._read_demand(table, request["Key"], is_strong=bool(request.get("ConsistentRead")))
        return self._settle_read(result, table, [demand])

    def page(self, operation: str, request: Request) -> Request:
        """Query or scan a page: the sum of what was read is charged, filtered and projected or not.

        A scan spans partitions: it is never refused, and charged to each in proportion to its bytes.
        """
        table = self.moto.shape(request["TableName"])
        asked = _asked_shape(table, request)
        key = queried_key(request, asked.keys[0]) if operation == "Query" else None
        if key is not None:
            self._admit_read(asked, key)
        result = self.moto.call(operation, request)
        whole = result if reads_everything(request) else self.moto.call(operation, sizing_request(request))
        sizes = [(asked.partition_key(item), item_size_bytes(item)) for item in whole["Items"]]
        total = sum(size for _, size in sizes)
        units = read_units(total, is_strong=bool(request.get("ConsistentRead")))
        shares = [(key, units)] if key is not None else [(own, units * size / total) for own, size in sizes]
        self.meter.settle([], [Demand(asked.resource, Kind.READ, own, share) for own, share in shares])
        return {**result, "ConsumedCapacity": describe_cost(table, [Demand(asked.resource, Kind.READ, "", units)])}

    def batch_get_item(self, request: Request) -> Request:
        """Read up to 100 items; what a partition refuses comes back unprocessed, all of it refused is an error."""
        accepted: dict[str, Request] = {}
        unprocessed: dict[str, Request] = {}
        throttled: list[Throttle] = []
        for name, wanted in request["RequestItems"].items():
            table = self.moto.shape(name)
            refused = [self.meter.refuse_read(table, table.partition_key(key)) for key in wanted["Keys"]]
            throttled += filter(None, refused)
            for target, is_refused in ((accepted, False), (unprocessed, True)):
                keys = [k for k, t in zip(wanted["Keys"], refused, strict=True) if (t is not None) is is_refused]
                if keys:
                    target[name] = {**wanted, "Keys": keys}
        if unprocessed and not accepted:
            raise throttling_error((throttle.reason, throttle.resource) for throttle in throttled)
        result = self.moto.call("BatchGetItem", {"RequestItems": accepted})
        left = result.get("UnprocessedKeys", {})
        consumed = []
        for name, wanted in accepted.items():
            table, is_strong = self.moto.shape(name), bool(wanted.get("ConsistentRead"))
            keys = [key for key in wanted["Keys"] if key not in left.get(name, {}).get("Keys", ())]
            demands = [self._read_demand(table, key, is_strong=is_strong) for key in keys]
            self.meter.settle([], demands)
            consumed.append(describe_cost(table, demands))
        for name, refused_part in unprocessed.items():
            left[name] = {**refused_part, "Keys": [*left.get(name, {}).get("Keys", ()), *refused_part["Keys"]]}
        return {**result, "UnprocessedKeys": left, "ConsumedCapacity": consumed}

    def change(self, kind: str, request: Request) -> Request:
        """Put, update or delete one item; an item that is not there costs the minimum."""
        write = self._plan(kind, request)
        # DynamoDB learns how large a replaced item was when it replaces it: a put is admitted for what it brings.
        known = replace(write, old=None) if kind == "Put" else write
        result, (made,) = self._carry_out(f"{kind}Item", request, [write], [known.demands()])
        return {**result, "ConsumedCapacity": describe_cost(write.table, made)}

    def batch_write_item(self, request: Request) -> Request:
        """Write a batch; what a partition refuses comes back unprocessed, all of it refused is an error."""
        unprocessed: dict[str, list[Request]] = {}
        accepted: dict[str, list[Request]] = {}
        charges: dict[str, list[Demand]] = {}
        for name, entries in request["RequestItems"].items():
            for entry in entries:
                ((asked, action),) = entry.items()
                demands = self._plan(asked.removesuffix("Request"), {"TableName": name, **action}).demands()
                if self.meter.admit(demands) is None:
                    accepted.setdefault(name, []).append(entry)
                    charges.setdefault(name, []).extend(demands)
                else:
                    unprocessed.setdefault(name, []).append(entry)
        if unprocessed and not accepted:
            raise throttling_error(())
        admitted = [*chain.from_iterable(charges.values())]
        try:
            result = self.moto.call("BatchWriteItem", {"RequestItems": accepted})
        except ServiceError:
            self.meter.settle(admitted, [])
            raise
        self.meter.settle(admitted, admitted)
        consumed = [describe_cost(self.moto.shape(name), demands) for name, demands in charges.items()]
        return {**result, "UnprocessedItems": unprocessed, "ConsumedCapacity": consumed}

    def transact_write_items(self, request: Request) -> Request:
        """Write a transaction at twice the cost, unless its token says that it was: then its items are only read."""
        actions = [next(iter(element.items())) for element in request["TransactItems"]]

        def write() -> Request:
            writes = [self._plan(*action) for action in actions]
            known = [write.demands(_TRANSACTION_FACTOR) for write in writes]
            result, made = self._carry_out("TransactWriteItems", request, writes, known, factor=_TRANSACTION_FACTOR)
            return {**result, "ConsumedCapacity": _describe_transaction("Write", writes, made)}

        try:
            response = self._tokens.once(request, write)
        except RequestTokenError as error:
            raise token_error(error.code) from error
        if response is not None:
            return response
        located = [self._plan(*action) for action in actions]
        reads = [[self._read_demand(w.table, w.key, is_strong=True, factor=_TRANSACTION_FACTOR)] for w in located]
        self.meter.settle([], [*chain.from_iterable(reads)])
        return {"ConsumedCapacity": _describe_transaction("Read", located, reads)}

    def _plan(self, kind: str, action: Request) -> Write:
        """Say what one action does to its item; an update's outcome is not known, and taken for no change."""
        table = self.moto.shape(action["TableName"])
        item = action.get("Item") or action["Key"]
        if any(name not in item for name in table.keys):
            message = "The provided key element does not match the schema"
            raise service_error("ValidationException", message, package=VALIDATE)
        key = {name: item[name] for name in table.keys}
        old = self.moto.item(table, key)
        return Write(table, key, old, {"Put": action.get("Item"), "Delete": None}.get(kind, old))

    def _carry_out(
        self,
        operation: str,
        request: Request,
        writes: Sequence[Write],
        known: Sequence[Sequence[Demand]],
        *,
        factor: int = 1,
    ) -> tuple[Request, list[list[Demand]]]:
        """Write what is admitted for its known demands, or nothing; return moto's result and what each write took."""
        admitted = [*chain.from_iterable(known)]
        if refusal := self.meter.admit(admitted):
            if factor == 1:
                raise throttling_error([(refusal.throttle.reason, refusal.throttle.resource)])
            refused = refusal.demand.resource, refusal.demand.key
            raise cancelled([refused in [(each.resource, each.key) for each in demands] for demands in known])
        try:
            result = self.moto.call(operation, request)
        except ServiceError as error:
            # What a condition refused costs as well; what was no valid request does not.
            failed = {
                "ConditionalCheckFailedException": [write.table_demand() for write in writes],
                "TransactionCanceledException": admitted,
            }
            self.meter.settle(admitted, failed.get(error.code, []))
            raise
        made = [replace(write, new=self.moto.item(write.table, write.key)).demands(factor) for write in writes]
        self.meter.settle(admitted, [*chain.from_iterable(made)])
        return result, made

    def _admit_read(self, shape: Shape, key: str) -> None:
        if throttle := self.meter.refuse_read(shape, key):
            raise throttling_error([(throttle.reason, throttle.resource)])

    def _read_demand(self, table: Shape, key: Item, *, is_strong: bool, factor: int = 1) -> Demand:
        item = self.moto.item(table, key)
        units = factor * read_units(0 if item is None else item_size_bytes(item), is_strong=is_strong)
        return Demand(table.resource, Kind.READ, table.partition_key(key), units)

    def _settle_read(self, result: Request, table: Shape, demands: list[Demand]) -> Request:
        self.meter.settle([], demands)
        return {**result, "ConsumedCapacity": describe_cost(table, demands)}


def _asked_shape(table: Shape, request: Request) -> Shape:
    """Return the index that is asked, or else the table."""
    return next((index for index in table.indexes if index.name == request.get("IndexName")), table)


def _describe_transaction(kind: str, writes: Sequence[Write], demands: Sequence[Sequence[Demand]]) -> list[Request]:
    """Build ConsumedCapacity of each table that took part."""
    tables: dict[str, tuple[Shape, list[Demand]]] = {}
    for write, own in zip(writes, demands, strict=True):
        tables.setdefault(write.table.name, (write.table, []))[1].extend(own)
    return [describe_cost(table, all_of_it, transaction=kind) for table, all_of_it in tables.values()]


class LocalDynamoDB:
    """The server: DynamoDB's protocol on `/`, and what the control API shows and sets, in JSON, beside it.

    Without a meter it has neither prices nor limits nor faults: it is moto.
    """

    def __init__(self, moto: Moto, meter: Meter | None, faults: FaultPolicy) -> None:
        self._moto = moto
        self._meter = meter
        self._faults = faults
        self._operations = {} if meter is None else Operations(moto, meter).named()

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
        try:
            if operation in _UNPRICED and self._meter is not None:
                message = f"{operation} is not supported by the local run"
                raise service_error("UnknownOperationException", message, package=CORAL)
            if operation in self._operations:
                return await self._serve_item_operation(request, operation, body)
        except ServiceError as error:
            return _respond(error.status, error.body)
        status, response = self._moto.forward(operation, body)
        return web.Response(status=status, body=response, content_type=_CONTENT_TYPE)

    async def _serve_item_operation(self, request: web.Request, operation: str, body: bytes) -> web.Response:
        """Carry out one request, with the faults that it meets."""
        try:
            asked = json.loads(body)
        except ValueError as error:
            raise service_error("SerializationException", "the body is not JSON", package=CORAL) from error
        mode = asked.pop("ReturnConsumedCapacity", "NONE")
        injection = self._faults.choose(operation)
        if injection.delay_ms:
            await asyncio.sleep(injection.delay_ms / 1000)
        if injection.refusal is not None:
            raise build_refusal(injection.refusal, self._refusing_resource(injection.refusal, asked))
        try:
            response = _respond(200, _reduce_capacity(self._operations[operation](asked), mode))
            if injection.response_delay_ms:
                await asyncio.sleep(injection.response_delay_ms / 1000)
        finally:
            # An error's response is lost like any other: whatever is sent after this goes nowhere.
            if injection.is_response_lost and request.transport is not None:
                request.transport.abort()
        return response

    def _refusing_resource(self, rule: FaultRule, asked: Request) -> str:
        """Name the table, or for a reason of an index the one that is asked, or else the table's first."""
        if not rule.reason:
            return ""
        table = self._moto.shape(asked["TableName"])
        shape = _asked_shape(table, asked)
        if rule.reason.startswith("Index"):
            shape = next(iter(table.indexes), table) if shape is table else shape
        else:
            shape = table
        return shape.resource.arn

    async def _say_timeline(self, request: web.Request) -> web.Response:
        try:
            since_ms = int(request.query.get("since_ms", "0"))
        except ValueError:
            return web.json_response({"message": "since_ms should be a whole number"}, status=400)
        rows = self._meter.timeline.rows_since(since_ms) if self._meter else ()
        return web.json_response({"buckets": [asdict(row) for row in rows]})

    async def _say_faults(self, _: web.Request) -> web.Response:
        return web.json_response(self._faults.describe())

    async def _set_faults(self, request: web.Request) -> web.Response:
        """Replace all rules; an empty list ends all faults."""
        try:
            self._faults.rules = parse_rules(json.loads(await request.read()))
        except FaultRuleError as error:
            return web.json_response({"message": str(error)}, status=400)
        except ValueError:
            return web.json_response({"message": "the body should be JSON"}, status=400)
        return await self._say_faults(request)


def _reduce_capacity(result: Request, mode: str) -> Request:
    """Leave as much of ConsumedCapacity as was asked for: NONE, TOTAL or INDEXES."""
    consumed = result.pop("ConsumedCapacity")
    if mode == "TOTAL":
        for each in consumed if isinstance(consumed, list) else [consumed]:
            each.pop("Table")
            each.pop("GlobalSecondaryIndexes", None)
    return result if mode == "NONE" else {**result, "ConsumedCapacity": consumed}


def _respond(status: int, body: Request) -> web.Response:
    return web.Response(status=status, text=json.dumps(body), content_type=_CONTENT_TYPE)


def main(options: Mapping[str, Any]) -> None:
    """Make the tables, and serve until killed; without `limits` it is moto alone."""
    setattr(dynamodb_models, "Table", PartitionedTable)  # noqa: B010 - moto does not export what it looks up here
    limits: Mapping[str, Any] | None = options.get("limits")
    moto = Moto(PartitionModel(**limits or {}))
    for request in options.get("tables", ()):
        moto.call("CreateTable", request)
    meter = None if limits is None else Meter(Timeline(), time.monotonic, lambda: time.time_ns() // 1_000_000)
    server = LocalDynamoDB(moto, meter, FaultPolicy(random.Random(options.get("seed", 0))))
    web.run_app(server.app(), host="127.0.0.1", port=options["port"], access_log=None, print=None)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
