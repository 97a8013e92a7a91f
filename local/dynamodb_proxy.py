"""The DynamoDB that the functions see: the backend's data, and DynamoDB's limits, errors and prices.

moto neither throttles nor sizes; this proxy in front of it enforces the partition model (`partitions`) for tables on
demand and reports true consumed capacity. What a request costs is computed from whole items, with the same functions
that the writer uses to count its load.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from local.dynamodb_backend import Backend
from local.dynamodb_meter import Meter, ServiceError
from local.dynamodb_reads import Reads
from local.dynamodb_writes import Writes

_CONTENT_TYPE = "application/x-amz-json-1.0"
_MAX_BODY_BYTES = 32 * 1024 * 1024
_TABLE_CHANGES = frozenset({"CreateTable", "UpdateTable", "DeleteTable"})
_UNPRICED = frozenset({"ExecuteStatement", "BatchExecuteStatement", "ExecuteTransaction"})
"""PartiQL. Its cost is not worked out here, so it is refused rather than let through for nothing."""


class DynamoDBProxy:
    """Answers DynamoDB's protocol. Limits are a policy of its meter; there are no other faults."""

    def __init__(self, backend: Backend, meter: Meter) -> None:
        self.meter = meter
        self._backend = backend
        reads, writes = Reads(backend, meter), Writes(backend, meter)
        self._operations: dict[str, Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]] = {
            "GetItem": reads.get_item,
            "Query": reads.query,
            "Scan": reads.scan,
            "BatchGetItem": reads.batch_get_item,
            "TransactGetItems": reads.transact_get_items,
            "PutItem": writes.put_item,
            "UpdateItem": writes.update_item,
            "DeleteItem": writes.delete_item,
            "BatchWriteItem": writes.batch_write_item,
            "TransactWriteItems": writes.transact_write_items,
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
                return _respond(200, await self._priced(operation, body))
            status, answer = await self._backend.forward(operation, body, request.headers)
        except ServiceError as error:
            return _respond(error.status, error.body)
        if operation in _TABLE_CHANGES:
            self._backend.forget_tables()
        return web.Response(status=status, body=answer, content_type=_CONTENT_TYPE)

    async def _priced(self, operation: str, body: bytes) -> dict[str, Any]:
        try:
            request = json.loads(body)
        except ValueError as error:
            raise _refusal("com.amazon.coral.service#SerializationException", "the body is not JSON") from error
        return await self._operations[operation](request)


def _refusal(type_: str, message: str) -> ServiceError:
    return ServiceError(400, {"__type": type_, "message": message})


def _respond(status: int, body: dict[str, Any]) -> web.Response:
    return web.Response(status=status, text=json.dumps(body), content_type=_CONTENT_TYPE)
