"""A boto3 `Table` whose requests about items go through libcurl: with Python values, as those of a resource.

boto3 gives credentials, endpoint, region, time limits, proxy and certificates; its exceptions are raised. Its hooks do
not run, and its model checks no parameters: DynamoDB says what is wrong with them. An outcome that may be another one a
moment later (no response, or one of 5xx) is tried again here; a refusal for a limit is the table's to try again.
"""

from __future__ import annotations

import time
import uuid
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pycurl  # type: ignore[import-untyped]
from boto3.dynamodb.types import DYNAMODB_CONTEXT, Binary, TypeSerializer
from botocore import UNSIGNED, xform_name
from botocore.exceptions import EndpointConnectionError, HTTPClientError, NoCredentialsError, ReadTimeoutError

from hotpartition.core.access import Certificates, Credentials
from hotpartition.core.backoff import Budget, Clock
from hotpartition.core.errors import StoreUnavailableError
from hotpartition.dynamodb.calls import Call, Response
from hotpartition.dynamodb.curl import CurlCalls, HttpResponse, Result, Target, read_content
from hotpartition.dynamodb.python_values import convert_member, convert_values, write_conditions

_OPERATIONS = frozenset(
    {
        *("PutItem", "UpdateItem", "DeleteItem", "GetItem", "Query", "Scan"),
        *("BatchGetItem", "BatchWriteItem", "TransactGetItems", "TransactWriteItems"),
    }
)
_METHODS = {xform_name(operation): operation for operation in _OPERATIONS}
_OF_2012 = frozenset(
    {"AttributeUpdates", "AttributesToGet", "ConditionalOperator", "Expected", "KeyConditions", "QueryFilter"}
    | {"ScanFilter"}
)
"""Parameters that boto3 is left to convert."""
_OK = 200
_SERVER_ERROR_STATUS = 500
_NO_ADDRESS = frozenset({pycurl.E_COULDNT_CONNECT, pycurl.E_COULDNT_RESOLVE_HOST, pycurl.E_COULDNT_RESOLVE_PROXY})

_serialize = TypeSerializer().serialize


class CurlClient:
    """The client of a boto3 resource, or one that behaves like it, with libcurl beneath. Safe under threads."""

    def __init__(self, client: Any, clock: Clock, budget_ms: float, trusted: Certificates) -> None:
        """Open nothing yet; `budget_ms` is how long a request may be tried again.

        `trusted` are the machine's authorities, for a client that names none.

        Raises:
            ValueError: the client is configured in a way that libcurl does not follow.
        """
        self._client = client
        self._clock = clock
        self._budget_ms = budget_ms
        self._calls = _open(client, trusted)

    def __getattr__(self, name: str) -> Any:
        """Return a method about items, or whatever else boto3's client has."""
        if name.startswith("_"):
            raise AttributeError(name)
        return partial(self._call, _METHODS[name]) if name in _METHODS else getattr(self._client, name)

    def send_at_once(self, calls: Sequence[Call]) -> list[Callable[[], Response]]:
        """Send requests at the same time, on this thread; each returned function gives a response, or raises."""
        built = [Call(call.operation, _build(call)) for call in calls]
        came = self._calls.exchange(built)
        return [partial(self._settle, call, result) for call, result in zip(built, came, strict=True)]

    def _call(self, operation: str, **request: Any) -> Response:
        if _OF_2012 & request.keys():
            passed: Response = getattr(self._client, xform_name(operation))(**request)
            return passed
        (settle,) = self.send_at_once([Call(operation, request)])
        return settle()

    def _settle(self, call: Call, result: Result) -> Response:
        """Return a response, after further attempts if need be.

        Raises:
            ClientError: boto3's, with DynamoDB's code.
            BotoCoreError: there was no response within the budget.
        """
        budget = Budget(self._clock, self._budget_ms, from_refusal=True)
        attempts = 0
        while True:
            content, failure = self._read(call, result, attempts)
            if failure is None:
                return content
            status = result.status if isinstance(result, HttpResponse) else _SERVER_ERROR_STATUS
            is_passing = status >= _SERVER_ERROR_STATUS or status == _OK
            if not is_passing or not budget.wait():
                raise failure
            attempts += 1
            (result,) = self._calls.exchange([call])

    def _read(self, call: Call, result: Result, attempts: int) -> tuple[Response, Exception | None]:
        """Read a result: a response, or the error to raise for it."""
        if isinstance(result, StoreUnavailableError):
            return {}, _no_response(result, self._client.meta.endpoint_url)
        try:
            content = read_content(result)
        except StoreUnavailableError as error:
            return {}, HTTPClientError(error=error)
        headers = result.headers
        metadata: Response = {"HTTPStatusCode": result.status, "HTTPHeaders": headers, "RetryAttempts": attempts}
        if "x-amzn-requestid" in headers:
            metadata["RequestId"] = headers["x-amzn-requestid"]
        if result.status == _OK:
            return {**convert_values(content, _load_all), "ResponseMetadata": metadata}, None
        code = str(content.pop("__type", result.status)).partition(":")[0].rpartition("#")[2]
        message = str(content.get("message") or content.get("Message") or "")
        facts = {**decode_binary(content), "Error": {"Message": message, "Code": code}, "ResponseMetadata": metadata}
        failure: Exception = self._client.exceptions.from_code(code)(facts, call.operation)
        return {}, failure


class CurlTable:
    """A boto3 `Table`, or one that behaves like it, whose items are reached through a `CurlClient`."""

    def __init__(self, table: Any, clock: Clock, budget_ms: float, trusted: Certificates) -> None:
        """Open nothing yet; arguments as of `CurlClient`."""
        self._table = table
        self.meta = _Meta(CurlClient(table.meta.client, clock, budget_ms, trusted))

    def __getattr__(self, name: str) -> Any:
        """Return a method about items, or whatever else the table has."""
        if name in _METHODS:
            return partial(getattr(self.meta.client, name), TableName=self._table.name)
        return getattr(self._table, name)


class _Meta(NamedTuple):
    client: CurlClient


class _ClientCredentials:
    """`CredentialSource` over those of a boto3 client, which refreshes them."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def get(self) -> Credentials:
        """Implement `CredentialSource.get`."""
        found = self._client._get_credentials()  # noqa: SLF001 - nothing public gives them
        if found is None:
            raise NoCredentialsError
        frozen = found.get_frozen_credentials()
        return Credentials(frozen.access_key, frozen.secret_key, frozen.token or "")

    def forget(self) -> None:
        """Do nothing: boto3 refreshes them in time."""


def _open(client: Any, trusted: Certificates) -> CurlCalls:
    """Open libcurl as a boto3 client is configured."""
    config = client.meta.config
    if config.signature_version is UNSIGNED or config.client_cert or config.proxies_config:
        raise ValueError("curl() signs requests, and knows no client_cert and no proxies_config: leave out transport=")
    endpoint: str = client.meta.endpoint_url
    verify = getattr(client._endpoint.http_session, "_verify", True)  # noqa: SLF001 - nothing public gives it
    certificates = Certificates()
    if isinstance(verify, str):
        certificates = Certificates(folder=verify) if Path(verify).is_dir() else Certificates(file=verify)
    elif verify and endpoint.startswith("https"):
        certificates = trusted
    target = Target(
        endpoint=endpoint,
        region=client.meta.region_name,
        certificates=certificates,
        connect_timeout_seconds=config.connect_timeout,
        timeout_seconds=config.connect_timeout + config.read_timeout,
        is_verified=verify is not False,
        proxy=(config.proxies or {}).get(endpoint.partition(":")[0], ""),
    )
    return CurlCalls(
        target,
        _ClientCredentials(client),
        timer=time.monotonic,
        now_seconds=time.time,
        parallel=config.max_pool_connections,
    )


def _no_response(error: StoreUnavailableError, endpoint: str) -> Exception:
    """Build boto3's error for a request that got no response."""
    cause: Any = error.__cause__
    code, text = cause.args
    if code in _NO_ADDRESS:
        return EndpointConnectionError(endpoint_url=endpoint, error=text)
    if code == pycurl.E_OPERATION_TIMEDOUT:
        return ReadTimeoutError(endpoint_url=endpoint)
    return HTTPClientError(error=text)


def _build(call: Call) -> dict[str, Any]:
    """Build a request's body: the same one in every attempt."""
    built = {name: convert_member(name, value, _dump_all) for name, value in write_conditions(call.request).items()}
    if call.operation == "TransactWriteItems":
        # With it, a repetition is harmless.
        built.setdefault("ClientRequestToken", str(uuid.uuid4()))
    return built


def _dump(value: Any) -> dict[str, Any]:
    """Build the typed form of a Python value, as JSON has it."""
    kind = type(value)
    if kind is str:
        return {"S": value}
    if kind is dict:
        return {"M": _dump_all(value)}
    if kind is list:
        return {"L": [_dump(each) for each in value]}
    typed: dict[str, Any] = _as_json(_serialize(value))
    return typed


def _dump_all(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _dump(value) for name, value in values.items()}


def _as_json(typed: Any) -> Any:
    """Encode the binary values in a typed value."""
    match typed:
        case dict():
            return {name: _as_json(value) for name, value in typed.items()}
        case list():
            return [_as_json(value) for value in typed]
        case bytes() | bytearray():
            return b64encode(typed).decode()
        case _:
            return typed


def decode_binary(typed: Any) -> Any:
    """Decode the binary values in a typed value."""
    match typed:
        case {"B": str(text)} if len(typed) == 1:
            return {"B": b64decode(text)}
        case {"BS": list(texts)} if len(typed) == 1:
            return {"BS": [b64decode(text) for text in texts]}
        case dict():
            return {name: decode_binary(value) for name, value in typed.items()}
        case list():
            return [decode_binary(value) for value in typed]
        case _:
            return typed


_number = DYNAMODB_CONTEXT.create_decimal
_LOADS: Mapping[str, Callable[[Any], Any]] = {
    "S": str,
    "N": _number,
    "M": lambda values: {name: _load(value) for name, value in values.items()},
    "L": lambda values: [_load(each) for each in values],
    "BOOL": bool,
    "NULL": lambda _: None,
    "B": lambda text: Binary(b64decode(text)),
    "SS": set,
    "NS": lambda texts: set(map(_number, texts)),
    "BS": lambda texts: {Binary(b64decode(text)) for text in texts},
}


def _load(typed: Mapping[str, Any]) -> Any:
    """Read a value out of its typed form."""
    ((kind, value),) = typed.items()
    return _LOADS[kind](value)


def _load_all(values: Mapping[str, Any]) -> dict[str, Any]:
    # Most values are texts, and need no call.
    return {name: typed["S"] if "S" in typed else _load(typed) for name, typed in values.items()}
