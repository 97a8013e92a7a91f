"""Scans, and queries of indexes that are not sharded: in segments, and with filters on the partition key."""

import pytest
from boto3.dynamodb.conditions import Attr, Key

from hotpartition.table import ShardedTable, fixed, in_band
from hotpartition.table.page_calls import read_pages
from support.tables import define_table

from .conftest import READINGS, raise_key

ROOMS = ("hall", "room", "room-1", "über")
IS_ROOM = Attr("PK").eq("room")


@pytest.fixture(scope="module", params=["fixed", "in band"])
def tables(request, dynamodb):
    """boto3's table and a sharded one, with the same items; no test changes them."""
    made = [
        dynamodb.create_table(TableName=f"scanned-{name}", **define_table("PK", "SK", **READINGS))
        for name in ("twin", "shards")
    ]
    if request.param == "in band":
        for room in ROOMS:
            raise_key(made[1], room, 4)
    table = ShardedTable(made[1], shards=fixed(4) if request.param == "fixed" else in_band(environ={}))
    for number in range(40):
        item = {"PK": ROOMS[number % 4], "SK": f"{number:04}", "n": number, "owner": "eu", "at": f"{number:04}"}
        for each in (made[0], table):
            each.put_item(Item=item)
    yield made[0], table
    for plain in made:
        plain.delete()


def scan(table, method="scan", **request):
    """The sort keys of all pages, and the sum of what they count."""
    pages = list(read_pages(getattr(table, method), request))
    items = [item.get("SK", item.get("n")) for page in pages for item in page.get("Items", ())]
    return sorted(items), sum(page["Count"] for page in pages)


def values(**given):
    return {"ExpressionAttributeValues": {f":{name}": value for name, value in given.items()}}


FILTERS = {
    "equal": {"FilterExpression": IS_ROOM},
    "other": {"FilterExpression": IS_ROOM & Attr("n").gt(11)},
    "nested": {"FilterExpression": (Attr("n").gt(3) & IS_ROOM) & (Attr("n").lt(20) | Attr("n").gt(30))},
    "begins": {"FilterExpression": Attr("PK").begins_with("room") & Attr("n").between(3, 30)},
    "text": {"FilterExpression": "(#p = :p) and n between :a and :b", "ExpressionAttributeNames": {"#p": "PK"}}
    | values(p="room", a=3, b=30),
    "mirrored": {"FilterExpression": ":p < PK AND attribute_exists(PK)"} | values(p="room"),
    "range": {"FilterExpression": "PK BETWEEN :a AND :b AND n > :n"} | values(a="room", b="room-2", n=5),
    "in": {"FilterExpression": Attr("PK").is_in(["hall", "über"])},
    "not equal": {"FilterExpression": Attr("PK").ne("room")},
    "contains": {"FilterExpression": Attr("PK").contains("oo"), "ProjectionExpression": "n"},
    "nothing": {"FilterExpression": Attr("PK").eq("nowhere")},
    "shared value": {"FilterExpression": "PK = :p AND NOT #o = :p"}
    | {"ExpressionAttributeNames": {"#o": "owner"}}
    | values(p="room"),
    "without": {"FilterExpression": Attr("n").gt(11)},
}
SHAPES = [{}, {"Limit": 7}, {"Select": "COUNT"}, {"Limit": 7, "Select": "COUNT"}]


@pytest.mark.parametrize("filtered", FILTERS.values(), ids=FILTERS)
def test_a_filter_on_the_partition_key_keeps_what_boto3_keeps(tables, filtered):
    """On every shard; of a scan and of an index, and counted alone."""
    for shape in SHAPES:
        request = {**filtered, **shape} if "Select" not in shape else {**without_projection(filtered), **shape}
        expected, found = (scan(table, **request) for table in tables)
        assert found == expected
    of_index = {"IndexName": "by-owner", "KeyConditionExpression": "#owner = :owner", **filtered}
    if isinstance(filtered["FilterExpression"], str):
        of_index["ExpressionAttributeNames"] = {**filtered.get("ExpressionAttributeNames", {}), "#owner": "owner"}
        of_index["ExpressionAttributeValues"] = {**filtered["ExpressionAttributeValues"], ":owner": "eu"}
    else:
        of_index["KeyConditionExpression"] = Key("owner").eq("eu")
    expected, found = (scan(table, "query", **of_index) for table in tables)
    assert found == expected


def without_projection(request):
    return {name: value for name, value in request.items() if name != "ProjectionExpression"}


@pytest.mark.parametrize(
    "expression", [IS_ROOM | Attr("n").gt(3), ~IS_ROOM, Attr("PK").size().gt(3), "n > :n AND (PK = :p OR n = :n)"]
)
def test_a_filter_that_looks_at_the_partition_key_otherwise_is_refused(tables, watched, expression):
    _, table = tables
    table.scan()
    watched.sent.clear()
    request = {"FilterExpression": expression} | (values(n=1, p="room") if isinstance(expression, str) else {})
    with pytest.raises(NotImplementedError, match="joined with the others by AND"):
        table.scan(**request)
    assert not watched.sent
