"""`cache=True`: items and pages as boto3 gives them, of the process or the fleet; `ReadCache` of one's own values."""

import copy
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import boto3
import pytest
from boto3.dynamodb.conditions import Attr, Key
from boto3.dynamodb.types import Binary, TypeSerializer
from hypothesis import given
from hypothesis import strategies as st

from hotpartition.core.errors import MalformedPageError
from hotpartition.table import ReadCache, ShardedIndex, ShardedTable, fixed, guard
from hotpartition.table.cached_reads import ResponseCodec
from hotpartition.table.read_cache import ValueCodec
from support.builders import World

from .conftest import put_all, updating
from .test_adaptive import IN_COLLECTION, Stage
from .test_expressions import BINARIES, NUMBERS

serialize = TypeSerializer().serialize
NEWEST = {"KeyConditionExpression": Key("PK").eq("room"), "ScanIndexForward": False, "Limit": 3}
FOUR = {"PK": "room", "SK": "4"}
OF_MANY_KINDS = {"number": Decimal("1.50"), "bytes": {Binary(b"\x00\xff")}, "map": {"base64": {"$": "no tag"}}}


class Fleet(Stage):
    """Processes that share a Redis, and one table."""

    def process(self, **options):
        return super().process(route_cache_seconds=60.0, sampling_wcu=1000.0, append_only=True, **options)


@pytest.fixture
def fleet(plain):
    """With five items of a key that is read-hot, and three of one that is not."""
    fleet = Fleet(plain, IN_COLLECTION)
    fleet.registry.mark_read_hot("room")
    table = fleet.process()
    for number in range(5):
        table.put_item(Item={"PK": "room", "SK": f"{number}", **OF_MANY_KINDS})
    for number in range(3):
        table.put_item(Item={"PK": "cold", "SK": f"{number}"})
    fleet.reports.sent.clear()
    return fleet


READS = {
    "an item": lambda table, **cache: table.get_item(Key=FOUR, **cache),
    "an absent item": lambda table, **cache: table.get_item(Key={"PK": "room", "SK": "none"}, **cache),
    "the newest page": lambda table, **cache: table.query(**NEWEST, **cache),
    "a last page": lambda table, **cache: table.query(**{**NEWEST, "Limit": 9}, **cache),
    "a later page": lambda table, **cache: table.query(
        **NEWEST, ExclusiveStartKey={"PK": "room", "SK": "3"}, ReturnConsumedCapacity="TOTAL", **cache
    ),
    "a number": lambda table, **cache: table.query(**NEWEST, Select="COUNT", **cache),
}


def reads_sent(watched):
    return {name: watched.sent[name] for name in ("GetItem", "BatchGetItem", "Query") if watched.sent[name]}


def without_metadata(page):
    return {name: value for name, value in page.items() if name not in {"ResponseMetadata", "ConsumedCapacity"}}


def spoil(response):
    for item in response.pop("Items", [response.pop("Item", {})]):
        item.get("map", {}).clear()


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_cached_response_is_the_one_that_was_read(fleet, watched, read):
    """In every process: items of all types, counts, and the key to go on from; with its age, like HTTP's.

    What its caller changes in it changes no other one.
    """
    first, second = fleet.process(), fleet.process()
    expected = read(first)
    watched.sent.clear()
    loaded = read(first, cache=True)
    assert (without_metadata(loaded), loaded.keys()) == (without_metadata(expected), expected.keys())
    spoil(loaded)
    sent = reads_sent(watched)
    fleet.clock.now_ms += 200
    for process in (first, second, second):
        found = read(process, cache=True)
        assert without_metadata(found) == without_metadata(expected)
        assert found["ResponseMetadata"]["HTTPHeaders"] == {"age": "1"}
        assert "ConsumedCapacity" not in found
        spoil(found)
    assert reads_sent(watched) == sent


def test_items_are_served_and_the_rest_is_read_together(fleet, watched):
    """In the order of their keys, those of another process too; an item has one copy for both ways to read it."""
    keys = [{"PK": "room", "SK": sk} for sk in ("3", "none", "4", "3", "0")]
    first, second = fleet.process(), fleet.process()
    expected = first.get_items(keys)
    first.get_item(Key=FOUR, cache=True)
    watched.sent.clear()
    for process in (first, second, second):
        assert process.get_items(keys, cache=True) == expected
    assert reads_sent(watched) == {"BatchGetItem": 1}
    assert second.get_item(Key=FOUR, cache=True)["ResponseMetadata"]["HTTPHeaders"] == {"age": "0"}
    assert reads_sent(watched) == {"BatchGetItem": 1}


SHAPES = (
    {},
    {"Limit": 2},
    {"ScanIndexForward": True},
    {"ProjectionExpression": "SK"},
    {"ProjectionExpression": "#n", "ExpressionAttributeNames": {"#n": "SK"}},
    {"ProjectionExpression": "#n", "ExpressionAttributeNames": {"#n": "PK"}},
    {"KeyConditionExpression": Key("PK").eq("room") & Key("SK").gt("1")},
    {"KeyConditionExpression": Key("PK").eq("room") & Key("SK").gte("1")},
    {"KeyConditionExpression": "PK = :p", "ExpressionAttributeValues": {":p": "room"}},
    {"FilterExpression": Attr("SK").gt("1")},
    {"FilterExpression": Attr("SK").begins_with("1")},
    {"FilterExpression": Attr("text").exists()},
    {"FilterExpression": ~Attr("text").exists()},
    {"FilterExpression": Attr("n").eq(1)},
    {"FilterExpression": Attr("n").eq("1")},
    {"ExclusiveStartKey": {"PK": "room", "SK": "3"}},
    {"IndexName": "by-status", "KeyConditionExpression": Key("PK").eq("room")},
    {"IndexName": "by-owner", "KeyConditionExpression": Key("of").eq("ann")},
    {"Select": "COUNT"},
)


def test_a_page_is_known_by_all_its_parameters(plain, watched):
    """Another one is another page; the same ones, written anew, are the same page."""
    index = ShardedIndex("by-owner", hash="of", shards=fixed(2))
    table = ShardedTable(plain, shards=fixed(2), indexes=[index], cache=ReadCache(seconds=60))
    put_all(table, [FOUR, *({"PK": "room", "SK": f"{n}#", "of": "ann", "at": f"{n}"} for n in range(4))])
    reads = []
    for shape in [*SHAPES, *copy.deepcopy(SHAPES)]:
        watched.sent.clear()
        page = table.query(**{**NEWEST, **shape}, cache=True)
        reads.append((bool(reads_sent(watched)), without_metadata(page)))
    first, again = reads[: len(SHAPES)], reads[len(SHAPES) :]
    assert all(was_read for was_read, _ in first)
    assert again == [(False, page) for _, page in first]


def ways_to_change(table, key):
    """List each way to change an item, as a call."""
    item, client = {**key, "n": 1}, table.meta.client
    typed = {name: serialize(value) for name, value in item.items()}
    put = {"Put": {"TableName": table.name, "Item": item}}
    return [
        lambda: table.create_item(Item=item),
        lambda: table.delete_item(Key=key),
        lambda: table.put_item(Item=item),
        lambda: table.update_item(Key=key, **updating("SET n = :n", n=2)),
        lambda: put_all(table, [item]),
        lambda: client.batch_write_item(RequestItems={table.name: [{"DeleteRequest": {"Key": key}}]}),
        lambda: client.put_item(TableName=table.name, Item=item),
        lambda: table.delete_item(Key=key),
        lambda: client.transact_write_items(TransactItems=[put]),
        lambda: table.delete_item(Key=key),
        lambda: guard(boto3.client("dynamodb"), table).put_item(TableName=table.name, Item=typed),
    ]


@pytest.mark.parametrize("key", [FOUR, {"PK": "room"}], ids=["sort key", "no sort key"])
def test_processes_share_what_their_caches_have_in_redis(create, watched, monkeypatch, key):
    """Where no heat is known, as well: for all keys."""
    pages = World().pages
    monkeypatch.setattr("hotpartition.table.read_cache.open_page_store", lambda *_: pages)
    plain = create("items", *key)
    plain.put_item(Item=key)
    caches = [ReadCache(seconds=60, redis="redis.example") for _ in range(2)]
    tables = [ShardedTable(plain, shards=fixed(2), cache=cache) for cache in caches]
    watched.forget()
    assert [table.get_item(Key=key, cache=True)["Item"] for table in tables] == [key, key]
    assert sum(reads_sent(watched).values()) == 1


@pytest.mark.parametrize("key", [FOUR, {"PK": "room"}], ids=["sort key", "no sort key"])
def test_a_process_reads_its_own_changes(create, key):
    """Whatever is projected, and through every table of the same cache; a page may lack them."""
    plain, cache = create("items", *key), ReadCache(seconds=60)
    tables = [ShardedTable(plain, shards=fixed(2), cache=cache) for _ in range(2)]

    def read(table, **options):
        shapes = ({}, {"ProjectionExpression": "n"})
        return [table.get_item(Key=key, **shape, **options).get("Item") for shape in shapes]

    for number, change in enumerate(ways_to_change(tables[0], key)):
        before = read(tables[0], cache=True)
        change()
        expected = read(tables[0], ConsistentRead=True)
        assert expected != before, number
        for table in tables:
            assert read(table, cache=True) == expected, number
            assert table.get_items([key], cache=True) == expected[:1], number


def test_a_read_that_was_under_way_is_not_kept(plain, watched):
    """Its request was sent before the change."""
    table = ShardedTable(plain, shards=fixed(2), cache=ReadCache(seconds=60))
    table.put_item(Item={**FOUR, "n": 0})
    stale = {"Responses": {"readings": []}}
    watched.respond_once("BatchGetItem", lambda _: table.put_item(Item={**FOUR, "n": 1}) and stale)
    assert "Item" not in table.get_item(Key=FOUR, cache=True)
    assert table.get_item(Key=FOUR, cache=True)["Item"]["n"] == 1
    watched.once_before("PutItem", lambda: table.get_item(Key=FOUR, cache=True) and None)
    table.put_item(Item={**FOUR, "n": 2})
    assert table.get_item(Key=FOUR, cache=True)["Item"]["n"] == 2


def test_a_table_without_a_sort_key_is_cached(create, watched):
    """Items and pages; wrong keys are DynamoDB's to refuse, also where a number would be a cached text."""
    plain = create("devices", "id", indexes={"by-site": ("site", "id")})
    table = ShardedTable(plain, shards=fixed(2), cache=ReadCache(seconds=60))
    table.put_item(Item={"id": "1", "site": "a"})
    page = {"IndexName": "by-site", "KeyConditionExpression": Key("site").eq("a")}
    for _ in range(2):
        assert table.get_item(Key={"id": "1"}, cache=True)["Item"] == {"id": "1", "site": "a"}
        assert table.get_items([{"id": "2"}, {"id": "1"}], cache=True) == [None, {"id": "1", "site": "a"}]
        assert table.query(**page, cache=True)["Items"] == [{"id": "1", "site": "a"}]
    assert reads_sent(watched) == {"GetItem": 1, "BatchGetItem": 1, "Query": 1}
    assert [table.get_item(Key={"id": "1"})["Item"]["site"] for _ in range(2)] == ["a", "a"]  # each is read
    assert watched.sent["GetItem"] == 3
    for key in ({"id": 1}, {"id": "1", "more": "1"}, {}, {"id": True}, None):
        watched.sent.clear()
        with suppress(Exception):
            table.get_item(Key=key, cache=True)
        assert watched.sent["GetItem"] == (key is not None)


def test_tables_of_one_cache_keep_apart(create, watched):
    cache = ReadCache(seconds=60)
    one, two = (ShardedTable(create(name, "PK", "SK"), shards=fixed(2), cache=cache) for name in ("one", "two"))
    one.put_item(Item=FOUR)
    watched.sent.clear()
    found = [table.get_item(Key=FOUR, cache=True).get("Item") for table in (one, two, one, two)]
    assert (found, watched.sent["BatchGetItem"]) == ([FOUR, None] * 2, 2)


COLD = {"PK": "cold", "SK": "1"}
POINTS = {
    "get_item": lambda table: table.get_item(Key=COLD, cache=True),
    "uncached": lambda table: table.get_item(Key=COLD),
    "get_items": lambda table: table.get_items([COLD], cache=True),
    "batch": lambda table: table.meta.client.batch_get_item(RequestItems={table.name: {"Keys": [COLD]}}),
    "page": lambda table: table.query(KeyConditionExpression=Key("PK").eq("cold"), cache=True),
}


@pytest.mark.parametrize("cache", [None, ReadCache(seconds=60)], ids=["fleet", "fleet and process"])
@pytest.mark.parametrize("name", POINTS)
def test_what_is_not_read_hot_is_counted_and_costs_no_request_to_redis(fleet, name, cache):
    """That is how it is found, cached in the process or not."""
    table = fleet.process(cache=cache)
    POINTS[name](table)
    reads = fleet.registry.reads
    for _ in range(4):
        POINTS[name](table)
    assert (fleet.registry.reads, fleet.pages.server.commands) == (reads, 0)
    assert {report.collection for report in fleet.reports.sent} == {"cold"}
    assert max(report.value for report in fleet.reports.sent) >= 2.0


def test_what_several_items_take_is_counted_in_equal_shares(fleet):
    """Eight keys of half a unit for the item and for the journal each, read four times."""
    table = fleet.process()
    for _ in range(4):
        table.get_items([{"PK": f"cold-{number}", "SK": "1"} for number in range(8)], cache=True)
    assert max(report.value for report in fleet.reports.sent) <= 8.0


def test_with_a_cache_of_its_own_an_adaptive_table_keeps_cold_keys_in_the_process(fleet, watched):
    """And those that are read-hot for the fleet."""
    first, second = (fleet.process(cache=ReadCache(seconds=60)) for _ in range(2))
    for key, batches in ((COLD, 2), (FOUR, 1)):
        watched.sent.clear()
        for table in (first, second, first, second):
            assert table.get_item(Key=key, cache=True)["Item"]["SK"] == key["SK"]
        assert watched.sent["BatchGetItem"] == batches
        assert bool(fleet.pages.server.commands) == (key == FOUR)


@pytest.mark.parametrize("name", ["an item", "the newest page"])
def test_a_refused_read_shows_the_last_response(fleet, watched, name):
    """Within the bound; then boto3's own error."""
    table, read = fleet.process(), READS[name]
    expected = without_metadata(read(table, cache=True))
    watched.refuses = lambda operation, _: "TableReadKeyRangeThroughputExceeded" if operation != "PutItem" else None
    fleet.clock.now_ms += 1_500
    assert without_metadata(read(table, cache=True)) == expected
    fleet.clock.now_ms += 1_500
    with pytest.raises(table.meta.client.exceptions.ProvisionedThroughputExceededException):
        read(table, cache=True)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"', '{"Item": 1}', '{"Items": 1}', '{"Items": [1]}'])
def test_what_is_no_response_is_said_to_be_none(text):
    """Of another version, or not the library's."""
    with pytest.raises(MalformedPageError):
        ResponseCodec().decode(text)


def test_the_leaderboard_of_the_page_runs(create, dynamodb):
    create("players", "PK", "SK", indexes={"by-score": ("game_shard", "score")}, types={"score": "N"})
    page = (Path(__file__).resolve().parents[3] / "docs" / "read-hot-keys.md").read_text(encoding="utf-8")
    code = page.partition("## A leaderboard")[2].split("```")[1].removeprefix("python")
    fake = SimpleNamespace(resource=lambda _: dynamodb)
    names = {"boto3": fake, "Key": Key, "ReadCache": ReadCache, "ShardedIndex": ShardedIndex}
    exec(code, names := {**names, "ShardedTable": ShardedTable, "fixed": fixed})  # noqa: S102 - the page's own
    for number in range(200):
        names["players"].put_item(Item={"PK": f"player {number}", "SK": "chess", "game": "chess", "score": number})
    for number in range(20):
        names["set_score"](f"master {number}", 2_000 + number)
    expected = [(f"master {number}", 2_000 + number) for number in range(19, 9, -1)]
    assert [names["show_top_ten"]() for _ in range(2)] == [expected] * 2


CODEC = ValueCodec()
SCALARS = NUMBERS | BINARIES | st.none() | st.booleans() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS | st.sets(st.text() | st.decimals(allow_nan=False)),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["$", "of", "name"]) | st.text(), inner),
    max_leaves=20,
)


def types_in(value):
    """List every type in a value, in order: `1 == 1.0 == Decimal(1)` hides what a codec did."""
    if isinstance(value, dict):
        return [dict, *(each for name in value for each in types_in(value[name]))]
    return [list, *(each for item in value for each in types_in(item))] if isinstance(value, list) else [type(value)]


class TestReadCache:
    """Users' own values. The engine below is tested in tests/unit/engine/test_cache.py."""

    @given(VALUES)
    def test_a_value_comes_back_as_it_was(self, value):
        """Through Redis, and as a copy."""
        for other in (CODEC.decode(CODEC.encode(value)), CODEC.copy(value)):
            assert (other, types_in(other)) == (value, types_in(value))

    @given(st.text() | st.sampled_from(['{"$":"x","of":1}', '{"$":"decimal"}', '{"$":"decimal","of":"x"}', '{"$":[]}']))
    def test_garbage_is_a_value_or_said_to_be_none(self, text):
        with suppress(MalformedPageError):
            CODEC.decode(text)

    @pytest.mark.parametrize("value", [object(), {1: "a"}, {"a": [{"b": 1j}]}])
    def test_what_cannot_be_written_is_named(self, value):
        with pytest.raises(TypeError, match=r"ReadCache cannot write .*codec="):
            CODEC.encode(value)

    def test_size_grows_with_what_is_in_a_value(self):
        small, large = (CODEC.size_bytes({"a": ["x" * length, Decimal(1)]}) for length in (1, 10_001))
        assert large == small + 10_000

    def test_a_caller_may_change_what_it_gets(self):
        """Also a value of a type that the codec does not know: without Redis nothing is written."""
        cache, loaded = ReadCache(seconds=60), []

        def load():
            loaded.append(SimpleNamespace(tags=[]))
            return loaded[-1]

        for _ in range(3):
            cache.get("product:42", load=load).tags.append("changed")
        assert (len(loaded), cache.get("product:42", load=load).tags) == (1, [])

    @pytest.mark.parametrize(("seconds", "expected"), [(60, "aabb"), (0, "abcd")])
    def test_a_value_is_loaded_anew_when_it_is_forgotten_or_too_old(self, seconds, expected):
        """With no time to live nothing is reused."""
        cache, values = ReadCache(seconds=seconds), iter("abcd")
        found = [cache.get("k", load=lambda: next(values)) for _ in range(2)]
        cache.forget("k")
        found += [cache.get("k", load=lambda: next(values)) for _ in range(2)]
        assert "".join(found) == expected
