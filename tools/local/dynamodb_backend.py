"""The DynamoDB behind the proxy: moto, or what DYNAMODB_ENDPOINT names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import aiohttp

from tools.local.dynamodb_meter import ServiceError, service_error
from tools.local.dynamodb_tables import TableShape

_FORWARDED_HEADERS = ("Authorization", "X-Amz-Date", "X-Amz-Security-Token")
_CONTENT_TYPE = "application/x-amz-json-1.0"


class Backend:
    """Calls the backend and remembers the shapes of its tables."""

    def __init__(self, session: aiohttp.ClientSession, endpoint: str, region: str) -> None:
        self._session = session
        self.endpoint = endpoint
        # Neither moto nor DynamoDB Local checks the signature; both read key and region out of its scope.
        self._own_headers = {
            "Authorization": (
                f"AWS4-HMAC-SHA256 Credential=local/20260101/{region}/dynamodb/aws4_request, "
                "SignedHeaders=host, Signature=local"
            )
        }
        self._tables: dict[str, TableShape] = {}

    async def call(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Run one operation and return its result, or raise `ServiceError` with the backend's response."""
        status, body = await self.forward(operation, json.dumps(request).encode(), self._own_headers)
        try:
            result: dict[str, Any] = json.loads(body) if body else {}
        except ValueError as error:
            raise service_error(
                "InternalServerError", f"the local DynamoDB responded with {status} and no JSON", status=500
            ) from error
        if status != 200:
            raise ServiceError(status, result)
        return result

    async def forward(self, operation: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Pass a request on unchanged."""
        sent = {name: headers[name] for name in _FORWARDED_HEADERS if name in headers}
        sent |= {"X-Amz-Target": f"DynamoDB_20120810.{operation}", "Content-Type": _CONTENT_TYPE}
        try:
            async with self._session.post(self.endpoint, data=body, headers=sent) as response:
                return response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise service_error(
                "InternalServerError", f"the local DynamoDB does not respond ({type(error).__name__})", status=500
            ) from error

    async def read_item(self, table: str, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """Read a whole item, as it is now."""
        found = await self.call("GetItem", {"TableName": table, "Key": key, "ConsistentRead": True})
        return found.get("Item")

    async def table(self, name: str) -> TableShape:
        """Return a table's shape, asking for it once; an unknown table is a `ServiceError`."""
        if name not in self._tables:
            described = await self.call("DescribeTable", {"TableName": name})
            self._tables[name] = TableShape.from_description(described["Table"])
        return self._tables[name]

    def forget_tables(self) -> None:
        """Ask for the shapes again; a table was created, changed or deleted."""
        self._tables.clear()
