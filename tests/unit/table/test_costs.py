"""What calls cost: boto3's own requests while a key is cold, and what pages over several keys ask for.

Requests are listed call by call, and pages counted query by query: what costs too much returns the same items.
"""

import sys

import pytest
from boto3.dynamodb.conditions import Attr, Key
from botocore.exceptions import ClientError

from hotpartition.core.route import choose_shards
from hotpartition.table import ShardedTable, by_attribute, fixed, in_band
from support.fakes import FakeClock

from .conftest import KEY_RANGE, put_all, updating
from .test_adaptive import EIGHT, IN_COLLECTION, Stage

KEY = {"PK": "room", "SK": "0001"}
ROOM = {"KeyConditionExpression": Key("PK").eq("room")}
NEWEST = {**ROOM, "ScanIndexForward": False}
TO_FIVE = {"KeyConditionExpression": Key("PK").eq("room") & Key("SK").lt("5"), "ScanIndexForward": False}
NOT_COMPARED = {"TableName", "ReturnConsumedCapacity"}


@pytest.fixture(params=[False, True], ids=["", "append-only"])
def stage(plain, request) -> Stage:
    """A table with an item at its base key; its routing items would lie in the collections."""
    plain.put_item(Item={**KEY, "n": 1})
    stage = Stage(plain, IN_COLLECTION, append_only=request.param)
    stage.is_append_only = request.param
    stage.table.get_item(Key={"PK": "other", "SK": "1"})  # looks at the table's keys
    return stage


@pytest.fixture
def sent(watched, stage):
    """All requests from here on: operation and body."""
    requests = []
    watched.responds = lambda operation, body: requests.append(
        (operation, {name: body[name] for name in body if name not in NOT_COMPARED})
    )
    return requests


def describe(operation, body):
    """Write a request in short: its operation, the sort keys of the items that it names, and its limit."""
    named = [body.get("Key") or body.get("Item")]
    if operation == "BatchGetItem":
        named = body["RequestItems"]["readings"]["Keys"]
    return " ".join(
        [operation, *(key["SK"]["S"] for key in named if key), *(str(body[n]) for n in ("Limit",) if n in body)]
    )


LOOK, CONFIRM = "GetItem ~route", "BatchGetItem ~route"
COSTS = [
    ("put_item", {"Item": {**KEY, "n": 2}}, [CONFIRM, "PutItem 0001"]),
    ("put_item", {"Item": {**KEY, "n": 2}, "ConditionExpression": Attr("n").lt(9)}, [CONFIRM, "PutItem 0001"]),
    ("delete_item", {"Key": KEY, "ReturnValues": "ALL_OLD"}, [CONFIRM, "DeleteItem 0001"]),
    ("update_item", {"Key": KEY, **updating("SET n = :n", n=2)}, [CONFIRM, "UpdateItem 0001"]),
    ("get_item", {"Key": KEY}, ["BatchGetItem 0001 ~route"]),
    ("query", NEWEST, ["Query"]),  # the routing item is on its way
    ("query", {**NEWEST, "Limit": 1}, ["Query 1"]),
    ("query", {**NEWEST, "Limit": 20}, ["Query 20"]),
    ("query", ROOM, [LOOK, "Query"]),  # both at the same time
    ("query", {**ROOM, "Limit": 5}, [LOOK, "Query 5"]),
    ("query", {**ROOM, "FilterExpression": Attr("n").gt(0), "Limit": 5}, [LOOK, "Query 5"]),
    ("query", TO_FIVE, [LOOK, "Query"]),
]


@pytest.mark.parametrize(("method", "request_", "requests"), COSTS)
def test_a_cold_call_is_boto3s_and_a_look_at_the_journal(stage, plain, sent, method, request_, requests):
    """Not a byte more is written; but an update counts itself. What is appended looks nowhere."""
    is_blind = stage.is_append_only and method == "put_item" and "ConditionExpression" not in request_
    getattr(stage.table, method)(**request_)
    assert sorted(describe(*request) for request in sent) == [
        each for each in requests if each != CONFIRM or not is_blind
    ]
    (operation, body) = sent[-1]
    sent.clear()
    getattr(plain, method)(**request_)
    if method == "update_item":
        assert body["UpdateExpression"] == "SET n = :n ADD #hpn0 :hpn0"
        assert "ConditionExpression" not in body
    elif method in {"put_item", "delete_item"}:
        assert (operation, body) == sent[0]


@pytest.mark.parametrize("stage", [False], indirect=True)
def test_a_put_that_its_base_key_refuses_goes_where_the_raise_says(stage, watched):
    """It is located anew, waits, and takes the route again."""
    watched.refuses = lambda operation, body: KEY_RANGE if operation == "PutItem" else None
    stage.clock.on_sleep = lambda: (setattr(watched, "refuses", lambda operation, body: None), stage.raise_all())
    stage.table.put_item(Item={**KEY, "SK": "0007"})
    assert stage.places()["0007"].startswith("room#_")
    assert EIGHT in stage.registry.get("room").generations


def item(number: int, **more) -> dict:
    return {"PK": "room", "SK": f"{number:04}", "n": number, "device": f"d{number % 5}", **more}


@pytest.fixture
def table(plain) -> ShardedTable:
    table = ShardedTable(
        plain, shards=fixed(4), hashed=by_attribute("device"), append_only=True, clock=FakeClock().as_clock()
    )
    put_all(table, (item(number) for number in range(20)))
    return table


SHARD_OF_D1 = f"room#_{choose_shards('d1', 4)[0]}"


@pytest.mark.parametrize("query", [{"Hashed": "d1"}, {}], ids=["keyword", "filter"])
def test_a_query_for_one_value_asks_only_where_it_can_be(table, watched, query):
    """The base key and one shard, whether the value is told or found in the filter."""
    page = table.query(**ROOM, FilterExpression=Attr("n").gte(0) & Attr("device").eq("d1"), **query)
    assert [found["n"] for found in page["Items"]] == [1, 6, 11, 16]
    assert set(watched.queried) == {"room", SHARD_OF_D1}


def test_what_a_page_consumes_is_summed(table):
    """Of all its requests, with the parts where they are asked for."""
    page = table.query(**ROOM, ReturnConsumedCapacity="TOTAL", ConsistentRead=True)
    assert page["ConsumedCapacity"] == {"TableName": "readings", "CapacityUnits": 5}
    assert "ConsumedCapacity" not in table.query(**ROOM)


@pytest.mark.parametrize("newest_first", [False, True])
def test_a_limit_with_a_filter_counts_what_each_shard_looks_at(table, watched, newest_first):
    """Each place is asked once for as much; the page ends where the first of them got to, and the next one goes on."""
    request = {**ROOM, "FilterExpression": Attr("n").gte(10), "Limit": 3, "ScanIndexForward": not newest_first}
    page = table.query(**request)
    assert page["ScannedCount"] <= 3 * len(watched.queried)
    assert len(watched.queried) == 5
    found = [int(entry["n"]) for each in table.query_pages(**request) for entry in each["Items"]]
    assert found == sorted(range(10, 20), reverse=newest_first)


@pytest.mark.parametrize("options", [{}, {"Limit": 38}, {"Limit": 38, "ScanIndexForward": False}, {"Limit": 5}])
def test_a_page_ends_where_a_megabyte_ends_it(plain, options):
    """Each shard's response is cut there; nothing is left out between pages, and none has all."""
    table = ShardedTable(plain, shards=fixed(2), append_only=True)
    put_all(table, (item(number, text="x" * 100_000) for number in range(40)))
    pages = [[int(found["n"]) for found in page["Items"]] for page in table.query_pages(**ROOM, **options)]
    walked = [number for page in pages for number in page]
    assert walked == sorted(range(40), reverse=not options.get("ScanIndexForward", True))
    assert max(len(page) for page in pages) < 30


def test_a_start_key_of_another_partition_key_is_left_to_dynamodb(table):
    with pytest.raises((ClientError, NotImplementedError)):  # the second where DynamoDB takes it, as moto does
        table.query(**ROOM, ExclusiveStartKey={"PK": "elsewhere", "SK": "0003"})


def test_a_batch_of_keys_goes_on_where_dynamodb_stopped(plain, watched):
    """What it has given is neither asked for nor charged again, as long as each round gets a little further."""
    table, asked_for = ShardedTable(plain, shards=fixed(4), clock=FakeClock().as_clock()), []

    def give_three(operation, body):
        if operation != "BatchGetItem":
            return None
        asked = body["RequestItems"]["readings"]
        asked_for.append(len(asked["Keys"]))
        left = {"readings": {**asked, "Keys": asked["Keys"][3:]}} if asked["Keys"][3:] else {}
        return {"Responses": {"readings": []}, "UnprocessedKeys": left, "ResponseMetadata": {}}

    watched.responds = give_three
    put_all(table, (item(number) for number in range(10)))
    assert asked_for == [20, 17, 14, 11, 8, 5, 2]


@pytest.mark.parametrize("shards", [fixed(0), in_band(environ={})], ids=["fixed", "in band"])
def test_a_query_is_few_calls_away_from_the_client(plain, watched, shards):
    """Whoever follows one has twelve functions to read."""
    depths = []

    def count_frames(operation, _):
        frame, depth = sys._getframe(), 0
        while frame is not None:
            depth += "/layers/routing/" in frame.f_code.co_filename
            frame = frame.f_back
        depths.append((operation, depth))

    table = ShardedTable(plain, shards=shards)
    table.query(**ROOM)
    watched.refuses = count_frames
    table.query(**ROOM, ScanIndexForward=False, Limit=5)
    ((operation, depth),) = depths
    assert (operation, depth) <= ("Query", 12)
