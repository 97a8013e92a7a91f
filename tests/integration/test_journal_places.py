"""Where routing items may lie: in collections of a table with key names of its own, or in a table of their own."""

from dataclasses import replace

import pytest

from hotpartition.core.errors import InvalidRequestError, MalformedGenerationError, StoreRefusedError, ThrottledError
from hotpartition.core.ports import JournalEntry, RoutingItem
from hotpartition.core.route import Generation
from hotpartition.core.route_history import Cause, Raise
from hotpartition.dynamodb.journal import MAX_GENERATIONS, DynamoDBJournal
from hotpartition.dynamodb.routing_items import DynamoDBRoutingItems
from hotpartition.dynamodb.table import JournalPlace
from support.builders import route_of, walk
from support.tables import INDEX_NAME, TABLE, define_table
from support.world import Table

FOUR = Generation(since_ms=5, shard_count=4)
EIGHT = Generation(since_ms=9, shard_count=8)
NOW_MS = 1_700_000_000_000


def in_collections(client):
    """Of a table whose keys are called otherwise."""
    keys = define_table("PK", "Sort key", indexes={INDEX_NAME: ("routing_partition", "updated_at")})
    client.create_table(TableName="readings", **keys)
    return JournalPlace("readings", "PK", "Sort key", "~route", INDEX_NAME)


def apart(client):
    """A table that has nothing but routes."""
    client.create_table(TableName="routes", **define_table("collection"))
    return JournalPlace("routes", "collection", sort_key="")


def without_index(client):
    """A table that has its owner's items and no index."""
    return replace(in_collections(client), index_name="")


PLACES = {"in collections": in_collections, "apart": apart, "without index": without_index}


@pytest.fixture(params=PLACES)
def place(request, dynamodb):
    """Where the routing items lie."""
    return PLACES[request.param](dynamodb.client)


@pytest.fixture
def journal(dynamodb, place):
    """The journal there."""
    return DynamoDBJournal(dynamodb.calls, place)


@pytest.fixture
def routing_items(dynamodb, place):
    """The same, as operators look through it."""
    return DynamoDBRoutingItems(dynamodb.calls, place)


class TestContract:
    """Held by the stand-in of the unit tests, and by the adapter over both clients and in every place."""

    @pytest.fixture(params=["fake", "boto3", *PLACES])
    def journal(self, request):
        """A journal, and its routing items."""
        if request.param == "fake":
            table = Table()
            return table.journal, table.routing_items
        if request.param == "boto3":
            real = request.getfixturevalue("dynamodb_over")("boto3")
            return real.journal, DynamoDBRoutingItems(real.calls, TABLE.journal)
        real = request.getfixturevalue("dynamodb")
        place = PLACES[request.param](real.client)
        return DynamoDBJournal(real.calls, place), DynamoDBRoutingItems(real.calls, place)

    def test_an_item_tells_who_made_its_route(self, journal):
        """Nothing for what was never raised; every decision of what was, in its order."""
        journal, items = journal
        assert items.read("room#1") is None
        assert journal.get("room#1", is_strong=True) == JournalEntry()
        journal.add("room#1", [FOUR], cause=Cause("raised", 900), now_ms=NOW_MS)
        entry = journal.add("room#1", [EIGHT], cause=Cause("by-hand", by="ann"), now_ms=NOW_MS + 2_000)
        assert journal.get("room#1", is_strong=False) == entry
        assert items.read("room#1") == RoutingItem(
            "room#1",
            route_of((4, 5), (8, 9)),
            ("4@5", "8@9"),
            NOW_MS + 2_000,
            "by-hand by=ann",
            (Raise(FOUR, NOW_MS, Cause("raised", 900)), Raise(EIGHT, NOW_MS + 2_000, Cause("by-hand", by="ann"))),
        )

    def test_pages_hold_every_item_once(self, journal):
        """Whatever their size, none is larger than asked for; the newest are those that grew last."""
        journal, items = journal
        for i in range(20):
            journal.add(f"c{i}", [FOUR], cause=Cause("raised"), now_ms=NOW_MS + i * 1_000)
        journal.add("c7", [EIGHT], cause=Cause("raised"), now_ms=NOW_MS + 100_000)
        for limit in (1, 7, 20, 100):
            pages = list(walk(lambda cursor, limit=limit: items.page(cursor, limit)))
            assert max(map(len, pages)) <= limit
            found = [item for page in pages for item in page]
            assert sorted(item.collection for item in found) == sorted(f"c{i}" for i in range(20))
            assert {item.route for item in found} == {route_of((4, 5)), route_of((4, 5), (8, 9))}
        assert [item.collection for item in items.newest(3)] == ["c7", "c19", "c18"]
        assert len(items.newest(100)) == 20

    def test_a_foreign_cursor_is_refused(self, journal):
        """Rather than read from somewhere."""
        for cursor in ("", "nobody", "[]", "[16]", "[-1]", '["a"]', "[1, 2, 3]", '[1, "a", "b", "c"]', '{"a": 1}'):
            with pytest.raises(InvalidRequestError, match="cursor"):
                journal[1].page(cursor, 5)


def test_load_items_are_no_routes(dynamodb, place, journal, routing_items):
    """Pages of routing items pass over them, however many lie between."""
    names = [f"room {index}" for index in range(5)]
    for name in names:
        journal.add(name, [FOUR], cause=Cause("raised"), now_ms=NOW_MS)
        dynamodb.client.put_item(TableName=place.table_name, Item=place.load_key_of(name, 0))
    pages = walk(lambda cursor: routing_items.page(cursor, 1))
    assert sorted(item.collection for page in pages for item in page) == names


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
