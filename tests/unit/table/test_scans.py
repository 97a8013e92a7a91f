"""Scans, and queries of indexes that are not sharded."""

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


@pytest.mark.parametrize("request_", [{}, {"FilterExpression": Attr("n").gt(11) & Attr("PK").exists()}])
@pytest.mark.parametrize("shape", [{}, {"Limit": 7}, {"Select": "COUNT"}, {"Limit": 7, "Select": "COUNT"}])
def test_a_scan_counts_and_keeps_what_boto3_does(tables, request_, shape):
    """Of the table, and of an index; routing items are not the owner's."""
    of_index = {"IndexName": "by-owner", "KeyConditionExpression": Key("owner").eq("eu")}
    for method, more in (("scan", {}), ("query", of_index)):
        expected, found = (scan(table, method, **request_, **shape, **more) for table in tables)
        assert found == expected


@pytest.mark.parametrize(
    "expression", [IS_ROOM, IS_ROOM | Attr("n").gt(3), Attr("PK").size().gt(3), "n > :n AND PK = :p"]
)
def test_a_filter_that_looks_at_the_partition_key_is_refused(tables, watched, expression):
    """It would be judged by the shard's key."""
    _, table = tables
    table.scan()
    watched.sent.clear()
    values = {":n": 1, ":p": "room"}
    request = {"FilterExpression": expression}
    request |= {"ExpressionAttributeValues": values} if isinstance(expression, str) else {}
    with pytest.raises(NotImplementedError, match="it looks at PK"):
        table.scan(**request)
    assert not watched.sent
