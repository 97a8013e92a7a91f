"""The product's own requests: each has the same response from the simulator's DynamoDB as from moto.

They are those that the product sends in the simulator while everything fails there: messages, routes and closes, load
items, counters, and a `ShardedTable`. The requests are recorded, and sent to both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from typing import Any
from unittest.mock import patch

from moto import mock_aws

from hotpartition.dynamodb.routing_items import DynamoDBRoutingItems
from hotpartition.dynamodb.threads import ThreadedCalls
from tools.equivalence.compare import plain, require_equal
from tools.local.dynamodb import call_moto
from tools.local.faults import ServiceError
from tools.scenarios import counter_faults, message_faults, table_faults
from tools.world.dynamodb import DynamoDB, DynamoDBError
from tools.world.product import TABLE

Request = Mapping[str, Any]
Send = Callable[[str, Request], None]

Play = Callable[[int], object]
PLAYS: tuple[Play, ...] = (
    message_faults.run,
    lambda seed: message_faults.run(seed, is_in_band=True),
    counter_faults.run_tokens,
    table_faults.run,
)
_NOT_COMPARED = frozenset({"ConsumedCapacity", "ConsumedCapacityUnits", "Table", "TableDescription"})
_NOT_SENT = frozenset({"ClientRequestToken"})
"""moto ignores it."""
MOST_REQUESTS = 4_000
"""Of each play."""


class _Enough(BaseException):
    """As many requests were recorded as are wanted: nothing in the simulator is to catch it."""


def record(play: Play, seed: int, most: int) -> list[tuple[str, Request]]:
    """Play a scenario until it has sent `most` requests, and return them."""
    requests: list[tuple[str, Request]] = []
    call = DynamoDB.call

    def keep(self: DynamoDB, operation: str, request: dict[str, Any], **more: Any) -> Any:
        if len(requests) == most:
            raise _Enough
        requests.append((operation, {name: deepcopy(request[name]) for name in request if name not in _NOT_SENT}))
        return call(self, operation, request, **more)

    with patch.object(DynamoDB, "call", keep), suppress(_Enough):
        play(seed)
    return requests


def record_listing() -> list[tuple[str, Request]]:
    """Return what the product sends to list all routing items of the table of messages."""
    requests: list[tuple[str, Request]] = []

    def keep(operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        requests.append((operation, request))
        return {"Items": []}

    DynamoDBRoutingItems(ThreadedCalls(keep), TABLE.journal).page(None, MOST_REQUESTS)
    return requests


@contextmanager
def on_both(counter: Counter[str]) -> Iterator[Send]:
    """Open moto and the simulator's DynamoDB, and yield what sends a request to both.

    It raises `DifferenceError` where they do not respond alike.
    """
    double = DynamoDB()
    with mock_aws():

        def send(operation: str, request: Request) -> None:
            counter[operation] += 1
            expected, found = (_outcome(call, operation, request) for call in (call_moto, double.call))
            if "LastEvaluatedKey" not in expected:
                # A page that stops at its limit cannot know whether anything follows; moto does.
                found.pop("LastEvaluatedKey", None)
            require_equal((operation, request), expected, found)

        try:
            yield send
        finally:
            for name in call_moto("ListTables", {})["TableNames"]:  # others in this process would find them
                call_moto("DeleteTable", {"TableName": name})


def _outcome(call: Callable[..., Request], operation: str, request: Request) -> dict[str, Any]:
    """Send a request, and lay out what comes of it: of an error its code, and the item that it shows.

    Units and times may differ, and so may the order of an index and of a batch.
    """
    try:
        shown = call(operation, deepcopy(dict(request)))
    except ServiceError as error:
        shown = {"error": error.code, "Item": error.body.get("Item")}
    except DynamoDBError as error:
        shown = {"error": error.code, "Item": error.facts.get("Item")}
    kept = {name: plain(value) for name, value in shown.items() if name not in _NOT_COMPARED and value != {}}
    if isinstance(kept.get("Responses"), dict):
        kept["Responses"] = {name: sorted(items, key=repr) for name, items in kept["Responses"].items()}
    if any("routing_partition" in item for item in kept.get("Items", ())):
        kept["Items"].sort(key=repr)
    return kept


def send_all(send: Send, requests: Iterable[tuple[str, Request]]) -> None:
    """Send requests to both, or raise `DifferenceError`."""
    for operation, request in requests:
        send(operation, request)


def compare_own(counter: Counter[str], seed: int, most: int = MOST_REQUESTS, plays: Sequence[Play] = PLAYS) -> None:
    """Record what the product sends in each play, send it to both, and list all routing items that are there then.

    Raises:
        DifferenceError: a response differs.
    """
    for play in plays:
        with on_both(counter) as send:
            send_all(send, record(play, seed, most))
            if play is not table_faults.run:
                send_all(send, record_listing())
