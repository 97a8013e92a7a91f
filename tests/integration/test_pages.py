"""What is cached in a real Redis, pages and values: for how long, and what it says when it is away or full."""

from __future__ import annotations

import time
from decimal import Decimal

import pytest

from hotpartition import ReadCache
from hotpartition.core.errors import MalformedPageError, RegistryForeignError, RegistryUnavailableError
from hotpartition.core.ports import StoredPage
from hotpartition.core.route import Generation
from hotpartition.redis.cluster import lease_key, page_key, route_key
from hotpartition.redis.pages import RedisPageStore
from hotpartition.redis.registry import RedisRegistry
from hotpartition_messages.jobs import open_reader
from hotpartition_messages.reading import PageRequest
from support.builders import build_message, message_id
from support.fakes import FakeClock, FakeTelemetry
from support.page_store import FakePageStore
from support.servers import closed_port
from support.tables import TABLE_NAME


def page_of(leased_at_ms, *, keep_ms=60_000, payload='["page", 1]'):
    return StoredPage(payload, leased_at_ms, keep_ms, 20, 8.5)


class Contract:
    """A page store, and a way to let time pass for it."""

    def __init__(self, store, wait):
        self.store = store
        self.wait = wait


@pytest.fixture(params=["fake", "redis"])
def contract(request, table_name):
    """Held by the stand-in of the unit tests and by the adapter of the functions."""
    if request.param == "fake":
        clock = FakeClock()
        return Contract(FakePageStore(lambda: clock.now_ms), clock.sleep)
    server = request.getfixturevalue("redis_server")
    connection = request.getfixturevalue("connect")(server.port)
    return Contract(RedisPageStore(connection, table_name, FakeTelemetry(), time.monotonic), time.sleep)


def test_every_copy_expires_when_its_page_says(contract):
    """As it was stored; a copy that was not written is not there. The age is the time since the lease."""
    leased_at_ms = contract.store.take_lease("c", "newest-50", 300)
    page = page_of(leased_at_ms)
    contract.store.put("c", "newest-50", page)
    found = [contract.store.get("c", "newest-50", copy) for copy in range(4)]
    assert [each and each[0] for each in found] == [page, page, page, None]
    assert all(0 <= age_ms < 60_000 for _, age_ms in found[:3])
    assert contract.store.get("c", "newest-200", 0) is None
    assert contract.store.get("d", "newest-50", 0) is None
    contract.store.put("c", "newest-50", page_of(leased_at_ms, keep_ms=50))
    contract.wait(0.1)
    assert [contract.store.get("c", "newest-50", copy) for copy in range(4)] == [None] * 4


def test_a_page_that_arrives_after_its_end_is_not_there(contract):
    """However late it comes, it expires when it should have; one that was there before is gone as well or newer."""
    now_ms = contract.store.take_lease("c", "newest-50", 300)
    contract.store.put("c", "newest-50", page_of(now_ms - 5_000, keep_ms=4_000))
    assert contract.store.get("c", "newest-50", 0) is None


def test_the_age_is_the_stores_own(contract):
    """It counts from the lease, whenever the page arrived."""
    leased_at_ms = contract.store.take_lease("c", "newest-50", 300)
    contract.store.put("c", "newest-50", page_of(leased_at_ms - 2_000))
    _, age_ms = contract.store.get("c", "newest-50", 0)
    assert 2_000 <= age_ms < 60_000


def test_redis_is_asked_for_its_time_now_and_then(redis_server, connect, table_name):
    """In between a page takes one command; its age is never too small, and hardly too large."""
    now_ms = [0.0]
    pages = RedisPageStore(connect(redis_server.port), table_name, FakeTelemetry(), lambda: now_ms[0] / 1000)
    leased_at_ms = pages.take_lease("c", "v", 300)
    pages.put("c", "v", page_of(leased_at_ms))
    with redis_server.admin as admin:
        admin.config_resetstat()
        ages = []
        for now_ms[0] in (0.0, 1_000.0, 9_999.0, 10_000.0, 10_500.0):
            ages.append(pages.get("c", "v", 0)[1])
        calls = {name: admin.info("commandstats")[f"cmdstat_{name}"]["calls"] for name in ("hget", "hpttl")}
    assert calls == {"hget": 5, "hpttl": 2}
    first, second, third, *_ = ages
    assert (second - first, third - first) == (pytest.approx(1_001, abs=1), pytest.approx(10_009, abs=1))


def test_a_newer_page_takes_the_place_and_the_time_of_an_older_one(contract):
    """Nothing of either is left."""
    leased_at_ms = contract.store.take_lease("c", "newest-50", 300)
    contract.store.put("c", "newest-50", page_of(leased_at_ms, keep_ms=100))
    newer = page_of(leased_at_ms + 1, payload="ü")
    contract.store.put("c", "newest-50", newer)
    contract.wait(0.15)
    assert contract.store.get("c", "newest-50", 0)[0] == newer


def test_one_gets_the_lease_until_it_ends(contract):
    """Each page of a collection has its own."""
    taken = [contract.store.take_lease("c", variant, 60_000) for variant in ("newest-50", "newest-50", "newest-200")]
    assert [each is not None for each in taken] == [True, False, True]
    first = contract.store.take_lease("d", "newest-50", 50)
    contract.wait(0.1)
    assert contract.store.take_lease("d", "newest-50", 60_000) >= first + 50


def test_copies_lie_in_different_slots(redis_server):
    """So that different nodes serve them."""
    keys = [page_key("t", "c", "newest-50", copy) for copy in range(8)]
    with redis_server.admin as admin:
        assert len({admin.execute_command("CLUSTER", "KEYSLOT", key) for key in keys}) == 8


@pytest.mark.parametrize("garbage", ["", "2", "2 x 9 20 8.5 []", "2 5 9 20 []", "1 5 9 20 8.5 []", "\udcff"])
def test_what_is_no_page_is_said_to_be_none(redis_server, connect, table_name, garbage):
    """Whatever it is; the next fill takes its place."""
    with redis_server.admin as admin:
        admin.hset(page_key(table_name, "c", "v", 0), "page", garbage.encode("utf-8", "surrogateescape"))
    store = RedisPageStore(connect(redis_server.port), table_name, FakeTelemetry(), time.monotonic)
    with pytest.raises(MalformedPageError):
        store.get("c", "v", 0)
    page = page_of(store.take_lease("c", "v", 300))
    store.put("c", "v", page)
    assert store.get("c", "v", 0)[0] == page


def test_a_page_of_another_type_stays_until_it_is_removed(redis_server, connect, table_name):
    """It is reported, and it is not overwritten: that is what keeps a reader from harming routes."""
    key, telemetry = page_key(table_name, "c", "v", 0), FakeTelemetry()
    store = RedisPageStore(connect(redis_server.port), table_name, telemetry, time.monotonic)
    with redis_server.admin as admin:
        admin.set(key, "foreign")
        for call in (lambda: store.get("c", "v", 0), lambda: store.put("c", "v", page_of(1))):
            with pytest.raises(RegistryForeignError):
                call()
        assert admin.get(key) == "foreign"
    assert [message for message, _ in telemetry.events] == ["foreign data in redis skipped"]


def test_nobody_takes_a_lease_of_another_type(redis_server, connect, table_name):
    """Each environment reads for itself then."""
    with redis_server.admin as admin:
        admin.set(lease_key(table_name, "c", "v"), "foreign")
    store = RedisPageStore(connect(redis_server.port), table_name, FakeTelemetry(), time.monotonic)
    with pytest.raises(RegistryForeignError):
        store.take_lease("c", "v", 300)


def test_pages_cannot_be_written_over_a_route(redis_server, connect, table_name):
    """With the commands that a reader may use: a route is of another type."""
    connection = connect(redis_server.port)
    registry = RedisRegistry(connection, table_name)
    registry.add("c", [Generation(since_ms=5, shard_count=4)])
    key = route_key(table_name, "c")
    with pytest.raises(RegistryForeignError):
        connection.call(key, lambda client: client.hsetex(key, "page", "x", px=1))
    time.sleep(0.05)
    assert registry.get("c").max_shard_count == 4


def test_an_absent_redis_is_the_one_error(connect):
    """The one that the page cache handles."""
    with closed_port() as port:
        store = RedisPageStore(connect(port), "t", FakeTelemetry(), time.monotonic)
        for call in (
            lambda: store.get("c", "v", 0),
            lambda: store.put("c", "v", page_of(1)),
            lambda: store.take_lease("c", "v", 300),
        ):
            with pytest.raises(RegistryUnavailableError):
                call()


def test_a_full_redis_serves_what_is_there(own_redis_server, connect):
    """No reader can take a lease or store a page."""
    store = RedisPageStore(connect(own_redis_server.port), "t", FakeTelemetry(), time.monotonic)
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
