"""A boto3 client whose requests about items go through libcurl: with Python values, as the client of a resource.

Successful requests take the short way: no hooks, no validation by model, no typed values in between. All else is
boto3's own work. Its client sends requests that do not look right. An error response, and an error of libcurl's, are
handed to it as those of its first attempt: so errors, retries and their waits are its own.

libcurl takes credentials, endpoint, region, time limits, proxy and certificates from the client.
"""

from __future__ import annotations

import re
import time
import uuid
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from threading import local
from typing import Any, NamedTuple

import pycurl  # type: ignore[import-untyped]
from boto3.dynamodb.conditions import ConditionBase, ConditionExpressionBuilder
from boto3.dynamodb.types import DYNAMODB_CONTEXT, Binary, TypeSerializer
from botocore import UNSIGNED, xform_name
from botocore.awsrequest import AWSResponse, HeadersDict
from botocore.exceptions import (
    BotoCoreError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
    SSLError,
)

from hotpartition.aws.credentials import Credentials
from hotpartition.aws.environment import Certificates, find_certificates
from hotpartition.core.errors import StoreUnavailableError
from hotpartition.dynamodb.calls import Call, Response
from hotpartition.dynamodb.curl import CurlCalls, HttpResponse, Result, Target, read_response
from hotpartition.dynamodb.python_values import VALUES_SENT, convert_values

_OPERATIONS = frozenset(
    {
        *("PutItem", "UpdateItem", "DeleteItem", "GetItem", "Query", "Scan"),
        *("BatchGetItem", "BatchWriteItem", "TransactGetItems", "TransactWriteItems"),
    }
)
_CONDITIONS = frozenset({"ConditionExpression", "FilterExpression", "KeyConditionExpression"})
_UNREAD = frozenset(
    {"AttributeUpdates", "AttributesToGet", "ConditionalOperator", "Expected", "KeyConditions", "QueryFilter"}
    | {"ScanFilter"}
)
"""The parameters of 2012, which boto3 is left to convert."""
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "boolean": (bool,),
    "map": (dict,),
    "list": (list, tuple),
    "structure": (dict,),
}
_OK = 200
_NO_ADDRESS = frozenset({pycurl.E_COULDNT_CONNECT, pycurl.E_COULDNT_RESOLVE_HOST, pycurl.E_COULDNT_RESOLVE_PROXY})
_NO_TLS = frozenset({pycurl.E_SSL_CONNECT_ERROR, pycurl.E_PEER_FAILED_VERIFICATION, pycurl.E_SSL_CACERT_BADFILE})
_BEFORE_CONNECTED = re.compile("(Connection|Resolving|SSL connection) timed? ?out|Failed to connect")
RETRY_COST = 14
"""Most that botocore takes from its quota for a retry. Each success of its own gives one back."""

_serialize = TypeSerializer().serialize
_first = local()
"""The outcome of the first attempt of the request that this thread hands to boto3."""


class _Shape(NamedTuple):
    """A value in boto3's model: its types, and the least that it may be, or be long."""

    types: tuple[type, ...]
    least: int = 0
    members: Mapping[str, Any] | None = None
    """The shapes of a structure's members."""
    required: frozenset[str] = frozenset()
    each: Any = None
    """The shape of a map's or list's values; None: items' values, which have Python's types."""


class _Operation(NamedTuple):
    """An operation in boto3's model."""

    members: Mapping[str, _Shape | None]
    required: frozenset[str]
    tokens: Sequence[str]
    """Parameters that make a repetition harmless, and are made up where they are missing."""
    told: frozenset[str]
    """The members of its responses; others are left out."""


class CurlClient:
    """The client of a boto3 resource, or one that behaves like it, with libcurl beneath. Safe under threads."""

    def __init__(self, client: Any) -> None:
        """Open nothing yet.

        Raises:
            ValueError: the client is configured in a way that libcurl does not follow.
        """
        self._client = client
        self._sdk = getattr(client, "sdk_client", client)
        self._calls = _open(self._sdk)
        model = self._sdk.meta.service_model
        self._operations = {name: _describe(model.operation_model(name)) for name in _OPERATIONS}
        self._methods = {xform_name(name): name for name in _OPERATIONS}
        self._owed = 0
        """How many successes botocore waits for until it retries as much as at first."""
        self._sdk.meta.events.register_first("before-send.dynamodb", _give_first, unique_id="hotpartition-curl")

    def __getattr__(self, name: str) -> Any:
        """Return a method about items, or whatever else boto3's client has."""
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._methods:
            return partial(self._call, self._methods[name])
        return getattr(self._client, name)

    def send_at_once(self, calls: Sequence[Call]) -> list[Callable[[], Response]]:
        """Send requests at the same time, on this thread; each returned function gives a response, or raises."""
        bodies = [self._build(*call) for call in calls]
        if self._owed or None in bodies:
            return [partial(self._let_boto3, call) for call in calls]
        came = self._calls.exchange(
            [Call(call.operation, body) for call, body in zip(calls, bodies, strict=True) if body is not None]
        )
        return [partial(self._settle, call, result) for call, result in zip(calls, came, strict=True)]

    def _call(self, operation: str, **request: Any) -> Response:
        (settle,) = self.send_at_once([Call(operation, request)])
        return settle()

    def _settle(self, call: Call, result: Result) -> Response:
        if isinstance(result, HttpResponse) and result.status == _OK:
            content = _read(result, self._operations[call.operation].told)
            if content is not None:
                return content
        return self._let_boto3(call, result)

    def _let_boto3(self, call: Call, result: Result | None = None) -> Response:
        """Make a call through boto3, which takes `result` for that of its first attempt."""
        self._owed = max(0, self._owed - 1)
        if result is not None:
            _first.outcome = _to_sdk(result, self._sdk.meta.endpoint_url)
        try:
            response: Response = getattr(self._client, xform_name(call.operation))(**call.request)
        except Exception as error:
            metadata = getattr(error, "response", {}).get("ResponseMetadata", {})
            self._owed += RETRY_COST * metadata.get("RetryAttempts", isinstance(error, BotoCoreError))
            raise
        finally:
            _first.outcome = None
        return response

    def _build(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """Build a request's body; None where it does not look right, or is one that boto3 must convert."""
        described = self._operations[operation]
        if not described.required <= request.keys() <= described.members.keys():
            return None
        built: dict[str, Any] = {}
        conditions: list[str] = []
        for name, value in request.items():
            if name in _UNREAD:
                return None
            if name in _CONDITIONS and isinstance(value, ConditionBase):
                conditions.append(name)
            elif not _is_right(value, described.members[name]):
                return None
            elif name in _CONVERTED:
                built[name] = _CONVERTED[name](value)
            else:
                built[name] = value
        if conditions:
            _write_conditions(request, built, conditions)
        built |= {name: str(uuid.uuid4()) for name in described.tokens if name not in built}
        return built


class CurlTable:
    """A boto3 `Table`, or one that behaves like it, whose items are reached through a `CurlClient`."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self.meta = _Meta(CurlClient(table.meta.client))

    def __getattr__(self, name: str) -> Any:
        """Return a method about items, or whatever else the table has."""
        if name in {xform_name(operation) for operation in _OPERATIONS}:
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


def _open(client: Any) -> CurlCalls:
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
        certificates = find_certificates({})
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


def _describe(model: Any) -> _Operation:
    required, told = frozenset(model.input_shape.required_members), frozenset(model.output_shape.members)
    return _Operation(_members_of(model.input_shape), required, model.idempotent_members, told)


def _members_of(structure: Any) -> dict[str, _Shape | None]:
    return {name: _shape_of(member) for name, member in structure.members.items()}


def _shape_of(shape: Any) -> _Shape | None:
    """Describe a shape; None: one that is not checked here."""
    if shape.name == "AttributeValue" or shape.type_name not in _TYPES:
        return None
    described = _Shape(_TYPES[shape.type_name], shape.metadata.get("min", 0))
    match shape.type_name:
        case "structure":
            return described._replace(members=_members_of(shape), required=frozenset(shape.required_members))
        case "map":
            return described._replace(each=_shape_of(shape.value))
        case "list":
            return described._replace(each=_shape_of(shape.member))
    return described


def _is_right(value: Any, shape: _Shape | None) -> bool:
    """Say whether boto3 would take a value of such a shape."""
    if shape is None:
        return True
    if type(value) not in shape.types:
        return False
    if isinstance(value, dict) and not all(type(name) is str for name in value):
        return False
    if shape.members is not None:
        return shape.required <= value.keys() <= shape.members.keys() and all(
            _is_right(inner, shape.members[name]) for name, inner in value.items()
        )
    if shape.each is not None:
        values = value.values() if isinstance(value, dict) else value
        if not all(_is_right(inner, shape.each) for inner in values):
            return False
    size: int = value if isinstance(value, int) else len(value)
    return size >= shape.least


def _write_conditions(request: Mapping[str, Any], built: dict[str, Any], names: Sequence[str]) -> None:
    """Write boto3's condition objects as text, as boto3 does."""
    builder = ConditionExpressionBuilder()
    for name in names:
        text, used, values = builder.build_expression(request[name], name.startswith("Key"))
        built[name] = text
        for parameter, added in (("ExpressionAttributeNames", used), ("ExpressionAttributeValues", _dump_all(values))):
            if added:
                built[parameter] = {**built.get(parameter, {}), **added}


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


def _by_table(convert: Callable[[Any], Any], tables: Mapping[str, Any]) -> dict[str, Any]:
    """Convert requests by table, whose names may be those of members."""
    return {name: convert_values(part, convert) for name, part in tables.items()}


def _load_responses(responses: Any) -> Any:
    """Read the items of BatchGetItem, by table, or those of a transaction."""
    if isinstance(responses, list):
        return convert_values(responses, _load_all)
    return {table: [_load_all(item) for item in items] for table, items in responses.items()}


_CONVERTED: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(VALUES_SENT, _dump_all),
    "RequestItems": partial(_by_table, _dump_all),
    "TransactItems": partial(convert_values, convert=_dump_all),
}
_READ: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("Item", "Attributes", "LastEvaluatedKey"), _load_all),
    "Items": lambda items: [_load_all(item) for item in items],
    "ItemCollectionMetrics": partial(convert_values, convert=_load_all),
    "Responses": _load_responses,
    **dict.fromkeys(("UnprocessedKeys", "UnprocessedItems"), partial(_by_table, _load_all)),
}


def _read(result: HttpResponse, told: frozenset[str]) -> Response | None:
    """Read a success; None where it was damaged on its way, or is not JSON."""
    try:
        content = read_response(result)
    except StoreUnavailableError:
        return None
    response: Response = {
        name: _READ[name](value) if name in _READ else value for name, value in content.items() if name in told
    }
    headers = result.headers
    request_id = {"RequestId": headers["x-amzn-requestid"]} if "x-amzn-requestid" in headers else {}
    response["ResponseMetadata"] = {
        **request_id,
        "HTTPStatusCode": result.status,
        "HTTPHeaders": headers,
        "RetryAttempts": 0,
    }
    return response


class _Body(BytesIO):
    """A response's body, as botocore reads one."""

    def stream(self, **_: Any) -> Any:
        """Give all of it."""
        yield self.read()


def _to_sdk(result: Result, endpoint: str) -> AWSResponse | Exception:
    """Build the response or error of botocore's own session."""
    if isinstance(result, HttpResponse):
        headers: Any = HeadersDict(result.headers)
        return AWSResponse(endpoint, result.status, headers, _Body(result.body))
    cause: Any = result.__cause__
    code, text = cause.args
    if code == pycurl.E_OPERATION_TIMEDOUT:
        early = _BEFORE_CONNECTED.search(text)
        return ConnectTimeoutError(endpoint_url=endpoint) if early else ReadTimeoutError(endpoint_url=endpoint)
    if code in _NO_ADDRESS:
        return EndpointConnectionError(endpoint_url=endpoint, error=text)
    if code in _NO_TLS:
        return SSLError(endpoint_url=endpoint, error=text)
    return ConnectionClosedError(endpoint_url=endpoint, error=text)


def _give_first(**_: Any) -> AWSResponse | None:
    """Give botocore the result of the first attempt, once."""
    outcome, _first.outcome = getattr(_first, "outcome", None), None
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
