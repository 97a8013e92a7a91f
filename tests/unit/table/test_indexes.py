"""Indexes of boto3's own whose keys have several attributes, indexes with few values, and indexes by time.

What pages of the usual ones hold is the equivalence machine's to compare; here is what it does not draw or count.
"""

from datetime import UTC, datetime, timedelta

import pytest
from boto3.dynamodb.conditions import Attr, Key
from botocore.exceptions import ClientError

from hotpartition.table import ShardedIndex, ShardedTable, TimeBuckets, by_attribute, fixed
from hotpartition.table.page_calls import read_pages

from .conftest import put_all, updating

NAMES = ("PK", "SK", "region", "kind", "at")
INDEXES = {
    "first": (("PK", "region"), ("kind", "at")),
    "last": (("region", "PK"), ("kind",)),
    "whole": (("PK", "region"), ()),
    "none": (("region", "kind"), ("at",)),
    "behind": (("region",), ("kind", "PK")),
    "inverted": (("SK",), ("PK",)),
}
OF_EUROPE = Key("PK").eq("room") & Key("region").eq("eu")
OF_KIND = Key("region").eq("eu") & Key("kind").eq("b")


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


@pytest.mark.parametrize("options", [{}, {"Limit": 2}, {"Limit": 2, "ScanIndexForward": False}])
@pytest.mark.parametrize(
    ("index", "condition"),
    [
        ("first", OF_EUROPE),
        ("first", OF_EUROPE & Key("kind").eq("b") & Key("at").between("0003", "0015")),
        ("last", OF_EUROPE & Key("kind").begins_with("a")),
        ("whole", OF_EUROPE),
        ("none", OF_KIND),
        ("inverted", Key("SK").eq("0001")),
    ],
)
def test_an_index_is_read_in_the_order_of_all_its_range_keys(tables, index, condition, options):
    """Page by page, whether it has the table's partition key or is asked as it is."""
    expected, found = (walk(table, IndexName=index, KeyConditionExpression=condition, **options) for table in tables)
    if index in {"last", "whole"}:  # items at the same place of an index come in any order
        expected, found = (sorted(key for page in pages for key in page) for pages in (expected, found))
    assert found == expected != []


@pytest.mark.parametrize(
    "condition", [Key("PK").eq("room"), OF_EUROPE & Key("SK").eq("0001"), Key("PK").eq("room") & Key("region").gt("a")]
)
def test_what_an_index_does_not_take_is_refused_as_by_boto3(tables, condition):
    """An error, not no items."""
    for table in tables:
        with pytest.raises(ClientError, match="ValidationException"):
            table.query(IndexName="first", KeyConditionExpression=condition)


@pytest.mark.parametrize(
    ("index", "condition", "more"),
    [
        ("behind", OF_KIND & Key("PK").eq("room"), {}),
        ("inverted", Key("SK").eq("0001") & Key("PK").eq("room"), {}),
        ("inverted", Key("SK").eq("0001"), {"FilterExpression": Attr("PK").eq("room")}),
    ],
)
def test_an_index_that_is_asked_as_it_is_is_not_searched_for_a_partition_key(tables, index, condition, more):
    """It holds the shards' keys, so it would find nothing."""
    with pytest.raises(NotImplementedError, match="PK"):
        tables[1].query(IndexName=index, KeyConditionExpression=condition, **more)


INDEX, SHARD = "by-status", "status_shard"
KEY = {"PK": "room", "SK": "0001"}
OF_OPEN = {"IndexName": INDEX, "KeyConditionExpression": Key("status").eq("OPEN")}


def open_indexed(plain, table_shards=None, index_shards=None):
    index = ShardedIndex(INDEX, hash="status", shards=index_shards or fixed(4))
    return ShardedTable(plain, shards=table_shards or fixed(0), indexes=[index])


def item(number, at=None):
    return {"PK": f"room-{number % 3}", "SK": f"{number:04}", "status": "OPEN", "at": at or f"{number:04}", "n": number}


def numbers(pages):
    return [int(found["n"]) for page in pages for found in page["Items"]]


class TestSharded:
    """An index with few values: what is written for it, and what its pages ask for."""

    @pytest.fixture
    def plain(self, create):
        return create("indexed", "PK", "SK", indexes={INDEX: (SHARD, "at")})

    def test_the_shard_is_chosen_by_the_items_own_key(self, plain):
        """A storage contract: the value, and a shard by collection and sort key."""
        put_all(open_indexed(plain), (item(number) for number in range(4)))
        shards = {found["SK"]: found[SHARD] for found in plain.scan()["Items"]}
        assert shards == {"0000": "OPEN#_1", "0001": "OPEN#_1", "0002": "OPEN#_0", "0003": "OPEN#_2"}

    @pytest.mark.parametrize("shards", [fixed(0), fixed(3), fixed(3, only_shards=True)])
    def test_every_change_of_the_value_moves_the_item(self, plain, shards):
        """And back to the very same shard; other changes leave it where it is."""
        table = open_indexed(plain, shards)
        names = {"ExpressionAttributeNames": {"#s": "status"}}
        set_status = {**updating("SET #s = :s, n = :n", s="DONE", n=1), **names}
        remove = {"UpdateExpression": "remove a, #s", **names}
        steps = [
            (lambda: table.put_item(Item={**KEY, "status": "OPEN"}), "OPEN"),
            (lambda: table.update_item(Key=KEY, **set_status), "DONE"),
            (lambda: table.update_item(Key=KEY, **updating("ADD n :n", n=1)), "DONE"),
            (lambda: put_all(table, [{**KEY, "status": "OPEN"}]), "OPEN"),
            (lambda: table.update_item(Key=KEY, **remove), None),
        ]
        seen = []
        for change, _ in steps:
            change()
            (stored,) = plain.scan()["Items"]
            seen.append(stored.get(SHARD))
        shard = seen[0].removeprefix("OPEN")
        assert seen == [value and f"{value}{shard}" for _, value in steps]

    @pytest.mark.parametrize("range_key", ["at", None], ids=["equal range keys", "no range key"])
    @pytest.mark.parametrize("options", [{}, {"Limit": 7, "ScanIndexForward": False}])
    def test_items_at_one_place_of_the_index_come_once(self, create, range_key, options):
        """With all that they have, whatever the page's size."""
        plain = create("filled", "PK", "SK", indexes={INDEX: (SHARD, range_key) if range_key else (SHARD,)})
        table = open_indexed(plain, fixed(2))
        put_all(table, (item(number, at=f"{number % 3}") for number in range(20)))
        pages = list(table.query_pages(**OF_OPEN, **options))
        assert sorted(numbers(pages)) == list(range(20))
        assert all(len(page["Items"]) <= options.get("Limit", 20) for page in pages)
        assert pages[0]["Items"][0].keys() == {"PK", "SK", "status", "at", "n"}

    def test_the_value_itself_may_be_asked_for(self, plain):
        table = open_indexed(plain)
        table.put_item(Item=item(1))
        named = {"ProjectionExpression": "#s", "ExpressionAttributeNames": {"#s": "status"}}
        assert table.query(**OF_OPEN, **named)["Items"] == [{"status": "OPEN"}]

    @pytest.mark.parametrize("condition", [Key("at").eq("1"), Key("status").gt("A")])
    def test_a_condition_on_no_value_is_refused_as_by_dynamodb(self, plain, condition):
        with pytest.raises(ClientError, match="ValidationException"):
            open_indexed(plain).query(IndexName=INDEX, KeyConditionExpression=condition)

    def test_only_the_indexs_shards_are_asked(self, plain, watched):
        """No base key, and no journal; after a raise those of both numbers, so that old items are found."""
        smaller, larger = (open_indexed(plain, fixed(16), shards) for shards in (fixed(2), fixed(2, 9)))
        for number in range(20):
            (smaller if number < 10 else larger).put_item(Item=item(number))
        assert numbers(larger.query_pages(**OF_OPEN, Limit=6)) == list(range(20))
        watched.forget()
        larger.query(**OF_OPEN)
        assert set(watched.queried) == {f"OPEN#_{shard}" for shard in range(9)}
        assert dict(watched.sent) == {"Query": 9}


START = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)


def sort_key(number):
    return f"{(START + timedelta(minutes=10 * number)).isoformat()}#{number:04d}"


def between(first, last):
    """Ask for a range of time, between items by their numbers or between times."""
    first, last = (sort_key(end) if isinstance(end, int) else end for end in (first, last))
    return {"IndexName": "by-owner", "KeyConditionExpression": Key("PK").eq("room-1") & Key("SK").between(first, last)}


class TestTimeBuckets:
    """An index by time: what is written for it, and which of its buckets are asked."""

    @pytest.fixture
    def table(self, plain):
        """48 items, ten minutes apart: eight hours in nine buckets. The index `by-owner` has `at` for a range key."""
        table = ShardedTable(plain, shards=fixed(3), indexes=[TimeBuckets("hour", index="by-owner")])
        put_all(table, ({"PK": "room-1", "SK": sort_key(number), "n": number} for number in range(48)))
        return table

    def test_an_item_has_its_bucket_and_shard_in_the_index(self, table, plain):
        """The index's hash key is collection, bucket and the item's own shard; its range key the sort key.

        No call shows them.
        """
        stored = plain.scan()["Items"]
        for item in stored:
            collection, _, shard = item["PK"].rpartition("#_")
            assert item["owner"] == f"{collection}#{item['SK'][:13]}#_{shard}"
            assert item["at"] == item["SK"]
        assert len({item["owner"].rpartition("#_")[2] for item in stored}) == 3
        assert table.get_item(Key={"PK": "room-1", "SK": sort_key(0)})["Item"].keys() == {"PK", "SK", "n"}

    @pytest.mark.parametrize(
        ("first", "last", "expected"), [(5, 12, range(5, 13)), ("2026-11-21T10", "2026-11-21T11:59", range(3, 15))]
    )
    @pytest.mark.parametrize("options", [{"Limit": 7}, {"ScanIndexForward": False, "Limit": 1}])
    def test_a_range_goes_over_many_buckets_with_both_its_ends(self, table, first, last, expected, options):
        """As `between` does; a time is enough for an end."""
        pages = list(table.query_pages(**between(first, last), **options))
        assert numbers(pages) == sorted(expected, reverse="ScanIndexForward" in options)
        assert max(len(page["Items"]) for page in pages) <= options["Limit"]

    def test_only_the_buckets_of_the_range_are_asked(self, table, watched):
        """Base key and three shards of each. An index is filled a moment after its table, and a page says so."""
        watched.forget()
        (page,) = table.query_pages(**between(0, 2))
        assert {key.split("#")[1] for key in watched.queried} == {"2026-11-21T09"}
        assert len(watched.queried) == 4
        assert page["ConsistentRead"] is False

    def test_one_value_of_the_attribute_asks_one_shard_of_each_bucket(self, plain, watched):
        buckets = TimeBuckets("day", index="by-owner")
        table = ShardedTable(plain, shards=fixed(8), hashed=by_attribute("device"), indexes=[buckets])
        for number in range(6):
            table.put_item(Item={"PK": "room-1", "SK": sort_key(number), "n": number, "device": f"dev-{number % 2}"})
        watched.queried.clear()
        assert numbers(table.query_pages(**between(0, 47), FilterExpression=Attr("device").eq("dev-1"))) == [1, 3, 5]
        assert len(watched.queried) == 2

    def test_buckets_are_those_of_utc(self):
        assert TimeBuckets("hour", index="by-owner").bucket_of("2026-11-21T01:30:00+02:00#x") == "2026-11-20T23"
