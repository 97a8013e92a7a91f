"""The read cache: one load for the process and for the fleet, never an error of its own, never older than the bound."""

from math import inf
from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotpartition.core.backoff import Clock
from hotpartition.core.errors import MalformedPageError, RetryLaterError, StoreUnavailableError, ThrottledError
from hotpartition.core.freshness import LEASE_MS, CacheLimits
from hotpartition.core.ports import StoredPage
from hotpartition.engine.read_cache import MAX_REMEMBERED, MAX_SHARED_BYTES, REFUSED_MS, Origin, ReadCache
from hotpartition.runtime.clocks import ElapsedTime
from support.fakes import KEY_RANGE_THROTTLE, FakeClock, FakeTelemetry
from support.landing import Landing
from support.page_store import FakePageStore
from tools.world.clock import Engine

LIMITS = CacheLimits(ttl_ms=1_000, bound_ms=3_000)
LOAD_MS = 20
KEY = "c", "newest"


class Text:
    """Values that are lists of one text; a text with `!` cannot be read."""

    def encode(self, value):
        return value[0]

    def decode(self, text):
        if text.startswith("!"):
            raise MalformedPageError(text)
        return [text]

    def copy(self, value):
        return list(value)

    def size_bytes(self, value):
        return len(value[0])


class Fleet:
    """Processes around one Redis, on one clock that only moves when it is told to."""

    def __init__(self):
        self.clock = FakeClock()
        self.store = FakePageStore(lambda: self.clock.now_ms)
        self.telemetry = FakeTelemetry()
        self.loads = 0
        self.text = None
        self.failures = []
        self.on_load = lambda: None

    def process(self, name="e", **values):
        return ReadCache(
            **{
                "store": self.store,
                "codec": Text(),
                "limits": LIMITS,
                "telemetry": self.telemetry,
                "clock": self.clock.as_clock(lambda: 0.0),
                "timer": lambda: self.clock.now_ms / 1000,
                "environment_id": name,
                **values,
            }
        )

    def load(self):
        self.loads += 1
        self.clock.now_ms += LOAD_MS
        self.on_load()
        if self.failures:
            raise self.failures.pop(0)
        return [self.text or f"value {self.loads}"], 4.0

    def get(self, cache, *, key=KEY, **values):
        return cache.get(key, self.load, **values)

    def seen(self, cache, **values):
        found = self.get(cache, **values)
        return found.value[0], found.origin, found.age_ms

    def pass_ms(self, ms):
        self.clock.now_ms += ms


@pytest.fixture
def fleet():
    return Fleet()


class TestFleet:
    def test_one_loads_for_all(self, fleet):
        """The others get it from Redis, and then from their own memory; the age counts from the load's beginning."""
        first, second = fleet.process("a"), fleet.process("b")
        assert fleet.seen(first) == ("value 1", Origin.LOADED, LOAD_MS)
        assert fleet.seen(first) == ("value 1", Origin.L1, LOAD_MS)
        fleet.pass_ms(100)
        assert fleet.seen(second) == ("value 1", Origin.REDIS, LOAD_MS + 100)
        fleet.pass_ms(100)
        assert fleet.seen(second) == ("value 1", Origin.L1, LOAD_MS + 200)
        counts = {"PagesFromDynamoDB": 1, "PagesFromL1": 2, "PagesFromRedis": 1, "PageFills": 1}
        assert (fleet.loads, fleet.telemetry.counts) == (1, counts)

    def test_one_loads_a_stale_value_anew_and_the_others_get_the_last_one(self, fleet):
        """While the lease lasts; afterwards they get the new one."""
        first, second, third = (fleet.process(name) for name in "abc")
        fleet.get(first)
        fleet.pass_ms(1_000)
        during = []
        fleet.store.on_call = lambda call: during.append(fleet.seen(third)) if call == "put" else None
        assert fleet.seen(second) == ("value 2", Origin.LOADED, LOAD_MS)
        assert during == [("value 1", Origin.REDIS, 1_020 + LOAD_MS)]
        fleet.store.on_call = lambda _: None
        fleet.pass_ms(250)
        assert fleet.seen(third) == ("value 2", Origin.REDIS, LOAD_MS + 250)

    def test_a_process_without_a_value_waits_for_the_first_one(self, fleet):
        fleet.store.take_lease(*KEY, 250)
        stored = StoredPage("value 1", fleet.clock.now_ms, 3_000, LOAD_MS, 4.0)
        fleet.clock.on_sleep = lambda: fleet.store.put(*KEY, stored)
        assert fleet.seen(fleet.process()) == ("value 1", Origin.REDIS, 10)
        assert fleet.loads == 0

    @pytest.mark.parametrize(("remaining_ms", "waits"), [(inf, True), (5, False)])
    def test_a_process_that_has_waited_long_enough_loads_for_itself(self, fleet, remaining_ms, waits):
        """The lease's holder died, and there is no value. What it loads is stored for no other one."""
        fleet.store.take_lease(*KEY, 250)
        assert fleet.seen(fleet.process(), remaining_ms=remaining_ms) == ("value 1", Origin.LOADED, LOAD_MS)
        assert bool(fleet.clock.slept) == waits
        assert (fleet.store.pages, sum(fleet.clock.slept) < 0.1) == ({}, True)

    def test_a_process_that_was_refused_of_late_loads_only_with_the_lease(self, fleet):
        """What all processes load for themselves would keep the partitions too busy for the one load that ends it."""
        cache = fleet.process()
        fleet.failures = [KEY_RANGE_THROTTLE]
        with pytest.raises(ThrottledError):
            fleet.get(cache)
        fleet.pass_ms(700)
        fleet.store.take_lease(*KEY, 250)  # by another one
        with pytest.raises(RetryLaterError):
            fleet.get(cache)
        assert fleet.loads == 1
        fleet.pass_ms(300)
        fleet.store.take_lease(*KEY, 250)
        assert fleet.get(cache).origin is Origin.LOADED

    @pytest.mark.parametrize("budget_ms", [0, 300])
    def test_a_load_that_is_refused_leaves_the_last_value(self, fleet, budget_ms):
        """It is served up to the bound, however long DynamoDB was tried; after it, the refusal is the response."""
        first, second = fleet.process("a"), fleet.process("b")
        fleet.get(first)
        fleet.pass_ms(1_500)
        fleet.failures = [KEY_RANGE_THROTTLE] * 2
        fleet.on_load = lambda: fleet.pass_ms(budget_ms)
        assert fleet.seen(second)[::2] == ("value 1", 1_500 + 2 * LOAD_MS + budget_ms)
        fleet.pass_ms(1_500)
        with pytest.raises(ThrottledError):
            fleet.get(second)
        assert fleet.telemetry.counts["PageFillsFailed"] == 2

    @pytest.mark.parametrize("trouble", ["is_down", "is_full"])
    def test_without_redis_every_process_loads_for_itself(self, fleet, trouble):
        """Once a TTL. Also when Redis is full, since no process can take a lease then."""
        setattr(fleet.store, trouble, True)
        first, second = fleet.process("a"), fleet.process("b")
        origins = [fleet.get(cache).origin for cache in (first, second, first, second)]
        assert origins == [Origin.LOADED, Origin.LOADED, Origin.L1, Origin.L1]
        assert fleet.telemetry.counts["RegistryUnavailable"] == 2

    def test_redis_that_fails_while_the_value_is_stored_costs_the_others_a_load(self, fleet):
        """The holder's own request succeeds; it does not load twice."""
        fleet.store.on_call = lambda call: setattr(fleet.store, "is_full", call == "put")
        assert fleet.get(fleet.process()).origin is Origin.LOADED
        assert (fleet.loads, fleet.telemetry.counts["RegistryUnavailable"]) == (1, 1)

    def test_garbage_in_redis_is_counted_and_replaced(self, fleet):
        fleet.store.put(*KEY, StoredPage("!", fleet.clock.now_ms, 3_000, 0, 1.0))
        assert [fleet.seen(fleet.process(name))[0] for name in "ab"] == ["value 1"] * 2
        assert fleet.telemetry.counts["PagesMalformed"] == 1

    def test_every_copy_is_written_and_each_process_reads_its_own(self, fleet):
        """So no node of Redis carries all of them."""
        fleet.get(fleet.process("a"))
        assert {copy for _, _, copy in fleet.store.pages} == {0, 1, 2}
        fleet.store.calls.clear()
        caches = [fleet.process(f"e{index}") for index in range(20)]
        for cache in caches * 3:
            fleet.get(cache)
            fleet.pass_ms(13)
        asked = [call for call in fleet.store.calls if call.startswith("get")]
        assert set(asked) == {"get 0", "get 1", "get 2"}
        assert (asked[:20], fleet.loads) == (asked[20:40], 1)

    def test_a_value_that_is_too_large_for_redis_is_kept_in_memory_only(self, fleet):
        """Its process knows then, and asks Redis no more for it."""
        fleet.text = "x" * (MAX_SHARED_BYTES + 1)
        cache = fleet.process()
        fleet.get(cache)
        assert fleet.store.pages == {}
        fleet.store.calls.clear()
        fleet.pass_ms(1_000)
        assert [fleet.get(cache).origin, fleet.get(cache).origin] == [Origin.LOADED, Origin.L1]
        assert fleet.store.calls == []

    def test_an_older_value_that_arrives_later_does_not_replace_the_newer_one(self, fleet):
        """As long as a process may serve the newer one; afterwards the older one is at least within the bound."""
        cache, now_ms = fleet.process(), fleet.clock.now_ms
        fleet.store.put(*KEY, StoredPage("newer", now_ms - 700, 3_000, 20, 1.0))
        assert fleet.seen(cache) == ("newer", Origin.REDIS, 700)
        fleet.store.put(*KEY, StoredPage("older", now_ms - 950, 3_000, 20, 1.0))
        fleet.pass_ms(249)
        fleet.store.take_lease(*KEY, 250)
        assert fleet.seen(cache) == ("newer", Origin.L1, 949)
        fleet.pass_ms(251)
        fleet.store.take_lease(*KEY, 250)
        assert fleet.seen(cache) == ("older", Origin.REDIS, 1_450)

    def test_a_stale_value_of_redis_does_not_replace_a_newer_one_that_was_loaded(self, fleet):
        """The process loaded without the lease; Redis still has what came before."""
        cache, now_ms = fleet.process(), fleet.clock.now_ms
        fleet.store.take_lease(*KEY, 250)
        fleet.get(cache)  # loads for itself, at `now_ms`
        fleet.store.put(*KEY, StoredPage("older", now_ms - 600, 3_000, 20, 1.0))
        fleet.pass_ms(1_000)
        fleet.store.take_lease(*KEY, 250)
        assert fleet.seen(cache) == ("value 1", Origin.L1, 1_000 + LOAD_MS)

    def test_a_frozen_process_serves_no_value_of_before(self, fleet):
        """Its monotonic clock may have stood still all the while."""
        frozen = fleet.process(timer=ElapsedTime(lambda: 0.0, lambda: fleet.clock.now_ms / 1000))
        fleet.get(frozen)
        fleet.pass_ms(480_000)
        assert fleet.seen(frozen) == ("value 2", Origin.LOADED, LOAD_MS)


class TestProcess:
    """What a process does alone, without Redis."""

    @pytest.fixture
    def cache(self, fleet):
        return fleet.process(store=None, excused=(Exception,), max_entries=2, max_bytes=100)

    @pytest.mark.parametrize(
        ("sizes", "kept"),
        [
            ({"a": 1, "b": 1, "c": 1}, "bc"),  # two values at the most: the least recently used one goes first
            ({"a": 60, "b": 50}, "b"),  # 100 bytes at the most
            ({"a": 60, "b": 101}, "a"),  # one that is larger than all of it is not kept, nor are others dropped for it
        ],
    )
    def test_memory_is_bounded(self, fleet, cache, sizes, kept):
        for name, size in sizes.items():
            fleet.text = "x" * size
            fleet.get(cache, key=(name, ""))
        fleet.text = None
        found = {name for name in reversed(sizes) if fleet.get(cache, key=(name, "")).origin is Origin.L1}
        assert found == set(kept)

    def test_a_caller_may_change_what_it_gets(self, fleet, cache):
        for _ in range(3):
            found = fleet.get(cache).value
            assert found == ["value 1"]
            found.append("changed")

    def test_an_error_is_not_kept_and_excused_within_the_bound(self, fleet, cache):
        fleet.failures = [ValueError("once")]
        with pytest.raises(ValueError, match="once"):
            fleet.get(cache)
        assert fleet.seen(cache)[0] == "value 2"
        fleet.pass_ms(2_000)
        fleet.failures = [ValueError("twice")]
        assert fleet.seen(cache)[:2] == ("value 2", Origin.L1)
        fleet.pass_ms(1_000)
        fleet.failures = [ValueError("too late")]
        with pytest.raises(ValueError, match="too late"):
            fleet.get(cache)

    def test_a_process_reads_its_own_changes(self, fleet):
        """Also where Redis has an older value, and where a load was under way while the change was made."""
        cache, other = fleet.process("a"), fleet.process("b")
        fleet.get(other)
        cache.forget(KEY[0])
        fleet.on_load = lambda: cache.forget(KEY[0])
        assert fleet.seen(cache)[:2] == ("value 2", Origin.LOADED)
        fleet.on_load = lambda: None
        fleet.pass_ms(1)
        assert fleet.seen(cache)[:2] == ("value 3", Origin.LOADED)
        assert fleet.seen(cache)[:2] == ("value 3", Origin.L1)

    def test_several_values_are_each_as_fresh_as_one(self, fleet):
        """Also where Redis has a stale one; and what passes the bound while others are loaded is loaded, too."""
        cache, keys = fleet.process(), [("c", "1"), ("c", "2")]

        def seen(keys):
            return [
                found.value[0] for found in cache.get_many(keys, lambda keys: {k: fleet.load() for k in keys}).values()
            ]

        assert [seen(keys[:1]), seen(keys[:1])] == [["value 1"]] * 2
        fleet.pass_ms(LIMITS.ttl_ms + 100)
        assert seen(keys[:1]) == ["value 2"]
        fleet.on_load = lambda: fleet.pass_ms(LIMITS.bound_ms if fleet.loads == 3 else 0)
        assert seen(keys) == ["value 4", "value 3"]

    def test_many_changes_take_bounded_memory(self, fleet, cache):
        """Above the limit, all values count as changed."""
        fleet.get(cache)
        for index in range(MAX_REMEMBERED + 1):
            cache.forget(f"k{index}")
        assert len(cache._changes.at_ms) <= MAX_REMEMBERED
        fleet.pass_ms(1)
        assert fleet.seen(cache)[0] == "value 2"


class World:
    """Virtual time on the simulator's engine. Tasks give way at each look at the clock, store, load and wait."""

    def __init__(self, seed, *, late_ms=4_500):
        random = Random(seed)
        self.engine = Engine()
        self.draw = lambda most: random.choice((0, most, random.randint(0, most)))
        self.clock = Clock(now_ms=self.engine.now_ms, sleep=self.engine.sleep, random=random.random)
        self.pages = FakePageStore(self.engine.now_ms)
        self.store = SimpleNamespace(
            get=lambda *key: self.call(60, lambda: self.pages.get(*key)),
            take_lease=lambda *key: self.call(60, lambda: self.pages.take_lease(*key)),
            put=lambda *key: self.call(late_ms, lambda: self.pages.put(*key)),
        )

    def call(self, out_ms, effect):
        return self.engine.call(self.draw(out_ms) / 1000, effect, self.draw(60) / 1000)

    def process(self, name="e", *, gives_way=False, **values):
        def timer():
            if gives_way:
                self.engine.sleep(0.0)
            return self.engine.now

        return ReadCache(
            **{
                "codec": Text(),
                "limits": LIMITS,
                "telemetry": FakeTelemetry(),
                "clock": self.clock,
                "timer": timer,
                "store": self.store,
                "environment_id": name,
                "new_event": lambda: Landing(self.engine),
                **values,
            }
        )

    def at(self, ms, work):
        self.engine.at(ms / 1000, lambda: self.engine.spawn(work))

    def run(self):
        self.engine.run_until(inf)
        self.engine.close()


def get_one(cache, load):
    return cache.get(KEY, load)


def get_together(cache, load):
    """Ask for several values, one of which is at hand."""
    cache.get(("other", ""), lambda: (["other"], 1.0))
    found = cache.get_many([KEY, ("other", "")], lambda keys: {key: load() for key in keys})
    return found[KEY]


class Died(BaseException):
    """Ends a thread, as `SystemExit` does."""


@pytest.mark.parametrize("seeds", [range(100), pytest.param(range(100, 1_000), marks=pytest.mark.long)])
@pytest.mark.parametrize("ends", ["loads", "fails", "dies"])
def test_one_thread_loads_and_sixty_three_wait(ends, seeds):
    """In every order of steps: one load, which all get; an error, which all get; or a death, after which one loads."""
    for seed in seeds:
        world = World(seed)
        cache = world.process(store=None, gives_way=True)
        loads, served, failed = [], [], []

        def load(world=world, loads=loads):
            loads.append(world.engine.now)
            world.engine.sleep(0.02)
            if ends == "fails":
                raise StoreUnavailableError
            if ends == "dies" and len(loads) == 1:
                raise Died
            return ["value"], 1.0

        def ask(cache=cache, load=load, served=served, failed=failed, is_one=seed % 2):
            try:
                get = get_one if is_one or len(served) % 2 else get_together
                served.append(get(cache, load).value)
            except (StoreUnavailableError, Died) as error:
                failed.append(type(error))

        for _ in range(64):
            world.at(world.draw(15), ask)
        world.run()
        expected = {
            "loads": (1, [["value"]] * 64, []),
            "fails": (1, [], [StoreUnavailableError] * 64),
            "dies": (2, [["value"]] * 63, [Died]),
        }
        assert (len(loads), served, failed) == expected[ends], seed


def test_a_waiting_thread_has_its_own_time_limit():
    """It loads itself then, as it would have done without the cache."""
    world = World(1)
    cache = world.process(store=None)
    served = []
    world.at(0, lambda: cache.get(KEY, lambda: (world.engine.sleep(9.0), (["slow"], 1.0))[1]))
    world.at(1, lambda: served.append((cache.get(KEY, lambda: (["own"], 1.0), remaining_ms=200), world.engine.now)))
    world.run()
    assert [(found.value, at) for found, at in served] == [(["own"], 0.201)]


def test_a_load_that_began_before_a_change_serves_no_later_request():
    """Another thread of the process changes the value while it is loaded."""
    world = World(1)
    cache = world.process(store=None)
    served = []

    def ask():
        began = world.engine.now
        served.append(cache.get(KEY, lambda: (world.engine.sleep(0.1), ([f"of {began}"], 1.0))[1]).value)

    world.at(0, ask)
    world.at(10, lambda: cache.forget(KEY[0]))
    world.at(20, ask)
    world.run()
    assert served == [["of 0.0"], ["of 0.02"]]


def test_other_threads_do_not_wait_until_the_value_is_in_redis():
    world = World(1)
    world.store.put = lambda *_: world.engine.sleep(4.0)
    cache = world.process()
    ended = []
    for at_ms in (0, 5):
        world.at(at_ms, lambda: ended.append((cache.get(KEY, lambda: (["value"], 1.0)), world.engine.now)))
    world.run()
    assert [at > 4 for _, at in ended] == [False, True]


REQUESTS = st.lists(
    st.tuples(
        # When: around the first load, and around when it reaches the bound, no process having loaded in between.
        st.one_of(st.integers(0, 300), st.integers(2_200, 3_300), st.integers(0, 8_000)),
        st.integers(0, 4),  # by which process
        st.sampled_from([4, 20, 400, 1_500]),  # what a load takes
        st.sampled_from([False, False, False, False, True]),  # whether its process dies
    ),
    min_size=20,
    max_size=60,
)
TROUBLES = st.lists(st.tuples(st.integers(0, 8_000), st.sampled_from(["away", "back", "emptied", "refuse", "serve"])))


class Rush:
    """Requests to five processes, of which any dies in the middle of a load, and what came of them."""

    def __init__(self, world):
        self.world = world
        self.caches = [world.process(f"e{index}") for index in range(5)]
        self.served, self.refused = [], 0
        self.is_throttled, self.refused_at_ms = False, -inf

    def load(self, index, load_ms, *, dies):
        began_ms = self.world.engine.now_ms()
        self.world.engine.sleep(load_ms / 2_000)
        if dies:
            self.caches[index] = self.world.process(f"e{index}")
            raise Died
        self.world.engine.sleep(load_ms / 2_000)
        if self.is_throttled:
            self.refused_at_ms = self.world.engine.now_ms()
            raise StoreUnavailableError
        return [str(began_ms)], 1.0

    def ask(self, index, load_ms, *, dies):
        asked_at_ms = self.world.engine.now_ms()
        try:
            get = get_one if index < 3 else get_together
            found = get(self.caches[index], lambda: self.load(index, load_ms, dies=dies))
        except Died:
            return
        except RetryLaterError:
            assert self.world.engine.now_ms() - self.refused_at_ms < 1.5 * REFUSED_MS
            self.refused += 1
            return
        read_at_ms = int(found.value[0])
        self.served.append((found.age_ms, self.world.engine.now_ms() - read_at_ms, read_at_ms >= asked_at_ms))

    def trouble(self, what):
        match what:
            case "away" | "back":
                self.world.pages.is_down = what == "away"
            case "emptied":
                self.world.pages.pages.clear()
            case _:
                self.is_throttled = what == "refuse"


@pytest.mark.slow
@given(seed=st.integers(0, 2**32), requests=REQUESTS, troubles=TROUBLES)
@settings(max_examples=150)
def test_nothing_is_served_that_is_older_than_the_bound(seed, requests, troubles):
    """Nor is an age reported that is too small, whoever dies, and however late values reach Redis.

    No request fails but those whose own load was refused, or that another's load refused a moment ago.
    """
    world = World(seed)
    rush = Rush(world)
    for at_ms, index, load_ms, dies in requests:
        world.at(at_ms, lambda index=index, load_ms=load_ms, dies=dies: rush.ask(index, load_ms, dies=dies))
    for at_ms, what in troubles:
        world.at(at_ms, lambda what=what: rush.trouble(what))
    world.run()
    assert len(rush.served) + rush.refused >= len(requests) - sum(dies for *_, dies in requests)
    # A value that was loaded for this very request is as new as the request could have it.
    assert [age for _, age, is_own in rush.served if not is_own and age > LIMITS.bound_ms] == []
    assert [each for each in rush.served if each[0] < each[1] - 1] == []


@pytest.mark.slow
@given(seed=st.integers(0, 2**32))
@settings(max_examples=15)
def test_without_trouble_the_fleet_loads_once_a_lease(seed):
    """And no age passes the TTL by more than a lease and a load."""
    world = World(seed, late_ms=5)
    caches = [world.process(f"e{index}") for index in range(5)]
    loads, ages = [], []

    def load():
        loads.append(world.engine.now)
        world.engine.sleep(0.02)
        return ["value"], 1.0

    for index, cache in enumerate(caches):
        for at_ms in range(0, 8_000, 50):
            world.at(at_ms + index, lambda cache=cache: ages.append(cache.get(KEY, load).age_ms))
    world.run()
    assert max(ages) <= LIMITS.ttl_ms + LEASE_MS + 200
    assert len(loads) <= 8_400 / LEASE_MS + 5
