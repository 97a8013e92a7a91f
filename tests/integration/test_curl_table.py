"""`transport=curl()`: what boto3's `Table` responds and raises, without what boto3 spends on it.

Its requests are written out, right ones and wrong ones: what each has to come to, boto3 itself says.
"""

from __future__ import annotations

from decimal import Decimal
from threading import get_ident
from typing import Any

import boto3
import pytest
from boto3.dynamodb.conditions import Attr, Key
from botocore.config import Config
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import HTTPClientError

from hotpartition.core.access import Certificates
from hotpartition.dynamodb.curl_table import CurlTable
from hotpartition.table import ShardedTable, curl, fixed
from support.fakes import FakeClock
from support.servers import closed_port, error
from support.tables import define_table

KEY = {"PK": "room", "SK": "1"}
EVERY_TYPE = {
    **KEY,
    "text": "grüß dich",
    "empty": "",
    "number": Decimal("12.50"),
    "large": 10**30,
    "flag": True,
    "nothing": None,
    "binary": b"\x00\xff",
    "list": [1, "two", {"three": 3}, [b"4"]],
    "map": {"a": {"b": [None, False]}},
    "texts": {"a"},
    "numbers": {1, Decimal("2.5")},
    "binaries": {b"x"},
}
"""Sets of texts have one member: an error shows an item as it is stored, in the order in which it was sent."""
OTHER = {"PK": "room", "SK": "9", "n": 5, "b": b"9"}
THROTTLED = error(
    "ProvisionedThroughputExceededException", ThrottlingReasons=[{"reason": "TableWriteKeyRangeThroughputExceeded"}]
)
ONCE = Config(retries={"total_max_attempts": 1, "mode": "standard"})


def curled(table) -> CurlTable:
    """Reach a table through libcurl, with a budget on a clock that stands but for waits."""
    return CurlTable(table, FakeClock().as_clock(), 1_000.0, Certificates())


@pytest.fixture
def server(dynamodb):
    """DynamoDB with an empty table."""
    dynamodb.client.create_table(TableName="readings", **define_table("PK", "SK"))
    return dynamodb.server


def open_table(**options) -> Any:
    """Open the table with a client that tries once."""
    return boto3.resource("dynamodb", config=ONCE.merge(Config(**options))).Table("readings")


def outcome(table, method, request) -> Any:
    """What a call responds, or what it raises, as its caller sees it."""
    owner = table.meta.client if method.startswith(("batch", "transact")) else table
    try:
        response = getattr(owner, method)(**request)
    except Exception as raised:  # noqa: BLE001 - the tests compare it
        facts = {**getattr(raised, "response", {})}
        facts.pop("ResponseMetadata", None)
        return type(raised).__name__, str(raised).replace(" (reached max retries: 0)", ""), facts
    metadata = response.pop("ResponseMetadata")
    assert metadata.keys() >= {"HTTPStatusCode", "HTTPHeaders", "RetryAttempts"}
    return response, metadata["HTTPStatusCode"], metadata["RetryAttempts"]


OF_ROOM = {"KeyConditionExpression": Key("PK").eq("room") & Key("SK").begins_with("1")}
CHANGE = {
    "UpdateExpression": "SET #n = :n ADD numbers :s",
    "ExpressionAttributeNames": {"#n": "number"},
    "ExpressionAttributeValues": {":n": 7, ":s": {9}},
    "ReturnValues": "ALL_NEW",
}
TAKEN = {"ConditionExpression": Attr("PK").not_exists(), "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
ACTIONS = [
    {"Put": {"TableName": "readings", "Item": OTHER}},
    {"Delete": {"TableName": "readings", "Key": {"PK": "room", "SK": "8"}}},
]
CALLS = {
    "get": ("get_item", {"Key": KEY, "ConsistentRead": True}),
    "query": ("query", OF_ROOM),
    "filter": ("scan", {"FilterExpression": Attr("number").gt(1) & Attr("texts").contains("a"), "Limit": 5}),
    "projection": ("scan", {"ProjectionExpression": "#m.a", "ExpressionAttributeNames": {"#m": "map"}}),
    "old": ("put_item", {"Item": KEY, "ReturnValues": "ALL_OLD"}),
    "condition": ("put_item", {"Item": KEY, **TAKEN}),
    "update": ("update_item", {"Key": KEY, **CHANGE}),
    "delete": ("delete_item", {"Key": KEY, "ReturnValues": "ALL_OLD", "ReturnConsumedCapacity": "TOTAL"}),
    "a float": ("put_item", {"Item": {**KEY, "ratio": 1.5}}),
    "a number too long": ("put_item", {"Item": {**KEY, "ratio": 10**40 + 1}}),
    "an unknown name": ("get_item", {"Key": KEY, "ProjectionExpression": "#unknown"}),
    "an unknown index": ("query", {"IndexName": "nope", **OF_ROOM}),
    "2012": ("get_item", {"Key": KEY, "AttributesToGet": ["number"]}),
    "batch of writes": ("batch_write_item", {"RequestItems": {"readings": [{"PutRequest": {"Item": OTHER}}]}}),
    "batch": ("batch_get_item", {"RequestItems": {"readings": {"Keys": [KEY], "ConsistentRead": True}}}),
    "transaction": ("transact_write_items", {"TransactItems": ACTIONS}),
    "transaction of reads": ("transact_get_items", {"TransactItems": [{"Get": {"TableName": "readings", "Key": KEY}}]}),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_comes_to_the_same(server, name):
    """Right ones and wrong ones, with the same texts; so does the table after it."""
    outcomes = []
    for wrap in (lambda table: table, curled):
        wrap(open_table()).put_item(Item=EVERY_TYPE)
        outcomes.append([outcome(wrap(open_table()), *CALLS[name]), open_table().scan()["Items"]])
    assert outcomes[0] == outcomes[1]


def test_a_refusal_for_a_limit_is_raised_at_once(server):
    """With what boto3's error has: the table that is wrapped tries again."""
    outcomes = []
    for table in (open_table(), curled(open_table())):
        server.script.append(THROTTLED)
        server.asked.clear()
        outcomes.append((outcome(table, "put_item", {"Item": KEY}), len(server.asked)))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("failure", [error("InternalServerError", 500), (200, ["no object"])])
def test_what_may_pass_is_tried_again_within_the_budget(server, failure):
    """The response says how often; after the budget it is boto3's error. A transaction keeps its token."""
    table = curled(open_table())
    server.script.extend([failure] * 3)
    assert table.put_item(Item=KEY)["ResponseMetadata"]["RetryAttempts"] == 3
    server.script.extend([failure] * 1000)
    with pytest.raises((table.meta.client.exceptions.InternalServerError, HTTPClientError)):
        table.put_item(Item=KEY)
    server.script.clear()
    server.script.append(failure)
    server.asked.clear()
    table.meta.client.transact_write_items(TransactItems=[{"Put": {"TableName": "readings", "Item": KEY}}])
    first, second = (request["ClientRequestToken"] for _, request in server.asked)
    assert first == second


def test_no_response_is_boto3s_error(aws_environment):
    """Of the same type, for a port where nobody listens."""
    with closed_port() as port:
        plain = boto3.resource("dynamodb", endpoint_url=f"http://127.0.0.1:{port}", config=ONCE).Table("readings")
        types = [outcome(table, "put_item", {"Item": KEY})[0] for table in (plain, curled(plain))]
    assert types == ["EndpointConnectionError"] * 2


def test_a_page_is_read_on_one_thread(server, monkeypatch):
    """All shards at the same time, by libcurl."""
    table = ShardedTable(open_table(), shards=fixed(4), transport=curl())
    for number in range(12):
        table.put_item(Item={"PK": "room", "SK": f"{number:02}", "n": number})
    threads = set()
    calls = table._open("Query").items.sharding.table.table.meta.client._calls
    exchange = calls.exchange
    note = lambda requests: threads.add((get_ident(), len(requests))) or exchange(requests)  # noqa: E731
    monkeypatch.setattr(calls, "exchange", note)
    page = table.query(KeyConditionExpression=Key("PK").eq("room"))
    assert [item["n"] for item in page["Items"]] == list(range(12))
    assert threads == {(get_ident(), 5)}


def test_credentials_are_the_clients(server, monkeypatch):
    """Those that it refreshes: each request takes what they are by then."""
    table = open_table()
    taken: list[str] = []
    fresh = {"access_key": "first", "secret_key": "s", "token": "t", "expiry_time": "2999-01-01T00:00:00Z"}
    found = RefreshableCredentials.create_from_metadata(fresh, lambda: fresh, "test")
    monkeypatch.setattr(table.meta.client, "_get_credentials", lambda: taken.append(found.access_key) or found)
    curled(table).put_item(Item=KEY)
    assert taken == ["first"]


def test_what_libcurl_does_not_follow_is_refused(server):
    """By what to do about it."""
    with pytest.raises(ValueError, match="leave out transport="):
        curled(open_table(client_cert="/nowhere.pem"))
