"""Connections to Redis: how one is opened, which users are let in, and what it costs when Redis fails or refuses.

It is long because a server can be stopped, silent, refusing or not trusted: each is set up for itself, and what
it costs is counted.
"""

from __future__ import annotations

import ssl
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest
import redis
import trustme
from redis.connection import Connection

from hotpartition.core.access import Certificates
from hotpartition.core.errors import RegistryRefusedError, RegistryUnavailableError
from hotpartition.core.ports import ReadRoute
from hotpartition.core.route import EMPTY_ROUTE, Generation
from hotpartition.redis.cluster import ACCESS, _tls, _trust
from hotpartition.redis.logins import PasswordFile
from hotpartition.redis.registry import RedisRegistry
from support.builders import route_of
from support.servers import closed_port, full_port, scripted_port, silent_port

from .conftest import Adapters

FOUR = Generation(since_ms=5, shard_count=4)
USER = "functions"
CONNECT_MS = 50
COMMAND_MS = 30
"""As short as in production; where a server responds, the fixture `connect` gives it more time."""
SLOTS = b"*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:%d\r\n$40\r\n" + b"a" * 40 + b"\r\n"
"""What a server that has all slots reports of itself."""
MEMBERS, MARK = b"*2\r\n$1\r\n0\r\n*1\r\n$3\r\n4@5\r\n", b"$1\r\n3\r\n"
"""Its responses to SSCAN and GETRANGE."""


def asks_for(data: bytes) -> str:
    """Name the first command of what was sent."""
    return data.split(b"\r\n")[2].decode()


def eventually(call):
    """Repeat a call with tight limits until the busy machine lets it through; pytest's own limit is for the rest."""
    while True:
        try:
            return call()
        except RegistryUnavailableError:
            time.sleep(0.01)


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
def password(admin, tmp_path):
    """The file of the password of a user with the rights of all functions."""
    path = tmp_path / "password"
    path.write_text("right")
    admin.execute_command("ACL", "SETUSER", USER, "reset", "on", ">right", *ACCESS.split())
    return path


@pytest.fixture
def log_in(redis_server, connect, password):
    """Connects as that user."""
    return partial(connect, redis_server.port, credentials=PasswordFile(user=USER, path=password))


@pytest.fixture
def secure(connect, tmp_path):
    """Connects to a server with a certificate, which is trusted unless other certificates are passed."""
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))

    def response(data, port):
        return {"CLUSTER": SLOTS % port, "SSCAN": MEMBERS, "AUTH": b"+OK\r\n"}[asks_for(data)]

    with scripted_port(response, context) as port:
        yield partial(connect, port, is_tls=True, certificates=Certificates(str(tmp_path / "ca.pem")))


@pytest.fixture(params=[RedisRegistry.get, lambda registry, name: registry.get_for_reading(name).route])
def look_up(request):
    """Both ways to ask for a route: as writers do, and as readers do."""
    return request.param


def test_opening_asks_only_for_the_slots(redis_server, connect, admin, calls_of):
    """Once, without a handshake, and with one connection for the next call: each has to be authenticated.

    Threads do not wait for each other. Later calls are one command each.
    """
    registry, source, *_ = Adapters.on(connect(redis_server.port))
    with ThreadPoolExecutor(8) as threads:
        admin.config_resetstat()
        for call in (lambda: registry.get("c"), lambda: source.read(0, "0-0", 10)):
            threads.submit(call).result()
        assert admin.info("stats")["total_connections_received"] == 2
        for future in [threads.submit(registry.get, "c") for _ in range(64)]:
            future.result()
    assert calls_of() == {"cluster|slots": 1, "sscan": 65, "xread": 1}
    assert admin.info("stats")["total_connections_received"] <= 1 + 8


def test_what_readers_ask_is_one_round_trip_and_follows_slots_that_moved(connect):
    """Route and mark leave in one piece; one by one to a new node, and in one round trip again from then on."""
    received = []

    def new_node(data, port):
        received.append(("new", data.count(b"SSCAN"), data.count(b"GETRANGE")))
        return MEMBERS * (b"SSCAN" in data) + MARK * (b"GETRANGE" in data)

    def old_node(data, port):
        if asks_for(data) == "CLUSTER":
            return SLOTS % port
        received.append(("old", data.count(b"SSCAN"), data.count(b"GETRANGE")))
        return b"-MOVED 7365 127.0.0.1:%d\r\n" % new_port * 2

    with scripted_port(new_node) as new_port, scripted_port(old_node) as old_port:
        registry = RedisRegistry(connect(old_port), "t")
        for _ in range(2):
            assert registry.get_for_reading("c") == ReadRoute(route_of((4, 5)), 3)
    assert [each for each in received if each[0] == "new"] == [("new", 1, 0), ("new", 0, 1), ("new", 1, 1)]
    assert received[0] == ("old", 1, 1)


def test_a_connection_that_the_server_closed_is_replaced(look_up, log_in, admin, calls_of, table_name):
    """No caller notices, while the environment was frozen or after IAM's 12 hours; the next one authenticates anew."""
    registry = RedisRegistry(log_in(), table_name)
    registry.add("c", [FOUR])
    admin.config_resetstat()
    for _ in range(3):
        admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert look_up(registry, "c").generations == {FOUR}
    assert calls_of()["auth"] >= 3


def test_connections_that_fell_silent_together_are_one_timeout(look_up, redis_server, connect, monkeypatch, table_name):
    """A network may have forgotten them while the environment was frozen: no other request waits on one of them."""
    connection, waits = connect(redis_server.port), []
    registry = RedisRegistry(connection, table_name)
    registry.add("c", [FOUR])
    pool = connection._client.get_node_from_key("c").redis_connection.connection_pool
    silent = [pool.get_connection() for _ in range(4)]
    for each in silent:
        pool.release(each)

    def read(each, *arguments, **options):
        if each in silent:
            waits.append(each)
            raise redis.TimeoutError
        return read_response(each, *arguments, **options)

    def open_(each):
        if each._sock is None and each in silent:
            silent.remove(each)
        connect_(each)

    read_response, connect_ = Connection.read_response, Connection.connect
    monkeypatch.setattr(Connection, "read_response", read)
    monkeypatch.setattr(Connection, "connect", open_)
    assert look_up(registry, "c").generations == {FOUR}
    for each in [pool.get_connection() for _ in range(4)]:
        pool.release(each)
    assert (len(waits), silent) == (1, [])


def test_a_stopped_server_costs_two_command_timeouts(look_up, redis_server, connect, attempts):
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
        redis_server.pause(is_paused=False)
    # The responses that came too late are not taken for those of later requests.
    assert patient.get("c").generations == eventually(lambda: look_up(registry, "c")).generations == {FOUR}
    assert patient.get("d") == eventually(lambda: registry.get("d")) == EMPTY_ROUTE


def test_threads_find_a_dead_server_once(connect, attempts):
    """What waited while another tried finds the cooldown, and does not try as well."""
    with silent_port() as port, ThreadPoolExecutor(8) as threads:
        registry = RedisRegistry(connect(port, command_timeout_ms=COMMAND_MS, cooldown_ms=60_000), "t")
        for future in [threads.submit(registry.get, "c") for _ in range(8)]:
            assert isinstance(future.exception(), RegistryUnavailableError)
    assert len(attempts) == 1


@pytest.mark.parametrize(
    ("refusal", "sent"),
    [
        # Where the slots are is asked once more: another node may have this one after the cooldown.
        (b"-CLUSTERDOWN The cluster is down\r\n", ["CLUSTER", "SSCAN", "CLUSTER"]),
        (b"-LOADING Redis is loading the dataset in memory\r\n", ["CLUSTER", "SSCAN", "CLUSTER"]),
        (b"-ERR This instance has cluster support disabled\r\n", ["CLUSTER"]),
        # The node is well, and is asked again.
        (b"-OOM command not allowed\r\n", ["CLUSTER", "SSCAN", "SSCAN"]),
    ],
)
def test_a_server_that_refuses_is_unavailable(connect, refusal, sent):
    """Routes then come from the journal; a second call meets a node that is left alone."""
    received = []

    def response(data, port):
        received.append(asks_for(data))
        return SLOTS % port if received[-1] == "CLUSTER" and len(sent) > 1 else refusal

    with scripted_port(response) as port:
        registry = RedisRegistry(connect(port, cooldown_ms=60_000), "t")
        for _ in range(2):
            with pytest.raises(RegistryUnavailableError):
                registry.get("c")
    assert received == sent


UNAVAILABLE, REFUSED = RegistryUnavailableError, RegistryRefusedError
AWAY = {"refused": closed_port, "silent": silent_port, "blackholed": full_port}
UNTRUSTED = {"vouched for by others": {"certificates": Certificates()}, "another host": {"host": "127.1"}}
RIGHTS = ("sscan", "cluster|slots")


@pytest.fixture(params=[*AWAY, *UNTRUSTED, *RIGHTS])
def failing(request, connect, secure, log_in, admin):
    """Connects to where every call fails; with which error, and why."""
    if request.param in AWAY:
        with AWAY[request.param]() as port:
            limits = {"connect_timeout_ms": CONNECT_MS, "command_timeout_ms": COMMAND_MS}
            yield partial(connect, port, **limits), UNAVAILABLE, "Redis failed: "
    elif request.param in UNTRUSTED:
        yield partial(secure, **UNTRUSTED[request.param]), REFUSED, "certificate"
    else:
        admin.execute_command("ACL", "SETUSER", USER, f"-{request.param}")
        yield log_in, REFUSED, "no permissions"


def test_a_failure_costs_one_attempt_in_each_cooldown(failing, look_up, attempts):
    """Until the rest is over, calls fail at once and nothing is sent. Refusals are reported, once each."""
    connect, kind, reason = failing
    now_ms, refusals, tried = [0.0], [], []
    connection = connect(cooldown_ms=1000, now_ms=lambda: now_ms[0], on_refusal=refusals.append)
    registry = RedisRegistry(connection, "t")
    for now_ms[0], is_asked in ((0.0, True), (0.0, False), (999.0, False), (1000.0, True), (1999.0, False)):
        attempts.clear()
        with pytest.raises(kind if is_asked else UNAVAILABLE, match=reason if is_asked else "left alone"):
            look_up(registry, "c")
        tried.append(len(attempts))
    assert (tried[1:3], tried[4]) == ([0, 0], 0)
    assert (tried[0], tried[3], refusals) == (1, 1, []) if kind is UNAVAILABLE else len(refusals) == 2


def test_no_connection_stays_of_one_that_could_not_be_used(admin, log_in):
    """The server would keep it for as long as the process lives."""
    admin.execute_command("ACL", "SETUSER", USER, "-cluster|slots")
    registry = RedisRegistry(log_in(), "t")
    with pytest.raises(RegistryRefusedError):
        registry.get("c")
    while any(client["user"] == USER for client in admin.client_list()):
        time.sleep(0.01)


@pytest.mark.parametrize("is_open", [False, True])
def test_a_wrong_password_is_one_refusal_until_its_file_is_right(
    admin, log_in, look_up, password, calls_of, table_name, is_open
):
    """For a client that is new, and for one whose connections the server ended. It stands in no reason."""
    now_ms, refusals = [0.0], []
    connection = log_in(cooldown_ms=1000, now_ms=lambda: now_ms[0], on_refusal=refusals.append)
    registry = RedisRegistry(connection, table_name)
    if is_open:
        registry.add("c", [FOUR])
    admin.execute_command("ACL", "SETUSER", USER, "resetpass", ">another")
    admin.execute_command("CLIENT", "KILL", "USER", USER)
    admin.config_resetstat()
    for now_ms[0] in (0.0, 1000.0):
        with pytest.raises(RegistryRefusedError, match="invalid username-password pair"):
            look_up(registry, "c")
        with pytest.raises(RegistryUnavailableError, match="left alone"):
            look_up(registry, "c")
    assert calls_of()["auth"] == len(refusals) == 2
    assert not any("right" in reason for reason in refusals)
    password.write_text("another")
    now_ms[0] = 2000.0
    registry.add("c", [FOUR])
    assert look_up(registry, "c").generations == {FOUR}


def test_a_certificate_that_only_the_strict_check_refuses_can_be_let_in():
    """Python 3.13 checks strictly by itself; the escape takes that off again, and nothing else."""
    strict, lenient = (_trust(Certificates(), is_strict) for is_strict in (True, False))
    assert not lenient.verify_flags & ssl.VERIFY_X509_STRICT
    assert strict.verify_flags | ssl.VERIFY_X509_STRICT == lenient.verify_flags | ssl.VERIFY_X509_STRICT
    assert bool(strict.verify_flags & ssl.VERIFY_X509_STRICT) == (sys.version_info >= (3, 13))
    assert lenient.verify_mode == strict.verify_mode == ssl.CERT_REQUIRED
    assert lenient.check_hostname


def test_certificates_are_read_once(secure):
    """Not for each connection: that would take 20 ms each time."""
    _trust.cache_clear()
    for _ in range(2):
        assert RedisRegistry(secure(), "t").get("c").generations == {FOUR}
    assert _trust.cache_info().misses == 1


@pytest.mark.parametrize(("at_login_ms", "left_seconds"), [(500_000, 100.0), (600_000, 0.001), (900_000, 0.001)])
def test_a_login_has_what_tls_left_of_the_time(secure, password, at_login_ms, left_seconds):
    """A millisecond at least: no time at all would mean a socket that never waits. Commands have their own limit."""
    times, left = iter([0, 100_000, at_login_ms]), []

    class Watched(PasswordFile):
        def get_credentials(self):
            left.append(connection._sock.gettimeout())
            return super().get_credentials()

    open_tls = _tls(lambda: next(times), 600_000, secure.keywords["certificates"], is_strict=True)
    as_a_cluster = {"port": secure.args[0], "protocol": 2, "redis_connect_func": open_tls.on_connect}
    limits = {"socket_connect_timeout": 60, "socket_timeout": 30, "driver_info": None}
    watched = Watched(user=USER, path=password)
    connection = open_tls(host="127.0.0.1", credential_provider=watched, **limits, **as_a_cluster)
    with suppress(redis.exceptions.TimeoutError):  # within a millisecond
        connection.connect()
        assert connection._sock.gettimeout() == 30
    connection.disconnect()
    assert left == [left_seconds]
