"""Tables on the simulator's DynamoDB, held to moto by the equivalence machine: it refuses and responds on request.

It is long for what its `Watched` can do to a request, so that a test says in a line what is refused, lost or overtaken.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ReadTimeoutError

from hotpartition.core.route import Generation
from hotpartition.table import ShardedTable, fixed
from support.tables import pretend_account
from tools.limits.request_tokens import RequestTokens
from tools.world.boto3_calls import take_calls
from tools.world.dynamodb import DynamoDB, throttled

KEY_RANGE = "TableWriteKeyRangeThroughputExceeded"
INDEXES = {"by-owner": ("owner", "at"), "inverted": ("SK", "PK")}
READINGS = {"indexes": INDEXES, "local": {"by-status": ("PK", "status")}}

Body = dict[str, Any]
Respond = Callable[[str, Body], Body | None]


def updating(expression: str, **values: Any) -> Body:
    """Write an update's expression with its values, by their names."""
    return {"UpdateExpression": expression, "ExpressionAttributeValues": {f":{n}": v for n, v in values.items()}}


def put_all(table: Any, items: Iterable[Body], **options: Any) -> None:
    """Put items by a batch writer."""
    with table.batch_writer(**options) as batch:
        for item in items:
            batch.put_item(Item=item)


def raise_key(table: Any, key: str, shard_count: int, sort_key: Any = "r#") -> None:
    """Add a generation to a key's routing item, which lies where the default place has it."""
    added = {Generation(0, shard_count).encode()}
    table.update_item(Key={"PK": key, "SK": sort_key}, **updating("ADD generations :added", added=added))


def writes_to(operation: str, body: Body) -> str | None:
    """Return the partition key that a write of one item goes to; None for any other request."""
    attributes = body.get("Item") or body.get("Key")
    return attributes["PK"]["S"] if attributes and "PK" in attributes and operation != "GetItem" else None


def fail_with(error: Exception) -> Callable[[Body], Body]:
    """Build a response that is an error."""

    def fail(_: Body) -> Body:
        raise error

    return fail


@dataclass
class Watched:
    """The DynamoDB under the tables: what it was sent, what it refuses, and what happens meanwhile."""

    dynamodb: DynamoDB = field(default_factory=DynamoDB)
    sent: Counter[str] = field(default_factory=Counter)
    places: list[tuple[str, str]] = field(default_factory=list)
    """Operation and partition key of each write of one item, in order."""
    queried: list[str] = field(default_factory=list)
    """The partition key of each query, in order."""
    refuses: Callable[[str, Body], str | None] = lambda operation, body: None
    """Returns the reason why a request is throttled, or None."""
    responds: Respond = lambda operation, body: None
    """Returns a response to give in place of DynamoDB's, or None. It may raise an error."""

    def forget(self) -> None:
        """Watch anew; the tables stay."""
        self.dynamodb.tokens = RequestTokens()
        vars(self).update(vars(Watched(self.dynamodb)))

    def call(self, operation: str, body: Body) -> Any:
        """Do what a request asks for."""
        self.sent[operation] += 1
        if place := writes_to(operation, body):
            self.places.append((operation, place))
        if operation == "Query":
            values = body["ExpressionAttributeValues"]
            self.queried.append(values.get(":hpp", values.get(":pk", {})).get("S", ""))
        response = self.responds(operation, body)
        if response is not None:
            return response
        if reason := self.refuses(operation, body):
            raise throttled(reason)
        return self.dynamodb.call(operation, body)

    def once_before(self, operation: str, act: Callable[[], Any]) -> None:
        """Do something just before the first request of an operation."""
        self.respond_once(operation, lambda _: act() and None)

    def respond_once(self, operation: str, response: Callable[[Body], Body | None]) -> None:
        """Respond to the first request of an operation in DynamoDB's place."""
        left = [response]
        self.responds = lambda sent, body: left.pop()(body) if sent == operation and left else None

    def lose_response(self, operation: str) -> None:
        """Carry out the first request of an operation, whose response gets lost."""

        def lose(body: Body) -> Body:
            self.call(operation, body)
            raise ReadTimeoutError(endpoint_url="test")

        self.respond_once(operation, lose)


@pytest.fixture(scope="session")
def server() -> Watched:
    """The DynamoDB of all tests: their tables have names of their own, or are deleted."""
    return Watched()


@pytest.fixture
def watched(server: Watched) -> Iterator[Watched]:
    """What is sent to the tables."""
    server.forget()
    yield server
    server.forget()


@pytest.fixture(scope="session")
def dynamodb(server: Watched) -> Iterator[Any]:
    """boto3's resource on it, with one attempt a request. Making one takes longer than a test."""
    with pytest.MonkeyPatch.context() as patch:
        pretend_account(patch)
        resource = boto3.resource("dynamodb", config=Config(retries={"total_max_attempts": 1}))
        take_calls(resource.meta.client, server.call)
        yield resource


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
