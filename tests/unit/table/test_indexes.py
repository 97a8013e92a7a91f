"""Indexes of boto3's own whose keys have several attributes, scans, indexes with few values, and indexes by time."""

from datetime import UTC, datetime, timedelta

import pytest
from boto3.dynamodb.conditions import Attr, Key
from botocore.exceptions import ClientError

from hotpartition.table import ShardedIndex, ShardedTable, TimeBuckets, by_attribute, by_sort_key, fixed, in_band
from hotpartition.table.page_calls import read_pages
from support.tables import define_table

from .conftest import put_all, raise_key, updating

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


OF_A_RANGE = Key("kind").eq("b") & Key("at").between("0003", "0015")


@pytest.mark.parametrize("options", [{}, {"Limit": 2}, {"Limit": 2, "ScanIndexForward": False}])
@pytest.mark.parametrize(
    ("index", "condition"),
    [
        ("first", OF_EUROPE),
        ("first", OF_EUROPE & Key("kind").eq("b")),
        ("first", OF_EUROPE & OF_A_RANGE),
        ("first", OF_EUROPE & Key("kind").lt("c")),
        ("last", OF_EUROPE & Key("kind").begins_with("a")),
        ("whole", OF_EUROPE),
        ("none", Key("region").eq("eu") & Key("kind").eq("b")),
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
        with pytest.raises(table.meta.client.exceptions.ClientError, match="ValidationException"):
            table.query(IndexName="first", KeyConditionExpression=condition)


def test_the_partition_key_in_an_index_that_is_asked_as_it_is_is_refused(tables):
    condition = Key("region").eq("eu") & Key("kind").eq("b") & Key("PK").eq("room")
    with pytest.raises(NotImplementedError, match="PK, which differs on shards"):
        tables[1].query(IndexName="behind", KeyConditionExpression=condition)


@pytest.mark.parametrize("shape", [{"Limit": 7}, {"Limit": 7, "Select": "COUNT"}])
def test_routing_items_take_no_place_in_a_scan(plain, twin, shape):
    """Nor in what it counts."""
    raise_key(plain, "room", 4)
    table = ShardedTable(plain, shards=in_band(environ={}))
    for each in (twin, table):
        put_all(each, ({"PK": "room", "SK": f"{number:04}"} for number in range(20)))
    expected, found = (list(read_pages(each.scan, shape)) for each in (twin, table))
    assert sum(page["Count"] for page in found) == sum(page["Count"] for page in expected) == 20


INDEX, SHARD = "by-status", "status_shard"
KEY = {"PK": "room", "SK": "0001"}
OF_OPEN = {"IndexName": INDEX, "KeyConditionExpression": Key("status").eq("OPEN")}


def open_indexed(plain, table_shards=None, index_shards=None):
    index = ShardedIndex(INDEX, hash="status", shards=index_shards or fixed(4))
    return ShardedTable(plain, shards=table_shards or fixed(0), indexes=[index])


def item(number, status="OPEN", at=None):
    return {"PK": f"room-{number % 3}", "SK": f"{number:04}", "status": status, "at": at or f"{number:04}", "n": number}


def numbers(pages):
    return [int(found["n"]) for page in pages for found in page["Items"]]


@pytest.fixture(scope="module", params=["at", None, "rank"], ids=["different", "none", "equal"])
def filled(request, dynamodb):
    """40 open items and 3 done ones; with `rank`, the range keys have three values."""
    keys = define_table("PK", "SK", indexes={INDEX: (SHARD, "at") if request.param else (SHARD,)})
    plain = dynamodb.create_table(TableName="filled", **keys)
    table = open_indexed(plain, fixed(2))
    put_all(table, (item(n, at=f"{n % 3}" if request.param == "rank" else None) for n in range(40)))
    put_all(table, (item(n, "DONE") for n in range(40, 43)))
    yield request.param, table
    plain.delete()


class TestSharded:
    """An index with few values: what is written for it, and pages over its shards that read like a plain one's."""

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
            (lambda: table.put_item(Item={**KEY, "status": "OPEN"}), "OPEN"),
            (lambda: table.update_item(Key=KEY, **remove), None),
            (lambda: put_all(table, [{**KEY, "status": "OPEN"}]), "OPEN"),
            (lambda: table.put_item(Item=KEY), None),
        ]
        seen = []
        for change, _ in steps:
            change()
            (stored,) = plain.scan()["Items"]
            seen.append(stored.get(SHARD))
        shard = seen[0].removeprefix("OPEN")
        assert seen == [value and f"{value}{shard}" for _, value in steps]
        assert table.get_item(Key=KEY)["Item"] == KEY

    @pytest.mark.parametrize("limit", [None, 1, 7])
    @pytest.mark.parametrize("newest_first", [False, True])
    def test_every_item_comes_once_and_in_order(self, filled, limit, newest_first):
        """Whatever the page's size, and however many range keys are equal."""
        sort, table = filled
        options = {} if limit is None else {"Limit": limit}
        pages = list(table.query_pages(**OF_OPEN, ScanIndexForward=not newest_first, **options))
        found = [each for page in pages for each in page["Items"]]
        assert sorted(int(each["n"]) for each in found) == list(range(40))
        if sort is not None:
            ranges = [each["at"] for each in found]
            assert ranges == sorted(ranges, reverse=newest_first)
        assert all(limit is None or len(page["Items"]) <= limit for page in pages)
        assert sum(page["Count"] for page in table.query_pages(**OF_OPEN, Select="COUNT", **options)) == 40
        assert found[0].keys() == {"PK", "SK", "status", "at", "n"}

    def test_a_projection_shows_what_it_names(self, filled):
        """The value itself only where it is named."""
        _, table = filled
        pages = table.query_pages(**OF_OPEN, ProjectionExpression="n", Limit=9)
        assert {frozenset(each) for page in pages for each in page["Items"]} == {frozenset({"n"})}
        named = {"ProjectionExpression": "#s", "ExpressionAttributeNames": {"#s": "status"}}
        assert table.query(**OF_OPEN, **named, Limit=1)["Items"] == [{"status": "OPEN"}]

    @pytest.mark.parametrize(
        ("condition", "expected"),
        [
            (Key("at").eq("0005"), range(5, 6)),
            (Key("at").between("0005", "0009"), range(5, 10)),
            (Key("at").begins_with("000"), range(10)),
        ],
    )
    def test_conditions_on_the_range_key_hold(self, plain, condition, expected):
        table = open_indexed(plain)
        put_all(table, (item(number) for number in range(12)))
        request = {**OF_OPEN, "KeyConditionExpression": Key("status").eq("OPEN") & condition}
        found = table.query_pages(**request, ScanIndexForward=False, Limit=2)
        assert numbers(found) == sorted(expected, reverse=True)

    @pytest.mark.parametrize("condition", [Key("at").eq("1"), Key("status").gt("A")])
    def test_a_condition_on_no_value_is_refused_as_by_dynamodb(self, plain, condition):
        with pytest.raises(ClientError, match="ValidationException"):
            open_indexed(plain).query(IndexName=INDEX, KeyConditionExpression=condition)

    def test_only_the_indexs_shards_are_asked(self, plain, watched):
        """No base key, and no journal."""
        table = open_indexed(plain, fixed(16))
        table.put_item(Item=item(1))
        watched.forget()
        table.query(**OF_OPEN)
        assert sorted(watched.queried) == [f"OPEN#_{shard}" for shard in range(4)]
        assert dict(watched.sent) == {"Query": 4}

    def test_after_a_raise_old_items_are_found(self, plain):
        """Under both numbers; those whose value is set anew move."""
        smaller, larger = (open_indexed(plain, index_shards=shards) for shards in (fixed(2), fixed(2, 9)))
        for number in range(20):
            (smaller if number < 10 else larger).put_item(Item=item(number))
        assert numbers(larger.query_pages(**OF_OPEN, Limit=6)) == list(range(20))


START = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)


def sort_key(number):
    return f"{(START + timedelta(minutes=10 * number)).isoformat()}#{number:04d}"


def between(first=0, last=47):
    """Ask for a range of time, between items by their numbers or between times."""
    first, last = (sort_key(end) if isinstance(end, int) else end for end in (first, last))
    return {"IndexName": "by-owner", "KeyConditionExpression": Key("PK").eq("room-1") & Key("SK").between(first, last)}


def open_timed(plain, shards=None, hashed=None, granularity="hour"):
    """Open a table whose index `by-owner` is by time: hash key `owner`, range key `at`."""
    buckets = TimeBuckets(granularity, index="by-owner")
    return ShardedTable(plain, shards=shards or fixed(3), hashed=hashed or by_sort_key(), indexes=[buckets])


@pytest.fixture(scope="module")
def by_time(dynamodb):
    """48 items, ten minutes apart: eight hours in nine buckets."""
    plain = dynamodb.create_table(TableName="timed", **define_table("PK", "SK", indexes={"by-owner": ("owner", "at")}))
    put_all(open_timed(plain), ({"PK": "room-1", "SK": sort_key(number), "n": number} for number in range(48)))
    yield plain
    plain.delete()


class TestTimeBuckets:
    """Ranges over any number of buckets, in both directions, and index shards that follow the table's."""

    @pytest.fixture
    def table(self, by_time):
        return open_timed(by_time)

    def test_an_item_has_its_bucket_and_shard_in_the_index(self, by_time):
        """The index's hash key is collection, bucket and the item's own shard; its range key the sort key."""
        stored = by_time.scan()["Items"]
        for item in stored:
            collection, _, shard = item["PK"].rpartition("#_")
            assert item["owner"] == f"{collection}#{item['SK'][:13]}#_{shard}"
            assert item["at"] == item["SK"]
        assert len({item["owner"].rpartition("#_")[2] for item in stored}) == 3

    @pytest.mark.parametrize("change", ["", "ADD n :one", "SET n = :one"])
    def test_every_way_to_create_an_item_writes_the_index_keys(self, plain, change):
        table, key = open_timed(plain), {"PK": "room-1", "SK": sort_key(1)}
        if change:
            changed = table.update_item(Key=key, **updating(change, one=1), ReturnValues="ALL_NEW")
            assert changed["Attributes"] == {**key, "n": 1}
        else:
            table.put_item(Item=key)
        assert table.get_item(Key=key)["Item"].keys() <= {"PK", "SK", "n"}
        (stored,) = plain.scan()["Items"]
        assert stored["owner"].startswith("room-1#2026-11-21T09#_")
        assert len(table.query(**between())["Items"]) == 1

    def test_an_item_on_the_base_key_has_no_index_shard(self, plain):
        """As what was written before any raise."""
        plain.put_item(
            Item={"PK": "room-1", "SK": sort_key(0), "n": 0, "owner": "room-1#2026-11-21", "at": sort_key(0)}
        )
        assert numbers([open_timed(plain, fixed(4), granularity="day").query(**between())]) == [0]

    @pytest.mark.parametrize("options", [{}, {"ScanIndexForward": False, "Limit": 1}, {"Limit": 7}])
    @pytest.mark.parametrize(
        ("first", "last", "expected"),
        [(0, 47, range(48)), (5, 12, range(5, 13)), ("2026-11-21T10", "2026-11-21T11:59", range(3, 15))],
    )
    def test_a_range_goes_over_many_buckets_with_both_its_ends(self, table, first, last, expected, options):
        """As `between` does; a time is enough for an end."""
        pages = list(table.query_pages(**between(first, last), **options))
        assert numbers(pages) == sorted(expected, reverse="ScanIndexForward" in options)
        assert max(len(page["Items"]) for page in pages) <= options.get("Limit", 48)

    def test_only_the_buckets_of_the_range_are_asked(self, table, watched):
        """Base key and three shards of each. An index is filled a moment after its table, and a page says so."""
        (page,) = table.query_pages(**between(0, 2))
        assert {key.split("#")[1] for key in watched.queried} == {"2026-11-21T09"}
        assert len(watched.queried) == 4
        assert page["ConsistentRead"] is False

    def test_one_value_of_the_attribute_asks_one_shard_of_each_bucket(self, plain, watched):
        table = open_timed(plain, fixed(8), by_attribute("device"), granularity="day")
        for number in range(6):
            table.put_item(Item={"PK": "room-1", "SK": sort_key(number), "n": number, "device": f"dev-{number % 2}"})
        watched.queried.clear()
        assert numbers(table.query_pages(**between(), FilterExpression=Attr("device").eq("dev-1"))) == [1, 3, 5]
        assert len(watched.queried) == 2

    def test_buckets_are_those_of_utc(self):
        assert TimeBuckets("hour", index="by-owner").bucket_of("2026-11-21T01:30:00+02:00#x") == "2026-11-20T23"
