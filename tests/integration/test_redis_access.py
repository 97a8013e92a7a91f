"""A registry with TLS, users and passwords: the local run's, a real server behind its TLS front."""

from __future__ import annotations

import os
import ssl
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from hotpartition.core.access import Certificates
from hotpartition.core.errors import RegistryRefusedError, RegistryUnavailableError
from hotpartition.core.ports import StoredPage
from hotpartition.core.reports import Report
from hotpartition.core.route import Generation
from hotpartition.redis.acl import Role, build_rights
from hotpartition.redis.cluster import _tls, _trust
from hotpartition.redis.logins import PasswordFile
from hotpartition.redis.pages import RedisPageStore
from hotpartition.redis.registry import RedisRegistry
from hotpartition.redis.report_streams import STREAM_AGE_MS, RedisReportSink, RedisReportSource
from support.fakes import FakeTelemetry
from support.loop import Loop
from support.redis_process import report_sink
from tools.local.processes import free_port
from tools.local.redis import FUNCTIONS_USER, RedisNodes, find_binary, write_secret

pytestmark = pytest.mark.slow

FOUR = Generation(since_ms=5, shard_count=4)
NO_RETRY = Retry(NoBackoff(), 0)


class Guarded(NamedTuple):
    """A guarded registry, and how to reach it."""

    folder: Path
    facts: dict[str, Any]

    def client(self, user: str, password: str) -> redis.Redis:
        where = {"host": "127.0.0.1", "port": self.facts["port"], "retry": NO_RETRY, "protocol": 2}
        return redis.Redis(**where, ssl=True, ssl_ca_certs=self.facts["ca_file"], username=user, password=password)

    @property
    def admin(self) -> redis.Redis:
        return self.client(self.facts["admin_user"], Path(self.facts["admin_password_file"]).read_text())

    @property
    def password(self) -> str:
        return Path(self.facts["password_file"]).read_text()

    def provider(self, path: Path | None = None) -> PasswordFile:
        return PasswordFile(user=FUNCTIONS_USER, path=path or Path(self.facts["password_file"]))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """One in a thread of its own."""
    loop, folder = Loop(), tmp_path_factory.mktemp("guarded")
    nodes = RedisNodes(find_binary(os.environ), folder, free_port(), form="guarded")
    loop.run(nodes.start())
    yield Guarded(folder, nodes.describe())
    loop.run(nodes.stop())
    loop.close()


@pytest.fixture
def admin(guarded: Guarded) -> Iterator[redis.Redis]:
    """The administrator; what a test did to the functions' user is undone."""
    with guarded.admin as client:
        (before,) = [line for line in client.acl_list() if line.startswith(f"user {FUNCTIONS_USER} ")]
        yield client
        client.execute_command("ACL", "SETUSER", FUNCTIONS_USER, "reset", *before.split()[2:])


@pytest.fixture
def refusals() -> list[str]:
    """What a connection was told about why it is not let in."""
    return []


@pytest.fixture
def connect_guarded(guarded, connect, refusals):
    def build(**options: Any):
        ways = {
            "is_tls": True,
            "certificates": Certificates(guarded.facts["ca_file"]),
            "credentials": guarded.provider(),
        }
        return connect(guarded.facts["port"], **{**ways, "on_refusal": refusals.append, **options})

    return build


def test_who_gets_in_may_do_nothing_else(guarded):
    """Neither other commands nor other keys. The default user is off; without TLS not even a question is answered."""
    others = ("FLUSHALL", "DEL hp:x", "CONFIG GET *", "KEYS *", "ACL LIST", "GET hp:x", "SET other:x 1", "PUBLISH a b")
    with guarded.client(FUNCTIONS_USER, guarded.password) as client:
        for command in others:
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*command.split())
    with guarded.client("default", "x") as client, pytest.raises(redis.exceptions.AuthenticationError):
        client.ping()
    plain = redis.Redis(port=guarded.facts["port"], protocol=2, retry=NO_RETRY)
    with plain, pytest.raises(redis.exceptions.ConnectionError):
        plain.ping()


class Adapters(NamedTuple):
    """All that use Redis."""

    registry: RedisRegistry
    source: RedisReportSource
    pages: RedisPageStore
    sink: RedisReportSink

    def send(self) -> None:
        self.sink.send(REPORT)
        if self.sink.take_dropped():
            raise RegistryRefusedError


LOOKING, REPAIRING = {Role.READER, Role.CONSUMER, Role.OPERATOR}, {Role.CONSUMER, Role.OPERATOR}
USES = {
    "get": (set(Role), lambda at: at.registry.get("c")),
    "get for reading": (LOOKING, lambda at: at.registry.get_for_reading("c")),
    "add": (LOOKING, lambda at: at.registry.add("c", [FOUR])),
    "mark read-hot": (REPAIRING, lambda at: at.registry.mark_read_hot("c")),
    "count a raise": ({Role.CONSUMER}, lambda at: at.registry.count_raise()),
    "mark warm": (REPAIRING, lambda at: at.registry.mark_warm("c", 1)),
    "is warm": (REPAIRING, lambda at: at.registry.is_warm("c")),
    "closing cursor": (LOOKING, lambda at: at.registry.closing_cursor()),
    "keep the closing cursor": (REPAIRING, lambda at: at.registry.keep_closing_cursor("x")),
    "send": ({Role.WRITER, Role.READER}, lambda at: at.send()),
    "read": (REPAIRING, lambda at: at.source.read(0, "0-0", 1)),
    "announce": ({Role.CONSUMER}, lambda at: at.source.announce(1)),
    "latest start": (REPAIRING, lambda at: at.source.latest_start_ms()),
    "get a page": ({Role.READER}, lambda at: at.pages.get("c", "v", 0)),
    "put a page": ({Role.READER}, lambda at: at.pages.put("c", "v", StoredPage("", 1, 1, 1, 1.0))),
    "take a lease": ({Role.READER}, lambda at: at.pages.take_lease("c", "v", 10)),
}
"""Which roles may do what adapters do."""
SENT = {
    "get": ["SSCAN route:{c} 0 COUNT 256"],
    "get for reading": ["SSCAN route:{c} 0 COUNT 256", "GETRANGE reads:{c} 0 4"],
    "add": ["SADD route:{c} 4@5"],
    "mark read-hot": ["SET reads:{c} 3 PX 60000"],
    "count a raise": ["INCR raises", "PEXPIRE raises 3600000 NX"],
    "mark warm": ["SET warm:{c} 1 PX 1"],
    "is warm": ["EXISTS warm:{c}"],
    "closing cursor": ["GETRANGE closing 0 4096"],
    "keep the closing cursor": ["SET closing x"],
    "send": ["XADD reports:{0} MINID ~ 5 * r REPORT"],
    "read": ["XREAD COUNT 1 STREAMS reports:{0} 0-0"],
    "announce": ["ZADD consumer GT 1 latest"],
    "latest start": ["ZSCORE consumer latest"],
    "get a page": [
        "HGET page:{c/0}:v page",
        "HPTTL page:{c/0}:v FIELDS 1 page",
        "HPEXPIRETIME page:{c/0}:v FIELDS 1 page",
    ],
    "put a page": [f"HSETEX page:{{c/{copy}}}:v PXAT 2 FIELDS 1 page 2 1 1 1 1.0 " for copy in range(3)],
    "take a lease": ["HSETEX lease:{c}:v FNX PX 10 FIELDS 1 holder 1", "HPEXPIRETIME lease:{c}:v FIELDS 1 holder"],
}
"""The commands of each use, keys without what they all begin with."""
REPORT = Report("c", 1, "e", 10.0, 250, 4)


@pytest.mark.parametrize("role", Role)
def test_each_function_may_do_its_own_work_and_no_other(guarded, admin, connect_guarded, table_name, tmp_path, role):
    """With the rights that ElastiCache's user of this function is given, on the keys of its own table."""
    user, path = f"only-{role}", tmp_path / "password"
    path.write_text("only")
    rights = build_rights([role], table_name).split()
    admin.execute_command("ACL", "SETUSER", user, "reset", "on", ">only", *rights)
    connection = connect_guarded(credentials=PasswordFile(user=user, path=path))
    assert allowed(connection, table_name) == {name for name, (roles, _) in USES.items() if role in roles}
    assert allowed(connection, f"{table_name}-other") == set()


def adapters_of(connection, table_name):
    return Adapters(
        RedisRegistry(connection, table_name),
        RedisReportSource(connection, table_name),
        RedisPageStore(connection, table_name, FakeTelemetry(), time.monotonic),
        report_sink(connection, table_name, 1, now_ms=lambda: STREAM_AGE_MS + 5),
    )


def allowed(connection, table_name):
    """Try all uses; return those that are not refused."""
    adapters, done = adapters_of(connection, table_name), set()
    for name, (_, use) in USES.items():
        with suppress(RegistryRefusedError):
            use(adapters)
            done.add(name)
    return done


def test_each_use_sends_these_commands(redis_server, connect, table_name):
    """And nothing else: keys, limits and times are those that are documented."""
    adapters, sent = adapters_of(connect(redis_server.port), table_name), {}
    with redis_server.admin as admin:
        admin.config_set("slowlog-log-slower-than", 0)
        for name, (_, use) in USES.items():
            admin.slowlog_reset()
            use(adapters)
            logged = [each["command"].decode() for each in reversed(admin.slowlog_get(20))]
            sent[name] = [command for command in logged if "SLOWLOG" not in command and "CLUSTER" not in command]
    shown = {f"hp:{table_name}:": "", REPORT.encode(): "REPORT"}
    for text, short in shown.items():
        sent = {name: [command.replace(text, short) for command in commands] for name, commands in sent.items()}
    assert sent == SENT


def test_secrets_are_the_owners_alone(guarded):
    """Passwords and users; the passwords stand nowhere else."""
    names = ("password_file", "admin_password_file")
    files = [Path(guarded.facts[name]) for name in names] + [guarded.folder / "access" / "users.acl"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in files] == [0o600] * 3
    others = [path for path in guarded.folder.rglob("*") if path.is_file() and path not in files]
    assert others
    assert not [path for path in others if any(f.read_bytes() in path.read_bytes() for f in files[:2])]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"certificates": Certificates()}, "certificate verify failed"),
        ({"host": "127.1"}, "certificate"),
        ({"credentials": None}, "Authentication required"),
    ],
    ids=["vouched for by others", "another host", "no credentials"],
)
def test_who_is_not_known_is_refused(connect_guarded, refusals, wrong, reason):
    """A server with another certificate gets no password; without a password the server refuses."""
    with pytest.raises(RegistryRefusedError, match=reason):
        RedisRegistry(connect_guarded(**wrong), "t").get("c")
    assert len(refusals) == 1


def test_a_certificate_that_only_the_strict_check_refuses_can_be_let_in():
    """Python 3.13 checks strictly by itself; the escape takes that off again, and nothing else."""
    strict, lenient = (_trust(Certificates(), is_strict) for is_strict in (True, False))
    assert not lenient.verify_flags & ssl.VERIFY_X509_STRICT
    assert strict.verify_flags | ssl.VERIFY_X509_STRICT == lenient.verify_flags | ssl.VERIFY_X509_STRICT
    assert bool(strict.verify_flags & ssl.VERIFY_X509_STRICT) == (sys.version_info >= (3, 13))
    assert lenient.verify_mode == strict.verify_mode == ssl.CERT_REQUIRED
    assert lenient.check_hostname


def test_certificates_are_read_once(connect_guarded):
    """Not for each connection: that would take 20 ms each time."""
    _trust.cache_clear()
    for _ in range(2):
        RedisRegistry(connect_guarded(), "t").get("c")
    assert _trust.cache_info().misses == 1


@pytest.mark.parametrize(
    ("is_open", "look_up"),
    [(False, RedisRegistry.get), (True, RedisRegistry.get), (True, RedisRegistry.get_for_reading)],
    ids=["new", "open", "open, for reading"],
)
def test_a_wrong_password_is_one_refusal_in_each_cooldown(
    guarded, admin, connect_guarded, refusals, tmp_path, table_name, is_open, look_up
):
    """One attempt in each cooldown, whatever is asked meanwhile; a mended file is taken up by the next."""
    path = tmp_path / "password"
    path.write_text(guarded.password)
    now_ms = [0.0]
    connection = connect_guarded(credentials=guarded.provider(path), cooldown_ms=1000, now_ms=lambda: now_ms[0])
    registry = RedisRegistry(connection, table_name)
    if is_open:
        registry.add("c", [FOUR])
    admin.execute_command("ACL", "SETUSER", FUNCTIONS_USER, "resetpass", ">another")
    admin.execute_command("CLIENT", "KILL", "USER", FUNCTIONS_USER)
    admin.execute_command("CONFIG", "RESETSTAT")
    for rest in range(3):
        now_ms[0] = 1000.0 * rest
        with pytest.raises(RegistryRefusedError, match="invalid username-password pair"):
            look_up(registry, "c")
        now_ms[0] += 999.0
        for _ in range(10):
            with pytest.raises(RegistryUnavailableError, match="left alone"):
                look_up(registry, "c")
        assert len(refusals) == rest + 1
    # The administrator's own connection is open already.
    assert admin.info("commandstats")["cmdstat_auth"]["failed_calls"] == 3
    assert not any("another" in reason or guarded.password in reason for reason in refusals)
    write_secret(path, "another")
    now_ms[0] = 3000.0
    registry.add("c", [FOUR])
    assert registry.get("c").generations == {FOUR}


@pytest.mark.parametrize("right", ["sscan", "cluster|slots"])
def test_a_missing_right_is_a_refusal_that_rests(admin, connect_guarded, refusals, table_name, right):
    """Refused commands are not sent with every request, nor those that open the client; no connection stays of it."""
    admin.execute_command("ACL", "SETUSER", FUNCTIONS_USER, f"-{right}")
    admin.execute_command("CLIENT", "KILL", "USER", FUNCTIONS_USER)
    registry = RedisRegistry(connect_guarded(cooldown_ms=60_000), table_name)
    with pytest.raises(RegistryRefusedError, match="no permissions"):
        registry.get("c")
    with pytest.raises(RegistryUnavailableError, match="left alone"):
        registry.get("c")
    assert len(refusals) == 1
    while right != "sscan" and any(client["user"] == FUNCTIONS_USER for client in admin.client_list()):
        time.sleep(0.01)


class Watched(PasswordFile):
    """Notes each time it is asked."""

    def __init__(self, guarded, note) -> None:
        super().__init__(user=FUNCTIONS_USER, path=Path(guarded.facts["password_file"]))
        self.note = note

    def get_credentials(self):
        self.note()
        return super().get_credentials()


def test_a_connection_that_the_server_ended_authenticates_anew(guarded, admin, connect_guarded, table_name):
    """As ElastiCache ends those of IAM after 12 hours: nobody notices, and the next one brings new credentials."""
    asked = []
    watched = Watched(guarded, lambda: asked.append(1))
    registry = RedisRegistry(connect_guarded(credentials=watched), table_name)
    registry.add("c", [FOUR])
    before = len(asked)
    admin.execute_command("CLIENT", "KILL", "USER", FUNCTIONS_USER)
    assert registry.get("c").generations == {FOUR}
    assert len(asked) > before


@pytest.mark.parametrize(("at_login_ms", "left_seconds"), [(500_000, 100.0), (600_000, 0.001), (900_000, 0.001)])
def test_a_login_has_what_tls_left_of_the_time(guarded, at_login_ms, left_seconds):
    """A millisecond at least: no time at all would mean a socket that never waits. Commands have their own limit."""
    times, left = iter([0, 100_000, at_login_ms]), []
    secure = _tls(lambda: next(times), 600_000, Certificates(guarded.facts["ca_file"]), is_strict=True)
    provider = Watched(guarded, lambda: left.append(connection._sock.gettimeout()))
    as_a_cluster = {"port": guarded.facts["port"], "protocol": 2, "redis_connect_func": secure.on_connect}
    connection = secure(
        host="127.0.0.1", socket_connect_timeout=60, socket_timeout=30, credential_provider=provider, **as_a_cluster
    )
    with suppress(redis.exceptions.TimeoutError):  # within a millisecond
        connection.connect()
        assert connection._sock.gettimeout() == 30
    connection.disconnect()
    assert left == [left_seconds]
