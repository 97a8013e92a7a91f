"""The DynamoDB adapters on moto, wherever routing items lie, and on what moto never does: throttle, fail, skip keys.

What the clients do is in `test_client_faults.py`. What moto never does is scripted, response by response.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from hotpartition.core.errors import (
    InvalidRequestError,
    ItemTooLargeError,
    ThrottledError,
)
from hotpartition.core.merge import KeyQuery, QueryResponse
from hotpartition.core.ports import Copy, JournalEntry
from hotpartition.core.route import Generation
from hotpartition.core.route_history import Cause
from hotpartition.dynamodb.item_store import MAX_BATCH_ROUNDS
from hotpartition.dynamodb.journal import MAX_GENERATIONS, DynamoDBJournal
from hotpartition.dynamodb.routing_items import DynamoDBRoutingItems
from hotpartition.dynamodb.stored_route import ROUTING_ATTRIBUTES, ROUTING_PARTITIONS, routing_partition_of
from hotpartition.dynamodb.table import JournalPlace
from hotpartition_messages.keys import build_sort_key
from support.builders import build_message, message_id, route_of, walk
from support.servers import error
from support.tables import INDEX_NAME, TABLE, TABLE_NAME, define_table

NOW_MS = 1_700_000_000_000
FOUR = Generation(since_ms=5, shard_count=4)
EIGHT = Generation(since_ms=9, shard_count=8)
RAISED = Cause("raised")
ROUTING_KEY = {"pk": {"S": "c"}, "sk": {"S": "r#"}}
THROTTLED = error(
    "ProvisionedThroughputExceededException", ThrottlingReasons=[{"reason": "TableReadKeyRangeThroughputExceeded"}]
)


def query(key="c", *, first=None, last=None, after=None, newest_first=True):
    bounds = (None if tail is None else build_sort_key(message_id(tail)) for tail in (first, last, after))
    return KeyQuery(key, newest_first, 2, *bounds)


OLDEST = query(newest_first=False)


def look(store, *keys):
    """Look for message 2 under some keys, and for the route."""
    return store.get([(key, TWO.sort_key) for key in keys], is_strong=True, journals_of=["c"])


ONE, TWO, THREE = (build_message(number) for number in (1, 2, 3))


def test_a_round_shows_no_more_than_was_asked_for(dynamodb):
    """Up to the limit and within the bounds, the routing item apart; and whether that is all."""
    store, newest = dynamodb.store, QueryResponse((THREE, TWO), False)
    for key in ("c", "c#0"):
        for message in (ONE, TWO, THREE):
            store.create(message.to_item(key))
    fetched = store.fetch([query()], is_strong=True, journal_of="c")
    assert (fetched.responses, fetched.journal) == ((newest,), JournalEntry())
    entry = dynamodb.journal.add("c", [FOUR], cause=RAISED, now_ms=NOW_MS)
    fetched = store.fetch([query(), query("c#0", first=2, last=2)], is_strong=True, journal_of="c")
    assert (fetched.responses, fetched.journal) == ((newest, QueryResponse((TWO,), True)), entry)


ROUNDS = {
    "newest": ([query()], {"Query": 1}, False),
    "oldest": ([OLDEST], {"Query": 1, "GetItem": 1}, False),
    "next page": ([query(after=9)], {"Query": 1, "GetItem": 1}, False),
    "history": ([query(last=9)], {"Query": 1, "GetItem": 1}, False),
    "another's": ([query("d")], {"Query": 1, "GetItem": 1}, False),
    "shard": ([query("c#0")], {"Query": 1, "GetItem": 1}, True),
    "newest and shard": ([query(), query("c#0")], {"Query": 2}, True),
    "nothing but the journal": ([], {"GetItem": 1}, False),
}


@pytest.mark.parametrize("is_strong", [False, True])
@pytest.mark.parametrize(("queries", "operations", "may_be_hedged"), ROUNDS.values(), ids=ROUNDS)
def test_the_journal_rides_along_with_the_newest_page(
    dynamodb, monkeypatch, queries, operations, may_be_hedged, is_strong
):
    """What does not pass the routing item's place reads it beside the query, with the same consistency.

    Only the reads of a sharded collection may be sent twice: one that was never hot pays for no hedges.
    """
    entry = dynamodb.journal.add("c", [FOUR, EIGHT], cause=RAISED, now_ms=NOW_MS)
    dynamodb.server.asked.clear()
    hedged, send = [], dynamodb.calls.call_many
    note = lambda calls, *, is_hedged: hedged.append(is_hedged) or send(calls, is_hedged=False)  # noqa: E731
    monkeypatch.setattr(dynamodb.calls, "call_many", note)
    assert dynamodb.store.fetch(queries, is_strong=is_strong, journal_of="c").journal == entry
    assert dynamodb.server.operations == operations
    assert {request["ConsistentRead"] for _, request in dynamodb.server.asked} == {is_strong}
    assert hedged == [may_be_hedged]


@pytest.mark.parametrize("updated_at", [{}, {"updated_at": {"S": "yesterday"}}, {"updated_at": {"N": "5"}}])
def test_when_a_route_last_grew_is_not_worth_failing_for(dynamodb, updated_at):
    """The item of an operator or of an older version still routes."""
    item = {**ROUTING_KEY, "generations": {"SS": ["4@5"]}, **updated_at}
    dynamodb.client.put_item(TableName=TABLE_NAME, Item=item)
    assert dynamodb.journal.get("c", is_strong=True) == JournalEntry(route_of((4, 5)))


@pytest.mark.parametrize("count", [99, 100, 1_024])
def test_more_keys_than_a_request_takes_are_asked_for_in_parts(dynamodb, count):
    """BatchGetItem takes 100; the routing item is among them."""
    entry = dynamodb.journal.add("c", [FOUR], cause=RAISED, now_ms=NOW_MS)
    dynamodb.store.create(TWO.to_item(f"c#{count - 1}"))
    dynamodb.server.asked.clear()
    found = look(dynamodb.store, *(f"c#{index}" for index in range(count)))
    assert found == ((Copy(f"c#{count - 1}", TWO),), {"c": entry})
    requests = [request["RequestItems"][TABLE_NAME] for _, request in dynamodb.server.asked]
    parts = [len(request["Keys"]) for request in requests]
    assert (max(parts), sum(parts)) == (100, count + 1)
    assert all(request["ConsistentRead"] for request in requests)


def test_unprocessed_keys_are_asked_for_again(dynamodb):
    """Only those, until they are there, or until the whole call counts as throttled: never taken for absent."""
    left_out = {TABLE_NAME: {"Keys": [ROUTING_KEY], "ConsistentRead": True}}
    routing = {**ROUTING_KEY, "generations": {"SS": ["4@5"]}, "updated_at": {"S": "1970-01-01T00:00:01.500Z"}}
    for found, unprocessed in (([TWO.to_item("c")], left_out), ([], left_out), ([routing], {})):
        response = {"Responses": {TABLE_NAME: found}, "UnprocessedKeys": unprocessed}
        dynamodb.server.script.append((200, response))
    assert look(dynamodb.store, "c") == ((Copy("c", TWO),), {"c": JournalEntry(route_of((4, 5)), 1500)})
    assert [request["RequestItems"] for _, request in dynamodb.server.asked[1:]] == [left_out, left_out]

    dynamodb.server.asked.clear()
    dynamodb.server.intervene = lambda *_: (200, {"Responses": {}, "UnprocessedKeys": left_out})
    with pytest.raises(ThrottledError):
        look(dynamodb.store, "c")
    assert dynamodb.server.operations == {"BatchGetItem": MAX_BATCH_ROUNDS}


def test_of_an_items_size_dynamodbs_count_holds(dynamodb):
    """Where ours was a little below it."""
    explanation = "Item size has exceeded the maximum allowed size"
    dynamodb.server.script.append(error("ValidationException", message=explanation))
    with pytest.raises(ItemTooLargeError):
        dynamodb.store.create(ONE.to_item("c"))


def test_an_empty_part_of_a_response_is_not_its_end(dynamodb):
    """Queries without items go on from where they stopped, beside those that had some."""
    dynamodb.store.create(ONE.to_item("c#1"))
    dynamodb.server.asked.clear()
    start = {"pk": {"S": "c"}, "sk": {"S": "m#5"}}

    def intervene(_, request):
        is_first = "ExclusiveStartKey" not in request
        return (200, part) if is_first and request["ExpressionAttributeValues"][":pk"] == {"S": "c"} else None

    part = {"Items": [], "LastEvaluatedKey": start}
    dynamodb.server.intervene = intervene
    fetched = dynamodb.store.fetch([query("c"), query("c#1")], is_strong=True)
    assert fetched.responses == (QueryResponse((), True), QueryResponse((ONE,), True))
    assert [request.get("ExclusiveStartKey") for _, request in dynamodb.server.asked] == [None, None, start]
    assert fetched.journal is None


def test_a_routing_item_is_as_documented(dynamodb):
    """A contract with operators and other versions. A decision repeated within the second is recorded once."""
    by_hand = Cause("by-hand by=a")
    for now_ms, added, cause in ((500, [EIGHT, FOUR], RAISED), (0, [EIGHT, FOUR], RAISED), (0, [FOUR], by_hand)):
        dynamodb.journal.add("user#42", added, cause=cause, now_ms=NOW_MS + now_ms)
    item = dynamodb.client.get_item(TableName=TABLE_NAME, Key=TABLE.journal.key_of("user#42"))["Item"]
    sets = {name: sorted(value["SS"]) for name, value in item.items() if "SS" in value}
    raises = ["4@5 1700000000 by-hand by=a", "4@5 1700000000 raised", "8@9 1700000000 raised"]
    assert sets == {"generations": ["4@5", "8@9"], "raises": raises}
    assert {name: value["S"] for name, value in item.items() if name not in sets} == {
        "pk": "user#42",
        "sk": "r#",
        "updated_at": "2023-11-14T22:13:20.000Z",
        "reason": "by-hand by=a",
        "routing_partition": "06",
    }
    assert item.keys() == {"pk", "sk", *ROUTING_ATTRIBUTES}
    # The index's partitions are all used.
    assert {routing_partition_of(f"c{i}") for i in range(500)} == {f"{i:02d}" for i in range(ROUTING_PARTITIONS)}


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


@pytest.fixture(params=PLACES.values(), ids=PLACES)
def routes(request, dynamodb):
    """A journal, its routing items as operators look through them, their place, and a way to put an item there."""
    place = request.param(dynamodb.client)
    journal, items = DynamoDBJournal(dynamodb.calls, place), DynamoDBRoutingItems(dynamodb.calls, place)
    return journal, items, place, lambda item: dynamodb.client.put_item(TableName=place.table_name, Item=item)


def test_pages_hold_every_item_once(routes):
    """Whatever their size, none is larger than asked for; the newest are those that grew last.

    Load items and a route that cannot be read lie between them. What is not a cursor is refused.
    """
    journal, items, place, put = routes
    names = [f"c{index}" for index in range(20)]
    for index, name in enumerate([*names, "c7"]):
        journal.add(name, [FOUR if index < 20 else EIGHT], cause=RAISED, now_ms=NOW_MS + index * 1_000)
        put(place.load_key_of(name, 0))
    unreadable = {"generations": {"SS": ["many"]}, "updated_at": {"S": "0"}, "routing_partition": {"S": "03"}}
    put({**place.key_of("c3"), **unreadable})
    for limit in (1, 7, 20, 100):
        pages = list(walk(lambda cursor, limit=limit: items.page(cursor, limit)))
        assert max(map(len, pages)) <= limit
        found = {item.collection: item.route for page in pages for item in page}
        assert found == dict.fromkeys(names, route_of((4, 5))) | {"c3": None, "c7": route_of((4, 5), (8, 9))}
        assert sum(map(len, pages)) == len(names)
    assert [item.collection for item in items.newest(3)] == ["c7", "c19", "c18"]
    assert len(items.newest(100)) == 20
    for cursor in ("", "nobody", "[]", "[16]", "[-1]", '["a"]', "[1, 2, 3]", '[1, "a", "b", "c"]', '{"a": 1}'):
        with pytest.raises(InvalidRequestError, match="cursor"):
            items.page(cursor, 5)


@pytest.mark.parametrize("count", [MAX_GENERATIONS - 1, MAX_GENERATIONS])
def test_a_route_grows_until_it_is_full(routes, count):
    """A raise that keeps a pause, as programs make it, finds it full; one by hand still goes through."""
    journal, *_ = routes
    known = [Generation(since_ms=since, shard_count=4) for since in range(count)]
    journal.add("room", known, cause=RAISED, now_ms=NOW_MS, pause_ms=1_000)
    later = journal.add("room", [EIGHT], cause=RAISED, now_ms=NOW_MS + 5_000, pause_ms=1_000)
    is_full = count == MAX_GENERATIONS
    assert (EIGHT in later.route.generations, later.updated_at_ms == NOW_MS) == (not is_full, is_full)
    assert EIGHT in journal.add("room", [EIGHT], cause=Cause("by-hand"), now_ms=NOW_MS + 9_000).route.generations


@pytest.mark.parametrize(
    ("refusal", "tries"),
    [(error("ValidationException", message="Item size to update has exceeded"), 1), (THROTTLED, 2)],
    ids=["full", "throttled"],
)
def test_the_directory_keeps_no_key_from_being_raised(dynamodb, caplog, refusal, tries):
    """It is not listed then, which is logged; where that may help, the next raise tries again."""
    names_directory = lambda request: "collections" in request.get("UpdateExpression", "")  # noqa: E731
    dynamodb.server.intervene = lambda _, request: refusal if names_directory(request) else None
    journal = DynamoDBJournal(dynamodb.calls, without_index(dynamodb.client))
    for generation in (FOUR, EIGHT):
        entry = journal.add("room", [generation], cause=RAISED, now_ms=NOW_MS)
    assert entry.route == route_of((4, 5), (8, 9))
    assert sum(names_directory(request) for _, request in dynamodb.server.asked) == tries
    assert [record.collection for record in caplog.records] == ["room"] * tries
