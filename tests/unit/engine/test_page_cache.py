"""The page cache: one read for the fleet, never an error of its own, never older than the bound."""

import pytest

from hotpartition.core.errors import MalformedPageError, RetryLaterError, ThrottledError
from hotpartition.core.page_freshness import PageLimits
from hotpartition.core.ports import StoredPage
from hotpartition.engine.page_cache import MAX_PAGE_BYTES, Origin, PageCache
from hotpartition.runtime.clocks import ElapsedTime
from support.fakes import KEY_RANGE_THROTTLE, FakeClock, FakeTelemetry
from support.page_store import FakePageStore

LIMITS = PageLimits(ttl_ms=1_000, bound_ms=3_000)
READ_MS = 20


class Text:
    """Pages that are texts; `!` begins what is none."""

    def encode(self, page):
        return page

    def decode(self, text):
        if text.startswith("!"):
            raise MalformedPageError(text)
        return text


class Fleet:
    """Environments around one Redis, on one clock that only moves when told to."""

    def __init__(self):
        self.clock = FakeClock()
        self.store = FakePageStore(lambda: self.clock.now_ms)
        self.telemetry = FakeTelemetry()
        self.reads = 0
        self.page = None
        self.failures = []
        self.on_read = lambda: None

    def environment(self, name="e", *, max_entries=10, max_bytes=10**7, timer=None):
        return PageCache(
            store=self.store,
            codec=Text(),
            limits=LIMITS,
            telemetry=self.telemetry,
            clock=self.clock.as_clock(lambda: 0.0),
            timer=timer or (lambda: self.clock.now_ms / 1000),
            environment_id=name,
            max_entries=max_entries,
            max_bytes=max_bytes,
        )

    def fill(self):
        """Read DynamoDB: each page is another one, unless `page` says which."""
        self.reads += 1
        self.clock.now_ms += READ_MS
        self.on_read()
        if self.failures:
            raise self.failures.pop(0)
        return self.page or f"page {self.reads}", 4.0

    def get(self, cache, *, copies=1, collection="c"):
        return cache.get_page(collection, "newest", copies, self.fill)

    def pass_ms(self, ms):
        self.clock.now_ms += ms


@pytest.fixture
def fleet():
    return Fleet()


def seen(page):
    return page.page, page.origin, page.age_ms


def test_the_first_request_reads_for_all(fleet):
    """The others get its page from Redis, and then from their own memory; the age counts from the read's beginning."""
    first, second = fleet.environment("a"), fleet.environment("b")
    assert seen(fleet.get(first)) == ("page 1", Origin.DYNAMODB, READ_MS)
    assert seen(fleet.get(first)) == ("page 1", Origin.L1, READ_MS)
    fleet.pass_ms(100)
    assert seen(fleet.get(second)) == ("page 1", Origin.REDIS, READ_MS + 100)
    fleet.pass_ms(100)
    assert seen(fleet.get(second)) == ("page 1", Origin.L1, READ_MS + 200)
    assert fleet.reads == 1
    assert fleet.telemetry.counts == {
        "PagesFromDynamoDB": 1,
        "PagesFromL1": 2,
        "PagesFromRedis": 1,
        "PageFills": 1,
        "PageAgeMs": 20 + 20 + 120 + 220,
    }


def test_one_reads_a_stale_page_anew_and_the_others_get_the_last_one(fleet):
    """While the lease lasts; afterwards they get the new one."""
    first, second, third = (fleet.environment(name) for name in "abc")
    fleet.get(first)
    fleet.pass_ms(1_000)
    during = []
    fleet.store.on_call = lambda call: during.append(seen(fleet.get(third))) if call == "put" else None
    assert seen(fleet.get(second)) == ("page 2", Origin.DYNAMODB, READ_MS)
    assert during == [("page 1", Origin.REDIS, 1_020 + READ_MS)]
    fleet.store.on_call = lambda _: None
    fleet.pass_ms(250)
    assert seen(fleet.get(third)) == ("page 2", Origin.REDIS, READ_MS + 250)
    assert fleet.reads == 2


def test_who_finds_no_page_waits_for_the_first_one(fleet):
    first, second = fleet.environment("a"), fleet.environment("b")
    fleet.store.take_lease("c", "newest", 250)
    page = StoredPage("page 1", fleet.clock.now_ms, 3_000, READ_MS, 4.0)
    fleet.clock.on_sleep = lambda: fleet.store.put("c", "newest", page, copies=1)
    assert seen(fleet.get(first)) == ("page 1", Origin.WAITED, 10)
    assert seen(fleet.get(second)) == ("page 1", Origin.REDIS, 10)
    assert fleet.reads == 0


def test_who_has_waited_long_enough_reads_for_itself(fleet):
    """The lease's holder died, and nobody had a page: not an error, and stored for nobody else."""
    fleet.store.take_lease("c", "newest", 250)
    page = fleet.get(fleet.environment())
    assert seen(page) == ("page 1", Origin.DYNAMODB, READ_MS)
    assert sum(fleet.clock.slept) < 0.1
    assert fleet.store.pages == {}


def test_who_was_refused_of_late_waits_for_who_has_the_lease(fleet):
    """What all environments read for themselves would keep the partitions too busy for the one read that ends it."""
    environment = fleet.environment()
    fleet.failures = [KEY_RANGE_THROTTLE]
    with pytest.raises(ThrottledError):
        fleet.get(environment)
    fleet.pass_ms(700)
    fleet.store.take_lease("c", "newest", 250)  # by another one
    with pytest.raises(RetryLaterError):
        fleet.get(environment)
    assert fleet.reads == 1
    fleet.pass_ms(300)
    fleet.store.take_lease("c", "newest", 250)
    assert fleet.get(environment).origin is Origin.DYNAMODB


def test_the_time_that_is_left_bounds_the_wait(fleet):
    """A function that is about to time out reads at once."""
    fleet.store.take_lease("c", "newest", 250)
    fleet.environment().get_page("c", "newest", 1, fleet.fill, remaining_ms=5)
    assert fleet.clock.slept == []


@pytest.mark.parametrize("budget_ms", [0, 300])
def test_a_fill_that_is_refused_leaves_the_last_page(fleet, budget_ms):
    """It is served up to the bound, however long DynamoDB was tried; after it, the refusal is the response."""
    first, second = fleet.environment("a"), fleet.environment("b")
    fleet.get(first)
    fleet.pass_ms(1_500)
    fleet.failures = [KEY_RANGE_THROTTLE] * 2
    fleet.on_read = lambda: fleet.pass_ms(budget_ms)
    page = fleet.get(second)
    assert (page.page, page.age_ms) == ("page 1", 1_500 + 2 * READ_MS + budget_ms)
    assert fleet.telemetry.counts["PageFillsFailed"] == 1
    fleet.pass_ms(1_500)
    with pytest.raises(ThrottledError):
        fleet.get(second)
    assert fleet.telemetry.counts["PageFillsFailed"] == 2


@pytest.mark.parametrize("trouble", ["is_down", "is_full"])
def test_without_redis_every_environment_reads_for_itself(fleet, trouble):
    """Once a TTL: its own page is in its memory. Also when Redis is full, since nobody can take a lease then."""
    setattr(fleet.store, trouble, True)
    first, second = fleet.environment("a"), fleet.environment("b")
    origins = [fleet.get(cache).origin for cache in (first, second, first, second)]
    assert origins == [Origin.DYNAMODB, Origin.DYNAMODB, Origin.L1, Origin.L1]
    assert fleet.telemetry.counts["RegistryUnavailable"] == 2


def test_without_redis_a_refused_read_is_served_from_memory_up_to_the_bound(fleet):
    """What this environment read itself; after the bound, the refusal is the response."""
    cache = fleet.environment()
    fleet.get(cache)
    fleet.store.is_down = True
    fleet.failures = [KEY_RANGE_THROTTLE] * 2
    fleet.pass_ms(2_900)
    assert seen(fleet.get(cache)) == ("page 1", Origin.L1, 2_900 + 2 * READ_MS)
    fleet.pass_ms(100)
    with pytest.raises(ThrottledError):
        fleet.get(cache)


def test_redis_that_fails_while_the_page_is_stored_costs_the_others_a_read(fleet):
    """The holder's own request succeeds; it does not read twice."""
    fleet.store.on_call = lambda call: setattr(fleet.store, "is_full", call == "put")
    assert fleet.get(fleet.environment()).origin is Origin.DYNAMODB
    assert (fleet.reads, fleet.telemetry.counts["RegistryUnavailable"]) == (1, 1)


def test_a_page_that_cannot_be_read_is_counted_and_replaced(fleet):
    fleet.store.put("c", "newest", StoredPage("!", fleet.clock.now_ms, 3_000, 0, 1.0), copies=1)
    assert fleet.get(fleet.environment("a")).page == "page 1"
    assert fleet.get(fleet.environment("b")).page == "page 1"
    assert fleet.telemetry.counts["PagesMalformed"] == 1


def test_every_copy_is_written_and_each_environment_reads_its_own(fleet):
    """So no node of Redis carries all of them."""
    fleet.get(fleet.environment("a"), copies=4)
    assert {copy for _, _, copy in fleet.store.pages} == {0, 1, 2, 3}
    fleet.store.calls.clear()
    caches = [fleet.environment(f"e{index}") for index in range(20)]
    for cache in caches * 3:
        fleet.get(cache, copies=4)
        fleet.pass_ms(13)
    asked = [call for call in fleet.store.calls if call.startswith("get")]
    assert set(asked) == {"get 0", "get 1", "get 2", "get 3"}
    assert asked[:20] == asked[20:40]
    assert fleet.reads == 1


def test_memory_is_bounded_in_pages(fleet):
    """The least recently used one goes first."""
    cache = fleet.environment(max_entries=2)
    for name in ("a", "b", "a", "c", "a"):
        fleet.get(cache, collection=name)
    assert fleet.reads == 3
    fleet.store.is_down = True
    assert fleet.get(cache, collection="b").origin is Origin.DYNAMODB


def test_memory_is_bounded_in_bytes(fleet):
    """And a page that is larger than all of it is not kept, nor are others dropped for it."""
    cache = fleet.environment(max_bytes=100)
    fleet.page = "x" * 60
    fleet.get(cache, collection="a")
    fleet.page = "x" * 101
    fleet.get(cache, collection="b")
    fleet.store.is_down = True
    assert [fleet.get(cache, collection=name).origin for name in ("a", "b")] == [Origin.L1, Origin.DYNAMODB]
    fleet.page = "x" * 60
    fleet.get(cache, collection="c")
    assert fleet.get(cache, collection="a").origin is Origin.DYNAMODB


def test_a_page_that_is_too_large_for_redis_is_kept_in_memory_only(fleet):
    """Its environment knows then, and asks Redis no more for it."""
    fleet.page = "x" * (MAX_PAGE_BYTES + 1)
    cache = fleet.environment()
    fleet.get(cache)
    assert fleet.store.pages == {}
    fleet.store.calls.clear()
    fleet.pass_ms(1_000)
    assert [fleet.get(cache).origin, fleet.get(cache).origin] == [Origin.DYNAMODB, Origin.L1]
    assert fleet.store.calls == []


def test_a_page_that_reaches_redis_late_is_kept_no_longer_for_it(fleet):
    """It expires a fixed time after its lease was taken, not after it arrived."""
    fleet.store.on_call = lambda call: fleet.pass_ms(2_500) if call == "put" else None
    fleet.get(fleet.environment("a"))
    fleet.store.on_call = lambda _: None
    fleet.pass_ms(200)
    fleet.store.take_lease("c", "newest", 250)
    assert seen(fleet.get(fleet.environment("b"))) == ("page 1", Origin.REDIS, READ_MS + 2_700)
    fleet.pass_ms(30)
    assert fleet.get(fleet.environment("c")).page == "page 2"


def test_an_older_page_that_arrives_later_is_not_taken_for_the_newer_one(fleet):
    """As long as an environment may serve the newer one; afterwards the older one is at least within the bound."""
    cache, now_ms = fleet.environment(), fleet.clock.now_ms
    fleet.store.put("c", "newest", StoredPage("newer", now_ms - 100, 3_000, 20, 1.0), copies=1)
    assert seen(fleet.get(cache)) == ("newer", Origin.REDIS, 100)
    fleet.store.put("c", "newest", StoredPage("older", now_ms - 900, 3_000, 20, 1.0), copies=1)
    fleet.pass_ms(249)
    assert seen(fleet.get(cache)) == ("newer", Origin.L1, 349)
    fleet.pass_ms(251)
    fleet.store.take_lease("c", "newest", 250)
    assert seen(fleet.get(cache)) == ("older", Origin.REDIS, 1_400)


def test_a_shorter_bound_holds_for_pages_of_a_longer_one(fleet):
    """A deployment may lower the bound while pages of the older version lie in Redis."""
    fleet.store.put("c", "newest", StoredPage("older", fleet.clock.now_ms - 5_000, 60_000, 20, 1.0), copies=1)
    fleet.store.take_lease("c", "newest", 250)
    assert fleet.get(fleet.environment()).page == "page 1"


def test_a_frozen_environment_serves_no_page_of_before(fleet):
    """Its monotonic clock may have stood still all the while."""
    frozen = fleet.environment(timer=ElapsedTime(lambda: 0.0, lambda: fleet.clock.now_ms / 1000))
    fleet.get(frozen)
    fleet.pass_ms(480_000)
    assert seen(fleet.get(frozen)) == ("page 2", Origin.DYNAMODB, READ_MS)
