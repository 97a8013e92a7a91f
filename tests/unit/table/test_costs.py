"""What calls cost: boto3's own requests while a key is cold, and what pages over several keys ask for."""

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


@pytest.fixture
def stage(plain) -> Stage:
    """A table with an item at its base key; its routing items would lie in the collections."""
    plain.put_item(Item={**KEY, "n": 1})
    stage = Stage(plain, IN_COLLECTION)
    stage.table.get_item(Key={"PK": "other", "SK": "1"})  # looks at the table's keys
    return stage


@pytest.fixture
def sent(plain, stage):
    """All requests from here on: operation and body."""
    requests = []

    def note(params, model, **_):
        body = {name: value for name, value in params.items() if name not in {"TableName", "ReturnConsumedCapacity"}}
        requests.append((model.name, body))

    events = plain.meta.client.meta.events
    events.register("provide-client-params.dynamodb.*", note)
    yield requests
    events.unregister("provide-client-params.dynamodb.*", note)


def journal_only(request) -> bool:
    """Say whether a request reads the routing item and nothing else."""
    operation, body = request
    if operation == "GetItem":
        return body["Key"] == {"PK": "room", "SK": "~route"}
    return operation == "BatchGetItem" and [part["Keys"] for part in body["RequestItems"].values()] == [
        [{"PK": "room", "SK": "~route"}]
    ]


CHANGES = {
    "put": ("put_item", {"Item": {**KEY, "n": 2}}),
    "conditional put": ("put_item", {"Item": {**KEY, "n": 2}, "ConditionExpression": Attr("n").lt(9)}),
    "delete": ("delete_item", {"Key": KEY, "ReturnValues": "ALL_OLD"}),
    "update": ("update_item", {"Key": KEY, **updating("SET n = :n", n=2)}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_boto3s_after_a_look_at_the_journal(stage, plain, sent, name):
    """The item is not read, and not a byte more is written; but an update counts itself."""
    method, request = CHANGES[name]
    getattr(stage.table, method)(**request)
    look, (operation, body) = sent
    assert journal_only(look)
    sent.clear()
    getattr(plain, method)(**request)
    if name == "update":
        assert body.pop("UpdateExpression") == "SET n = :n ADD #hpn0 :hpn0"
        assert "ConditionExpression" not in body
    else:
        assert (operation, body) == sent[0]


NEWEST = {**ROOM, "ScanIndexForward": False}
TO_FIVE = {"KeyConditionExpression": Key("PK").eq("room") & Key("SK").lt("5"), "ScanIndexForward": False}


@pytest.mark.parametrize(
    ("query", "operations"),
    [
        (NEWEST, ["Query"]),  # the routing item is on its way
        ({**NEWEST, "Limit": 1}, ["Query"]),
        ({**NEWEST, "Limit": 20}, ["Query"]),
        (ROOM, ["GetItem", "Query"]),  # both at the same time
        ({**ROOM, "Limit": 5}, ["GetItem", "Query"]),
        ({**ROOM, "FilterExpression": Attr("n").gt(0), "Limit": 5}, ["GetItem", "Query"]),
        (TO_FIVE, ["GetItem", "Query"]),
    ],
)
def test_a_page_is_one_query_and_reads_the_journal_in_the_same_round(stage, sent, query, operations):
    assert stage.table.query(**query)["Count"] == 1
    assert sorted(operation for operation, _ in sent) == operations
    ((_, body),) = [request for request in sent if request[0] == "Query"]
    assert body.get("Limit") == query.get("Limit")


def test_a_point_read_reads_the_journal_in_the_same_request(stage, sent):
    """One item more."""
    stage.table.get_item(Key=KEY)
    ((operation, body),) = sent
    assert operation == "BatchGetItem"
    assert body["RequestItems"]["readings"]["Keys"] == [KEY, {"PK": "room", "SK": "~route"}]


def test_append_only_puts_and_batches_are_boto3s(plain, stage, sent):
    table = Stage(plain, IN_COLLECTION, append_only=True).table
    item = {**KEY, "SK": "0002", "n": 2}
    table.put_item(Item=item)
    with table.batch_writer() as batch:
        batch.put_item(Item=item)
    assert [(operation, body) for operation, body in sent if operation != "DescribeTable"] == [
        ("PutItem", {"Item": item}),
        ("BatchWriteItem", {"RequestItems": {"readings": [{"PutRequest": {"Item": item}}]}}),
    ]


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


@pytest.mark.parametrize(
    "query",
    [
        {"Hashed": "d1", "FilterExpression": Attr("device").eq("d1")},
        {"FilterExpression": Attr("device").eq("d1")},
        {"FilterExpression": Attr("n").gte(0) & Attr("device").eq("d1")},
        {"FilterExpression": Attr("device").eq("d1") & (Attr("n").lt(50) | Attr("n").gt(60))},
    ],
    ids=["keyword", "filter", "one of several", "with others"],
)
def test_a_query_for_one_value_asks_only_where_it_can_be(table, watched, query):
    """The base key and one shard, whether the value is told or found in the filter."""
    page = table.query(**ROOM, **query)
    assert [found["n"] for found in page["Items"]] == [1, 6, 11, 16]
    assert set(watched.queried) == {"room", SHARD_OF_D1}


def test_what_a_page_consumes_is_summed(table):
    """Of all its requests, with the parts where they are asked for."""
    page = table.query(**ROOM, ReturnConsumedCapacity="TOTAL", ConsistentRead=True)
    assert page["ConsumedCapacity"]["TableName"] == "readings"
    assert page["ConsumedCapacity"]["CapacityUnits"] == 5
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
    for number in range(40):
        table.put_item(Item=item(number, text="x" * 100_000))
    pages = [[int(found["n"]) for found in page["Items"]] for page in table.query_pages(**ROOM, **options)]
    walked = [number for page in pages for number in page]
    assert walked == sorted(range(40), reverse=not options.get("ScanIndexForward", True))
    assert max(len(page) for page in pages) < 30


def test_a_start_key_of_another_partition_key_is_left_to_dynamodb(table):
    with pytest.raises((ClientError, NotImplementedError)):  # the second where DynamoDB takes it, as moto does
        table.query(**ROOM, ExclusiveStartKey={"PK": "elsewhere", "SK": "0003"})


def test_a_batch_of_keys_goes_on_where_dynamodb_stopped(plain, watched):
    """What it has given is neither asked for nor charged again, as long as each round gets a little further."""
    table = ShardedTable(plain, shards=fixed(4), clock=FakeClock().as_clock())
    asked_for = []

    def give_three(operation, body):
        if operation != "BatchGetItem":
            return None
        keys = body["RequestItems"]["readings"]["Keys"]
        asked_for.append(len(keys))
        left = {"readings": {**body["RequestItems"]["readings"], "Keys": keys[3:]}} if keys[3:] else {}
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
