"""The DynamoDB adapters on moto, wherever routing items lie, and on what moto never does: throttle, fail, skip keys.

`test_contracts.py` and `test_client_faults.py` hold for both clients; here it is the default one.
"""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from hotpartition.core.errors import (
    InvalidRequestError,
    ItemTooLargeError,
    MalformedGenerationError,
    StoreRefusedError,
    StoreUnavailableError,
    ThrottledError,
)
from hotpartition.core.merge import KeyQuery
from hotpartition.core.ports import Copy, JournalEntry, QueryResponse, RoutingItem
from hotpartition.core.route import Close, Generation, Route
from hotpartition.core.route_history import Cause, Raise
from hotpartition.dynamodb.calls import Round
from hotpartition.dynamodb.item_store import MAX_BATCH_ROUNDS, DynamoDBItemStore, Replacement
from hotpartition.dynamodb.journal import MAX_GENERATIONS, DynamoDBJournal
from hotpartition.dynamodb.routing_items import DynamoDBRoutingItems
from hotpartition.dynamodb.stored_route import ROUTING_ATTRIBUTES, ROUTING_PARTITIONS, routing_partition_of
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.runtime.build import build_engine
from hotpartition_messages import Message
from hotpartition_messages.errors import MessageConflictError
from hotpartition_messages.jobs import build_reader, build_writer
from hotpartition_messages.keys import KEY_FORM, build_sort_key
from hotpartition_messages.reading import PageRequest
from hotpartition_messages.settings import MessageSettings
from support.builders import World, build_message, message_id, new_message, route_of, walk
from support.dynamodb_server import Scripted, error
from support.fakes import FakeClock
from support.tables import INDEX_NAME, TABLE, TABLE_NAME, define_table
from support.world import Table

NOW_MS = 1_700_000_000_000
FOUR = Generation(since_ms=5, shard_count=4)
EIGHT = Generation(since_ms=9, shard_count=8)


def newest(partition_key="c", last=None):
    return KeyQuery(partition_key, newest_first=True, limit=2, last=last)


def oldest():
    return KeyQuery("c", newest_first=False, limit=2)


def put_all(dynamodb, times, partition_key="c"):
    messages = [build_message(t) for t in times]
    for message in messages:
        dynamodb.store.create(message.to_item(partition_key))
    dynamodb.server.clear()
    return messages


def put_routing_item(dynamodb, **attributes):
    dynamodb.client.put_item(TableName=TABLE_NAME, Item={"pk": {"S": "c"}, "sk": {"S": "r#"}, **attributes})


class TestReplace:
    """Each stored message is exchanged only while it is still the version that was found."""

    def replacement(self, before, after, partition_key="c"):
        expected = None if before.version == 1 else {"N": str(before.version)}
        return Replacement(after.to_item(partition_key), {"version": expected})

    @pytest.fixture
    def versions(self):
        first = build_message(1)
        second = first.edit(body="x", stored_attributes=first.stored_attributes, edited_at="t")
        return first, second, second.delete(deleted_at="t")

    def stored(self, dynamodb, message, *partition_keys):
        copies, _ = dynamodb.store.get([(key, message.sort_key) for key in partition_keys], is_strong=True)
        return {copy.partition_key: copy.item for copy in copies}

    def test_one_is_a_put_and_several_a_transaction(self, dynamodb, versions):
        """All of them or none; from the first version to the second, and on to the tombstone."""
        first, second, tombstone = versions
        for partition_key in ("c", "c#1"):
            dynamodb.store.create(first.to_item(partition_key))
        dynamodb.server.clear()
        assert dynamodb.store.replace([self.replacement(first, second)])
        both = [self.replacement(second, tombstone), self.replacement(first, tombstone, "c#1")]
        assert dynamodb.store.replace(both)
        assert self.stored(dynamodb, first, "c", "c#1") == {"c": tombstone, "c#1": tombstone}
        assert dynamodb.server.operations["PutItem"] == 1
        assert dynamodb.server.operations["TransactWriteItems"] == 1

    @pytest.mark.parametrize("count", [1, 2])
    def test_what_is_another_by_now_or_gone_is_left(self, dynamodb, versions, count):
        """Nothing is stored where nothing was, and nothing is replaced by what does not know it."""
        first, second, tombstone = versions
        dynamodb.store.create(first.to_item("c"))
        others = [self.replacement(first, tombstone, "c#1")] * (count - 1)
        assert not dynamodb.store.replace([self.replacement(second, tombstone), *others])
        assert dynamodb.store.replace([self.replacement(first, second)])
        assert not dynamodb.store.replace([self.replacement(first, tombstone), *others])
        assert not dynamodb.store.replace([self.replacement(first, tombstone, "c#2"), *others])
        assert self.stored(dynamodb, first, "c", "c#1", "c#2") == {"c": second}


class TestFetch:
    @pytest.mark.parametrize(
        ("query", "operations"),
        [
            (newest(), {"Query": 1}),
            (oldest(), {"Query": 1, "GetItem": 1}),
            (newest(last=build_sort_key(message_id(9))), {"Query": 1, "GetItem": 1}),
            (newest("c#0"), {"Query": 1, "GetItem": 1}),
        ],
        ids=["newest", "oldest", "history", "shard"],
    )
    def test_the_journal_rides_along_with_the_newest_page(self, dynamodb, query, operations):
        """One request for both; what does not pass the routing item's place reads it beside the query."""
        entry = dynamodb.journal.add("c", [FOUR, EIGHT], cause=Cause("raised"), now_ms=NOW_MS)
        dynamodb.server.clear()
        assert dynamodb.store.fetch([query], is_strong=True, journal_of="c").journal == entry
        assert dynamodb.server.operations == operations

    def test_the_journal_alone_can_be_asked_for_again(self, dynamodb):
        """When only the journal's read failed, its repetition needs no query."""
        assert dynamodb.store.fetch([], is_strong=True, journal_of="c").journal == JournalEntry()
        assert dynamodb.server.operations == {"GetItem": 1}

    @pytest.mark.parametrize("is_strong", [False, True])
    def test_messages_and_journal_are_read_with_one_consistency(self, dynamodb, is_strong):
        """A strong page needs a strong route; an eventual one pays for neither."""
        dynamodb.store.fetch([oldest(), newest()], is_strong=is_strong, journal_of="other")
        dynamodb.store.fetch([newest()], is_strong=is_strong, journal_of="c")
        assert [exchange.request["ConsistentRead"] for exchange in dynamodb.server.exchanges] == [is_strong] * 4

    @pytest.mark.parametrize(
        "attributes",
        [
            {},
            {"generations": {"S": "4@5"}},
            {"generations": {"SS": ["4@5", "many@6"]}, "updated_at": {"S": "2026-01-01T00:00:00Z"}},
        ],
        ids=["missing", "no set", "unreadable"],
    )
    def test_a_route_that_cannot_be_read_fails_closed(self, dynamodb, attributes):
        """A page that might lack shards is no page; every way to read the route says so."""
        put_routing_item(dynamodb, **attributes)
        reads = [
            lambda: dynamodb.store.fetch([newest()], is_strong=True, journal_of="c"),
            lambda: dynamodb.store.fetch([oldest()], is_strong=True, journal_of="c"),
            lambda: dynamodb.store.get(
                [(key, build_sort_key(message_id(1))) for key in "c"], is_strong=True, journals_of=["c"]
            ),
            lambda: dynamodb.journal.get("c", is_strong=True),
        ]
        for read in reads:
            with pytest.raises(MalformedGenerationError):
                read()

    @pytest.mark.parametrize("attributes", [{}, {"updated_at": {"S": "yesterday"}}, {"updated_at": {"N": "5"}}])
    def test_when_a_route_last_grew_is_not_worth_failing_for(self, dynamodb, attributes):
        """An operator's item without a readable `updated_at` still routes."""
        put_routing_item(dynamodb, generations={"SS": ["4@5"]}, **attributes)
        assert dynamodb.journal.get("c", is_strong=True) == JournalEntry(route_of((4, 5)), None)


class TestGetWithJournal:
    @pytest.mark.parametrize("count", [99, 100, 1_024])
    def test_more_keys_than_a_request_takes_are_asked_for_in_parts(self, dynamodb, count):
        """BatchGetItem takes 100; the routing item is among them."""
        message = build_message(7)
        dynamodb.store.create(message.to_item(f"c#{count - 1}"))
        entry = dynamodb.journal.add("c", [FOUR], cause=Cause("raised"), now_ms=NOW_MS)
        dynamodb.server.clear()
        keys = [f"c#{index}" for index in range(count)]
        found = dynamodb.store.get([(key, message.sort_key) for key in keys], is_strong=True, journals_of=["c"])
        assert found == ((Copy(keys[-1], message),), {"c": entry})
        asked = [e.request["RequestItems"][TABLE_NAME]["Keys"] for e in dynamodb.server.exchanges]
        assert max(len(part) for part in asked) == 100
        assert sum(len(part) for part in asked) == count + 1

    def test_unprocessed_keys_are_asked_for_again(self, dynamodb):
        """What DynamoDB leaves out is asked for, and only that, until it is there."""
        message = build_message(7)
        routing_key = {"pk": {"S": "c"}, "sk": {"S": "r#"}}
        left_out = {TABLE_NAME: {"Keys": [routing_key], "ConsistentRead": True}}
        routing = {**routing_key, "generations": {"SS": ["4@5"]}, "updated_at": {"S": "1970-01-01T00:00:01.500Z"}}
        responses = [
            {"Responses": {TABLE_NAME: [message.to_item("c")]}, "UnprocessedKeys": left_out},
            {"Responses": {}, "UnprocessedKeys": left_out},
            {"Responses": {TABLE_NAME: [routing]}, "UnprocessedKeys": {}},
        ]
        dynamodb.server.script.extend(Scripted(200, response) for response in responses)
        found = dynamodb.store.get([(key, message.sort_key) for key in "c"], is_strong=True, journals_of=["c"])
        assert found == ((Copy("c", message),), {"c": JournalEntry(route_of((4, 5)), 1500)})
        assert [e.request["RequestItems"] for e in dynamodb.server.exchanges[1:]] == [left_out, left_out]

    def test_keys_that_stay_unprocessed_are_never_taken_for_absent(self, dynamodb):
        """After some rounds the whole call counts as throttled."""
        left_out = {TABLE_NAME: {"Keys": [{"pk": {"S": "c"}, "sk": {"S": "r#"}}]}}
        dynamodb.server.intervene = lambda *_: Scripted(200, {"Responses": {}, "UnprocessedKeys": left_out})
        with pytest.raises(ThrottledError):
            dynamodb.store.get([(key, build_sort_key(message_id(1))) for key in "c"], is_strong=True, journals_of=["c"])
        assert dynamodb.server.operations == {"BatchGetItem": MAX_BATCH_ROUNDS}


class TestJournal:
    def test_the_item_is_as_documented(self, dynamodb):
        """The stored form is a contract with operators and with other versions."""
        dynamodb.journal.add("c", [EIGHT, FOUR], cause=Cause("raised"), now_ms=NOW_MS)
        key = {"pk": {"S": "c"}, "sk": {"S": "r#"}}
        item = dynamodb.client.get_item(TableName=TABLE_NAME, Key=key)["Item"]
        assert set(item) == {"pk", "sk", *ROUTING_ATTRIBUTES}
        assert sorted(item.pop("generations")["SS"]) == ["4@5", "8@9"]
        assert sorted(item.pop("raises")["SS"]) == ["4@5 1700000000 raised", "8@9 1700000000 raised"]
        assert item == {
            **key,
            "updated_at": {"S": "2023-11-14T22:13:20.000Z"},
            "reason": {"S": "raised"},
            "routing_partition": {"S": routing_partition_of("c")},
        }

    def test_a_close_is_added_unless_the_route_has_grown(self, dynamodb):
        """Both steps lie beside the generations, and every response says when it was DynamoDB's."""
        dynamodb.journal.add("c", [FOUR], cause=Cause("raised"), now_ms=NOW_MS)
        seen = dynamodb.journal.get("c", is_strong=True)
        announced, confirmed = Close(NOW_MS + 9, is_confirmed=False), Close(NOW_MS + 9, is_confirmed=True)
        cool = Cause("cool")
        first = dynamodb.journal.add_close("c", announced, cause=cool, now_ms=NOW_MS + 5, seen=seen)
        assert dynamodb.journal.add_close("c", Close(5, False), cause=cool, now_ms=NOW_MS + 6, seen=seen) is None
        dynamodb.journal.add("c", [Generation(8, 8)], cause=Cause("raised rate=900"), now_ms=NOW_MS + 8)
        second = dynamodb.journal.add_close("c", confirmed, cause=cool, now_ms=NOW_MS + 7)
        for entry in (seen, first, second, dynamodb.journal.get("c", is_strong=True)):
            assert entry.date_ms is not None
            assert abs(entry.date_ms - time.time() * 1000) < 3_600_000
        assert first.updated_at_ms == NOW_MS + 5
        assert second.route == Route(frozenset({FOUR, Generation(8, 8)}), frozenset({announced, confirmed}))
        # A late confirmation does not hide the raise that came between.
        assert dynamodb.journal.get("c", is_strong=True) == JournalEntry(second.route, NOW_MS + 8)
        item = dynamodb.client.get_item(TableName=TABLE_NAME, Key={"pk": {"S": "c"}, "sk": {"S": "r#"}})["Item"]
        assert sorted(item["generations"]["SS"]) == ["4@5", "8@8", f"closed@{NOW_MS + 9}", f"closing@{NOW_MS + 9}"]
        assert (item["reason"], len(item["raises"]["SS"])) == ({"S": "raised rate=900"}, 2)

    def test_the_same_decision_is_recorded_once(self, dynamodb):
        """A repeated attempt within the second adds nothing; another decision for the same generation one member."""
        for now_ms, reason in (
            (NOW_MS, "raised rate=900"),
            (NOW_MS + 500, "raised rate=900"),
            (NOW_MS, "by-hand by=a"),
        ):
            dynamodb.journal.add("c", [FOUR], cause=Cause(reason), now_ms=now_ms)
        item = dynamodb.client.get_item(TableName=TABLE_NAME, Key={"pk": {"S": "c"}, "sk": {"S": "r#"}})["Item"]
        assert item["generations"]["SS"] == ["4@5"]
        assert sorted(item["raises"]["SS"]) == ["4@5 1700000000 by-hand by=a", "4@5 1700000000 raised rate=900"]

    def test_an_item_without_history_is_read_as_before(self, dynamodb):
        """Written by an older version, or by hand."""
        item = {"pk": {"S": "c"}, "sk": {"S": "r#"}, "generations": {"SS": ["4@5"]}}
        dynamodb.client.put_item(TableName=TABLE_NAME, Item=item)
        assert dynamodb.journal.get("c", is_strong=True).route == route_of((4, 5))
        read = DynamoDBRoutingItems(dynamodb.calls, TABLE.journal).read("c")
        assert read == RoutingItem("c", route_of((4, 5)), ("4@5",))

    def test_the_index_partition_is_spread_and_fixed(self):
        """All 16 partitions are used, and one conversation keeps its own."""
        assert {routing_partition_of(f"c{i}") for i in range(500)} == {f"{i:02d}" for i in range(ROUTING_PARTITIONS)}
        assert routing_partition_of("room:1") == "14"


REASON = "TableWriteKeyRangeThroughputExceeded"
REASONS = [{"reason": REASON, "resource": "arn:aws:dynamodb:eu-central-1:1:table/t"}]


def operations(dynamodb):
    """Every operation of the adapters: its name, and a call that makes one request of it."""
    store, journal = dynamodb.store, dynamodb.journal
    items = DynamoDBRoutingItems(dynamodb.calls, TABLE.journal)
    return [
        ("PutItem", lambda: store.create(build_message(1).to_item("c"))),
        (
            "BatchGetItem",
            lambda: store.get([(key, build_sort_key(message_id(1))) for key in "c"], is_strong=True, journals_of=["c"]),
        ),
        ("GetItem", lambda: journal.get("c", is_strong=True)),
        ("UpdateItem", lambda: journal.add("c", [FOUR], cause=Cause("raised"), now_ms=1)),
        ("GetItem", lambda: items.read("c")),
        ("Query", lambda: items.page(None, 1)),
        ("Query", lambda: items.newest(1)),
    ]


class TestErrors:
    """Every operation, those for operators among them."""

    @pytest.mark.parametrize(
        ("refusal", "kind"),
        [
            (error("ProvisionedThroughputExceededException", ThrottlingReasons=REASONS), ThrottledError),
            (error("InternalServerError", 500), StoreUnavailableError),
            (error("AccessDeniedException"), StoreRefusedError),
        ],
    )
    def test_what_a_client_raises_reaches_the_caller_after_one_attempt(self, dynamodb, refusal, kind):
        """Nothing here repeats, hides or renames it."""
        for operation, call in operations(dynamodb):
            dynamodb.server.clear()
            dynamodb.server.script.append(refusal)
            with pytest.raises(kind):
                call()
            assert dynamodb.server.operations == {operation: 1}

    def test_dynamodbs_own_count_of_a_size_decides(self, dynamodb):
        """Ours estimates numbers, and may be a little below."""
        refused = {"__type": "#ValidationException", "message": "Item size has exceeded the maximum allowed size"}
        dynamodb.server.script.append(Scripted(400, refused))
        with pytest.raises(ItemTooLargeError):
            dynamodb.store.create(build_message(1).to_item("c"))

    def test_an_empty_part_of_a_response_is_not_its_end(self, dynamodb):
        """Queries without items go on from where they stopped, beside those that had some."""
        (message,) = put_all(dynamodb, [1], "c#1")
        start = {"pk": {"S": "c"}, "sk": {"S": "m#5"}}
        asked = []

        def intervene(_, request):
            asked.append(request.get("ExclusiveStartKey"))
            is_first = request["ExpressionAttributeValues"][":pk"] == {"S": "c"} and asked[-1] is None
            return Scripted(200, {"Items": [], "LastEvaluatedKey": start}) if is_first else None

        dynamodb.server.intervene = intervene
        fetched = dynamodb.store.fetch([newest("c"), newest("c#1")], is_strong=True)
        assert fetched.responses == (QueryResponse((), is_exhausted=True), QueryResponse((message,), is_exhausted=True))
        assert asked == [None, None, start]

    def test_failures_of_a_round_are_returned_beside_its_responses(self, dynamodb):
        """What was read is not thrown away because a neighbour failed."""
        (message,) = put_all(dynamodb, [1])
        fail_partition(dynamodb, "c#0")
        fetched = dynamodb.store.fetch([newest("c#0"), newest("c")], is_strong=True, journal_of="c")
        failure, response = fetched.responses
        assert isinstance(failure, ThrottledError)
        assert response == QueryResponse((message,), is_exhausted=True)
        assert fetched.journal == JournalEntry()

    def test_a_failed_carrier_fails_the_journal_too(self, dynamodb):
        """Whether query or GetItem was to bring the journal: it is there as an error, never as an empty route."""
        put_all(dynamodb, [1])
        fail_partition(dynamodb, "c")
        for query in (newest("c"), oldest(), newest("c#0")):
            assert isinstance(dynamodb.store.fetch([query], is_strong=True, journal_of="c").journal, ThrottledError)


def fail_partition(dynamodb, partition_key):
    """Make DynamoDB throttle all reads of one partition key."""

    def refuse(_, request):
        key = request.get("Key", {}).get("pk") or request.get("ExpressionAttributeValues", {}).get(":pk")
        is_refused = key == {"S": partition_key}
        return error("ProvisionedThroughputExceededException", ThrottlingReasons=REASONS) if is_refused else None

    dynamodb.server.intervene = refuse


class TestCost:
    """The bar: a conversation that was never hot costs what it costs without us."""

    @pytest.fixture
    def jobs(self, dynamodb):
        world, settings = World(clock=FakeClock(NOW_MS)), MessageSettings.defaults("write")
        ends, clock = world.ends(), world.clock
        writing = build_engine(replace(ends, journal=dynamodb.journal), settings, form=KEY_FORM)
        written = build_writer(writing, dynamodb.store, settings, random_bits=lambda _: clock.now_ms)
        settings = MessageSettings.defaults("read")
        reading = build_engine(ends, settings, form=KEY_FORM)
        return written.messages, build_reader(reading, dynamodb.store, settings), clock

    def test_a_cold_conversation_costs_one_request_each_way(self, dynamodb, jobs):
        """Ten writes are ten PutItem, the newest page one Query, a message one BatchGetItem; no shard is named."""
        writer, reader, clock = jobs
        written = []
        for i in range(10):
            clock.now_ms += 1
            written.append(writer.write(new_message(str(i))).message)
        assert dynamodb.server.operations == {"PutItem": 10}

        for limit, is_strong in [(50, True), (10, False), (3, False)]:
            dynamodb.server.clear()
            page = reader.read_page(PageRequest("c", limit=limit, is_strong=is_strong))
            assert list(page.messages) == written[::-1][:limit]
            assert dynamodb.server.operations == {"Query": 1}

        dynamodb.server.clear()
        assert reader.read_message("c", written[4].message_id) == written[4]
        assert dynamodb.server.operations == {"BatchGetItem": 1}
        assert dynamodb.server.keys == {"c"}

    @pytest.mark.parametrize(
        ("queries", "is_hedged"),
        [
            ([newest()], False),
            ([oldest()], False),
            ([], False),
            ([newest("c#0")], True),
            ([newest(), newest("c#0")], True),
        ],
    )
    def test_only_a_sharded_conversations_reads_may_be_asked_twice(self, queries, is_hedged):
        """Its second waves of one or two queries as well; one that was never hot pays for no hedges."""
        asked = []

        class Recorder:
            def call_many(self, calls, *, is_hedged):
                asked.append(is_hedged)
                return Round([{"Items": []} for _ in calls])

        DynamoDBItemStore(Recorder(), TABLE, Message.from_item).fetch(queries, is_strong=True, journal_of="c")
        assert asked == [is_hedged]

    def test_a_replay_and_a_conflict_cost_one_request(self, dynamodb, jobs):
        """The blocking item comes with the refusal."""
        writer, _, _ = jobs
        first = writer.write(new_message("a", message_id=message_id(NOW_MS)))
        dynamodb.server.clear()
        assert writer.write(new_message("a", message_id=first.message.message_id)).is_replay
        with pytest.raises(MessageConflictError):
            writer.write(new_message("b", message_id=first.message.message_id))
        assert dynamodb.server.operations == {"PutItem": 2}


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


class TestPlaces:
    """Held by the simulator's DynamoDB, and by the adapter over both clients and in every place."""

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
