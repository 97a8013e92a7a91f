"""The Redis adapters on a real server in cluster mode: what they keep, and what a dead server costs."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from redis.connection import Connection

from hotpartition.core.errors import MalformedReportError, RegistryForeignError, RegistryUnavailableError
from hotpartition.core.ports import ReadRoute
from hotpartition.core.reports import Report, stream_partition_of
from hotpartition.core.route import EMPTY_ROUTE, Generation, Route
from hotpartition.redis.cluster import (
    consumer_key,
    raises_key,
    read_hot_key,
    reports_key,
    route_key,
    warm_key,
)
from hotpartition.redis.registry import RedisRegistry
from hotpartition.redis.report_streams import FIELD, MAX_WAITING, STREAM_AGE_MS, RedisReportSource
from hotpartition.runtime.background import BackgroundThread
from support.fakes import FakeTelemetry
from support.redis_process import report_sink
from support.servers import closed_port, full_port, scripted_port, silent_port

FOUR = Generation(since_ms=5, shard_count=4)
EIGHT = Generation(since_ms=9, shard_count=8)

CONNECT_MS = 50
COMMAND_MS = 30
"""As short as in production; where a server responds, the fixture `connect` gives it more time."""

SLOTS = b"*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:%d\r\n$40\r\n" + b"a" * 40 + b"\r\n"
"""What a server that has all slots tells of itself."""


def report(value=10.0):
    return Report("c", 6_800_000_000, "e1", value, 1_700_000_000_000, 4, is_throttled=True)


def assert_unavailable(call):
    """Run a call that must find Redis unavailable."""
    with pytest.raises(RegistryUnavailableError):
        call()


def assert_lasts(admin, key, ttl_ms, write):
    """Check the TTL that a key is written with, by Redis's clock."""
    began, _, ended = redis_ms(admin), write(), redis_ms(admin)
    assert began <= admin.pexpiretime(key) - ttl_ms <= ended


def redis_ms(admin):
    seconds, micros = admin.time()
    return seconds * 1_000 + micros // 1_000


class HeldBackground:
    """Takes work, and leaves it to the test when it is done."""

    def __init__(self):
        self.held = []

    def submit(self, work):
        self.held.append(work)
        return True


@pytest.fixture
def connection(redis_server, connect):
    return connect(redis_server.port)


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
def registry(connection, table_name):
    return RedisRegistry(connection, table_name)


class TestRegistry:
    def test_a_route_never_expires(self, registry, admin, table_name):
        """Its key has no TTL: what would vanish by itself would cost readers a second wave."""
        registry.add("c", [FOUR])
        assert admin.ttl(route_key(table_name, "c")) == -1

    def test_a_mark_lasts_a_minute(self, registry, admin, table_name):
        """A consumer that is gone leaves nothing read-hot for long."""
        key = read_hot_key(table_name, "c")
        assert_lasts(admin, key, 60_000, lambda: registry.mark_read_hot("c"))

    def test_a_warm_mark_ends_by_itself(self, registry, admin, table_name):
        """Redis's clock decides when."""
        key = warm_key(table_name, "c")
        assert_lasts(admin, key, 600_000, lambda: registry.mark_warm("c", 600_000))

    def test_raises_are_counted_for_an_hour_from_the_first(self, registry, admin, table_name):
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
    def test_every_allowed_id_has_a_route_of_its_own(self, registry, conversation_id):
        """Ids are hash tags as they are; none of their characters means anything to Redis."""
        registry.add(conversation_id, [FOUR])
        assert registry.get(conversation_id).generations == {FOUR}


class TestReports:
    @pytest.fixture
    def sink(self, connection, table_name):
        return report_sink(connection, table_name, 3)

    @pytest.fixture
    def source(self, connection, table_name):
        return RedisReportSource(connection, table_name)

    def test_old_entries_are_trimmed(self, sink, admin, table_name):
        """A stream that nobody reads does not grow for ever."""
        key = reports_key(table_name, stream_partition_of("c", 3))
        old_ms = time.time_ns() // 1_000_000 - STREAM_AGE_MS - 10_000
        for index in range(1000):
            admin.xadd(key, {"f": "1"}, id=f"{old_ms}-{index + 1}")
        sink.send(report())
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

    def test_what_waits_goes_in_one_round_trip(self, connection, source, table_name):
        """Reports that come while others are sent, or in the pause after that, are sent together, each as its own."""
        sent, pauses, background = [report(value=float(value)) for value in range(1, 7)], [], HeldBackground()

        def pause():
            pauses.append(len(source.read(stream_partition_of("c", 3), "0-0", 10)))
            for one in sent[3:] if len(pauses) == 1 else ():
                sink.send(one)

        sink = report_sink(connection, table_name, 3, background=background, pause=pause)
        for one in sent[:3]:
            sink.send(one)
        (work,) = background.held
        work()
        entries = source.read(stream_partition_of("c", 3), "0-0", 10)
        assert [Report.decode(entry.text) for entry in entries] == sent
        assert pauses == [3, 6]
        sink.send(report())
        assert len(background.held) == 2  # nothing was being sent by then

    def test_more_than_can_wait_is_dropped_and_counted(self, connection, table_name):
        """However long Redis takes, memory is bounded."""
        background = HeldBackground()
        sink = report_sink(connection, table_name, 3, background=background)
        for _ in range(MAX_WAITING + 2):
            sink.send(report())
        assert (sink.take_dropped(), len(background.held)) == (2, 1)

    def test_a_sending_that_broke_off_is_followed_by_another(self, connection, source, table_name):
        """A bug in one sending does not end all of them."""
        background = HeldBackground()
        sink = report_sink(connection, table_name, 1, background=background, pause=lambda: 1 / 0)
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
    def test_opening_asks_only_for_the_slots(self, redis_server, connect):
        """Two connections, one CLUSTER SLOTS, no handshakes, no table of commands; later calls are one command each."""
        registry = RedisRegistry(connect(redis_server.port), "t")
        source = RedisReportSource(connect(redis_server.port), "t")
        with redis_server.admin as admin:
            admin.execute_command("CONFIG RESETSTAT")
            for _ in range(10):
                registry.get("c")
            source.read(0, "0-0", 10)
            source.read(0, "0-0", 10)
            stats = admin.info("commandstats")
            connections = admin.info("stats")["total_connections_received"]
        commands = {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in stats.items()}
        assert commands == {"cluster|slots": 2, "sscan": 10, "xread": 2, "config|resetstat": 1}
        assert connections == 4

    def test_what_readers_ask_is_one_round_trip(self, redis_server, connect):
        """Route and mark leave in one piece: were there a second, it could not be sent before the first is answered."""
        received = []

        def response(data, port):
            received.append(data)
            if data.startswith(b"*2\r\n$7\r\nCLUSTER"):
                return SLOTS % port
            return b"*2\r\n$1\r\n0\r\n*1\r\n$3\r\n4@5\r\n$1\r\n3\r\n"

        with scripted_port(response) as port:
            registry = RedisRegistry(connect(port), "t")
            for _ in range(3):
                assert registry.get_for_reading("c") == ReadRoute(Route(frozenset({FOUR})), 3)
        assert [(data.count(b"SSCAN"), data.count(b"GETRANGE")) for data in received] == [(0, 0), *[(1, 1)] * 3]

    def test_what_readers_ask_follows_slots_that_moved(self, connect):
        """One by one to the new node, and in one round trip again from then on."""
        received = []

        def new_node(data, port):
            received.append(data.count(b"GETRANGE") + data.count(b"SSCAN"))
            route = b"*2\r\n$1\r\n0\r\n*1\r\n$3\r\n4@5\r\n" if b"SSCAN" in data else b""
            return route + (b"$1\r\n3\r\n" if b"GETRANGE" in data else b"")

        with scripted_port(new_node) as new_port:

            def old_node(data, port):
                if data.startswith(b"*2\r\n$7\r\nCLUSTER"):
                    return SLOTS % port
                return b"-MOVED 7365 127.0.0.1:%d\r\n" % new_port * (data.count(b"GETRANGE") + data.count(b"SSCAN"))

            with scripted_port(old_node) as old_port:
                registry = RedisRegistry(connect(old_port), "t")
                for _ in range(2):
                    assert registry.get_for_reading("c") == ReadRoute(Route(frozenset({FOUR})), 3)
        assert received == [1, 1, 2]

    def test_a_connection_that_the_server_closed_is_replaced(self, look_up, redis_server, connect):
        """What was closed while the environment was frozen costs nobody an error."""
        registry = RedisRegistry(connect(redis_server.port), "t")
        registry.add("c", [FOUR])
        with redis_server.admin as admin:
            for _ in range(3):
                admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                assert look_up(registry).generations == {FOUR}

    @pytest.mark.parametrize("address", [closed_port, silent_port, full_port], ids=["refused", "silent", "blackholed"])
    def test_a_server_that_is_away_costs_one_timeout_and_then_rests(self, look_up, connect, attempts, address):
        """The first call connects once; until the rest is over, calls fail at once and nothing is sent."""
        now_ms = [0.0]
        limits = {"connect_timeout_ms": CONNECT_MS, "command_timeout_ms": COMMAND_MS, "cooldown_ms": 1000}
        with address() as port:
            connection = connect(port, **limits, now_ms=lambda: now_ms[0])
            registry = RedisRegistry(connection, "t")
            assert_unavailable(lambda: look_up(registry))
            assert len(attempts) == 1
            attempts.clear()
            now_ms[0] = 999.0
            for _ in range(100):
                with pytest.raises(RegistryUnavailableError, match="left alone"):
                    look_up(registry)
            assert attempts == []
            now_ms[0] = 1000.0
            with pytest.raises(RegistryUnavailableError, match="Redis failed: "):
                look_up(registry)
            assert attempts != []

    def test_a_stopped_server_costs_two_command_timeouts(self, look_up, redis_server, connect, attempts):
        """One for the command, one for asking where the slots are now; once it goes on, so do we."""
        connection = connect(redis_server.port, command_timeout_ms=COMMAND_MS)
        registry = RedisRegistry(connection, "t")
        patient = RedisRegistry(connect(redis_server.port), "t")
        patient.add("c", [FOUR])
        assert eventually(lambda: look_up(registry)).generations == {FOUR}
        redis_server.pause()
        try:
            for _ in range(3):
                attempts.clear()
                assert_unavailable(lambda: look_up(registry))
                assert len(attempts) <= 2
        finally:
            redis_server.resume()
        assert patient.get("c").generations == {FOUR}
        # The responses that came too late are not taken for those of later requests.
        assert patient.get("d") == EMPTY_ROUTE
        assert eventually(lambda: look_up(registry).generations) == {FOUR}
        assert eventually(lambda: registry.get("d")) == EMPTY_ROUTE

    def test_a_killed_server_comes_back_with_its_data(self, own_redis_server, connect):
        """The same client works again after a crash and a restart from the AOF, which held what was acknowledged."""
        with own_redis_server.admin as admin:
            assert admin.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
            # `everysec` may hold back what was acknowledged a moment ago.
            admin.config_set("appendfsync", "always")
        connection = connect(own_redis_server.port)
        registry = RedisRegistry(connection, "t")
        registry.add("c", [FOUR])
        sink = report_sink(connection, "t", 1)
        sink.send(report())
        own_redis_server.kill()
        for look_up in (registry.get, registry.get_for_reading):
            assert_unavailable(lambda look_up=look_up: look_up("c"))
        sink.send(report())
        assert sink.take_dropped() == 1
        own_redis_server.start()
        assert registry.get("c") == registry.get_for_reading("c").route == Route(frozenset({FOUR}))
        sink.send(report(value=20.0))
        entries = RedisReportSource(connection, "t").read(0, "0-0", 10)
        assert [Report.decode(entry.text).value for entry in entries] == [10.0, 20.0]

    def test_a_cluster_that_says_it_is_down_costs_one_pause(self, connect):
        """redis-py sleeps for 250 ms on CLUSTERDOWN; it does so once, and not for a second attempt."""
        requests_sent = []

        def response(data, port):
            requests_sent.append(data.split(b"\r\n")[2])
            if data.startswith(b"*2\r\n$7\r\nCLUSTER"):
                return SLOTS % port
            return b"-CLUSTERDOWN The cluster is down\r\n"

        with scripted_port(response) as port:
            registry = RedisRegistry(connect(port), "t")
            assert_unavailable(lambda: registry.get("c"))
        assert requests_sent == [b"CLUSTER", b"SSCAN", b"CLUSTER"]

    def test_threads_that_share_a_connection_open_it_once(self, redis_server, connect):
        """Each new connection is authenticated: a writer's lookups and reports take one after the other the same."""
        connection = connect(redis_server.port)
        registry, source = RedisRegistry(connection, "t"), RedisReportSource(connection, "t")
        with redis_server.admin as admin, ThreadPoolExecutor(8) as threads:
            admin.execute_command("CONFIG RESETSTAT")
            for call in (lambda: registry.get("c"), lambda: source.read(0, "0-0", 10)):
                threads.submit(call).result()
            assert admin.info("stats")["total_connections_received"] == 2
            # All at once: none waits for another, and the slots are asked for once.
            for future in [threads.submit(registry.get, "c") for _ in range(64)]:
                future.result()
            assert admin.info("commandstats")["cmdstat_cluster|slots"]["calls"] == 1
            assert admin.info("stats")["total_connections_received"] <= 1 + 8

    def test_threads_find_a_dead_server_once(self, connect, attempts):
        """What waited while another tried finds the cooldown, and does not try as well."""
        with silent_port() as port:
            connection = connect(port, command_timeout_ms=COMMAND_MS, cooldown_ms=60_000)
            registry = RedisRegistry(connection, "t")

            def ask():
                with pytest.raises(RegistryUnavailableError):
                    registry.get("c")

            with ThreadPoolExecutor(8) as threads:
                for future in [threads.submit(ask) for _ in range(8)]:
                    future.result()
        assert len(attempts) == 1

    def test_tls_and_login_share_the_time_of_a_connection(self, connect, attempts):
        """A server that takes the connection and then says nothing costs one limit, not one for each step."""
        with silent_port() as port:
            connection = connect(port, is_tls=True, connect_timeout_ms=1000)
            assert_unavailable(lambda: RedisRegistry(connection, "t").get("c"))
        assert len(attempts) == 1

    def test_a_server_without_cluster_mode_is_unavailable(self, connect):
        """A wrong server is not a crash: routes then come from the journal."""
        with scripted_port(lambda data, port: b"-ERR This instance has cluster support disabled\r\n") as port:
            assert_unavailable(lambda: RedisRegistry(connect(port), "t").get("c"))


def eventually(call):
    """Repeat a call with tight limits until the busy machine lets it through; pytest's own limit is for the rest."""
    while True:
        try:
            return call()
        except RegistryUnavailableError:
            time.sleep(0.01)


NOISE = b"\xff\xfe"


class TestForeignData:
    """Redis may hold anything: it is skipped, counted and logged, in every structure that is read."""

    @pytest.fixture
    def telemetry(self):
        return FakeTelemetry()

    @pytest.fixture
    def told(self, redis_server, connect, table_name, telemetry):
        """The registry and the report streams, with an observer of losses; a node that failed is left alone."""
        connection = connect(redis_server.port, cooldown_ms=60_000)
        return (
            RedisRegistry(connection, table_name, telemetry),
            RedisReportSource(connection, table_name, telemetry),
        )

    def test_bytes_in_a_route_are_skipped(self, told, admin, table_name, telemetry):
        """The registry is a hint: what is not text, or of another version, does not hide the others."""
        registry, _ = told
        foreign = (NOISE, b"4@5\xff", "7", "4@5@6", "", "many@9")
        admin.sadd(route_key(table_name, "c"), *foreign, FOUR.encode(), EIGHT.encode())
        assert registry.get("c").generations == {FOUR, EIGHT}
        assert len(telemetry.events) == 1

    def test_bytes_in_a_stream_are_entries_that_cannot_be_read(self, told, admin, table_name):
        """They are handed on, so that the consumer counts and skips them; what follows is read."""
        _, source = told
        key = reports_key(table_name, 0)
        for fields in ({"r": NOISE}, {NOISE: NOISE}, {"r": b"2|" + NOISE}, {FIELD: report().encode()}):
            admin.xadd(key, fields)
        *foreign, last = source.read(0, "0-0", 10)
        assert Report.decode(last.text) == report()
        for entry in foreign:
            with pytest.raises(MalformedReportError):
                Report.decode(entry.text)

    @pytest.mark.parametrize("mark", ["0", "-1", "65", "1e1", "²", "0x2", " 1", "1" * 1000, NOISE, b"\xff\xfe"])
    def test_a_mark_that_is_no_number_of_copies_is_none(self, told, admin, table_name, telemetry, mark):
        """The route is told all the same."""
        registry, _ = told
        registry.add("c", [FOUR])
        admin.set(read_hot_key(table_name, "c"), mark)
        assert registry.get_for_reading("c") == ReadRoute(Route(frozenset({FOUR})), 0)
        assert len(telemetry.events) == 1

    @pytest.mark.parametrize("build_key", [route_key, read_hot_key])
    def test_a_route_or_mark_of_another_type_is_the_one_error(self, told, admin, table_name, telemetry, build_key):
        """Named, so that an operator finds it; it hides both, since a hint may be lost."""
        registry, _ = told
        admin.zadd(build_key(table_name, "c"), {"x": 1})
        with pytest.raises(RegistryForeignError, match="reads:"):
            registry.get_for_reading("c")
        assert len(telemetry.events) == 1
        registry.add("d", [FOUR])
        assert registry.get_for_reading("d").route.generations == {FOUR}

    def test_a_key_of_another_type_fails_alone(self, told, admin, table_name, telemetry):
        """A route, a stream and the heartbeat: nobody crashes, and the node is not left alone for it."""
        registry, source = told
        for key in (route_key(table_name, "c"), reports_key(table_name, 0), consumer_key(table_name)):
            admin.set(key, NOISE)
        for call in (lambda: registry.get("c"), lambda: registry.add("c", [FOUR])):
            with pytest.raises(RegistryForeignError):
                call()
        assert source.read(0, "0-0", 10) == ()
        source.announce(5)
        assert source.latest_start_ms() is None
        assert [message for message, _ in telemetry.events] == ["foreign data in redis skipped"] * 5
        named = (route_key(table_name, "c"), reports_key(table_name, 0), consumer_key(table_name))
        assert {key for _, facts in telemetry.events for key in named if key in facts["reason"]} == set(named)
        registry.add("d", [FOUR])
        assert registry.get("d").generations == {FOUR}

    @pytest.mark.parametrize("score", ["inf", "-inf"])
    def test_a_heartbeat_that_is_no_time_is_nobodys(self, told, admin, table_name, score):
        """Infinity is a score that Redis takes."""
        _, source = told
        admin.zadd(consumer_key(table_name), {"latest": score})
        assert source.latest_start_ms() is None

    def test_a_route_of_thousands_of_members_costs_no_time(self, told, admin, table_name, telemetry):
        """It is none of ours: a part of it is read, in one command, and the rest stays unread."""
        registry, _ = told
        key = route_key(table_name, "c")
        for start in range(0, 20_000, 2_000):
            admin.sadd(key, *(f"{NOISE!r}-{i}" for i in range(start, start + 2_000)))
        registry.add("d", [FOUR])
        admin.config_resetstat()
        for _ in range(20):
            with pytest.raises(RegistryForeignError):
                registry.get("c")
        assert admin.info("commandstats")["cmdstat_sscan"]["calls"] == 20
        assert admin.info("stats")["total_net_output_bytes"] < 20 * 10_000 < admin.memory_usage(key)
        assert len(telemetry.events) == 20

    @pytest.mark.parametrize("count", [1, 12, 200])
    def test_a_route_of_ours_is_read_whole_in_one_command(self, told, admin, count):
        """From the scan's first cursor on, however the server stores it: a large set is a hash table."""
        registry, _ = told
        generations = {Generation(since_ms=n, shard_count=2 + n % 1000) for n in range(count)}
        registry.add("c", generations)
        admin.config_resetstat()
        assert registry.get("c").generations == registry.get_for_reading("c").route.generations == generations
        assert admin.info("commandstats")["cmdstat_sscan"]["calls"] == 2
