"""Indexes with few values, and indexes by time: what is written for them, and what their pages ask for.

What pages of these and of boto3's own indexes hold is the equivalence machine's to compare.
"""

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from boto3.dynamodb.conditions import Attr, Key

from hotpartition.table import ShardedIndex, ShardedTable, TimeBuckets, by_attribute, fixed

from .conftest import put_all, updating

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
        """A storage contract: the value, and a shard by collection and sort key, however it gets or loses its value."""
        table, names = open_indexed(plain), {"ExpressionAttributeNames": {"#s": "status"}}
        put_all(table, (item(number) for number in range(4)))
        changes = [updating("SET #s = :s", s="DONE"), {"UpdateExpression": "remove n, #s"}]
        for number, change in enumerate(changes):
            table.update_item(Key={"PK": f"room-{number}", "SK": f"{number:04}"}, **change, **names)
        shards = {found["SK"]: found.get(SHARD) for found in plain.scan()["Items"]}
        assert shards == {"0000": "DONE#_1", "0001": None, "0002": "OPEN#_0", "0003": "OPEN#_2"}

    def test_the_value_itself_is_shown_if_it_is_asked_for(self, plain):
        table = open_indexed(plain)
        table.put_item(Item=item(1))
        named = {"ProjectionExpression": "#s", "ExpressionAttributeNames": {"#s": "status"}}
        assert table.query(**OF_OPEN, **named)["Items"] == [{"status": "OPEN"}]
        assert table.query(**OF_OPEN, ProjectionExpression="n")["Items"] == [{"n": 1}]

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
        keys = {"PK", "SK", "status", SHARD, range_key or SHARD}  # those of DynamoDB's, for which PynamoDB looks
        assert all(page["LastEvaluatedKey"].keys() == keys for page in pages[:-1])

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
        ("first", "last", "expected"),
        [
            (5, 12, range(5, 13)),
            ("2026-11-21T10", "2026-11-21T11:59", range(3, 15)),
            # Three buckets without an item come first.
            ("2026-11-21T06", "2026-11-21T10:05", range(4)),
        ],
    )
    @pytest.mark.parametrize("options", [{}, {"Limit": 7}, {"ScanIndexForward": False, "Limit": 1}])
    def test_a_range_goes_over_many_buckets_with_both_its_ends(self, table, first, last, expected, options):
        """As `between` does; a time is enough for an end. Without a limit, a page is one bucket's, of six items."""
        pages = list(islice(table.query_pages(**between(first, last), **options), 20))
        assert numbers(pages) == sorted(expected, reverse="ScanIndexForward" in options)
        assert max(len(page["Items"]) for page in pages) <= options.get("Limit", 6)

    def test_a_page_of_which_the_filter_leaves_nothing_is_not_the_last_one(self, table):
        """The next page begins behind what was looked at."""
        pages = list(islice(table.query_pages(**between(5, 12), Limit=2, FilterExpression=Attr("n").gte(10)), 20))
        assert numbers(pages) == [10, 11, 12]
        assert pages[0]["Items"] == []

    def test_a_page_that_dynamodb_cuts_at_1_mb_ends_in_its_bucket(self, plain):
        """Although its limit is not reached: the rest of the bucket comes before the next one."""
        table = ShardedTable(plain, shards=fixed(0), indexes=[TimeBuckets("day", index="by-owner")])
        wanted, of_next_day = [*range(6), 6 * 24], "2026-11-23"
        put_all(table, ({"PK": "room-1", "SK": sort_key(n), "n": n, "text": "x" * 300_000} for n in wanted))
        pages = list(islice(table.query_pages(**between(0, of_next_day), Limit=50), 20))
        assert numbers(pages) == wanted
        assert len(pages[0]["Items"]) < 6

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

    def test_an_item_whose_sort_key_is_no_time_can_be_deleted(self, table, plain):
        """It was there before the index."""
        plain.put_item(Item={"PK": "room-1", "SK": "meta"})
        table.delete_item(Key={"PK": "room-1", "SK": "meta"})
        assert "Item" not in table.get_item(Key={"PK": "room-1", "SK": "meta"})

    def test_buckets_are_those_of_utc(self):
        buckets, night = TimeBuckets("hour", index="by-owner"), "2026-11-21T01:30:00+02:00#x"
        assert (buckets.bucket_of(night), buckets.list_between(night, night)) == ("2026-11-20T23", ["2026-11-20T23"])
