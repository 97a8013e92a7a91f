"""The Redis adapters on a real server in cluster mode: what they send, what is kept, and what is not theirs.

What they mean to the engine is proven with fakeredis. Connections are in `test_redis_access.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from redis.exceptions import NoPermissionError

from hotpartition import ReadCache
from hotpartition.core.errors import (
    MalformedPageError,
    MalformedReportError,
    RegistryForeignError,
    RegistryRefusedError,
)
from hotpartition.core.ports import ReadRoute, StoredPage
from hotpartition.core.reports import Report, stream_partition_of
from hotpartition.core.route import Generation, Route
from hotpartition.redis.acl import Role, build_rights
from hotpartition.redis.cluster import consumer_key, lease_key, page_key, read_hot_key, reports_key, route_key
from hotpartition.redis.logins import PasswordFile
from hotpartition.redis.report_streams import FIELD, MAX_WAITING, STREAM_AGE_MS
from support.builders import route_of
from tools.local.redis import running_redis

from .conftest import Adapters

FOUR = Generation(since_ms=5, shard_count=4)
EIGHT = Generation(since_ms=9, shard_count=8)
REPORT = Report("c", 6_800_000_000, "e1", 10.0, 1_700_000_000_000, 4, is_throttled=True)
NOISE = b"\xff\xfe"


def page_of(leased_at_ms, *, keep_ms=60_000, payload='["page", 1]'):
    return StoredPage(payload, leased_at_ms, keep_ms, 20, 8.5)


@pytest.fixture
def connection(redis_server, connect):
    """A connection that leaves a node alone after it failed."""
    return connect(redis_server.port, cooldown_ms=60_000)


@pytest.fixture
def adapters(connection, table_name):
    return Adapters.on(connection, table_name, partitions=2)


class Use(NamedTuple):
    """Something that adapters do: the roles that may, its commands, keys without what they all begin with, its result.

    Each use meets what those before it stored.
    """

    roles: set[Role]
    do: Callable[[Adapters], object]
    commands: list[str]
    returned: object = None


def send(at):
    at.sink.send(REPORT)
    if at.sink.take_dropped():
        raise RegistryRefusedError


ALL, LOOKING, REPAIRING = set(Role), {Role.READER, Role.CONSUMER, Role.OPERATOR}, {Role.CONSUMER, Role.OPERATOR}
SENDING, READING, CONSUMING = {Role.WRITER, Role.READER}, {Role.READER}, {Role.CONSUMER}
ROUTE, MARK = "SSCAN route:{c} 0 COUNT 256", "GETRANGE reads:{c} 0 4"
PAGE = "page:{c/0}:v"
TIMES_OF_A_PAGE = [f"HPTTL {PAGE} FIELDS 1 page", f"HPEXPIRETIME {PAGE} FIELDS 1 page"]
COPIES = [f"HSETEX page:{{c/{copy}}}:v PXAT 2 FIELDS 1 page 2 1 1 1 1.0 " for copy in range(3)]
LEASE = ["HSETEX lease:{c}:v FNX PX 60000 FIELDS 1 holder 1", "HPEXPIRETIME lease:{c}:v FIELDS 1 holder"]
USES = [
    Use(LOOKING, lambda at: at.registry.add("c", [FOUR]), ["SADD route:{c} 4@5"]),
    Use(REPAIRING, lambda at: at.registry.mark_read_hot("c"), ["SET reads:{c} 3 PX 60000"]),
    Use(ALL, lambda at: at.registry.get("c"), [ROUTE], route_of((4, 5))),
    Use(LOOKING, lambda at: at.registry.get_for_reading("c"), [ROUTE, MARK], ReadRoute(route_of((4, 5)), 3)),
    Use(CONSUMING, lambda at: at.registry.count_raise(), ["INCR raises", "PEXPIRE raises 3600000 NX"], 1),
    Use(REPAIRING, lambda at: at.registry.mark_warm("c", 60_000), ["SET warm:{c} 1 PX 60000"]),
    Use(REPAIRING, lambda at: at.registry.is_warm("c"), ["EXISTS warm:{c}"], True),
    Use(REPAIRING, lambda at: at.registry.keep_closing_cursor("x"), ["SET closing x"]),
    Use(LOOKING, lambda at: at.registry.closing_cursor(), ["GETRANGE closing 0 4096"], "x"),
    Use(SENDING, send, [f"XADD reports:{{0}} MINID ~ 5 * r {REPORT.encode()}"]),
    Use(REPAIRING, lambda at: len(at.source.read(0, "0-0", 1)), ["XREAD COUNT 1 STREAMS reports:{0} 0-0"], 1),
    Use(CONSUMING, lambda at: at.source.announce(1), ["ZADD consumer GT 1 latest"]),
    Use(REPAIRING, lambda at: at.source.latest_start_ms(), ["ZSCORE consumer latest"], 1),
    Use(READING, lambda at: at.pages.get("c", "v", 0), [f"HGET {PAGE} page", *TIMES_OF_A_PAGE]),
    Use(READING, lambda at: at.pages.put("c", "v", StoredPage("", 1, 1, 1, 1.0)), COPIES),
    Use(READING, lambda at: at.pages.take_lease("c", "v", 60_000) is not None, LEASE, True),
    Use(READING, lambda at: at.pages.take_lease("c", "v", 60_000), LEASE),  # which is taken
]
OTHERS = ("FLUSHALL", "DEL {}", "CONFIG GET *", "KEYS *", "ACL LIST", "GET {}", "SMEMBERS {}", "PUBLISH a b")
"""Commands that no function may send."""


def test_each_use_sends_these_commands(admin, connection, table_name):
    """And nothing else: keys, limits and times are those that are documented."""
    adapters, sent = Adapters.on(connection, table_name, now_ms=lambda: STREAM_AGE_MS + 5), []
    admin.config_set("slowlog-log-slower-than", 0)
    for use in USES:
        admin.slowlog_reset()
        assert use.do(adapters) == use.returned
        logged = [each["command"].decode() for each in reversed(admin.slowlog_get(20))]
        own = [command for command in logged if "SLOWLOG" not in command and "CLUSTER" not in command]
        sent.append([command.replace(f"hp:{table_name}:", "") for command in own])
    assert sent == [use.commands for use in USES]


@pytest.mark.parametrize("role", Role)
def test_each_function_may_do_its_own_work_and_no_other(admin, redis_server, connect, table_name, tmp_path, role):
    """With the rights that ElastiCache's user of this function is given, on the keys of its own table."""
    path = tmp_path / "password"
    path.write_text("secret")
    rights = build_rights([role], table_name).split()
    admin.execute_command("ACL", "SETUSER", role, "reset", "on", ">secret", *rights)
    connection = connect(redis_server.port, credentials=PasswordFile(user=role, path=path))
    for name, allowed in ((table_name, [role in use.roles for use in USES]), ("other", [False] * len(USES))):
        adapters, done = Adapters.on(connection, name), [False] * len(USES)
        for number, use in enumerate(USES):
            with suppress(RegistryRefusedError):
                use.do(adapters)
                done[number] = True
        assert done == allowed
    admin.auth("secret", role)
    for command in OTHERS:
        with pytest.raises(NoPermissionError):
            admin.execute_command(*command.format(route_key(table_name, "c")).split())


ODD = "a.b:c@d-e_f"
"""An id's characters mean nothing to Redis."""
MANY = [Generation(since_ms=n, shard_count=2 + n) for n in range(200)]
"""More than Redis keeps in a list: it makes a hash table of them."""


def test_a_large_route_comes_back_whole(adapters):
    """In one look-up, whatever its collection is called. Nothing is sent for an addition of nothing."""
    for collection in ("c", ODD, ""):
        for members in ([], MANY):
            adapters.registry.add(collection, members)
        assert adapters.registry.get(collection) == Route(frozenset(MANY))


@pytest.mark.parametrize("first", [Report("c", 0, "e", 1.0, 25_000, 0), Report("c", 0, "e", 1.0, pages=1.0)])
def test_reports_are_read_in_order_from_their_stream(adapters, first):
    """After an id and up to a limit; each conversation in the one stream that its name gives."""
    source, sink = adapters.source, adapters.sink
    sent = [first._replace(slot=slot) for slot in range(100, 105)]
    for each in sent:
        sink.send(each)
    partition = stream_partition_of("c", 2)
    entries = source.read(partition, "0-0", 100)
    assert [Report.decode(entry.text) for entry in entries] == sent
    assert list(source.read(partition, entries[1].entry_id, 2)) == list(entries[2:4])
    assert list(source.read(partition, entries[-1].entry_id, 2)) == []
    assert list(source.read(1 - partition, "0-0", 2)) == []


def test_reports_wait_while_others_are_sent(connection, table_name):
    """What comes meanwhile, or in the pause after it, is sent together, each as its own.

    However long Redis takes, memory is bounded. A bug in one sending does not end all of them.
    """
    held, sizes = [], []
    sent = [REPORT._replace(value=float(value)) for value in range(1, 7)]

    def pause():
        sizes.append(len(adapters.source.read(0, "0-0", 10)))
        for report in sent[3:] if len(sizes) == 1 else ():
            adapters.sink.send(report)
        if len(sizes) == 3:
            raise ZeroDivisionError

    background = SimpleNamespace(submit=lambda work: held.append(work) or True)
    adapters = Adapters.on(connection, table_name, background=background, pause=pause)
    for report in sent[:3]:
        adapters.sink.send(report)
    held.pop()()
    assert [Report.decode(entry.text) for entry in adapters.source.read(0, "0-0", 10)] == sent
    assert sizes == [3, 6]
    for _ in range(MAX_WAITING + 2):
        adapters.sink.send(REPORT)
    assert (adapters.sink.take_dropped(), len(held)) == (2, 1)
    with pytest.raises(ZeroDivisionError):
        held.pop()()
    background.submit = lambda _: False
    adapters.sink.send(REPORT)
    assert adapters.sink.take_dropped() == 1


class TestPages:
    """Cached pages, and the leases to read them."""

    def test_every_copy_expires_when_its_page_says(self, adapters):
        """Its age is the time since the lease, whenever it arrived. Nothing is left of what another replaced."""
        store = adapters.pages

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
        time.sleep(0.1)
        assert copies() == [None] * 4
        store.put("c", "newest-50", page)
        assert store.get("c", "newest-50", 0)[0] == page
        # One that arrives after its end is not there, and neither is what it was to replace.
        store.put("c", "newest-50", page_of(leased_at_ms - 5_000, keep_ms=4_000))
        assert copies() == [None] * 4

    def test_redis_is_asked_for_its_time_now_and_then(self, connection, admin, calls_of, table_name):
        """In between a page takes one command; its age is never too small, and hardly too large."""
        now_ms = [0.0]
        pages = Adapters.on(connection, table_name, timer=lambda: now_ms[0] / 1000).pages
        pages.put("c", "v", page_of(pages.take_lease("c", "v", 300)))
        admin.config_resetstat()
        ages = []
        for now_ms[0] in (0.0, 1_000.0, 9_999.0, 10_000.0):
            ages.append(pages.get("c", "v", 0)[1])
        calls = calls_of()
        assert (calls["hget"], calls["hpttl"]) == (4, 2)
        first, second, third, *_ = ages
        assert (second - first, third - first) == (pytest.approx(1_001, abs=1), pytest.approx(10_009, abs=1))

    @pytest.mark.parametrize("garbage", ["", "2", "2 x 9 20 8.5 []", "2 5 9 20 []", "1 5 9 20 8.5 []", "\udcff"])
    def test_what_is_no_page_is_said_to_be_none(self, adapters, admin, table_name, garbage):
        """Whatever it is; the next fill takes its place."""
        pages = adapters.pages
        admin.hset(page_key(table_name, "c", "v", 0), "page", garbage.encode("utf-8", "surrogateescape"))
        with pytest.raises(MalformedPageError):
            pages.get("c", "v", 0)
        page = page_of(pages.take_lease("c", "v", 300))
        pages.put("c", "v", page)
        assert pages.get("c", "v", 0)[0] == page


class TestForeignData:
    """Redis may hold anything: it is skipped, counted and logged, in every structure that is read."""

    @pytest.mark.parametrize("mark", ["3", "0", "-1", "65", "1e1", "²", "0x2", " 1", "1" * 1000, NOISE])
    def test_what_is_no_generation_and_no_mark_is_skipped(self, adapters, admin, table_name, mark):
        """The registry is a hint: what is not text, or of another version, does not hide the others."""
        foreign = (NOISE, b"4@5\xff", "7", "4@5@6", "", "many@9")
        admin.sadd(route_key(table_name, "c"), *foreign, FOUR.encode(), EIGHT.encode())
        admin.set(read_hot_key(table_name, "c"), mark)
        copies = 3 if mark == "3" else 0
        assert adapters.registry.get_for_reading("c") == ReadRoute(route_of((4, 5), (8, 9)), copies)
        assert len(adapters.telemetry.events) == (1 if mark == "3" else 2)

    def test_what_is_no_report_and_no_time_is_handed_on(self, adapters, admin, table_name):
        """So that the consumer counts and skips it; what follows is read. Infinity is a score that Redis takes."""
        for fields in ({"r": NOISE}, {NOISE: NOISE}, {"r": b"2|" + NOISE}, {FIELD: REPORT.encode()}):
            admin.xadd(reports_key(table_name, 0), fields)
        *foreign, last = adapters.source.read(0, "0-0", 10)
        assert Report.decode(last.text) == REPORT
        for entry in foreign:
            with pytest.raises(MalformedReportError):
                Report.decode(entry.text)
        for score in ("inf", "-inf"):
            admin.zadd(consumer_key(table_name), {"latest": score})
            assert adapters.source.latest_start_ms() is None

    def test_a_key_of_another_type_fails_alone(self, adapters, admin, table_name):
        """Named, so that an operator finds it. Nothing crashes, and the node is asked again."""
        registry, source, pages, _, telemetry = adapters
        page_at, lease_at = page_key(table_name, "c", "v", 0), lease_key(table_name, "c", "v")
        keys = [route_key(table_name, "c"), reports_key(table_name, 0), consumer_key(table_name), page_at, lease_at]
        for key in keys:
            admin.set(key, NOISE)
        mark_at = read_hot_key(table_name, "hot")
        admin.zadd(mark_at, {"x": 1})
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
        assert [message for message, _ in telemetry.events] == ["foreign data in redis skipped"] * 8
        collections = [facts.get("collection") for _, facts in telemetry.events]
        assert collections == ["c", "c", "hot", "c", "c", None, None, None]
        reasons = " ".join(str(facts["reason"]) for _, facts in telemetry.events)
        assert {key for key in [*keys, mark_at] if key not in reasons} == {lease_at}
        registry.add("d", [FOUR])
        assert registry.get("d").generations == {FOUR}

    def test_a_route_of_thousands_of_members_costs_no_time(self, adapters, admin, calls_of, table_name):
        """It is none of ours: a part of it is read, in one command, and the rest stays unread."""
        key = route_key(table_name, "c")
        for start in range(0, 20_000, 2_000):
            admin.sadd(key, *(f"{NOISE!r}-{i}" for i in range(start, start + 2_000)))
        admin.config_resetstat()
        for _ in range(20):
            with pytest.raises(RegistryForeignError):
                adapters.registry.get("c")
        assert calls_of()["sscan"] == 20
        assert admin.info("stats")["total_net_output_bytes"] < 20 * 10_000 < admin.memory_usage(key)
        assert len(adapters.telemetry.events) == 20


def test_a_fleet_shares_what_one_process_loads(tmp_path):
    """After Redis is killed, each process keeps its own values, and loads what it has not."""
    loads = []

    def load():
        loads.append({"name": "a lamp", "price": Decimal("19.90"), "tags": {"new"}, "stock": 3})
        return loads[-1]

    with running_redis(tmp_path) as server:
        address = f"redis://127.0.0.1:{server.port}"
        names = ("products", "products", "other")
        first, second, other = (ReadCache(seconds=60, redis=address, name=name) for name in names)
        found = [cache.get("product:42", load=load) for cache in (first, second, second, other)]
        assert found == [loads[0]] * 3 + [loads[1]]
        assert [type(each["stock"]) for each in found] == [int] * 4
    assert second.get("product:42", load=load) == loads[0]
    assert len(loads) == 2
    assert [cache.get("product:43", load=load) for cache in (first, second)] == loads[2:]
