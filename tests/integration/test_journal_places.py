"""Where routing items may lie: in collections of a table with key names of its own, or in a table of their own."""

from dataclasses import replace

import pytest

from hotpartition.core.ports import JournalEntry
from hotpartition.core.route import Generation
from hotpartition.core.route_history import Cause
from hotpartition.dynamodb.journal import MAX_GENERATIONS, DynamoDBJournal
from hotpartition.dynamodb.routing_items import DynamoDBRoutingItems
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.errors import InvalidRequestError, MalformedGenerationError, StoreRefusedError, ThrottledError
from support.builders import route_of
from support.tables import TABLE_SCHEMA

FOUR = Generation(since_ms=5, shard_count=4)
EIGHT = Generation(since_ms=9, shard_count=8)
NOW_MS = 1_700_000_000_000


def renamed(schema, names):
    """A table's definition with other names for its keys."""
    match schema:
        case dict():
            return {key: renamed(value, names) for key, value in schema.items()}
        case list():
            return [renamed(value, names) for value in schema]
        case _:
            return names.get(schema, schema)


def in_collections(client):
    """Of a table whose keys are called otherwise."""
    client.create_table(TableName="readings", **renamed(TABLE_SCHEMA, {"pk": "PK", "sk": "Sort key"}))
    return JournalPlace("readings", "PK", "Sort key", "~route", "routing-index")


def apart(client):
    """A table that has nothing but routes."""
    client.create_table(
        TableName="routes",
        AttributeDefinitions=[{"AttributeName": "collection", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "collection", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    return JournalPlace("routes", "collection", sort_key="")


def without_index(client):
    """A table that has its owner's items and no index."""
    place = in_collections(client)
    return replace(place, index_name="")


@pytest.fixture(params=[in_collections, apart, without_index], ids=["in collections", "apart", "without index"])
def place(request, dynamodb):
    """Where the routing items lie."""
    return request.param(dynamodb.client)


@pytest.fixture
def journal(dynamodb, place):
    """The journal there."""
    return DynamoDBJournal(dynamodb.calls, place)


@pytest.fixture
def routing_items(dynamodb, place):
    """The same, as operators look through it."""
    return DynamoDBRoutingItems(dynamodb.calls, place)


def test_a_route_grows_and_is_read_back(journal, routing_items):
    """By everybody: readers, writers and operators."""
    assert journal.get("room#1", is_strong=True) == JournalEntry()
    journal.add("room#1", [FOUR], cause=Cause("raised"), now_ms=NOW_MS)
    entry = journal.add("room#1", [EIGHT], cause=Cause("raised"), now_ms=NOW_MS + 1)
    assert entry == journal.get("room#1", is_strong=False) == JournalEntry(route_of((4, 5), (8, 9)), NOW_MS + 1)
    item = routing_items.read("room#1")
    assert (item.collection, item.route, item.reason) == ("room#1", entry.route, "raised")
    assert routing_items.read("another") is None


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_all_routes_are_listed_once(dynamodb, place, journal, routing_items, limit):
    """Whatever a page's size is, with nothing but the last page's cursor; load items are no routes."""
    names = {f"room {index}" for index in range(23)}
    for name in names:
        journal.add(name, [FOUR], cause=Cause("raised"), now_ms=NOW_MS)
        dynamodb.client.put_item(TableName=place.table_name, Item=place.load_key_of(name, 0))
    listed, cursor = [], None
    while True:
        page, cursor = routing_items.page(cursor, limit)
        listed += [item.collection for item in page]
        if cursor is None:
            break
    assert sorted(listed) == sorted(names)


def test_the_newest_come_first(journal, routing_items):
    """Those that grew last, and no more than asked for."""
    for index in range(9):
        journal.add(f"room {index}", [FOUR], cause=Cause("raised"), now_ms=NOW_MS + index * 1000)
    assert [item.collection for item in routing_items.newest(3)] == ["room 8", "room 7", "room 6"]


@pytest.mark.parametrize("cursor", ["", "[]", "[16]", '["x"]', '[1, "a", "b", "c"]', '[0, "a", 3]'])
def test_a_cursor_of_somebody_else_is_refused(routing_items, cursor):
    """By its name."""
    with pytest.raises(InvalidRequestError, match="cursor"):
        routing_items.page(cursor, 9)


def test_what_cannot_be_read_is_an_error_for_readers_and_shown_to_operators(dynamodb, place, journal, routing_items):
    """Readers fail closed; an operator sees whose item it is."""
    item = {**place.key_of("room"), "generations": {"SS": ["many"]}, "routing_partition": {"S": "03"}}
    journal.add("room", [FOUR], cause=Cause("raised"), now_ms=NOW_MS)
    dynamodb.client.put_item(TableName=place.table_name, Item={**item, "updated_at": {"S": "soon"}})
    with pytest.raises(MalformedGenerationError):
        journal.get("room", is_strong=True)
    ((shown,), _) = routing_items.page(None, 9)
    assert (shown.collection, shown.route, shown.members) == ("room", None, ("many",))


def test_a_route_that_is_full_grows_no_more_by_programs(journal):
    """A raise that keeps a pause finds it full; one by hand still goes through."""
    full = [Generation(since_ms=since, shard_count=4) for since in range(MAX_GENERATIONS)]
    journal.add("room", full, cause=Cause("raised"), now_ms=NOW_MS)
    entry = journal.add("room", [EIGHT], cause=Cause("raised"), now_ms=NOW_MS + 5_000, pause_ms=1_000)
    assert (len(entry.route.generations), entry.updated_at_ms) == (MAX_GENERATIONS, NOW_MS)
    assert EIGHT in journal.add("room", [EIGHT], cause=Cause("by-hand"), now_ms=NOW_MS + 5_000).route.generations


def test_a_route_that_is_not_full_grows_after_the_pause(journal):
    """The first raise, and the last one that fits."""
    for step, count in enumerate((4, MAX_GENERATIONS - 1)):
        generations = [Generation(since_ms=since, shard_count=4) for since in range(count)]
        entry = journal.add("room", generations, cause=Cause("raised"), now_ms=NOW_MS + step * 2_000, pause_ms=1_000)
        assert len(entry.route.generations) == count
    full = journal.add("room", [EIGHT, FOUR], cause=Cause("raised"), now_ms=NOW_MS + 9_000, pause_ms=1_000)
    assert EIGHT in full.route.generations


class Refusing:
    """A client that is refused what concerns the directory."""

    def __init__(self, calls, error):
        self.calls = calls
        self.error = error
        self.refused = 0

    def call(self, operation, request):
        if "collections" in request.get("UpdateExpression", ""):
            self.refused += 1
            raise self.error
        return self.calls.call(operation, request)


@pytest.mark.parametrize(
    ("error", "tries"),
    [
        (StoreRefusedError("ValidationException", "Item size to update has exceeded the maximum allowed size"), 1),
        (ThrottledError(), 2),
    ],
    ids=["full", "throttled"],
)
def test_the_directory_keeps_no_key_from_being_raised(dynamodb, caplog, error, tries):
    """It is not listed then, which is logged; where that may help, the next raise tries again."""
    calls = Refusing(dynamodb.calls, error)
    journal = DynamoDBJournal(calls, without_index(dynamodb.client))
    for generation in (FOUR, EIGHT):
        entry = journal.add("room", [generation], cause=Cause("raised"), now_ms=NOW_MS)
    assert entry.route == route_of((4, 5), (8, 9))
    assert (calls.refused, [record.collection for record in caplog.records]) == (tries, ["room"] * tries)
