"""An index by time: ranges over any number of buckets, in both directions, and index shards that follow the table's."""

from datetime import UTC, datetime, timedelta

import pytest
from boto3.dynamodb.conditions import Attr, Key

from hotpartition.core.errors import InvalidRequestError
from hotpartition.table import ShardedTable, TimeBuckets, by_attribute, by_sort_key, fixed

from .conftest import put_all, updating

START = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
INDEX = "by-owner"
"""The index of the tests' table whose range key is an attribute of its own: hash key `owner`, range key `at`."""


def sort_key(number):
    return f"{(START + timedelta(minutes=10 * number)).isoformat()}#{number:04d}"


FIRST, LAST = sort_key(0), sort_key(47)


def between(first=FIRST, last=LAST, collection="room-1"):
    return {"IndexName": INDEX, "KeyConditionExpression": Key("PK").eq(collection) & Key("SK").between(first, last)}


def open_table(plain, shards=None, hashed=None, granularity="hour", **options):
    buckets = TimeBuckets(granularity, index=INDEX)
    return ShardedTable(plain, shards=shards or fixed(3), hashed=hashed or by_sort_key(), indexes=[buckets], **options)


@pytest.fixture(scope="class")
def table(kept):
    """48 items, ten minutes apart: eight hours in nine buckets."""
    table = open_table(kept)
    put_all(table, ({"PK": "room-1", "SK": sort_key(number), "n": number, "colour": "red"} for number in range(48)))
    return table


def numbers(pages):
    return [int(item["n"]) for page in pages for item in page["Items"]]


class TestWhatIsStored:
    def test_an_item_has_its_bucket_and_shard_in_the_index(self, table, kept):
        """The index's hash key is collection, bucket and the item's own shard; its range key the sort key."""
        stored = kept.scan()["Items"]
        for item in stored:
            collection, _, shard = item["PK"].rpartition("#_")
            assert item["owner"] == f"{collection}#{item['SK'][:13]}#_{shard}"
            assert item["at"] == item["SK"]
        assert len({item["owner"].rpartition("#_")[2] for item in stored}) == 3

    @pytest.mark.parametrize("method", ["put_item", "update_item", "update_item_with_set"])
    def test_every_way_to_create_an_item_writes_the_index_keys(self, plain, method):
        table = open_table(plain)
        key = {"PK": "room-1", "SK": sort_key(1)}
        if method == "put_item":
            table.put_item(Item=key)
        else:
            change = "SET n = :one" if method.endswith("set") else "ADD n :one"
            changed = table.update_item(Key=key, **updating(change, one=1), ReturnValues="ALL_NEW")
            assert changed["Attributes"] == {**key, "n": 1}
        assert table.get_item(Key=key)["Item"].keys() <= {"PK", "SK", "n"}
        (stored,) = plain.scan()["Items"]
        assert stored["owner"].startswith("room-1#2026-11-21T09#_")
        assert len(table.query(**between())["Items"]) == 1

    def test_the_index_keys_are_reserved(self, table):
        """An owner who wrote them would take the item out of its bucket."""
        with pytest.raises(InvalidRequestError, match="owner"):
            table.put_item(Item={"PK": "room-1", "SK": sort_key(1), "owner": "ann"})

    def test_an_item_on_the_base_key_has_no_index_shard(self, plain):
        """As what was written before any raise."""
        buckets = TimeBuckets("day", index=INDEX)
        plain.put_item(Item={"PK": "room-1", "SK": FIRST, "n": 0, "owner": "room-1#2026-11-21", "at": FIRST})
        table = ShardedTable(plain, shards=fixed(4), indexes=[buckets])
        assert numbers([table.query(**between())]) == [0]


class TestRanges:
    @pytest.mark.parametrize("limit", [1, 7])
    def test_a_range_goes_over_many_buckets(self, table, limit):
        """Newest first; the equivalence machine draws the others."""
        pages = list(table.query_pages(**between(), ScanIndexForward=False, Limit=limit))
        assert numbers(pages) == list(range(47, -1, -1))
        assert max(len(page["Items"]) for page in pages) == limit

    @pytest.mark.parametrize(
        ("first", "last", "expected"),
        [(sort_key(5), sort_key(12), range(5, 13)), ("2026-11-21T10", "2026-11-21T11:59", range(3, 15))],
    )
    def test_bounds_are_inclusive(self, table, first, last, expected):
        """As `between` is; a time is enough."""
        assert numbers(table.query_pages(**between(first, last))) == list(expected)

    def test_only_the_buckets_of_the_range_are_asked(self, table, watched):
        """Base key and three shards of each."""
        list(table.query_pages(**between(sort_key(0), sort_key(2))))
        assert {key.split("#")[1] for key in watched.queried} == {"2026-11-21T09"}
        assert len(watched.queried) == 4

    def test_one_value_of_the_attribute_asks_one_shard_of_each_bucket(self, plain, watched):
        table = open_table(plain, fixed(8), by_attribute("device"), granularity="day")
        for number in range(6):
            table.put_item(Item={"PK": "room-1", "SK": sort_key(number), "n": number, "device": f"dev-{number % 2}"})
        watched.queried.clear()
        assert numbers(table.query_pages(**between(), FilterExpression=Attr("device").eq("dev-1"))) == [1, 3, 5]
        assert len(watched.queried) == 2


class TestWhatItSays:
    def test_a_page_says_that_it_is_eventually_consistent(self, table):
        """An index is filled a moment after its table."""
        assert table.query(**between())["ConsistentRead"] is False

    @pytest.mark.parametrize(
        ("request_", "error", "instead"),
        [
            ({**between(), "ConsistentRead": True}, NotImplementedError, "Query the table"),
            ({"IndexName": INDEX, "KeyConditionExpression": Key("PK").eq("a")}, NotImplementedError, "both ends"),
            ({"IndexName": INDEX, "KeyConditionExpression": Key("PK").eq("a") & Key("SK").gt(FIRST)},
             NotImplementedError, "both ends"),
            (between("2026-01-01", "2026-11-21"), ValueError, "larger buckets"),
        ],
    )  # fmt: skip
    def test_what_no_range_can_be_is_refused(self, table, request_, error, instead):
        """An index is never consistent, and asks bucket by bucket."""
        with pytest.raises(error, match=instead):
            table.query(**request_)

    def test_a_wrong_index_is_named(self, plain):
        table = ShardedTable(plain, shards=fixed(2), indexes=[TimeBuckets("hour", index="nope")])
        with pytest.raises(ValueError, match="by-owner"):
            table.get_item(Key={"PK": "a", "SK": "b"})

    def test_a_wrong_granularity_is_named(self):
        with pytest.raises(ValueError, match="minute, hour, day"):
            TimeBuckets("week", index=INDEX)

    def test_a_sort_key_without_a_time_is_refused(self, table):
        """Where it says how its time is read, any sort key is taken."""
        with pytest.raises(ValueError, match="isoformat"):
            table.put_item(Item={"PK": "room-1", "SK": "not a time"})


def test_buckets_are_those_of_utc():
    assert TimeBuckets("hour", index=INDEX).bucket_of("2026-11-21T01:30:00+02:00#x") == "2026-11-20T23"
