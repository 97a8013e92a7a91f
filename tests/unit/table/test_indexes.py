"""Indexes of boto3's own, whose keys have several attributes, and scans."""

import pytest
from boto3.dynamodb.conditions import Attr, Key

from hotpartition.table import ShardedTable, fixed, in_band
from hotpartition.table.page_calls import read_pages

from .conftest import put_all, raise_key

NAMES = ("PK", "SK", "region", "kind", "at")

INDEXES = {
    "first": (("PK", "region"), ("kind", "at")),
    "last": (("region", "PK"), ("kind",)),
    "whole": (("PK", "region"), ()),
    "none": (("region", "kind"), ("at",)),
    "behind": (("region",), ("kind", "PK")),
}

OF_EUROPE = Key("PK").eq("room") & Key("region").eq("eu")


def keys(hashed, sorted_by):
    roles = [*((name, "HASH") for name in hashed), *((name, "RANGE") for name in sorted_by)]
    return [{"AttributeName": name, "KeyType": role} for name, role in roles]


@pytest.fixture(scope="module")
def tables(dynamodb):
    """boto3's own table, and a sharded one with the same items; the item of other regions and rooms among them."""
    made = [
        dynamodb.create_table(
            TableName=name,
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in NAMES],
            KeySchema=keys(["PK"], ["SK"]),
            GlobalSecondaryIndexes=[
                {"IndexName": index, "KeySchema": keys(*both), "Projection": {"ProjectionType": "ALL"}}
                for index, both in INDEXES.items()
            ],
            BillingMode="PAY_PER_REQUEST",
        )
        for name in ("plain", "sharded")
    ]
    sharded = ShardedTable(made[1], shards=fixed(4))
    for number in range(24):
        item = {"PK": ("room", "hall")[number % 5 == 0], "SK": f"{number:04}", "at": f"{97 * number % 24:04}"}
        item |= {"region": ("eu", "us")[number % 4 == 0], "kind": "abc"[number % 3]}
        for table in (made[0], sharded):
            table.put_item(Item=item)
    yield made[0], sharded
    for table in made:
        table.delete()


def walk(table, **request):
    """The keys of all items, by page."""
    return [[item["SK"] for item in page["Items"]] for page in read_pages(table.query, request) if page["Items"]]


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("limit", [{}, {"Limit": 2}])
@pytest.mark.parametrize(
    ("index", "more"),
    [
        ("first", None),
        ("first", Key("kind").eq("b")),
        ("first", Key("kind").eq("b") & Key("at").between("0003", "0015")),
        ("first", Key("kind").lt("c")),
        ("last", Key("kind").begins_with("a")),
    ],
)
def test_an_index_with_the_tables_partition_key_is_merged(tables, index, more, limit, newest_first):
    """In the order of all its range keys, page by page."""
    condition = OF_EUROPE if more is None else OF_EUROPE & more
    request = {"IndexName": index, "KeyConditionExpression": condition, "ScanIndexForward": not newest_first, **limit}
    expected, found = (walk(table, **request) for table in tables)
    if index == "first":
        assert found == expected != []
    else:  # items at the same place of an index come in any order
        assert sorted(key for page in found for key in page) == sorted(key for page in expected for key in page) != []


def test_without_a_range_key_and_with_one_partition_key_more(tables):
    request = {"IndexName": "whole", "KeyConditionExpression": OF_EUROPE, "Limit": 3}
    expected, found = (sorted(key for page in walk(table, **request) for key in page) for table in tables)
    assert found == expected != []


@pytest.mark.parametrize(
    "condition", [Key("PK").eq("room"), OF_EUROPE & Key("SK").eq("0001"), Key("PK").eq("room") & Key("region").gt("a")]
)
def test_what_an_index_does_not_take_is_refused_as_by_boto3(tables, condition):
    """An error, not no items."""
    for table in tables:
        with pytest.raises(table.meta.client.exceptions.ClientError, match="ValidationException"):
            table.query(IndexName="first", KeyConditionExpression=condition)


def test_an_index_without_the_tables_partition_key_is_asked_as_it_is(tables):
    condition = Key("region").eq("eu") & Key("kind").eq("b")
    expected, found = (walk(table, IndexName="none", KeyConditionExpression=condition) for table in tables)
    assert found == expected != []
    with pytest.raises(NotImplementedError, match="PK, which differs on shards"):
        tables[1].query(IndexName="behind", KeyConditionExpression=condition & Key("PK").eq("room"))


IS_ROOM = Attr("PK").eq("room")


@pytest.mark.parametrize("shape", [{"Limit": 7}, {"Limit": 7, "Select": "COUNT"}])
def test_routing_items_take_no_place_in_a_scan(plain, twin, shape):
    """Nor in what it counts."""
    raise_key(plain, "room", 4)
    table = ShardedTable(plain, shards=in_band(environ={}))
    for each in (twin, table):
        put_all(each, ({"PK": "room", "SK": f"{number:04}"} for number in range(20)))
    expected, found = (list(read_pages(each.scan, shape)) for each in (twin, table))
    assert sum(page["Count"] for page in found) == sum(page["Count"] for page in expected) == 20


@pytest.mark.parametrize(
    "expression", [IS_ROOM, IS_ROOM | Attr("n").gt(3), Attr("PK").size().gt(3), "n > :n AND PK = :p"]
)
def test_a_filter_that_looks_at_the_partition_key_is_refused(table, watched, expression):
    """It would be judged by the shard's key."""
    request = {"FilterExpression": expression}
    if isinstance(expression, str):
        request["ExpressionAttributeValues"] = {":n": 1, ":p": "room"}
    with pytest.raises(NotImplementedError, match="it looks at PK"):
        table.scan(**request)
    assert not watched.sent["Scan"]
