"""One contract for each port, held by the stand-in of the unit tests and by the adapter of the functions."""

from __future__ import annotations

import pytest

from hotpartition.core.merge import KeyQuery
from hotpartition.core.ports import Copy, JournalEntry, ReadRoute, RoutingItem
from hotpartition.core.reports import WriteReport, stream_partition_of
from hotpartition.core.route import EMPTY_ROUTE, Generation
from hotpartition.core.route_history import Cause, Raise
from hotpartition.core.shares import WHOLE, list_shares
from hotpartition.dynamodb.routing_items import DynamoDBRoutingItems
from hotpartition.errors import InvalidRequestError, RegistryUnavailableError
from hotpartition.redis.listing import RedisRegistryListing
from hotpartition.redis.registry import RedisRegistry
from hotpartition.redis.reports import RedisReportSource
from hotpartition.runtime.settings import DYNAMODB_CLIENTS
from hotpartition_messages.keys import build_sort_key
from support.builders import build_message, message_id, route_of, walk
from support.fakes import FakeJournal, FakeRegistry, FakeReports, FakeRoutingItems, FakeTable
from support.redis_process import report_sink
from support.tables import TABLE
from support.unreachable import closed_port

FOUR = Generation(since_ms=5, shard_count=4)
EIGHT = Generation(since_ms=9, shard_count=8)
NOW_MS = 1_700_000_000_000


def query(partition_key="c", limit=2, first=None, last=None, *, newest_first=True):
    bounds = (None if tail is None else build_sort_key(message_id(tail)) for tail in (first, last))
    return KeyQuery(partition_key, newest_first, limit, *bounds)


class TestMessageStoreAndJournal:
    """Both sides of the one table."""

    @pytest.fixture(params=["fake", *DYNAMODB_CLIENTS])
    def table(self, request):
        """A message store and a journal on one table."""
        if request.param == "fake":
            table = FakeTable()
            return table, FakeJournal(table)
        real = request.getfixturevalue("dynamodb_over")(request.param)
        return real.store, real.journal

    def test_put_stores_once(self, table):
        """None for what is stored; the stored message for every later attempt, whatever that one holds."""
        store, _ = table
        first = build_message(1, body="a")
        assert store.create(first.to_item("c")) is None
        assert store.create(first.to_item("c")) == first
        assert store.create(build_message(1, body="b").to_item("c")) == first
        assert store.create(first.to_item("c#0")) is None

    def test_queries_are_bounded_ordered_and_limited(self, table):
        """Inclusive bounds, both orders, at most the limit; exhausted only when nothing more is within the bounds."""
        store, _ = table
        messages = [build_message(t) for t in range(1, 6)]
        for message in messages:
            store.create(message.to_item("c"))
        store.create(build_message(3).to_item("c#1"))
        fetched = store.fetch(
            [
                query(limit=9),
                query(limit=9, first=2, last=4, newest_first=False),
                query(limit=2, newest_first=False),
                query(limit=9, first=6),
                query("c#1"),
                query("c#2"),
            ],
            is_strong=True,
        )
        assert fetched.journal is None
        assert [a.items for a in fetched.responses] == [
            tuple(messages[::-1]),
            tuple(messages[1:4]),
            tuple(messages[:2]),
            (),
            (messages[2],),
            (),
        ]
        assert [a.is_exhausted for a in fetched.responses] == [True, True, False, True, True, True]

    @pytest.mark.parametrize("carrier", [query(), query(last=9), query(newest_first=False), query("c#0")])
    @pytest.mark.parametrize("count", [0, 1, 3])
    def test_the_journal_comes_with_a_round(self, table, carrier, count):
        """The routing item is read beside any queries, and never counts as a message."""
        store, journal = table
        for t in range(1, count + 1):
            store.create(build_message(t).to_item(carrier.partition_key))
        before = store.fetch([carrier], is_strong=True, journal_of="c")
        entry = journal.add("c", [FOUR], cause=Cause("raised"), now_ms=NOW_MS)
        after = store.fetch([carrier], is_strong=True, journal_of="c")
        assert (before.journal, after.journal) == (JournalEntry(), entry)
        assert before.responses[0].items == after.responses[0].items
        assert len(after.responses[0].items) == min(count, 2)
        assert {before.responses[0].is_exhausted, after.responses[0].is_exhausted} == {count < 2}

    def test_a_message_is_found_under_every_key(self, table):
        """All copies, and the route as it is; absent ones are simply not there."""
        store, journal = table
        message = build_message(7)
        for key in ("c", "c#3"):
            store.create(message.to_item(key))
        store.create(build_message(8).to_item("c#1"))
        keys = ["c", "c#1", "c#3"]
        assert store.get([(key, message.sort_key) for key in keys], is_strong=True, journals_of=["c"]) == (
            (Copy("c", message), Copy("c#3", message)),
            {"c": JournalEntry()},
        )
        entry = journal.add("c", [FOUR], cause=Cause("raised"), now_ms=NOW_MS)
        assert store.get([("c#0", message.sort_key)], is_strong=True, journals_of=["c"]) == ((), {"c": entry})

    def test_a_route_only_grows(self, table):
        """Adding is a union and answers with all of it; what is read is what was added."""
        _, journal = table
        assert journal.get("c", is_strong=True) == JournalEntry()
        assert journal.add("c", [EIGHT], cause=Cause("raised"), now_ms=NOW_MS) == JournalEntry(route_of((8, 9)), NOW_MS)
        whole = JournalEntry(route_of((4, 5), (8, 9)), NOW_MS + 1)
        assert journal.add("c", [FOUR, EIGHT], cause=Cause("raised"), now_ms=NOW_MS + 1) == whole
        assert journal.get("c", is_strong=True) == whole
        journal.add("d", [FOUR], cause=Cause("raised"), now_ms=NOW_MS)


class TestRoutingItems:
    """The journal as operators look through it."""

    @pytest.fixture(params=["fake", *DYNAMODB_CLIENTS])
    def journal(self, request):
        """A journal, and its routing items."""
        if request.param == "fake":
            table = FakeTable()
            return FakeJournal(table), FakeRoutingItems(table)
        real = request.getfixturevalue("dynamodb_over")(request.param)
        return real.journal, DynamoDBRoutingItems(real.calls, TABLE.journal)

    def test_an_item_tells_who_made_its_route(self, journal):
        """Nothing for what was never raised; every decision of what was, in its order."""
        journal, items = journal
        assert items.read("room#1") is None
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

    @pytest.mark.parametrize("limit", [1, 7, 40, 100])
    def test_pages_hold_every_item_once(self, journal, limit):
        """Whatever their size; none is larger than asked for."""
        journal, items = journal
        for i in range(40):
            journal.add(f"c{i}", [FOUR], cause=Cause("raised"), now_ms=NOW_MS + i)
        pages = list(walk(lambda cursor: items.page(cursor, limit)))
        assert max(map(len, pages)) <= limit
        found = [item for page in pages for item in page]
        assert sorted(item.collection for item in found) == sorted(f"c{i}" for i in range(40))
        assert {item.route for item in found} == {route_of((4, 5))}

    def test_the_newest_come_first(self, journal):
        """Those that grew last, whichever part of the index they are in."""
        journal, items = journal
        for i in range(40):
            journal.add(f"c{i}", [FOUR], cause=Cause("raised"), now_ms=NOW_MS + i)
        journal.add("c7", [EIGHT], cause=Cause("raised"), now_ms=NOW_MS + 100)
        assert [item.collection for item in items.newest(3)] == ["c7", "c39", "c38"]
        assert len(items.newest(100)) == 40

    @pytest.mark.parametrize(
        "cursor",
        ["", "nobody", "[]", "[16]", "[-1]", '["a"]', "[1, 2, 3]", '[0, "a", 3]', '[1, "a", "b", "c"]', '{"a": 1}'],
    )
    def test_a_foreign_cursor_is_refused(self, journal, cursor):
        """Rather than read from somewhere."""
        with pytest.raises(InvalidRequestError, match="cursor"):
            journal[1].page(cursor, 5)


class TestRegistryListing:
    @pytest.fixture(params=["fake", "redis"])
    def registry(self, request):
        """A registry, and the listing of it."""
        if request.param == "fake":
            registry = FakeRegistry()
            return registry, registry
        server, connect = request.getfixturevalue("redis_server"), request.getfixturevalue("connect")
        connection, name = connect(server.port), request.getfixturevalue("table_name")
        # Whatever else there is, under this prefix or another one, is none of ours.
        RedisReportSource(connection, name).announce(1)
        RedisRegistry(connection, f"{name}-other").add("elsewhere", [FOUR])
        return RedisRegistry(connection, name), RedisRegistryListing(connection, name)

    def test_all_conversations_are_listed(self, registry):
        """None before the first; then each at least once."""
        registry, listing = registry
        assert listing.page(None) == ([], None)
        expected = {f"room:{i}.@x" for i in range(1_200)}
        for conversation_id in expected:
            registry.add(conversation_id, [FOUR])
        registry.mark_whole()
        pages = list(walk(listing.page))
        assert set().union(*pages) == expected
        assert len(pages) > 1

    @pytest.mark.parametrize("cursor", ["", "nobody", "[]", '["a"]', '["a", -1]', "[1, 2]"])
    def test_a_foreign_cursor_is_refused(self, registry, cursor):
        """Rather than list from somewhere."""
        with pytest.raises(InvalidRequestError, match="cursor"):
            registry[1].page(cursor)


def test_a_listing_of_an_absent_redis_is_the_one_error(connect):
    """The one that its users handle."""
    with closed_port() as port, pytest.raises(RegistryUnavailableError):
        RedisRegistryListing(connect(port), "t").page(None)


class TestRegistry:
    @pytest.fixture(params=["fake", "redis"])
    def registry(self, request):
        if request.param == "fake":
            return FakeRegistry()
        server, connect = request.getfixturevalue("redis_server"), request.getfixturevalue("connect")
        return RedisRegistry(connect(server.port), request.getfixturevalue("table_name"))

    @pytest.fixture(params=["fake", "redis"])
    def dead_registry(self, request):
        if request.param == "fake":
            registry = FakeRegistry()
            registry.is_down = True
            yield registry
            return
        with closed_port() as port:
            yield RedisRegistry(request.getfixturevalue("connect")(port), "t")

    def test_a_route_only_grows(self, registry):
        """Unknown is empty; adding is a union; adding nothing changes nothing."""
        assert registry.get("c") == EMPTY_ROUTE
        registry.add("c", [])
        assert registry.get("c") == EMPTY_ROUTE
        for generations in ([EIGHT], [FOUR], [EIGHT]):
            registry.add("c", generations)
        assert registry.get("c") == route_of((4, 5), (8, 9))
        assert registry.get("d") == EMPTY_ROUTE

    def test_what_is_read_hot_is_told_with_the_route(self, registry):
        """Neither hides the other, and marking again replaces the number."""
        assert registry.get_for_reading("c") == ReadRoute(EMPTY_ROUTE, 0)
        registry.mark_read_hot("c", 2)
        registry.add("d", [FOUR])
        assert registry.get_for_reading("c") == ReadRoute(EMPTY_ROUTE, 2)
        assert registry.get_for_reading("d") == ReadRoute(route_of((4, 5)), 0)
        registry.add("c", [EIGHT])
        registry.mark_read_hot("c", 16)
        assert registry.get_for_reading("c") == ReadRoute(route_of((8, 9)), 16)
        assert registry.get("c") == route_of((8, 9))

    def test_what_is_warm_is_known_to_be(self, registry):
        """Each by itself; the empty name is a collection like the others."""
        assert not registry.is_warm("c")
        registry.mark_warm("c", 60_000)
        assert registry.is_warm("c")
        assert not registry.is_warm("d")
        registry.mark_warm("", 60_000)
        assert registry.is_warm("")

    def test_a_place_in_the_listing_is_kept(self, registry):
        """None where there is none."""
        assert registry.closing_cursor() is None
        registry.keep_closing_cursor('[3,"c"]')
        assert registry.closing_cursor() == '[3,"c"]'

    def test_raises_are_counted(self, registry):
        """Each count includes the raise itself."""
        assert [registry.count_raise() for _ in range(3)] == [1, 2, 3]

    def test_whole_is_what_is_marked_whole(self, registry):
        """Not by itself, and not by holding routes."""
        registry.add("c", [FOUR])
        assert not registry.is_whole()
        registry.mark_whole()
        assert registry.is_whole()

    def test_away_is_one_error(self, dead_registry):
        """Every method raises the error that its users handle."""
        for call in (
            lambda: dead_registry.get("c"),
            lambda: dead_registry.get_for_reading("c"),
            lambda: dead_registry.mark_read_hot("c", 1),
            lambda: dead_registry.add("c", [FOUR]),
            dead_registry.count_raise,
            lambda: dead_registry.mark_warm("c", 1),
            lambda: dead_registry.is_warm("c"),
            dead_registry.closing_cursor,
            lambda: dead_registry.keep_closing_cursor("x"),
            dead_registry.is_whole,
            dead_registry.mark_whole,
        ):
            with pytest.raises(RegistryUnavailableError):
                call()


class TestReports:
    """Sink and source, which share the streams."""

    PARTITIONS = 2

    @pytest.fixture(params=["fake", "redis"])
    def streams(self, request):
        """Where reports go, and where they come from."""
        if request.param == "fake":
            fake = FakeReports(self.PARTITIONS)
            return fake, fake
        server, connect = request.getfixturevalue("redis_server"), request.getfixturevalue("connect")
        return self.redis_streams(connect(server.port), request.getfixturevalue("table_name"))

    @pytest.fixture(params=["fake", "redis"])
    def dead_streams(self, request):
        if request.param == "fake":
            fake = FakeReports(self.PARTITIONS)
            fake.is_down = True
            yield fake, fake
            return
        with closed_port() as port:
            yield self.redis_streams(request.getfixturevalue("connect")(port), "t")

    def redis_streams(self, connection, table_name):
        return report_sink(connection, table_name, self.PARTITIONS), RedisReportSource(connection, table_name)

    def test_reports_are_read_in_order_from_their_stream(self, streams):
        """After an id and up to a limit; each conversation in the one stream that its name gives."""
        sink, source = streams
        sent = [WriteReport("c", 100, "e", float(value), 25_000, 0) for value in range(1, 6)]
        for report in sent:
            sink.send(report)
        partition = stream_partition_of("c", self.PARTITIONS)
        entries = source.read(partition, "0-0", 100)
        assert [WriteReport.decode(entry.text) for entry in entries] == sent
        assert list(source.read(partition, "0-0", 2)) == list(entries[:2])
        assert list(source.read(partition, entries[1].entry_id, 2)) == list(entries[2:4])
        assert list(source.read(partition, entries[-1].entry_id, 2)) == []
        assert list(source.read(1 - partition, "0-0", 2)) == []
        assert sink.take_dropped() == 0

    def test_the_latest_start_wins(self, streams):
        """None before the first; then the maximum, in whatever order they come."""
        _, source = streams
        assert source.latest_start_ms() is None
        for started_ms in (NOW_MS, NOW_MS + 7, NOW_MS + 3):
            source.announce(started_ms)
        assert source.latest_start_ms() == NOW_MS + 7

    def test_each_share_has_a_latest_start_of_its_own(self, streams):
        """Also where two divisions have a share of the same number."""
        _, source = streams
        shares = (WHOLE, *list_shares(2), *list_shares(4))
        for number, share in enumerate(shares):
            source.announce(NOW_MS + number, share)
        assert [source.latest_start_ms(share) for share in shares] == [NOW_MS + n for n in range(len(shares))]

    def test_away_is_an_error_for_the_consumer_and_none_for_a_writer(self, dead_streams):
        """Reading fails with the error that its users handle; sending never fails."""
        sink, source = dead_streams
        sink.send(WriteReport("c", 100, "e", 1.0, 25_000, 0))
        for call in (lambda: source.read(0, "0-0", 1), lambda: source.announce(1), source.latest_start_ms):
            with pytest.raises(RegistryUnavailableError):
                call()
