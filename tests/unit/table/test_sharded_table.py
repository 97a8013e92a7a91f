"""`ShardedTable` beside boto3's own `Table`: the same calls, the same results."""

from decimal import Decimal

import pytest
from boto3.dynamodb.conditions import Attr, Key
from botocore.exceptions import ClientError

from hotpartition.errors import InvalidRequestError
from hotpartition.table import ShardedTable, at_random, by_attribute, by_sort_key, fixed
from unit.table.conftest import SCHEMA

from .conftest import put_all, updating

AXES = {
    "by sort key": {"shards": fixed(4), "hashed": by_sort_key()},
    "by attribute": {
        "shards": fixed(4),
        "hashed": by_attribute("device", from_key=lambda key: f"d{int(key['SK'][-1]) % 3}"),
    },
    "at random": {"shards": fixed(3), "hashed": at_random()},
    "raised": {"shards": fixed(2, 5), "hashed": by_sort_key()},
    "one shard": {"shards": fixed(1), "hashed": by_sort_key()},
}

QUERIES = {
    "all": {"KeyConditionExpression": Key("PK").eq("room")},
    "newest": {"KeyConditionExpression": Key("PK").eq("room"), "ScanIndexForward": False, "Limit": 4},
    "between": {"KeyConditionExpression": Key("PK").eq("room") & Key("SK").between("0003", "0008")},
    "from the start of it": {"KeyConditionExpression": Key("SK").begins_with("001") & Key("PK").eq("room")},
    "as text": {
        "KeyConditionExpression": "(#p = :p) and SK >= :from",
        "ExpressionAttributeNames": {"#p": "PK"},
        "ExpressionAttributeValues": {":p": "room", ":from": "0004"},
        "Limit": 3,
    },
    "projected": {"KeyConditionExpression": Key("PK").eq("room"), "ProjectionExpression": "n, device", "Limit": 5},
    "projected by names": {
        "KeyConditionExpression": "PK = :p AND SK < :to",
        "FilterExpression": "#n > :n",
        "ProjectionExpression": "#n",
        "ExpressionAttributeNames": {"#n": "n"},
        "ExpressionAttributeValues": {":p": "room", ":to": "0011", ":n": 3},
    },
    "filtered": {"KeyConditionExpression": Key("PK").eq("room"), "FilterExpression": Attr("n").gt(5)},
    "filtered pages": {"KeyConditionExpression": Key("PK").eq("room"), "FilterExpression": Attr("n").gt(5), "Limit": 4},
    "counted": {"KeyConditionExpression": Key("PK").eq("room"), "Select": "COUNT"},
    "counted pages": {"KeyConditionExpression": Key("PK").eq("room"), "Select": "COUNT", "Limit": 7},
    "by another sort key": {
        "IndexName": "by-status",
        "KeyConditionExpression": Key("PK").eq("room") & Key("status").gt("s02"),
        "Limit": 4,
        "ScanIndexForward": False,
    },
    "by another partition key": {"IndexName": "by-owner", "KeyConditionExpression": Key("owner").eq("o1")},
    "nothing": {"KeyConditionExpression": Key("PK").eq("nowhere"), "ConsistentRead": True},
}


def item(number: int, **more) -> dict:
    return {
        "PK": "room",
        "SK": f"{number:04}",
        "n": number,
        "device": f"d{number % 10 % 3}",
        "status": f"s{number:02}",
        "owner": f"o{number % 2}",
        "at": f"{number:04}",
        **more,
    }


def fill(plain, twin, axis) -> ShardedTable:
    """Put the same items into a sharded table and into boto3's own; two were there before it was sharded."""
    for number in (1, 2):
        plain.put_item(Item=item(number))
    table = ShardedTable(plain, **axis)
    for number in range(3, 20):
        table.put_item(Item=item(number))
    put_all(twin, (item(number) for number in range(1, 20)))
    return table


@pytest.fixture(scope="module", params=AXES.values(), ids=AXES)
def filled(dynamodb, request):
    """The sharded table and boto3's with the same items, made once: tests that change them have items of their own."""
    plain, twin = (dynamodb.create_table(TableName=name, **SCHEMA) for name in ("filled", "filled-twin"))
    yield fill(plain, twin, request.param), twin
    plain.delete()
    twin.delete()


def walk(table, query):
    """Read all pages: their items and figures, without what names the request."""
    pages = []
    start = {}
    while True:
        page = table.query(**query, **start)
        pages.append((page.get("Items"), page["Count"], page["ScannedCount"]))
        if "LastEvaluatedKey" not in page:
            return pages
        start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_queries_give_the_same_pages(filled, query):
    """Whatever is asked for, and however it is split into pages."""
    table, twin = filled
    expected = walk(twin, query)
    if expected[-1][1:] == (0, 0) and len(expected) > 1:
        expected.pop()
    assert expected == walk(table, query)


def test_items_lie_on_several_partition_keys(filled, dynamodb):
    stored = {stored_item["PK"] for stored_item in dynamodb.Table("filled").scan()["Items"]}
    assert len(stored) > 1
    assert all(key == "room" or key.startswith("room#_") for key in stored)


def test_a_scan_shows_every_item_once_as_its_owner_wrote_it(filled):
    """Shards, and what is counted on items, do not show."""
    table, twin = filled

    def scanned(of):
        return sorted(of.scan()["Items"], key=lambda found: found["SK"])

    assert scanned(twin) == scanned(table)


def test_an_item_is_read_wherever_it_is(filled):
    """On the base key, where it was before, and on shards."""
    table, twin = filled
    for number in (1, 2, 3, 11, 99):
        key = {"PK": "room", "SK": f"{number:04}"}
        assert twin.get_item(Key=key).get("Item") == table.get_item(Key=key, ConsistentRead=True).get("Item")


@pytest.mark.parametrize("axis", AXES.values(), ids=AXES)
def test_changes_happen_in_place(plain, twin, axis):
    """An item is changed where it lies, and read back; what is returned is as boto3 returns it."""
    table = fill(plain, twin, axis)
    calls = [
        ("put_item", {"Item": item(1, n=100), "ReturnValues": "ALL_OLD"}),
        ("put_item", {"Item": item(5, n=500), "ReturnValues": "ALL_OLD"}),
        ("update_item", _add("0001", "ALL_NEW")),
        ("update_item", _add("0005", "UPDATED_NEW")),
        ("update_item", _add("0006", "UPDATED_OLD")),
        ("update_item", {"Key": {"PK": "room", "SK": "0007"}, "UpdateExpression": "SET n = n + :one REMOVE #o",
                         "ExpressionAttributeNames": {"#o": "owner"}, "ExpressionAttributeValues": {":one": 1}}),
        ("delete_item", {"Key": {"PK": "room", "SK": "0002"}, "ReturnValues": "ALL_OLD"}),
        ("delete_item", {"Key": {"PK": "room", "SK": "0008"}, "ReturnValues": "ALL_OLD"}),
        ("delete_item", {"Key": {"PK": "room", "SK": "0099"}, "ReturnValues": "ALL_OLD"}),
        ("update_item", _add("0031", "ALL_NEW")),
    ]  # fmt: skip
    for method, request in calls:
        expected, actual = getattr(twin, method)(**request), getattr(table, method)(**request)
        assert expected.get("Attributes") == actual.get("Attributes"), (method, request)
    everything = {"KeyConditionExpression": Key("PK").eq("room")}
    assert twin.query(**everything)["Items"] == table.query(**everything)["Items"]


def _add(sort_key: str, return_values: str) -> dict:
    return {
        "Key": {"PK": "room", "SK": sort_key},
        **updating("ADD clicks :two", two=2),
        "ReturnValues": return_values,
    }


CONDITIONS = {
    "put a new item once more": ("put_item", {"Item": item(3), "ConditionExpression": "attribute_not_exists(PK)"}),
    "put over what is as expected": ("put_item", {"Item": item(5, n=7), "ConditionExpression": Attr("n").eq(5)}),
    "put over what is not": ("put_item", {"Item": item(3, n=7), "ConditionExpression": Attr("n").eq(4)}),
    "put what must be there": ("put_item", {"Item": item(77), "ConditionExpression": Attr("n").exists()}),
    "delete what is not as expected": (
        "delete_item",
        {
            "Key": {"PK": "room", "SK": "0004"},
            "ConditionExpression": "n = :n",
            "ExpressionAttributeValues": {":n": 5},
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        },
    ),
    "delete what must be there": (
        "delete_item",
        {"Key": {"PK": "room", "SK": "0088"}, "ConditionExpression": Attr("n").exists()},
    ),
    "update what is as expected": (
        "update_item",
        {**_add("0006", "ALL_NEW"), "ConditionExpression": Attr("n").eq(6)},
    ),
    "update what is not": (
        "update_item",
        {**_add("0004", "ALL_NEW"), "ConditionExpression": Attr("n").eq(Decimal(5))},
    ),
    "several conditions": (
        "put_item",
        {"Item": item(7, n=9), "ConditionExpression": Attr("n").eq(7) & Attr("owner").is_in(["o1", "o2"])},
    ),
    "in parentheses": (
        "put_item",
        {"Item": item(3), "ConditionExpression": "(n = :n)", "ExpressionAttributeValues": {":n": 4}},
    ),
    "malformed": ("update_item", {"Key": {"PK": "room", "SK": "0003"}, "UpdateExpression": "SET n ="}),
    "no sort key": ("put_item", {"Item": {"PK": "room"}}),
    "empty partition key": ("put_item", {"Item": {"PK": "", "SK": "1"}}),
    "no key": ("get_item", {"Key": {"PK": "room"}}),
    "unused name": (
        "query",
        {"KeyConditionExpression": Key("PK").eq("room"), "ExpressionAttributeNames": {"#x": "x"}},
    ),
    "no partition key": (
        "query",
        {"KeyConditionExpression": "SK = :s", "ExpressionAttributeValues": {":s": "1"}},
    ),
    "no such index": ("query", {"KeyConditionExpression": Key("PK").eq("room"), "IndexName": "by-nothing"}),
}


@pytest.mark.parametrize(("method", "request_"), CONDITIONS.values(), ids=CONDITIONS)
def test_conditions_hold_and_errors_are_boto3s(filled, method, request_):
    """A call ends as it would without shards, with the same error or the same result."""
    table, twin = filled
    assert _outcome(twin, method, request_) == _outcome(table, method, request_)


def _outcome(table, method, request):
    try:
        response = getattr(table, method)(**request)
    except ClientError as error:
        return type(error).__name__, error.response["Error"]["Code"], error.response.get("Item")
    return response.get("Attributes"), response.get("Items")


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
