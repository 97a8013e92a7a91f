"""The DynamoDB behind the proxy, moto: its process, errors, tables, calls."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import aiohttp

from hotpartition.core.capacity import Item
from tools.local.errors import LocalRunError, log_tail
from tools.local.events import REGION
from tools.local.partitions import PartitionModel
from tools.local.processes import free_port, is_listening, kill, start_process
from tools.partition_model import Resource

_ROOT = Path(__file__).resolve().parents[2]
_START_SECONDS = 120.0
_POLL_SECONDS = 0.02
_CREATE_MEMBERS = (
    "AttributeDefinitions",
    "GlobalSecondaryIndexes",
    "KeySchema",
    "LocalSecondaryIndexes",
)
"""What CreateTable takes over from the template; the rest (recovery, insights, encryption) has no local effect."""

_INDEX_MEMBERS = ("IndexName", "KeySchema", "Projection")
"""The same of an index."""
_FORWARDED_HEADERS = ("Authorization", "X-Amz-Date", "X-Amz-Security-Token")
_OWN_HEADERS = {
    "Authorization": f"AWS4-HMAC-SHA256 Credential=local/20260101/{REGION}/dynamodb/aws4_request, "
    "SignedHeaders=host, Signature=local"
}
"""Neither moto nor DynamoDB Local checks the signature; both read key and region out of its scope."""
_CONTENT_TYPE = "application/x-amz-json-1.0"
_SERVICE = "com.amazonaws.dynamodb.v20120810"
_THROTTLING_TYPE = "com.amazon.coral.availability#ThrottlingException"
THROTTLING_MESSAGE = (
    "Throughput exceeds the current capacity of your table or index. DynamoDB is automatically scaling your table or "
    "index so please try again shortly. If exceptions persist, check if you have a hot key: "
    "https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html"
)
"""Of tables on demand; provisioned ones send ProvisionedThroughputExceededException (public error logs)."""


class MotoServer:
    """moto's DynamoDB on a free loopback port."""

    def __init__(self, work_dir: Path) -> None:
        self._work_dir = work_dir
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> str:
        """Start, and return the endpoint once it serves; the error of a failed start ends with its log."""
        self._work_dir.mkdir(parents=True, exist_ok=True)
        port, log_path = free_port(), self._work_dir / "moto.log"
        command = [sys.executable, "-m", "tools.local.moto_app", str(port)]
        with log_path.open("wb") as log:
            self._process = await start_process(command, log=log, cwd=_ROOT)
        if not await is_listening(self._process, port, seconds=_START_SECONDS):
            await self.stop()
            raise LocalRunError(f"moto did not start:{log_tail(log_path)}")
        return f"http://127.0.0.1:{port}"

    async def stop(self) -> None:
        """Kill it."""
        await kill(self._process)


async def create_table(backend: Backend, name: str, properties: Mapping[str, Any]) -> None:
    """Create a table of the template, empty and on demand; a DynamoDB that has one of this name is an error."""
    request = {member: properties[member] for member in _CREATE_MEMBERS if member in properties}
    if "GlobalSecondaryIndexes" in request:
        request["GlobalSecondaryIndexes"] = [
            {member: index[member] for member in _INDEX_MEMBERS if member in index}
            for index in request["GlobalSecondaryIndexes"]
        ]
    try:
        await backend.call("CreateTable", {"TableName": name, "BillingMode": "PAY_PER_REQUEST", **request})
        while (await backend.call("DescribeTable", {"TableName": name}))["Table"]["TableStatus"] != "ACTIVE":  # noqa: ASYNC110 - another process's state
            await asyncio.sleep(_POLL_SECONDS)
    except ServiceError as error:
        if error.code == "ResourceInUseException":
            raise LocalRunError(f"{backend.endpoint} already has a table {name}; delete it first") from error
        raise LocalRunError(f"the table cannot be created at {backend.endpoint}: {error.code}: {error}") from error


class ServiceError(Exception):
    """A response of DynamoDB that is not a success: `body` goes to the client as it is."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        super().__init__(body.get("message", ""))
        self.status = status
        self.body = body

    @property
    def code(self) -> str:
        """The exception's short name."""
        return str(self.body.get("__type", "")).rpartition("#")[2]


def service_error(
    code: str, message: str, *, status: int = 400, package: str = _SERVICE, **members: object
) -> ServiceError:
    """Build an error of DynamoDB's own or of another package of AWS's, with further members if it has any."""
    return ServiceError(status, {"__type": f"{package}#{code}", "message": message, **members})


def throttling_error(refusals: Iterable[tuple[str, str]]) -> ServiceError:
    """Build the error of pairs of a reason and the ARN of what refused; BatchWriteItem names none."""
    body: dict[str, Any] = {"__type": _THROTTLING_TYPE, "message": THROTTLING_MESSAGE}
    if reasons := [{"reason": reason, "resource": resource} for reason, resource in dict.fromkeys(refusals)]:
        body["throttlingReasons"] = reasons
    return ServiceError(400, body)


@dataclass(frozen=True, slots=True)
class IndexShape:
    """A global secondary index and its limits. `projected` is None when all attributes are."""

    name: str
    resource: Resource
    key_attributes: tuple[str, ...]
    projected: frozenset[str] | None

    def entry(self, item: Item | None) -> dict[str, Any] | None:
        """Build the index entry of an item, or None if the item lacks one of the index's keys (sparse index)."""
        if item is None or any(name not in item for name in self.key_attributes):
            return None
        if self.projected is None:
            return dict(item)
        return {name: value for name, value in item.items() if name in self.projected}

    def partition_key(self, entry: Item) -> str:
        """Return the partition key of an entry."""
        return key_text(entry[self.key_attributes[0]])


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table's keys, limits and global secondary indexes."""

    name: str
    resource: Resource
    key_attributes: tuple[str, ...]
    indexes: tuple[IndexShape, ...] = ()

    @classmethod
    def from_description(cls, table: Mapping[str, Any], model: PartitionModel) -> Self:
        """Read DescribeTable's response."""
        keys = _key_names(table["KeySchema"])
        indexes = tuple(
            _index_shape(index, table["TableArn"], keys, model) for index in table.get("GlobalSecondaryIndexes") or ()
        )
        return cls(table["TableName"], model.resource(table["TableArn"]), keys, indexes)

    def partition_key(self, item: Item) -> str:
        """Return the partition key of an item or key."""
        return key_text(self.primary_key(item)[self.key_attributes[0]])

    def primary_key(self, item: Item) -> dict[str, Any]:
        """Extract the key attributes of an item; one that is missing is a ValidationException."""
        if any(name not in item for name in self.key_attributes):
            message = "The provided key element does not match the schema"
            raise service_error("ValidationException", message, package="com.amazon.coral.validate")
        return {name: item[name] for name in self.key_attributes}

    def index(self, name: str) -> IndexShape | None:
        """Find an index by name."""
        return next((index for index in self.indexes if index.name == name), None)


def key_text(value: Mapping[str, Any]) -> str:
    """Return a key attribute's content as text, whatever its type."""
    return str(next(iter(value.values())))


def _index_shape(
    index: Mapping[str, Any], table_arn: str, table_keys: tuple[str, ...], model: PartitionModel
) -> IndexShape:
    keys = _key_names(index["KeySchema"])
    projection = index.get("Projection", {})
    projected: frozenset[str] | None = None
    if projection.get("ProjectionType", "ALL") != "ALL":
        projected = frozenset((*keys, *table_keys, *projection.get("NonKeyAttributes", ())))
    arn = index.get("IndexArn") or f"{table_arn}/index/{index['IndexName']}"
    return IndexShape(index["IndexName"], model.resource(arn, is_index=True), keys, projected)


def _key_names(schema: list[Mapping[str, str]]) -> tuple[str, ...]:
    ordered = sorted(schema, key=lambda element: element["KeyType"] != "HASH")
    return tuple(element["AttributeName"] for element in ordered)


class Backend:
    """Calls the backend and remembers the shapes of its tables, whose limits are the model's."""

    def __init__(self, session: aiohttp.ClientSession, endpoint: str, model: PartitionModel) -> None:
        self._session = session
        self.endpoint = endpoint
        self._model = model
        self._tables: dict[str, TableShape] = {}

    async def call(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Run one operation and return its result, or raise `ServiceError` with the backend's response."""
        status, body = await self.forward(operation, json.dumps(request).encode(), _OWN_HEADERS)
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
            self._tables[name] = TableShape.from_description(described["Table"], self._model)
        return self._tables[name]

    def forget_tables(self) -> None:
        """Ask for the shapes again; a table was created, changed or deleted."""
        self._tables.clear()
