"""The Redis adapters on a real server in cluster mode: what they keep, and what a dead server costs.

What each call sends, and which function may send it, is in `test_redis_access.py`. What is kept is held by the
simulator's Redis as well.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from functools import partial

import pytest
from redis.connection import Connection

from hotpartition import ReadCache
from hotpartition.core.errors import (
    MalformedPageError,
    MalformedReportError,
    RegistryForeignError,
    RegistryUnavailableError,
)
from hotpartition.core.ports import ReadRoute, StoredPage
from hotpartition.core.reports import Report, stream_partition_of
from hotpartition.core.route import EMPTY_ROUTE, Generation, Route
from hotpartition.redis.cluster import consumer_key, lease_key, page_key, read_hot_key, reports_key, route_key
from hotpartition.redis.pages import RedisPageStore
from hotpartition.redis.registry import RedisRegistry
from hotpartition.redis.report_streams import FIELD, MAX_WAITING, RedisReportSource
from support.builders import route_of
from support.fakes import FakeClock, FakeTelemetry
from support.redis_process import report_sink
from support.servers import closed_port, full_port, scripted_port, silent_port
from support.world import Pages, Registry, Reports

FOUR = Generation(since_ms=5, shard_count=4)
EIGHT = Generation(since_ms=9, shard_count=8)
NOISE = b"\xff\xfe"

CONNECT_MS = 50
COMMAND_MS = 30
"""As short as in production; where a server responds, the fixture `connect` gives it more time."""

SLOTS = b"*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:%d\r\n$40\r\n" + b"a" * 40 + b"\r\n"
"""What a server that has all slots tells of itself."""
MEMBERS, MARK = b"*2\r\n$1\r\n0\r\n*1\r\n$3\r\n4@5\r\n", b"$1\r\n3\r\n"
"""Its responses to SSCAN and GETRANGE."""


def asks_for_slots(data):
    return data.startswith(b"*2\r\n$7\r\nCLUSTER")


def report(value=10.0):
    return Report("c", 6_800_000_000, "e1", value, 1_700_000_000_000, 4, is_throttled=True)


def page_of(leased_at_ms, *, keep_ms=60_000, payload='["page", 1]'):
    return StoredPage(payload, leased_at_ms, keep_ms, 20, 8.5)


ASKED_BY_TESTS = {"cmdstat_config|resetstat", "cmdstat_info"}


def calls_of(admin):
    """How often each command was called since CONFIG RESETSTAT."""
    stats = admin.info("commandstats").items()
    return {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in stats if name not in ASKED_BY_TESTS}


def eventually(call):
    """Repeat a call with tight limits until the busy machine lets it through; pytest's own limit is for the rest."""
    while True:
        try:
            return call()
        except RegistryUnavailableError:
            time.sleep(0.01)


class HeldBackground:
    """Takes work, and leaves it to the test when it is done; or takes none."""

    def __init__(self, *, takes=True):
        self.held, self.takes = [], takes

    def submit(self, work):
        self.held.append(work)
        return self.takes


@pytest.fixture
def connection(redis_server, connect):
    """A connection that leaves a node alone after it failed."""
    return connect(redis_server.port, cooldown_ms=60_000)


@pytest.fixture
def attempts(monkeypatch):
    """Each attempt to connect to Redis, as it is made."""
    made = []

    def noted(connection):
        if connection._sock is None:  # each command calls it first
            made.append(connection)
        connect(connection)

    connect = Connection.connect
    monkeypatch.setattr(Connection, "connect", noted)
    return made


@pytest.fixture
def admin(redis_server):
    with redis_server.admin as client:
        yield client


@pytest.fixture
def telemetry():
    return FakeTelemetry()


@pytest.fixture
def registry(connection, table_name, telemetry):
    return RedisRegistry(connection, table_name, telemetry)


@pytest.fixture
def source(connection, table_name, telemetry):
    return RedisReportSource(connection, table_name, telemetry)


@pytest.fixture
def pages(connection, table_name, telemetry):
    return RedisPageStore(connection, table_name, telemetry, time.monotonic)


ODD = "a.b:c@d-e_f"
"""An id's characters mean nothing to Redis."""
MANY = [Generation(since_ms=n, shard_count=2 + n) for n in range(200)]
"""More than Redis keeps in a list: it makes a hash table of them."""
REGISTRY = [
    ("add", ["c", []], None),
    ("get", ["c"], EMPTY_ROUTE),
    ("add", ["c", [EIGHT]], None),
    ("add", ["c", [FOUR]], None),
    ("add", ["c", [EIGHT]], None),
    ("get", ["c"], route_of((4, 5), (8, 9))),
    ("add", [ODD, [FOUR]], None),
    ("get", [ODD], route_of((4, 5))),
    ("get_for_reading", ["c"], ReadRoute(route_of((4, 5), (8, 9)), 0)),
    ("mark_read_hot", ["d"], None),
    ("get_for_reading", ["d"], ReadRoute(EMPTY_ROUTE, 3)),
    ("add", ["d", [FOUR]], None),
    ("get_for_reading", ["d"], ReadRoute(route_of((4, 5)), 3)),
    ("get", ["d"], route_of((4, 5))),
    ("add", ["many", MANY], None),
    ("get", ["many"], Route(frozenset(MANY))),
    ("is_warm", ["c"], False),
    ("mark_warm", ["c", 60_000], None),
    ("is_warm", ["c"], True),
    ("is_warm", [""], False),
    ("mark_warm", ["", 60_000], None),
    ("is_warm", [""], True),
    ("closing_cursor", [], None),
    ("keep_closing_cursor", ['[3,"c"]'], None),
    ("closing_cursor", [], '[3,"c"]'),
    ("count_raise", [], 1),
    ("count_raise", [], 2),
]
"""Calls, one after the other, and what each returns."""


@pytest.fixture(params=["simulated", "real"])
def is_real(request):
    """Whether a real Redis holds what is kept, or the simulator's."""
    return request.param == "real"


def test_what_a_registry_keeps(is_real, registry):
    """A route only grows; a look-up returns the read-hot mark as well; an empty name is a collection, too."""
    kept = registry if is_real else Registry(FakeClock())
    returned = [(name, arguments, getattr(kept, name)(*arguments)) for name, arguments, _ in REGISTRY]
    assert returned == REGISTRY


def test_a_registry_that_is_away_is_one_error(connect):
    """Whatever is called; but nothing is sent for an addition of nothing."""
    simulated = Registry(FakeClock())
    simulated.is_down = True
    with closed_port() as port:
        for registry in (simulated, RedisRegistry(connect(port), "t")):
            registry.add("c", [])
            for name, arguments, _ in REGISTRY[1:]:
                with pytest.raises(RegistryUnavailableError):
                    getattr(registry, name)(*arguments)


class TestReports:
    """Sink and source, which share the streams."""

    @pytest.fixture
    def open_sink(self, connection, table_name):
        return partial(report_sink, connection, table_name, 1)

    @pytest.mark.parametrize("first", [Report("c", 0, "e", 1.0, 25_000, 0), Report("c", 0, "e", 1.0, pages=1.0)])
    def test_reports_are_read_in_order_from_their_stream(self, is_real, connection, source, table_name, first):
        """After an id and up to a limit; each conversation in the one stream that its name gives."""
        sink = report_sink(connection, table_name, 2) if is_real else Reports(FakeClock(), partitions=2)
        source = source if is_real else sink
        sent = [first._replace(slot=slot) for slot in range(100, 105)]
        for each in sent:
            sink.send(each)
        partition = stream_partition_of("c", 2)
        entries = source.read(partition, "0-0", 100)
        assert [type(first).decode(entry.text) for entry in entries] == sent
        assert list(source.read(partition, entries[1].entry_id, 2)) == list(entries[2:4])
        assert list(source.read(partition, entries[-1].entry_id, 2)) == []
        assert list(source.read(1 - partition, "0-0", 2)) == []
        # The latest start wins, in whatever order they come.
        latest = [source.latest_start_ms()]
        for started_ms in (5, 12, 8):
            source.announce(started_ms)
            latest.append(source.latest_start_ms())
        assert latest == [None, 5, 12, 12]

    def test_a_report_that_cannot_be_sent_is_dropped_and_counted(self, connect, table_name):
        """Redis away, or too much on its way already: the request goes on. Only the consumer meets an error."""
        with closed_port() as port:
            sink, source = report_sink(connect(port), table_name, 1), RedisReportSource(connect(port), table_name)
            sink.send(report())
            sink.send(report())
            for call in (lambda: source.read(0, "0-0", 1), lambda: source.announce(1), source.latest_start_ms):
                with pytest.raises(RegistryUnavailableError):
                    call()
        assert (sink.take_dropped(), sink.take_dropped()) == (2, 0)

        full = report_sink(connect(1), table_name, 1, background=HeldBackground(takes=False))
        full.send(report())
        assert full.take_dropped() == 1

    def test_what_waits_goes_in_one_round_trip(self, open_sink, source):
        """Reports that come while others are sent, or in the pause after that, are sent together, each as its own."""
        sent, pauses, background = [report(value=float(value)) for value in range(1, 7)], [], HeldBackground()

        def pause():
            pauses.append(len(source.read(0, "0-0", 10)))
            for one in sent[3:] if len(pauses) == 1 else ():
                sink.send(one)

        sink = open_sink(background=background, pause=pause)
        for one in sent[:3]:
            sink.send(one)
        (work,) = background.held
        work()
        assert [Report.decode(entry.text) for entry in source.read(0, "0-0", 10)] == sent
        assert pauses == [3, 6]
        # Nothing is being sent by now; and however long Redis takes, memory is bounded.
        for _ in range(MAX_WAITING + 2):
            sink.send(report())
        assert (sink.take_dropped(), len(background.held)) == (2, 2)

    def test_a_sending_that_broke_off_is_followed_by_another(self, open_sink, source):
        """A bug in one sending does not end all of them."""
        background = HeldBackground()
        sink = open_sink(background=background, pause=lambda: 1 / 0)
        for _ in range(2):
            sink.send(report())
            with pytest.raises(ZeroDivisionError):
                background.held[-1]()
        assert (len(background.held), len(source.read(0, "0-0", 10))) == (2, 2)


class TestPages:
    """Cached pages, and the leases to read them."""

    @pytest.fixture
    def store_and_wait(self, is_real, pages):
        """A page store, that of the unit tests as well, and a way to let time pass for it."""
        clock = FakeClock()
        return (pages, time.sleep) if is_real else (Pages(clock), clock.sleep)

    def test_every_copy_expires_when_its_page_says(self, store_and_wait):
        """Its age is the time since the lease, whenever it arrived. Nothing is left of what another replaced."""
        store, wait = store_and_wait

        def copies():
            return [store.get("c", "newest-50", copy) for copy in range(4)]

        leased_at_ms = store.take_lease("c", "newest-50", 300)
        page, newer = page_of(leased_at_ms - 2_000), page_of(leased_at_ms + 1, keep_ms=50, payload="ü")
        store.put("c", "newest-50", page)
        found = copies()
        assert [each and each[0] for each in found] == [page, page, page, None]
        assert all(2_000 <= age_ms < 60_000 for _, age_ms in found[:3])
        assert (store.get("c", "newest-200", 0), store.get("d", "newest-50", 0)) == (None, None)
        store.put("c", "newest-50", newer)
        wait(0.1)
        assert copies() == [None] * 4
        store.put("c", "newest-50", page)
        assert store.get("c", "newest-50", 0)[0] == page
        # One that arrives after its end is not there, and neither is what it was to replace.
        store.put("c", "newest-50", page_of(leased_at_ms - 5_000, keep_ms=4_000))
        assert copies() == [None] * 4

    def test_one_gets_the_lease_until_it_ends(self, store_and_wait):
        """Each page of a collection has its own."""
        store, wait = store_and_wait
        taken = [store.take_lease("c", variant, 60_000) for variant in ("newest-50", "newest-50", "newest-200")]
        assert [each is not None for each in taken] == [True, False, True]
        first = store.take_lease("d", "newest-50", 50)
        wait(0.1)
        assert store.take_lease("d", "newest-50", 60_000) >= first + 50

    def test_redis_is_asked_for_its_time_now_and_then(self, connection, admin, table_name, telemetry):
        """In between a page takes one command; its age is never too small, and hardly too large."""
        now_ms = [0.0]
        pages = RedisPageStore(connection, table_name, telemetry, lambda: now_ms[0] / 1000)
        pages.put("c", "v", page_of(pages.take_lease("c", "v", 300)))
        admin.config_resetstat()
        ages = []
        for now_ms[0] in (0.0, 1_000.0, 9_999.0, 10_000.0, 10_500.0):
            ages.append(pages.get("c", "v", 0)[1])
        calls = calls_of(admin)
        assert (calls["hget"], calls["hpttl"]) == (5, 2)
        first, second, third, *_ = ages
        assert (second - first, third - first) == (pytest.approx(1_001, abs=1), pytest.approx(10_009, abs=1))

    def test_a_full_redis_serves_what_is_there(self, own_redis_server, connect, telemetry):
        """No reader can take a lease or store a page."""
        store = RedisPageStore(connect(own_redis_server.port), "t", telemetry, time.monotonic)
        page = page_of(store.take_lease("c", "v", 300))
        store.put("c", "v", page)
        with own_redis_server.admin as admin:
            admin.config_set("maxmemory", "1")
        assert store.get("c", "v", 0)[0] == page
        for call in (lambda: store.put("c", "v", page), lambda: store.take_lease("d", "v", 300)):
            with pytest.raises(RegistryUnavailableError, match="maxmemory"):
                call()

    @pytest.mark.parametrize("garbage", ["", "2", "2 x 9 20 8.5 []", "2 5 9 20 []", "1 5 9 20 8.5 []", "\udcff"])
    def test_what_is_no_page_is_said_to_be_none(self, pages, admin, table_name, garbage):
        """Whatever it is; the next fill takes its place."""
        admin.hset(page_key(table_name, "c", "v", 0), "page", garbage.encode("utf-8", "surrogateescape"))
        with pytest.raises(MalformedPageError):
            pages.get("c", "v", 0)
        page = page_of(pages.take_lease("c", "v", 300))
        pages.put("c", "v", page)
        assert pages.get("c", "v", 0)[0] == page


@pytest.fixture(params=[RedisRegistry.get, lambda registry, name: registry.get_for_reading(name).route])
def look_up(request):
    """Both ways to ask for a route: as writers do, and as readers do."""
    return request.param


class TestConnection:
    def test_opening_asks_only_for_the_slots(self, redis_server, connect, admin):
        """Once, without a handshake, and with one connection for the next call: each has to be authenticated.

        Threads do not wait for each other. Later calls are one command each.
        """
        connection = connect(redis_server.port)
        registry, source = RedisRegistry(connection, "t"), RedisReportSource(connection, "t")
        with ThreadPoolExecutor(8) as threads:
            admin.config_resetstat()
            for call in (lambda: registry.get("c"), lambda: source.read(0, "0-0", 10)):
                threads.submit(call).result()
            assert admin.info("stats")["total_connections_received"] == 2
            for future in [threads.submit(registry.get, "c") for _ in range(64)]:
                future.result()
        assert calls_of(admin) == {"cluster|slots": 1, "sscan": 65, "xread": 1}
        assert admin.info("stats")["total_connections_received"] <= 1 + 8

    def test_what_readers_ask_is_one_round_trip_and_follows_slots_that_moved(self, connect):
        """Route and mark leave in one piece; one by one to a new node, and in one round trip again from then on."""
        received = []

        def new_node(data, port):
            received.append(("new", data.count(b"SSCAN"), data.count(b"GETRANGE")))
            return MEMBERS * (b"SSCAN" in data) + MARK * (b"GETRANGE" in data)

        with scripted_port(new_node) as new_port:

            def old_node(data, port):
                if asks_for_slots(data):
                    return SLOTS % port
                received.append(("old", data.count(b"SSCAN"), data.count(b"GETRANGE")))
                return b"-MOVED 7365 127.0.0.1:%d\r\n" % new_port * 2

            with scripted_port(old_node) as old_port:
                registry = RedisRegistry(connect(old_port), "t")
                for _ in range(2):
                    assert registry.get_for_reading("c") == ReadRoute(route_of((4, 5)), 3)
        assert [each for each in received if each[0] == "new"] == [("new", 1, 0), ("new", 0, 1), ("new", 1, 1)]
        assert received[0] == ("old", 1, 1)

    def test_a_connection_that_the_server_closed_is_replaced(self, look_up, registry, admin):
        """What was closed while the environment was frozen costs nobody an error."""
        registry.add("c", [FOUR])
        for _ in range(3):
            admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            assert look_up(registry, "c").generations == {FOUR}

    @pytest.mark.parametrize("address", [closed_port, silent_port, full_port], ids=["refused", "silent", "blackholed"])
    def test_a_server_that_is_away_costs_one_timeout_and_then_rests(self, look_up, connect, attempts, address):
        """The first call connects once; until the rest is over, calls fail at once and nothing is sent."""
        now_ms = [0.0]
        limits = {"connect_timeout_ms": CONNECT_MS, "command_timeout_ms": COMMAND_MS, "cooldown_ms": 1000}
        with address() as port:
            registry = RedisRegistry(connect(port, **limits, now_ms=lambda: now_ms[0]), "t")
            for now_ms[0], reason, tries in (
                (0.0, "Redis failed: ", 1),
                *[(999.0, "left alone", 0)] * 100,
                (1000.0, "Redis failed: ", 1),
            ):
                attempts.clear()
                with pytest.raises(RegistryUnavailableError, match=reason):
                    look_up(registry, "c")
                assert len(attempts) == tries

    def test_a_stopped_server_costs_two_command_timeouts(self, look_up, redis_server, connect, attempts):
        """One for the command, one for asking where the slots are now; once it goes on, so do we."""
        registry = RedisRegistry(connect(redis_server.port, command_timeout_ms=COMMAND_MS), "t")
        patient = RedisRegistry(connect(redis_server.port), "t")
        patient.add("c", [FOUR])
        assert eventually(lambda: look_up(registry, "c")).generations == {FOUR}
        redis_server.pause()
        try:
            for _ in range(3):
                attempts.clear()
                with pytest.raises(RegistryUnavailableError):
                    look_up(registry, "c")
                assert len(attempts) <= 2
        finally:
            redis_server.resume()
        # The responses that came too late are not taken for those of later requests.
        assert patient.get("c").generations == eventually(lambda: look_up(registry, "c")).generations == {FOUR}
        assert patient.get("d") == eventually(lambda: registry.get("d")) == EMPTY_ROUTE

    def test_a_killed_server_is_found_again_with_its_data(self, own_redis_server, connect):
        """The same client works again; what could not be sent meanwhile is counted."""
        with own_redis_server.admin as admin:
            # `everysec` may hold back what was acknowledged a moment ago.
            admin.config_set("appendfsync", "always")
        connection = connect(own_redis_server.port)
        registry, sink = RedisRegistry(connection, "t"), report_sink(connection, "t", 1)
        registry.add("c", [FOUR])
        own_redis_server.kill()
        with pytest.raises(RegistryUnavailableError):
            registry.get("c")
        sink.send(report())
        assert sink.take_dropped() == 1
        own_redis_server.start()
        assert registry.get("c") == registry.get_for_reading("c").route == route_of((4, 5))

    @pytest.mark.parametrize(
        ("refusal", "sent"),
        [
            # redis-py sleeps for 250 ms on CLUSTERDOWN; it does so once, and not for a second attempt.
            (b"-CLUSTERDOWN The cluster is down\r\n", [b"CLUSTER", b"SSCAN", b"CLUSTER"]),
            (b"-ERR This instance has cluster support disabled\r\n", [b"CLUSTER"]),
            # The node is well, and is asked again.
            (b"-OOM command not allowed\r\n", [b"CLUSTER", b"SSCAN", b"SSCAN"]),
        ],
    )
    def test_a_server_that_refuses_is_unavailable(self, connect, refusal, sent):
        """Routes then come from the journal; a second call meets a node that is left alone."""
        received = []

        def response(data, port):
            received.append(data.split(b"\r\n")[2])
            return SLOTS % port if asks_for_slots(data) and len(sent) > 1 else refusal

        with scripted_port(response) as port:
            registry = RedisRegistry(connect(port, cooldown_ms=60_000), "t")
            for _ in range(2):
                with pytest.raises(RegistryUnavailableError):
                    registry.get("c")
        assert received == sent

    def test_threads_find_a_dead_server_once(self, connect, attempts):
        """What waited while another tried finds the cooldown, and does not try as well."""
        with silent_port() as port, ThreadPoolExecutor(8) as threads:
            registry = RedisRegistry(connect(port, command_timeout_ms=COMMAND_MS, cooldown_ms=60_000), "t")
            for future in [threads.submit(registry.get, "c") for _ in range(8)]:
                assert isinstance(future.exception(), RegistryUnavailableError)
        assert len(attempts) == 1


class TestForeignData:
    """Redis may hold anything: it is skipped, counted and logged, in every structure that is read."""

    @pytest.mark.parametrize("mark", ["3", "0", "-1", "65", "1e1", "²", "0x2", " 1", "1" * 1000, NOISE])
    def test_what_is_no_generation_and_no_mark_is_skipped(self, registry, admin, table_name, telemetry, mark):
        """The registry is a hint: what is not text, or of another version, does not hide the others."""
        foreign = (NOISE, b"4@5\xff", "7", "4@5@6", "", "many@9")
        admin.sadd(route_key(table_name, "c"), *foreign, FOUR.encode(), EIGHT.encode())
        admin.set(read_hot_key(table_name, "c"), mark)
        assert registry.get_for_reading("c") == ReadRoute(route_of((4, 5), (8, 9)), 3 if mark == "3" else 0)
        assert len(telemetry.events) == (1 if mark == "3" else 2)

    def test_what_is_no_report_and_no_time_is_handed_on(self, source, admin, table_name):
        """So that the consumer counts and skips it; what follows is read. Infinity is a score that Redis takes."""
        for fields in ({"r": NOISE}, {NOISE: NOISE}, {"r": b"2|" + NOISE}, {FIELD: report().encode()}):
            admin.xadd(reports_key(table_name, 0), fields)
        *foreign, last = source.read(0, "0-0", 10)
        assert Report.decode(last.text) == report()
        for entry in foreign:
            with pytest.raises(MalformedReportError):
                Report.decode(entry.text)
        for score in ("inf", "-inf"):
            admin.zadd(consumer_key(table_name), {"latest": score})
            assert source.latest_start_ms() is None

    def test_a_key_of_another_type_fails_alone(self, registry, source, pages, admin, table_name, telemetry):
        """Named, so that an operator finds it. Nothing crashes, and the node is asked again."""
        page_at, lease_at = page_key(table_name, "c", "v", 0), lease_key(table_name, "c", "v")
        keys = [route_key(table_name, "c"), reports_key(table_name, 0), consumer_key(table_name), page_at, lease_at]
        for key in keys:
            admin.set(key, NOISE)
        admin.zadd(read_hot_key(table_name, "hot"), {"x": 1})
        for call in (
            lambda: registry.get("c"),
            lambda: registry.get_for_reading("c"),
            lambda: registry.get_for_reading("hot"),
            lambda: registry.add("c", [FOUR]),
            lambda: pages.get("c", "v", 0),
            lambda: pages.put("c", "v", page_of(1)),
            lambda: pages.take_lease("c", "v", 300),
        ):
            with pytest.raises(RegistryForeignError):
                call()
        assert source.read(0, "0-0", 10) == ()
        source.announce(5)
        assert source.latest_start_ms() is None
        assert [admin.type(key) for key in keys] == ["string"] * 5
        reasons = [facts["reason"] for _, facts in telemetry.events]
        assert [message for message, _ in telemetry.events] == ["foreign data in redis skipped"] * 8
        named = {*keys, read_hot_key(table_name, "hot")}
        assert {key for key in named if any(key in reason for reason in reasons)} == named - {lease_at}
        registry.add("d", [FOUR])
        assert registry.get("d").generations == {FOUR}

    def test_a_route_of_thousands_of_members_costs_no_time(self, registry, admin, table_name, telemetry):
        """It is none of ours: a part of it is read, in one command, and the rest stays unread."""
        key = route_key(table_name, "c")
        for start in range(0, 20_000, 2_000):
            admin.sadd(key, *(f"{NOISE!r}-{i}" for i in range(start, start + 2_000)))
        admin.config_resetstat()
        for _ in range(20):
            with pytest.raises(RegistryForeignError):
                registry.get("c")
        assert calls_of(admin)["sscan"] == 20
        assert admin.info("stats")["total_net_output_bytes"] < 20 * 10_000 < admin.memory_usage(key)
        assert len(telemetry.events) == 20


def test_a_fleet_shares_what_one_process_loads(own_redis_server):
    """After Redis is killed, each process keeps its own values, and loads what it has not."""
    address = f"redis://127.0.0.1:{own_redis_server.port}"
    first, second, other = (
        ReadCache(seconds=60, redis=address, name=name) for name in ("products", "products", "other")
    )
    loads = []

    def load():
        loads.append({"name": "a lamp", "price": Decimal("19.90"), "tags": {"new"}, "stock": 3})
        return loads[-1]

    found = [cache.get("product:42", load=load) for cache in (first, second, second, other)]
    assert found == [loads[0]] * 3 + [loads[1]]
    assert [type(each["stock"]) for each in found] == [int] * 4
    own_redis_server.kill()
    assert second.get("product:42", load=load) == loads[0]
    assert len(loads) == 2
    assert [cache.get("product:43", load=load) for cache in (first, second)] == loads[2:]
