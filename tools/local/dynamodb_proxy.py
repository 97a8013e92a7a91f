"""The DynamoDB that the functions see: the backend's data, and DynamoDB's limits, errors and prices.

moto neither throttles nor sizes; this proxy in front of it enforces the partition model (`partitions`) for tables on
demand and reports true consumed capacity. What a request costs is computed from whole items, with the same functions
that the writer uses to count its load.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from tools.local.dynamodb_backend import Backend, ServiceError
from tools.local.dynamodb_costs import Meter
from tools.local.dynamodb_faults import FaultPolicy, FaultRule, build_refusal
from tools.local.dynamodb_operations import Operations

_CONTENT_TYPE = "application/x-amz-json-1.0"
_MAX_BODY_BYTES = 32 * 1024 * 1024
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
        if operation in _UNPRICED:
            refusal = _refusal(
                "com.amazon.coral.service#UnknownOperationException", f"{operation} is not supported by the local run"
            )
            return _respond(refusal.status, refusal.body)
        body = await request.read()
        try:
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
            raise _refusal("com.amazon.coral.service#SerializationException", "the body is not JSON") from error
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
            return table.arn
        index = table.index(asked.get("IndexName", "")) or next(iter(table.indexes), None)
        return table.arn if index is None else index.arn


def _reduce_capacity(result: dict[str, Any], mode: str) -> dict[str, Any]:
    """Leave as much of ConsumedCapacity as was asked for: NONE, TOTAL or INDEXES."""
    consumed = result.pop("ConsumedCapacity")
    if mode == "TOTAL":
        for each in consumed if isinstance(consumed, list) else [consumed]:
            each.pop("Table")
            each.pop("GlobalSecondaryIndexes", None)
    return result if mode == "NONE" else {**result, "ConsumedCapacity": consumed}


def _refusal(type_: str, message: str) -> ServiceError:
    return ServiceError(400, {"__type": type_, "message": message})


def _respond(status: int, body: dict[str, Any]) -> web.Response:
    return web.Response(status=status, text=json.dumps(body), content_type=_CONTENT_TYPE)
