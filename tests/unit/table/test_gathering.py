"""Pages over several partition keys: what they ask, what they cost, and what happens meanwhile."""

import sys

import pytest
from boto3.dynamodb.conditions import Attr, Key
from botocore.exceptions import ClientError

from hotpartition.core.route import choose_shards
from hotpartition.table import ShardedTable, by_attribute, fixed, in_band
from support.fakes import FakeClock

from .conftest import put_all

ROOM = {"KeyConditionExpression": Key("PK").eq("room")}


def item(number: int, **more) -> dict:
    return {"PK": "room", "SK": f"{number:04}", "n": number, "device": f"d{number % 5}", **more}


@pytest.fixture
def table(plain) -> ShardedTable:
    table = ShardedTable(
        plain, shards=fixed(4), hashed=by_attribute("device"), append_only=True, clock=FakeClock().as_clock()
    )
    put_all(table, (item(number) for number in range(20)))
    return table


def asked(watched) -> set[str]:
    """Return the partition keys of all queries so far."""
    return set(watched.queried)


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
    assert asked(watched) == {"room", SHARD_OF_D1}


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
