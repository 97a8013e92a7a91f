"""`ShardedTable` beside boto3's own `Table`: what generated calls (`tools.equivalence`) do not compare."""

import pytest
from boto3.dynamodb.conditions import Attr, Key
from botocore.exceptions import ClientError

from hotpartition.core.errors import InvalidRequestError
from hotpartition.table import ShardedTable, at_random, fixed
from hotpartition.table.page_calls import read_pages

from .conftest import put_all

ROOM = {"KeyConditionExpression": Key("PK").eq("room"), "FilterExpression": Attr("n").gt(5)}
BY_NAMES = {
    "KeyConditionExpression": "PK = :p AND SK < :to",
    "FilterExpression": "#n > :n",
    "ProjectionExpression": "#n",
    "ExpressionAttributeNames": {"#n": "n"},
    "ExpressionAttributeValues": {":p": "room", ":to": "0011", ":n": 3},
}


@pytest.mark.parametrize("options", [{"shards": fixed(2, 5)}, {"shards": fixed(3), "hashed": at_random()}])
@pytest.mark.parametrize(
    "query", [ROOM, {**ROOM, "Limit": 4}, {**ROOM, "Limit": 4, "ScanIndexForward": False}, BY_NAMES]
)
def test_filtered_pages_are_boto3s(plain, twin, options, query):
    """In one order, and counted; pages may hold more or fewer. Two items were there before the table was sharded."""
    items = [{"PK": "room", "SK": f"{number:04}", "n": number, "owner": "o"} for number in range(19)]
    table = ShardedTable(plain, **options)
    for of, part in ((twin, items), (plain, items[:2]), (table, items[2:])):
        put_all(of, part)
    found, expected = (list(read_pages(of.query, query)) for of in (table, twin))
    assert [item for page in found for item in page["Items"]] == [item for page in expected for item in page["Items"]]
    assert all(page["Count"] == len(page["Items"]) <= query.get("Limit", 19) for page in found)
    assert sum(page["ScannedCount"] for page in found) >= sum(page["ScannedCount"] for page in expected)


@pytest.mark.parametrize("key", ["room#_0", "room#_7", "a#_12"])
def test_a_key_that_ends_like_a_shards_is_refused(plain, key):
    """It could not be told from shard 7 of `room`."""
    table = ShardedTable(plain, shards=fixed(4))
    for call in (
        lambda: table.put_item(Item={"PK": key, "SK": "1"}),
        lambda: table.get_item(Key={"PK": key, "SK": "1"}),
        lambda: table.query(KeyConditionExpression=Key("PK").eq(key)),
    ):
        with pytest.raises(InvalidRequestError, match="do not end like a shard key"):
            call()


def test_items_are_read_in_the_order_of_their_keys(plain, watched):
    """Any number of them; None for one that there is not, and one that is asked for twice comes twice."""
    table = ShardedTable(plain, shards=fixed(4))
    keys = [{"PK": f"room-{number % 3}", "SK": f"{number:04}"} for number in range(120)]
    put_all(table, ({**key, "n": number} for number, key in enumerate(keys)))
    missing = {"PK": "room-1", "SK": "none"}
    watched.sent.clear()
    asked = [*reversed(keys), missing, keys[7]]
    found = table.get_items(asked, ProjectionExpression="n", ConsistentRead=True)
    assert found == [*({"n": number} for number in reversed(range(120))), None, {"n": 7}]
    assert watched.sent == {"BatchGetItem": 3}
    assert table.get_items([]) == []
    with pytest.raises(ClientError, match="GetItem"):
        table.get_items([{"PK": "room-1"}])
