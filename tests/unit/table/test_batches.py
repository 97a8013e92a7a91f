"""`batch_writer`: boto3's, over shards."""

import pytest
from boto3.dynamodb.conditions import Key
from botocore.exceptions import ClientError

from hotpartition.core.route import choose_shards
from hotpartition.table import ShardedTable, at_random, fixed
from support.fakes import FakeClock

from .conftest import put_all

EVERYTHING = {"KeyConditionExpression": Key("PK").eq("room")}


def item(number: int, **more) -> dict:
    return {"PK": "room", "SK": f"{number:04}", "n": number, **more}


@pytest.fixture
def table(plain) -> ShardedTable:
    return ShardedTable(plain, shards=fixed(4, choices=2), clock=FakeClock().as_clock())


def test_items_are_written_25_a_request(table, watched):
    """Each batch is located with one request, or what takes no more than 100 keys."""
    put_all(table, (item(number) for number in range(60)))
    assert dict(watched.sent) == {"BatchWriteItem": 3, "BatchGetItem": 3}
    assert [found["n"] for found in table.query(**EVERYTHING)["Items"]] == list(range(60))


def test_append_only_locates_nothing(plain, watched):
    """A batch is one request, as boto3's."""
    table = ShardedTable(plain, shards=fixed(4), hashed=at_random(), append_only=True)
    put_all(table, (item(number) for number in range(30)))
    assert dict(watched.sent) == {"BatchWriteItem": 2}


@pytest.mark.parametrize("wrong", [{"PK": "", "SK": "1"}, {"PK": "room"}])
def test_what_is_wrong_dynamodb_says(table, wrong):
    with pytest.raises(ClientError, match="ValidationException"), table.batch_writer() as batch:
        batch.put_item(Item=wrong)


def test_what_is_left_unprocessed_is_repeated_at_the_next_choice(table, plain, watched):
    """DynamoDB gives no reasons for a batch: the place may be hot, and another one is as good."""
    watched.respond_once("BatchWriteItem", lambda body: {"UnprocessedItems": body["RequestItems"]})
    with table.batch_writer() as batch:
        batch.put_item(Item=item(1))
    first, second = choose_shards("0001", 4, choices=2)
    assert watched.sent["BatchWriteItem"] == 2
    assert [found["PK"] for found in plain.scan()["Items"]] == [f"room#_{second}"]
    assert first != second
