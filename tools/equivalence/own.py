"""The product's own requests: each has the same response from the simulator's DynamoDB as from moto.

They are those that the product sends in the simulator while everything fails there: messages, routes and closes, load
items, counters, and a `ShardedTable`. The requests are recorded, and sent to both, one after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from typing import Any
from unittest.mock import patch

from moto import mock_aws

from hotpartition.dynamodb.routing_items import DynamoDBRoutingItems
from hotpartition.dynamodb.threads import ThreadedCalls
from hotpartition_messages.keys import describe_table
from tools.equivalence.compare import plain, require_equal
from tools.local.dynamodb import call_moto
from tools.local.faults import ServiceError
from tools.scenarios import counter_faults, message_faults, table_faults
from tools.world.dynamodb import DynamoDB, DynamoDBError
from tools.world.scenario import TABLE_NAME

Request = Mapping[str, Any]
Send = Callable[[str, dict[str, Any]], Mapping[str, Any]]

PLAYS: tuple[Callable[[int], object], ...] = (
    message_faults.run,
    lambda seed: message_faults.run(seed, is_in_band=True),
    counter_faults.run_tokens,
    table_faults.run,
)
_NOT_COMPARED = frozenset({"ConsumedCapacity", "ConsumedCapacityUnits", "Table", "TableDescription"})
MOST_REQUESTS = 4_000
"""Of each play."""


class _Enough(BaseException):
    """As many requests were recorded as are wanted: nothing in the simulator is to catch it."""


def record(play: Callable[[int], object], seed: int, most: int) -> list[tuple[str, Request]]:
    """Play a scenario until it has sent `most` requests, and return them."""
    requests: list[tuple[str, Request]] = []
    call = DynamoDB.call

    def keep(self: DynamoDB, operation: str, request: dict[str, Any], **more: Any) -> Any:
        if len(requests) == most:
            raise _Enough
        requests.append((operation, deepcopy(request)))
        return call(self, operation, request, **more)

    with patch.object(DynamoDB, "call", keep), suppress(_Enough):
        play(seed)
    return requests


class Both:
    """moto and the simulator's DynamoDB, which are sent each request one after the other."""

    def __init__(self, counter: Counter[str]) -> None:
        self._counter = counter
        self._double = DynamoDB()
        self._tables: list[str] = []

    def call(self, operation: str, request: Request) -> Any:
        """Send a request to both, and return what came of it.

        Raises:
            DifferenceError: they do not respond alike.
        """
        self._counter[operation] += 1
        self._tables += [request["TableName"]] if operation == "CreateTable" else []
        expected = _outcome(call_moto, operation, _complete(request) if operation == "CreateTable" else request)
        found = _outcome(self._double.call, operation, request)
        if "LastEvaluatedKey" not in expected:
            # A page that stops at its limit cannot know whether anything follows; moto does.
            found.pop("LastEvaluatedKey", None)
        require_equal((operation, request), _comparable(expected), _comparable(found))
        return expected

    def drop(self) -> None:
        """Drop moto's tables, which others in this process would find."""
        for name in self._tables:
            call_moto("DeleteTable", {"TableName": name})


def _outcome(send: Send, operation: str, request: Request) -> dict[str, Any]:
    """Send a request; of an error its code is kept, and the item that it shows."""
    try:
        return dict(send(operation, deepcopy(dict(request))))
    except ServiceError as error:
        return {"error": error.code, "Item": error.body.get("Item")}
    except DynamoDBError as error:
        return {"error": error.code, "Item": error.facts.get("Item")}


def _complete(creation: Request) -> Request:
    """Complete the creation of a table by what DynamoDB needs, and the simulator does not."""
    projection = {"Projection": {"ProjectionType": "ALL"}}
    indexes = [{**index, **projection} for index in creation.get("GlobalSecondaryIndexes", ())]
    keys = {key["AttributeName"] for each in (creation, *indexes) for key in each["KeySchema"]}
    attributes = [{"AttributeName": key, "AttributeType": "S"} for key in sorted(keys)]
    complete = {**creation, "AttributeDefinitions": attributes, "BillingMode": "PAY_PER_REQUEST"}
    return complete | ({"GlobalSecondaryIndexes": indexes} if indexes else {})


def _comparable(outcome: Mapping[str, Any]) -> Mapping[str, Any]:
    """Leave out what may differ: units, times, and the order of an index and of a batch."""
    kept = {name: plain(value) for name, value in outcome.items() if name not in _NOT_COMPARED and value != {}}
    if isinstance(kept.get("Responses"), dict):
        kept["Responses"] = {name: sorted(items, key=repr) for name, items in kept["Responses"].items()}
    if any("routing_partition" in item for item in kept.get("Items", ())):
        kept["Items"].sort(key=repr)
    return kept


@contextmanager
def on_both(counter: Counter[str]) -> Iterator[Both]:
    """Open both, and drop the tables that were made there."""
    with mock_aws():
        both = Both(counter)
        try:
            yield both
        finally:
            both.drop()


def send_all(both: Both, requests: Iterable[tuple[str, Request]]) -> None:
    """Send requests to both, or raise `DifferenceError`."""
    for operation, request in requests:
        both.call(operation, request)


def compare_own(counter: Counter[str], seed: int, most: int = MOST_REQUESTS) -> None:
    """Record what the product sends in each play, send it to both, and walk over what routing items are there then.

    Raises:
        DifferenceError: a response differs.
    """
    for play in PLAYS:
        with on_both(counter) as both:
            send_all(both, record(play, seed, most))
            if play is not table_faults.run:
                place = describe_table(TABLE_NAME).journal
                DynamoDBRoutingItems(ThreadedCalls(both.call), place).page(None, MOST_REQUESTS)
