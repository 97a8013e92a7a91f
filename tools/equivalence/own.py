"""The product's own requests: each has the same response from the simulator's DynamoDB as from moto.

They are those that the product sends in the simulator while everything fails there: messages, routes and closes, load
items, counters, and a `ShardedTable`. The requests are recorded, and sent to both by boto3's client.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from typing import Any
from unittest.mock import patch

from botocore import xform_name

from hotpartition.dynamodb.stored_route import ROUTING_PARTITIONS
from hotpartition_messages.keys import ROUTING_INDEX
from tools.equivalence.calls import Call
from tools.equivalence.compare import Outcome, perform, require_equal
from tools.equivalence.engines import WORLD, open_engine
from tools.scenarios import counter_faults, message_faults, table_faults
from tools.world.dynamodb import DynamoDB
from tools.world.scenario import TABLE_NAME

Request = Mapping[str, Any]
Send = Callable[[str, Request], None]

PLAYS: tuple[Callable[[int], object], ...] = (
    message_faults.run,
    lambda seed: message_faults.run(seed, is_in_band=True),
    counter_faults.run_tokens,
    table_faults.run,
)
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


@contextmanager
def on_both(counter: Counter[str]) -> Iterator[Send]:
    """Open moto and the simulator's DynamoDB, and yield what sends a request to both.

    It raises `DifferenceError` where they do not respond alike.
    """
    with open_engine("moto", is_client=True) as moto, open_engine(WORLD, is_client=True) as world:

        def send(operation: str, request: Request) -> None:
            counter[operation] += 1
            call = Call(xform_name(operation), request)
            expected, found = (_comparable(perform(client, call)) for client in (moto, world))
            if "LastEvaluatedKey" not in expected:
                # A page that stops at its limit cannot know whether anything follows; moto does.
                found.pop("LastEvaluatedKey", None)
            require_equal(call, expected, found)

        try:
            yield send
        finally:
            for name in moto.list_tables()["TableNames"]:  # others in this process would find them
                moto.delete_table(TableName=name)


def _comparable(outcome: Outcome) -> dict[str, Any]:
    """Lay out what came of a request: an index and a batch return items in any order, each describes tables its way."""
    shown = {"error": outcome.error, **(outcome.response or {})}
    shown = {name: value for name, value in shown.items() if not name.startswith("Table")}
    if isinstance(shown.get("Responses"), dict):
        shown["Responses"] = {name: sorted(items, key=repr) for name, items in shown["Responses"].items()}
    if any("routing_partition" in item for item in shown.get("Items", ())):
        shown["Items"] = sorted(shown["Items"], key=repr)
    return shown


def send_all(send: Send, requests: Iterable[tuple[str, Request]]) -> None:
    """Send requests to both, or raise `DifferenceError`."""
    for operation, request in requests:
        send(operation, request)


def compare_own(counter: Counter[str], seed: int, most: int = MOST_REQUESTS) -> None:
    """Record what the product sends in each play, send it to both, and look at all routing items that are there then.

    Raises:
        DifferenceError: a response differs.
    """
    of_index = {"TableName": TABLE_NAME, "IndexName": ROUTING_INDEX, "KeyConditionExpression": "routing_partition = :p"}
    looks = [
        ("Query", {**of_index, "ExpressionAttributeValues": {":p": {"S": f"{number:02d}"}}})
        for number in range(ROUTING_PARTITIONS)
    ]
    for play in PLAYS:
        with on_both(counter) as send:
            send_all(send, [*record(play, seed, most), *(looks if play is not table_faults.run else ())])
