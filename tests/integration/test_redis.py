"""The Redis adapters on a real server in cluster mode: what they keep, and what a dead server costs."""

from __future__ import annotations

import threading
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
from hotpartition.core.reports import Report
from hotpartition.core.route import EMPTY_ROUTE, Generation
from hotpartition.redis.cluster import (
    consumer_key,
    lease_key,
    page_key,
    raises_key,
    read_hot_key,
    reports_key,
    route_key,
    warm_key,
)
from hotpartition.redis.pages import RedisPageStore
from hotpartition.redis.registry import RedisRegistry
from hotpartition.redis.report_streams import FIELD, MAX_WAITING, STREAM_AGE_MS, RedisReportSource
from hotpartition.runtime.background import BackgroundThread
from hotpartition_messages.jobs import open_reader
from hotpartition_messages.reading import PageRequest
from support.builders import build_message, message_id, route_of
from support.fakes import FakeClock, FakeTelemetry
from support.page_store import FakePageStore
from support.redis_process import report_sink
from support.servers import closed_port, full_port, scripted_port, silent_port
from support.tables import TABLE_NAME

FOUR = Generation(since_ms=5, shard_count=4)
EIGHT = Generation(since_ms=9, shard_count=8)

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


def calls_of(admin):
    """How often each command was called since CONFIG RESETSTAT."""
    stats = admin.info("commandstats").items()
    return {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in stats if "config|" not in name}


def eventually(call):
    """Repeat a call with tight limits until the busy machine lets it through; pytest's own limit is for the rest."""
    while True:
        try:
            return call()
        except RegistryUnavailableError:
            time.sleep(0.01)


class HeldBackground:
    """Takes work, and leaves it to the test when it is done."""

    def __init__(self):
        self.held = []

    def submit(self, work):
        self.held.append(work)
        return True


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


def redis_ms(admin):
    seconds, micros = admin.time()
    return seconds * 1_000 + micros // 1_000


def assert_lasts(admin, key, ttl_ms, write):
    """Check the TTL that a key is written with, by Redis's clock."""
    began, _, ended = redis_ms(admin), write(), redis_ms(admin)
    assert began <= admin.pexpiretime(key) - ttl_ms <= ended


def test_each_hint_lasts_its_time_and_a_route_for_ever(registry, admin, table_name):
    """A consumer that is gone leaves nothing read-hot for long; a route that vanished would cost a second wave."""
    registry.add("c", [FOUR])
    assert admin.ttl(route_key(table_name, "c")) == -1
    assert_lasts(admin, read_hot_key(table_name, "c"), 60_000, lambda: registry.mark_read_hot("c"))
    assert_lasts(admin, warm_key(table_name, "c"), 600_000, lambda: registry.mark_warm("c", 600_000))


def test_raises_are_counted_for_an_hour_from_the_first(registry, admin, table_name):
    """Later ones do not put the end off; a count that lost its TTL gets one again."""
    key = raises_key(table_name)
    assert_lasts(admin, key, 3_600_000, registry.count_raise)
    admin.pexpire(key, 1_000_000)
    ends = admin.pexpiretime(key)
    assert registry.count_raise() == 2
    assert admin.pexpiretime(key) == ends
    admin.persist(key)
    assert_lasts(admin, key, 3_600_000, registry.count_raise)
    assert registry.count_raise() == 4


@pytest.mark.parametrize("conversation_id", ["a.b:c@d-e_f", "x" * 256, "0"])
def test_every_allowed_id_has_a_route_of_its_own(registry, conversation_id):
    """Ids are hash tags as they are; none of their characters means anything to Redis."""
    registry.add(conversation_id, [FOUR])
    assert registry.get(conversation_id).generations == {FOUR}


@pytest.mark.parametrize("count", [1, 12, 200])
def test_a_route_is_read_whole_in_one_command(registry, admin, count):
    """From the scan's first cursor on, however the server stores it: a large set is a hash table."""
    generations = {Generation(since_ms=n, shard_count=2 + n % 1000) for n in range(count)}
    registry.add("c", generations)
    admin.config_resetstat()
    assert registry.get("c").generations == registry.get_for_reading("c").route.generations == generations
    assert calls_of(admin)["sscan"] == 2


class TestReports:
    @pytest.fixture
    def open_sink(self, connection, table_name):
        return partial(report_sink, connection, table_name, 1)

    def test_old_entries_are_trimmed(self, open_sink, admin, table_name):
        """A stream that nobody reads does not grow for ever."""
        key, now_ms = reports_key(table_name, 0), time.time_ns() // 1_000_000
        for index in range(1000):
            admin.xadd(key, {"f": "1"}, id=f"{now_ms - STREAM_AGE_MS - 10_000}-{index + 1}")
        open_sink().send(report())
        # Whole nodes of the stream are dropped, of 100 entries each.
        assert admin.xlen(key) <= 101

    def test_a_report_that_cannot_be_sent_is_dropped_and_counted(self, connect, table_name):
        """Redis away, or too much on its way already: the request goes on."""
        with closed_port() as port:
            inline = report_sink(connect(port), table_name, 1)
            inline.send(report())
            inline.send(report())
        assert (inline.take_dropped(), inline.take_dropped()) == (2, 0)

        release, background = threading.Event(), BackgroundThread(max_pending=1)
        busy = report_sink(connect(1), table_name, 1, background=background)
        background.submit(release.wait)
        busy.send(report())
        release.set()
        background.close()
        assert busy.take_dropped() == 1

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
        sink.send(report())
        assert len(background.held) == 2  # nothing was being sent by then

    def test_more_than_can_wait_is_dropped_and_counted(self, open_sink):
        """However long Redis takes, memory is bounded."""
        background = HeldBackground()
        sink = open_sink(background=background)
        for _ in range(MAX_WAITING + 2):
            sink.send(report())
        assert (sink.take_dropped(), len(background.held)) == (2, 1)

    def test_a_sending_that_broke_off_is_followed_by_another(self, open_sink, source):
        """A bug in one sending does not end all of them."""
        background = HeldBackground()
        sink = open_sink(background=background, pause=lambda: 1 / 0)
        for _ in range(2):
            sink.send(report())
            with pytest.raises(ZeroDivisionError):
                background.held[-1]()
        assert (len(background.held), len(source.read(0, "0-0", 10))) == (2, 2)


@pytest.fixture(params=["get", "get_for_reading"])
def look_up(request):
    """Both ways to ask for the route of `c`: as writers do, and as readers do."""
    if request.param == "get":
        return lambda registry: registry.get("c")
    return lambda registry: registry.get_for_reading("c").route


class TestConnection:
    def test_opening_asks_only_for_the_slots(self, redis_server, connect, admin):
        """Two connections, one CLUSTER SLOTS, no handshakes, no table of commands; later calls are one command each."""
        registry = RedisRegistry(connect(redis_server.port), "t")
        source = RedisReportSource(connect(redis_server.port), "t")
        admin.config_resetstat()
        for _ in range(10):
            registry.get("c")
        for _ in range(2):
            source.read(0, "0-0", 10)
        assert calls_of(admin) == {"cluster|slots": 2, "sscan": 10, "xread": 2}
        assert admin.info("stats")["total_connections_received"] == 4

    def test_what_readers_ask_is_one_round_trip(self, connect):
        """Route and mark leave in one piece: were there a second, it could not be sent before the first is answered."""
        received = []

        def response(data, port):
            received.append((data.count(b"SSCAN"), data.count(b"GETRANGE")))
            return SLOTS % port if asks_for_slots(data) else MEMBERS + MARK

        with scripted_port(response) as port:
            registry = RedisRegistry(connect(port), "t")
            for _ in range(3):
                assert registry.get_for_reading("c") == ReadRoute(route_of((4, 5)), 3)
        assert received == [(0, 0), *[(1, 1)] * 3]

    def test_what_readers_ask_follows_slots_that_moved(self, connect):
        """One by one to the new node, and in one round trip again from then on."""
        received = []

        def new_node(data, port):
            received.append(data.count(b"GETRANGE") + data.count(b"SSCAN"))
            return MEMBERS * (b"SSCAN" in data) + MARK * (b"GETRANGE" in data)

        with scripted_port(new_node) as new_port:

            def old_node(data, port):
                moved = b"-MOVED 7365 127.0.0.1:%d\r\n" % new_port
                asked = data.count(b"GETRANGE") + data.count(b"SSCAN")
                return SLOTS % port if asks_for_slots(data) else moved * asked

            with scripted_port(old_node) as old_port:
                registry = RedisRegistry(connect(old_port), "t")
                for _ in range(2):
                    assert registry.get_for_reading("c") == ReadRoute(route_of((4, 5)), 3)
        assert received == [1, 1, 2]

    def test_a_connection_that_the_server_closed_is_replaced(self, look_up, registry, admin):
        """What was closed while the environment was frozen costs nobody an error."""
        registry.add("c", [FOUR])
        for _ in range(3):
            admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            assert look_up(registry).generations == {FOUR}

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
                    look_up(registry)
                assert len(attempts) == tries

    def test_a_stopped_server_costs_two_command_timeouts(self, look_up, redis_server, connect, attempts):
        """One for the command, one for asking where the slots are now; once it goes on, so do we."""
        registry = RedisRegistry(connect(redis_server.port, command_timeout_ms=COMMAND_MS), "t")
        patient = RedisRegistry(connect(redis_server.port), "t")
        patient.add("c", [FOUR])
        assert eventually(lambda: look_up(registry)).generations == {FOUR}
        redis_server.pause()
        try:
            for _ in range(3):
                attempts.clear()
                with pytest.raises(RegistryUnavailableError):
                    look_up(registry)
                assert len(attempts) <= 2
        finally:
            redis_server.resume()
        # The responses that came too late are not taken for those of later requests.
        assert patient.get("c").generations == eventually(lambda: look_up(registry)).generations == {FOUR}
        assert patient.get("d") == eventually(lambda: registry.get("d")) == EMPTY_ROUTE

    def test_a_killed_server_comes_back_with_its_data(self, own_redis_server, connect):
        """The same client works again after a crash and a restart from the AOF, which held what was acknowledged."""
        with own_redis_server.admin as admin:
            assert admin.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
            # `everysec` may hold back what was acknowledged a moment ago.
            admin.config_set("appendfsync", "always")
        connection = connect(own_redis_server.port)
        registry, sink = RedisRegistry(connection, "t"), report_sink(connection, "t", 1)
        registry.add("c", [FOUR])
        sink.send(report())
        own_redis_server.kill()
        for look_up in (registry.get, registry.get_for_reading):
            with pytest.raises(RegistryUnavailableError):
                look_up("c")
        sink.send(report())
        assert sink.take_dropped() == 1
        own_redis_server.start()
        assert registry.get("c") == registry.get_for_reading("c").route == route_of((4, 5))
        sink.send(report(value=20.0))
        entries = RedisReportSource(connection, "t").read(0, "0-0", 10)
        assert [Report.decode(entry.text).value for entry in entries] == [10.0, 20.0]

    def test_a_cluster_that_says_it_is_down_costs_one_pause(self, connect):
        """redis-py sleeps for 250 ms on CLUSTERDOWN; it does so once, and not for a second attempt."""
        sent = []

        def response(data, port):
            sent.append(data.split(b"\r\n")[2])
            return SLOTS % port if asks_for_slots(data) else b"-CLUSTERDOWN The cluster is down\r\n"

        with scripted_port(response) as port, pytest.raises(RegistryUnavailableError):
            RedisRegistry(connect(port), "t").get("c")
        assert sent == [b"CLUSTER", b"SSCAN", b"CLUSTER"]

    def test_threads_that_share_a_connection_open_it_once(self, redis_server, connect, admin):
        """Each new connection is authenticated: a writer's lookups and reports take one after the other the same."""
        connection = connect(redis_server.port)
        registry, source = RedisRegistry(connection, "t"), RedisReportSource(connection, "t")
        with ThreadPoolExecutor(8) as threads:
            admin.config_resetstat()
            for call in (lambda: registry.get("c"), lambda: source.read(0, "0-0", 10)):
                threads.submit(call).result()
            assert admin.info("stats")["total_connections_received"] == 2
            # All at once: none waits for another, and the slots are asked for once.
            for future in [threads.submit(registry.get, "c") for _ in range(64)]:
                future.result()
            assert calls_of(admin)["cluster|slots"] == 1
            assert admin.info("stats")["total_connections_received"] <= 1 + 8

    def test_threads_find_a_dead_server_once(self, connect, attempts):
        """What waited while another tried finds the cooldown, and does not try as well."""
        with silent_port() as port, ThreadPoolExecutor(8) as threads:
            registry = RedisRegistry(connect(port, command_timeout_ms=COMMAND_MS, cooldown_ms=60_000), "t")
            for future in [threads.submit(registry.get, "c") for _ in range(8)]:
                assert isinstance(future.exception(), RegistryUnavailableError)
        assert len(attempts) == 1

    def test_a_server_without_cluster_mode_is_unavailable(self, connect):
        """A wrong server is not a crash: routes then come from the journal."""
        wrong = b"-ERR This instance has cluster support disabled\r\n"
        with scripted_port(lambda *_: wrong) as port, pytest.raises(RegistryUnavailableError):
            RedisRegistry(connect(port), "t").get("c")


NOISE = b"\xff\xfe"


class TestForeignData:
    """Redis may hold anything: it is skipped, counted and logged, in every structure that is read."""

    def test_bytes_in_a_route_are_skipped(self, registry, admin, table_name, telemetry):
        """The registry is a hint: what is not text, or of another version, does not hide the others."""
        foreign = (NOISE, b"4@5\xff", "7", "4@5@6", "", "many@9")
        admin.sadd(route_key(table_name, "c"), *foreign, FOUR.encode(), EIGHT.encode())
        assert registry.get("c").generations == {FOUR, EIGHT}
        assert len(telemetry.events) == 1

    def test_bytes_in_a_stream_are_entries_that_cannot_be_read(self, source, admin, table_name):
        """They are handed on, so that the consumer counts and skips them; what follows is read."""
        for fields in ({"r": NOISE}, {NOISE: NOISE}, {"r": b"2|" + NOISE}, {FIELD: report().encode()}):
            admin.xadd(reports_key(table_name, 0), fields)
        *foreign, last = source.read(0, "0-0", 10)
        assert Report.decode(last.text) == report()
        for entry in foreign:
            with pytest.raises(MalformedReportError):
                Report.decode(entry.text)

    @pytest.mark.parametrize("mark", ["0", "-1", "65", "1e1", "²", "0x2", " 1", "1" * 1000, NOISE])
    def test_a_mark_that_is_no_number_of_copies_is_none(self, registry, admin, table_name, telemetry, mark):
        """The route is told all the same."""
        registry.add("c", [FOUR])
        admin.set(read_hot_key(table_name, "c"), mark)
        assert registry.get_for_reading("c") == ReadRoute(route_of((4, 5)), 0)
        assert len(telemetry.events) == 1

    @pytest.mark.parametrize("build_key", [route_key, read_hot_key])
    def test_a_route_or_mark_of_another_type_is_the_one_error(self, registry, admin, table_name, telemetry, build_key):
        """Named, so that an operator finds it; it hides both, since a hint may be lost."""
        admin.zadd(build_key(table_name, "c"), {"x": 1})
        with pytest.raises(RegistryForeignError, match="reads:"):
            registry.get_for_reading("c")
        assert len(telemetry.events) == 1

    def test_a_key_of_another_type_fails_alone(self, registry, source, pages, admin, table_name, telemetry):
        """Nobody crashes, the node is not left alone for it, and it stays until it is removed."""
        page_at, lease_at = page_key(table_name, "c", "v", 0), lease_key(table_name, "c", "v")
        keys = [route_key(table_name, "c"), reports_key(table_name, 0), consumer_key(table_name), page_at, lease_at]
        for key in keys:
            admin.set(key, NOISE)
        for call in (
            lambda: registry.get("c"),
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
        assert [message for message, _ in telemetry.events] == ["foreign data in redis skipped"] * 6
        assert {key for key in keys if any(key in reason for reason in reasons)} == {*keys} - {lease_at}
        registry.add("d", [FOUR])
        assert registry.get("d").generations == {FOUR}

    @pytest.mark.parametrize("score", ["inf", "-inf"])
    def test_a_heartbeat_that_is_no_time_is_nobodys(self, source, admin, table_name, score):
        """Infinity is a score that Redis takes."""
        admin.zadd(consumer_key(table_name), {"latest": score})
        assert source.latest_start_ms() is None

    def test_a_route_of_thousands_of_members_costs_no_time(self, registry, admin, table_name, telemetry):
        """It is none of ours: a part of it is read, in one command, and the rest stays unread."""
        key = route_key(table_name, "c")
        for start in range(0, 20_000, 2_000):
            admin.sadd(key, *(f"{NOISE!r}-{i}" for i in range(start, start + 2_000)))
        registry.add("d", [FOUR])
        admin.config_resetstat()
        for _ in range(20):
            with pytest.raises(RegistryForeignError):
                registry.get("c")
        assert calls_of(admin)["sscan"] == 20
        assert admin.info("stats")["total_net_output_bytes"] < 20 * 10_000 < admin.memory_usage(key)
        assert len(telemetry.events) == 20


def page_of(leased_at_ms, *, keep_ms=60_000, payload='["page", 1]'):
    return StoredPage(payload, leased_at_ms, keep_ms, 20, 8.5)


class TestPageStore:
    """Held by the stand-in of the unit tests and by the adapter of the functions."""

    @pytest.fixture(params=["fake", "redis"])
    def store_and_wait(self, request):
        """A page store, and a way to let time pass for it."""
        if request.param == "fake":
            clock = FakeClock()
            return FakePageStore(lambda: clock.now_ms), clock.sleep
        return request.getfixturevalue("pages"), time.sleep

    def test_every_copy_expires_when_its_page_says(self, store_and_wait):
        """Its age is the time since the lease, whenever it arrived; a copy that was not written is not there."""
        store, wait = store_and_wait
        leased_at_ms = store.take_lease("c", "newest-50", 300)
        page = page_of(leased_at_ms - 2_000)
        store.put("c", "newest-50", page)
        found = [store.get("c", "newest-50", copy) for copy in range(4)]
        assert [each and each[0] for each in found] == [page, page, page, None]
        assert all(2_000 <= age_ms < 60_000 for _, age_ms in found[:3])
        assert store.get("c", "newest-200", 0) is None
        assert store.get("d", "newest-50", 0) is None
        store.put("c", "newest-50", page_of(leased_at_ms, keep_ms=50))
        wait(0.1)
        assert [store.get("c", "newest-50", copy) for copy in range(4)] == [None] * 4

    def test_a_page_that_arrives_after_its_end_is_not_there(self, store_and_wait):
        """However late it comes, it expires when it should have; one that was there before is gone as well or newer."""
        store, _ = store_and_wait
        store.put("c", "newest-50", page_of(store.take_lease("c", "newest-50", 300) - 5_000, keep_ms=4_000))
        assert store.get("c", "newest-50", 0) is None

    def test_a_newer_page_takes_the_place_and_the_time_of_an_older_one(self, store_and_wait):
        """Nothing of either is left."""
        store, wait = store_and_wait
        leased_at_ms = store.take_lease("c", "newest-50", 300)
        store.put("c", "newest-50", page_of(leased_at_ms, keep_ms=100))
        newer = page_of(leased_at_ms + 1, payload="ü")
        store.put("c", "newest-50", newer)
        wait(0.15)
        assert store.get("c", "newest-50", 0)[0] == newer

    def test_one_gets_the_lease_until_it_ends(self, store_and_wait):
        """Each page of a collection has its own."""
        store, wait = store_and_wait
        taken = [store.take_lease("c", variant, 60_000) for variant in ("newest-50", "newest-50", "newest-200")]
        assert [each is not None for each in taken] == [True, False, True]
        first = store.take_lease("d", "newest-50", 50)
        wait(0.1)
        assert store.take_lease("d", "newest-50", 60_000) >= first + 50


def test_redis_is_asked_for_its_time_now_and_then(connection, admin, table_name, telemetry):
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


def test_copies_lie_in_different_slots(admin):
    """So that different nodes serve them."""
    keys = [page_key("t", "c", "newest-50", copy) for copy in range(8)]
    assert len({admin.execute_command("CLUSTER", "KEYSLOT", key) for key in keys}) == 8


@pytest.mark.parametrize("garbage", ["", "2", "2 x 9 20 8.5 []", "2 5 9 20 []", "1 5 9 20 8.5 []", "\udcff"])
def test_what_is_no_page_is_said_to_be_none(pages, admin, table_name, garbage):
    """Whatever it is; the next fill takes its place."""
    admin.hset(page_key(table_name, "c", "v", 0), "page", garbage.encode("utf-8", "surrogateescape"))
    with pytest.raises(MalformedPageError):
        pages.get("c", "v", 0)
    page = page_of(pages.take_lease("c", "v", 300))
    pages.put("c", "v", page)
    assert pages.get("c", "v", 0)[0] == page


def test_a_full_redis_serves_what_is_there(own_redis_server, connect, telemetry):
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


def read_cached(reader):
    """Read until the page is one that is kept for all: Redis may have been too slow before."""
    while (page := reader.read_page(PageRequest("c", limit=3))).age_ms is None:
        time.sleep(0.01)
    return page


def test_read_functions_as_they_are_wired_share_pages(dynamodb_over, redis_server, connect, open_calls):
    """Codec, flag, Redis and all: with what is deleted or edited, and the route in Redis only once."""
    dynamodb = dynamodb_over("boto3")
    environ = {"HOTPARTITION_REGISTRY_HOST": "127.0.0.1", "HOTPARTITION_REGISTRY_PORT": str(redis_server.port)}
    settings = {
        "table_name": TABLE_NAME,
        "dynamodb_client": "boto3",
        "registry_tls": False,
        "registry_command_timeout_ms": 5_000,
        "route_cache_seconds": 0.1,
        "page_ttl_seconds": 60.0,
        "page_staleness_seconds": 600.0,
    }
    with redis_server.admin as admin:
        admin.flushall()
    now_ms = time.time_ns() // 1_000_000
    stored = [build_message(now_ms - 1_000 - index, index, body=f"ü{index}") for index in range(5)]
    stored[1] = stored[1].delete(deleted_at="2026-11-21T09:30:00.000Z")
    stored[2] = stored[2].edit(
        body="edited", stored_attributes={"M": {"n": {"N": "1.50"}}}, edited_at="2026-11-21T09:30:00.000Z"
    )
    for message in stored:
        dynamodb.store.create(message.to_item("c"))
    first, second = (open_reader(environ, FakeTelemetry(), **settings) for _ in range(2))
    cold = first.read_page(PageRequest("c", limit=3))
    RedisRegistry(connect(redis_server.port), TABLE_NAME).mark_read_hot("c")
    read_cached(first)
    dynamodb.store.create(build_message(now_ms, 9).to_item("c"))
    page = read_cached(second)
    assert [message.json for message in page.messages] == [stored[index].json for index in (0, 2, 3)]
    assert (page.messages, page.etag) == (cold.messages, cold.etag)
    assert second.read_page(PageRequest("c", is_strong=True)).messages[0].message_id == message_id(now_ms, 9)


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
