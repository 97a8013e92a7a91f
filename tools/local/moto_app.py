"""Serves moto's DynamoDB over HTTP, one request at a time: `python -m tools.local.moto_app PORT`.

The behaviour is moto's own. Two things differ from `moto_server`, both for speed only: requests go straight to moto's
handler instead of through Flask on a new connection each (4 times the puts per second), and a query sorts the items
of its own partition instead of all items of the table (in moto, a query takes time in proportion to the table).
One thread serves everything, so conditional writes are atomic.
"""

from __future__ import annotations

import base64
import inspect
import json
import sys
from collections.abc import Mapping
from io import BytesIO
from typing import Any, cast

import moto.dynamodb.models as dynamodb_models
from aiohttp import web
from moto.core.request import Request
from moto.core.responses import ActionResult
from moto.dynamodb.models.table import Table
from moto.dynamodb.responses import DynamoHandler

_PLAIN_OPERATIONS = frozenset({"PutItem", "GetItem", "UpdateItem", "DeleteItem", "Query", "Scan", "BatchGetItem"})
"""Operations whose results hold no dates, so that plain JSON is what the protocol's serializer would make of them."""

_QUERY = inspect.signature(Table.query)
_MAX_BODY_BYTES = 32 * 1024 * 1024


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


class FastDynamoHandler(DynamoHandler):
    """moto's handler with plain JSON for the operations that carry items."""

    def serialized(self, action_result: ActionResult) -> Any:
        """Serialize a result; errors and everything that may hold dates go the usual way."""
        if isinstance(action_result.result, Exception) or self._get_action() not in _PLAIN_OPERATIONS:
            return super().serialized(action_result)
        body = json.dumps(action_result.result, default=_encode_bytes)
        return 200, dict(self.response_headers), body


def build_app() -> web.Application:
    """Build the server; moto creates its tables through the faster class from now on."""
    setattr(dynamodb_models, "Table", PartitionedTable)  # noqa: B010 - moto does not export what it looks up here
    app = web.Application(client_max_size=_MAX_BODY_BYTES)
    app.router.add_post("/", _serve)
    return app


async def _serve(request: web.Request) -> web.Response:
    body = await request.read()
    moto_request = Request(build_environ(request.headers, body))
    status, _, payload = FastDynamoHandler.dispatch(moto_request, str(request.url), moto_request.headers)
    text = payload if isinstance(payload, bytes) else cast("str", payload).encode()
    return web.Response(status=status, body=text, content_type="application/x-amz-json-1.0")


def build_environ(headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """Describe the request the way werkzeug's request class reads it."""
    environ: dict[str, Any] = {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/",
        "QUERY_STRING": "",
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "CONTENT_TYPE": headers.get("Content-Type", "application/x-amz-json-1.0"),
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": BytesIO(body),
        "wsgi.url_scheme": "http",
    }
    for name in ("Host", "Authorization", "X-Amz-Target", "X-Amz-Date"):
        if name in headers:
            environ["HTTP_" + name.upper().replace("-", "_")] = headers[name]
    return environ


def _encode_bytes(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"moto responded with a {type(value).__name__}")


if __name__ == "__main__":
    web.run_app(build_app(), host="127.0.0.1", port=int(sys.argv[1]), access_log=None, print=None)
