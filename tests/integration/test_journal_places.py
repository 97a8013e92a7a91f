"""Where routing items may lie: in collections of a table with key names of its own, or in a table of their own."""

import pytest

from hotpartition.core.ports import JournalEntry
from hotpartition.core.route import Generation
from hotpartition.core.route_history import Cause
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.routing_items import DynamoDBRoutingItems
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.errors import InvalidRequestError, MalformedGenerationError
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


@pytest.fixture(params=[in_collections, apart], ids=["in collections", "apart"])
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
def test_all_routes_are_listed_once(journal, routing_items, limit):
    """Whatever a page's size is, with nothing but the last page's cursor."""
    names = {f"room {index}" for index in range(23)}
    for name in names:
        journal.add(name, [FOUR], cause=Cause("raised"), now_ms=NOW_MS)
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
    dynamodb.client.put_item(TableName=place.table_name, Item={**item, "updated_at": {"S": "soon"}})
    with pytest.raises(MalformedGenerationError):
        journal.get("room", is_strong=True)
    ((shown,), _) = routing_items.page(None, 9)
    assert (shown.collection, shown.route, shown.members) == ("room", None, ("many",))
