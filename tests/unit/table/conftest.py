"""A table on moto, in this process: no network."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from hotpartition.core.route import Generation
from hotpartition.table import ShardedTable, fixed
from support.tables import define_table
from tools.limits.request_tokens import RequestTokenError, RequestTokens

KEY_RANGE = "TableWriteKeyRangeThroughputExceeded"

READINGS = {"indexes": {"by-owner": ("owner", "at")}, "local": {"by-status": ("PK", "status")}}


def updating(expression: str, **values: Any) -> dict[str, Any]:
    """Write an update's expression with its values, by their names."""
    return {"UpdateExpression": expression, "ExpressionAttributeValues": {f":{n}": v for n, v in values.items()}}


def put_all(table: Any, items: Iterable[dict[str, Any]], **options: Any) -> None:
    """Put items by a batch writer."""
    with table.batch_writer(**options) as batch:
        for item in items:
            batch.put_item(Item=item)


def raise_key(table: Any, key: str, shard_count: int, since_ms: int = 0) -> None:
    """Add a generation to a key's routing item, as the default place has it."""
    added = {Generation(since_ms, shard_count).encode()}
    table.update_item(Key={"PK": key, "SK": "r#"}, **updating("ADD generations :added", added=added))


def writes_to(operation: str, body: dict[str, Any]) -> str | None:
    """Return the partition key that a write of one item goes to; None for any other request."""
    attributes = body.get("Item") or body.get("Key")
    return attributes["PK"]["S"] if attributes and "PK" in attributes and operation != "GetItem" else None


@dataclass
class Watched:
    """What a table's client sent, and which writes to refuse."""

    client: Any
    sent: Counter[str] = field(default_factory=Counter)
    places: list[tuple[str, str]] = field(default_factory=list)
    """Operation and partition key of each write of one item, in order."""
    refuses: Callable[[str, dict[str, Any]], str | None] = lambda operation, body: None
    """Returns the reason why a request is throttled, or None."""

    responds: Callable[[str, dict[str, Any]], dict[str, Any] | None] = lambda operation, body: None
    """Returns a response to give without asking the table, or None."""
    queried: list[str] = field(default_factory=list)
    """The partition key of each query, in order."""

    def __post_init__(self) -> None:
        self.client.meta.events.register("before-call.dynamodb", self._on_call)

    def once_before(self, operation: str, act: Callable[[], Any]) -> None:
        """Do something just before the first request of an operation."""
        left = [act]

        def refuse_none(sent: str, _: Any) -> None:
            if sent == operation and left:
                left.pop()()

        self.refuses = refuse_none

    def respond_once(self, operation: str, response: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Respond to the first request of an operation without asking the table."""
        left = [response]
        self.responds = lambda sent, body: left.pop()(body) if sent == operation and left else None

    def stop(self) -> None:
        """Watch no longer."""
        self.client.meta.events.unregister("before-call.dynamodb", self._on_call)

    def _on_call(self, model: Any, params: dict[str, Any], **_: Any) -> tuple[Any, dict[str, Any]] | None:
        body = json.loads(params["body"])
        self.sent[model.name] += 1
        if place := writes_to(model.name, body):
            self.places.append((model.name, place))
        if model.name == "Query":
            self.queried.append(body["ExpressionAttributeValues"].get(":hpp", {}).get("S", ""))
        if response := self.responds(model.name, body):
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 200)
            return SimpleNamespace(status_code=status), response
        reason = self.refuses(model.name, body)
        return None if reason is None else (SimpleNamespace(status_code=400), throttle(reason))


def throttle(reason: str) -> dict[str, Any]:
    """Build DynamoDB's refusal, as botocore has parsed it."""
    code = "ProvisionedThroughputExceededException"
    return {
        "Error": {"Code": code, "Message": "too fast"},
        "ResponseMetadata": {"HTTPStatusCode": 400},
        "ThrottlingReasons": [{"reason": reason, "resource": "arn"}],
    }


@pytest.fixture
def plain(create: Callable[..., Any]) -> Any:
    """boto3's own `Table`, empty."""
    return create("readings", "PK", "SK", **READINGS)


@pytest.fixture
def table(plain: Any) -> ShardedTable:
    """That table, over four shards."""
    return ShardedTable(plain, shards=fixed(4))


@pytest.fixture
def twin(create: Callable[..., Any]) -> Any:
    """A second table of boto3's, empty: what the first one's calls are compared with."""
    return create("twin", "PK", "SK", **READINGS)


@pytest.fixture(scope="class")
def kept(dynamodb: Any) -> Iterator[Any]:
    """boto3's own `Table`, empty: filled once for tests that read the same."""
    table = dynamodb.create_table(TableName="kept", **define_table("PK", "SK", **READINGS))
    yield table
    table.delete()


@pytest.fixture
def watched(dynamodb: Any) -> Iterator[Watched]:
    """What is sent to the tables."""
    watched = Watched(dynamodb.meta.client)
    yield watched
    watched.stop()


@dataclass
class Aws:
    """A table, a resource and a client of it, what happens to their writes, and a client whose writes just happen."""

    raw: Any
    resource: Any
    client: Any
    tokens: RequestTokens
    sent: int = 0
    """How many writes were sent."""
    loses: Callable[[], bool] = lambda: False
    """Says whether the response of a write is lost."""

    @property
    def items(self) -> list[dict[str, Any]]:
        return self.raw.scan(TableName="counters")["Items"]

    def on_call(self, model: Any, params: Any, **_: Any) -> Any:
        """Carry out a write in place of the client that sends it."""
        if model.name not in {"UpdateItem", "TransactWriteItems"}:
            return None
        self.sent += 1
        response = self._happen(model.name, json.loads(params["body"]))
        if self.loses():
            raise ReadTimeoutError(endpoint_url="test")
        return SimpleNamespace(status_code=200), response

    def _happen(self, operation: str, request: Any) -> Any:
        try:
            is_new = self.tokens.begin(request)
        except RequestTokenError as error:
            refusal = {"Code": error.code, "Message": "test"}
            facts: Any = {"Error": refusal, "ResponseMetadata": {"HTTPStatusCode": 400}}
            raise ClientError(facts, operation) from error
        if not is_new:
            return {}
        self.tokens.end(request, is_done=True)
        return self.raw._make_api_call(operation, request)


@pytest.fixture(scope="module")
def clients(dynamodb: Any) -> list[Any]:
    """Two clients: to make them takes longer than a test."""
    return [boto3.client("dynamodb", config=dynamodb.meta.client.meta.config) for _ in range(2)]


@pytest.fixture
def aws(dynamodb: Any, clients: list[Any], create: Callable[..., Any]) -> Iterator[Aws]:
    """A table named `counters`, empty."""
    raw, client = clients
    made = Aws(raw, dynamodb, client, RequestTokens(lambda: 0.0))
    create("counters", "PK", "SK")
    events = [each.meta.events for each in (dynamodb.meta.client, client)]
    for each in events:
        each.register("before-call.dynamodb", made.on_call)
    yield made
    for each in events:
        each.unregister("before-call.dynamodb", made.on_call)
