"""One contract for each port, held by the stand-in of the unit tests and by the adapter of the functions."""

from __future__ import annotations

import pytest

from hotpartition.core.errors import RegistryUnavailableError
from hotpartition.core.merge import KeyQuery
from hotpartition.core.ports import Copy, JournalEntry, ReadRoute
from hotpartition.core.reports import Report, stream_partition_of
from hotpartition.core.route import EMPTY_ROUTE, Generation
from hotpartition.core.route_history import Cause
from hotpartition.redis.registry import RedisRegistry
from hotpartition.redis.report_streams import RedisReportSource
from hotpartition.runtime.settings import DYNAMODB_CLIENTS
from hotpartition_messages.keys import build_sort_key
from support.builders import build_message, message_id, route_of
from support.fakes import FakeClock
from support.redis_process import report_sink
from support.servers import closed_port
from support.world import Registry, Reports, Table

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
            table = Table()
            return table, table.journal
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
        """Inclusive bounds, both orders, at most the limit; exhausted only when nothing more is within the bounds.

        The routing item is no message, though nothing asks for it.
        """
        store, journal = table
        journal.add("c", [FOUR], cause=Cause("raised"), now_ms=NOW_MS)
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


@pytest.fixture(params=["fake", "redis"])
def connection(request, redis_server, connect):
    """A connection to Redis; None for the stand-in."""
    return connect(redis_server.port) if request.param == "redis" else None


@pytest.fixture(params=["fake", "redis"])
def dead_connection(request, connect):
    """A connection to nowhere; None for the stand-in."""
    with closed_port() as port:
        yield connect(port) if request.param == "redis" else None


class TestRegistry:
    @pytest.fixture
    def registry(self, connection, table_name):
        return Registry(FakeClock()) if connection is None else RedisRegistry(connection, table_name)

    @pytest.fixture
    def dead_registry(self, dead_connection):
        if dead_connection is not None:
            return RedisRegistry(dead_connection, "t")
        registry = Registry(FakeClock())
        registry.is_down = True
        return registry

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
        """Neither hides the other."""
        assert registry.get_for_reading("c") == ReadRoute(EMPTY_ROUTE, 0)
        registry.mark_read_hot("c")
        registry.add("d", [FOUR])
        assert registry.get_for_reading("c") == ReadRoute(EMPTY_ROUTE, 3)
        assert registry.get_for_reading("d") == ReadRoute(route_of((4, 5)), 0)
        registry.add("c", [EIGHT])
        registry.mark_read_hot("c")
        assert registry.get_for_reading("c") == ReadRoute(route_of((8, 9)), 3)
        assert registry.get("c") == route_of((8, 9))

    def test_what_is_warm_is_known_to_be(self, registry):
        """Each by itself; the empty name is a collection like the others."""
        assert not registry.is_warm("c")
        registry.mark_warm("c", 60_000)
        assert registry.is_warm("c")
        assert not registry.is_warm("d")
        registry.mark_warm("", 60_000)
        assert registry.is_warm("")

    def test_what_the_consumer_keeps_is_there(self, registry):
        """Its place in the listing, None where there is none; raises, each count with the raise itself."""
        assert registry.closing_cursor() is None
        registry.keep_closing_cursor('[3,"c"]')
        assert registry.closing_cursor() == '[3,"c"]'
        assert [registry.count_raise() for _ in range(3)] == [1, 2, 3]

    def test_away_is_one_error(self, dead_registry):
        """Every method raises the error that its users handle."""
        for method, *arguments in (
            ("get", "c"),
            ("get_for_reading", "c"),
            ("mark_read_hot", "c"),
            ("add", "c", [FOUR]),
            ("count_raise",),
            ("mark_warm", "c", 1),
            ("is_warm", "c"),
            ("closing_cursor",),
            ("keep_closing_cursor", "x"),
        ):
            with pytest.raises(RegistryUnavailableError):
                getattr(dead_registry, method)(*arguments)


class TestReports:
    """Sink and source, which share the streams."""

    PARTITIONS = 2

    @pytest.fixture
    def streams(self, connection, table_name):
        """Where reports go, and where they come from."""
        return self.open_streams(connection, table_name)

    @pytest.fixture
    def dead_streams(self, dead_connection):
        return self.open_streams(dead_connection, "t", is_down=True)

    def open_streams(self, connection, table_name, *, is_down=False):
        if connection is not None:
            return report_sink(connection, table_name, self.PARTITIONS), RedisReportSource(connection, table_name)
        fake = Reports(FakeClock(), self.PARTITIONS)
        fake.is_down = is_down
        return fake, fake

    @pytest.mark.parametrize("first", [Report("c", 0, "e", 1.0, 25_000, 0), Report("c", 0, "e", 1.0, pages=1.0)])
    def test_reports_are_read_in_order_from_their_stream(self, streams, first):
        """After an id and up to a limit; each conversation in the one stream that its name gives."""
        sink, source = streams
        sent = [first._replace(slot=slot) for slot in range(100, 105)]
        for report in sent:
            sink.send(report)
        partition = stream_partition_of("c", self.PARTITIONS)
        entries = source.read(partition, "0-0", 100)
        assert [type(first).decode(entry.text) for entry in entries] == sent
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

    def test_away_is_an_error_for_the_consumer_and_none_for_a_writer(self, dead_streams):
        """Reading fails with the error that its users handle; sending never fails."""
        sink, source = dead_streams
        sink.send(Report("c", 100, "e", 1.0, 25_000, 0))
        for call in (lambda: source.read(0, "0-0", 1), lambda: source.announce(1), source.latest_start_ms):
            with pytest.raises(RegistryUnavailableError):
                call()
