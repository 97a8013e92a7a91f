"""The route cache: bounded, short-lived, never forgetful, and asked for by one at a time."""

from concurrent.futures import ThreadPoolExecutor, wait
from random import Random
from threading import Event

import pytest

from hotpartition.engine.route_cache import RouteCache, RouteSource
from support.builders import route_of
from support.fakes import FakeRegistry, FakeTelemetry


def cache(ttl_seconds=2.0, max_entries=10, random=lambda: 0.0):
    return RouteCache(ttl_seconds=ttl_seconds, max_entries=max_entries, random=random)


def test_an_entry_is_fresh_for_its_ttl_and_known_after_it():
    """A stale route is still a route: what Redis's absence leaves."""
    subject = cache()
    subject.learn("c", route_of((4, 0)), 1_000)
    assert subject.get_fresh("c", 2_999) == route_of((4, 0))
    assert subject.get_fresh("c", 3_000) is None
    assert subject.peek("c") == route_of((4, 0))
    assert subject.get_fresh("unknown", 0) is None
    assert subject.peek("unknown") == route_of()


def test_what_a_throttled_write_learned_is_asked_again_soon():
    """It got the route of just before the raise: fresh for a quarter of a second, not for a whole TTL."""
    registry = FakeRegistry()
    source = RouteSource(cache=cache(), registry=registry, telemetry=FakeTelemetry(), timer=lambda: 0.0)
    assert source.get_route("c", 0) == source.refresh_after_throttle("c", 100) == route_of()
    registry.routes["c"] = route_of((4, 0))
    assert source.get_route("c", 349) == route_of()
    assert source.get_route("c", 350) == route_of((4, 0))
    registry.routes["c"] = route_of((8, 0))
    assert source.get_route("c", 2_349) == route_of((4, 0))


def test_copies_are_as_fresh_as_the_route():
    """One look-up tells both; what is learned elsewhere leaves them. Without Redis, they are known for a minute."""
    registry = FakeRegistry()
    source = RouteSource(cache=cache(), registry=registry, telemetry=FakeTelemetry(), timer=lambda: 0.0)
    registry.mark_read_hot("c")
    assert source.get_for_reading("c", 0) == (route_of(), 3)
    assert source.get_route("c", 0) == route_of()
    assert registry.reads == 1
    registry.copies["c"] = 5
    source.learn("c", route_of((4, 0)), 1_000)
    assert [source.get_for_reading("c", now_ms).copies for now_ms in (1_999, 2_999, 3_000)] == [3, 3, 5]
    registry.is_down = True
    assert [source.get_for_reading("c", now_ms).copies for now_ms in (4_999, 5_000, 64_999, 65_000)] == [5, 5, 5, 0]
    assert source.get_for_reading("c", 65_000).route == route_of((4, 0))
    registry.is_down = False
    registry.copies.clear()
    assert source.get_for_reading("c", 65_000).copies == 0


def test_a_ttl_shorter_than_after_a_throttle_stays():
    """An operator who wants routes younger than that gets them."""
    subject = cache(ttl_seconds=0.1)
    subject.learn("c", route_of(), 0, is_brief=True)
    assert [subject.get_fresh("c", now_ms) for now_ms in (99, 100)] == [route_of(), None]


def test_learning_never_takes_anything_away():
    """An emptied or set-back Redis does not shrink what is known."""
    subject = cache()
    subject.learn("c", route_of((4, 0)), 0)
    assert subject.learn("c", route_of((8, 5)), 10) == route_of((4, 0), (8, 5))
    assert subject.learn("c", route_of(), 20) == route_of((4, 0), (8, 5))


def test_what_was_learned_longest_ago_goes_first():
    """The bound holds, and what is in use stays, since it is learned again when its TTL ends."""
    subject = cache(max_entries=2)
    for name in ("a", "b", "a", "c"):
        subject.learn(name, route_of((2, 0)), 0)
    assert [subject.peek(name) != route_of() for name in ("a", "b", "c")] == [True, False, True]


def test_looking_up_costs_no_draw_and_changes_nothing():
    """Chance is spent when a route is learned; a hit leaves the order of eviction as it is."""
    draws = []
    subject = cache(max_entries=2, random=lambda: draws.append(0) or 0.5)
    for name in ("a", "b"):
        subject.learn(name, route_of((2, 0)), 0, cost_ms=1.0)
    spent = len(draws)
    for now_ms in (0, 1, 5_000):
        subject.get_fresh("a", now_ms)
        subject.peek("a")
    assert len(draws) == spent
    subject.learn("c", route_of(), 0)
    assert subject.peek("a") == route_of()


def test_lives_vary():
    """Entries made at the same time do not end at the same time."""
    subject = cache(random=Random(3).random)
    for i in range(200):
        subject.learn(f"c{i}", route_of(), 0)
    # The cache is bounded to 10; each of those has its own end between 1.6 and 2 s.
    ends = {next(t for t in range(1_500, 2_100) if subject.get_fresh(f"c{i}", t) is None) for i in range(190, 200)}
    assert len(ends) > 5
    assert 1_600 <= min(ends) <= max(ends) <= 2_000


@pytest.mark.parametrize(("before_end_ms", "expected"), [(0.5, 0.951), (10, 0.368), (30, 0.0498), (100, 0.0)])
def test_odds_of_an_early_refresh_grow_as_an_entry_ages(before_end_ms, expected):
    """XFetch: with a cost of 10 ms, the odds that an entry is stale x ms before its end are exp(-x / 10)."""
    random, early = Random(11), 0
    for _ in range(5_000):
        draws = iter((0.0, random.random()))  # one for the TTL, which is whole, and one for how early it ends
        subject = cache(random=draws.__next__)
        subject.learn("c", route_of(), 0, cost_ms=10.0)
        early += subject.get_fresh("c", 2_000 - before_end_ms) is None
    assert early / 5_000 == pytest.approx(expected, abs=0.02)


def test_lookups_beside_a_thread_that_learns_always_find_the_route():
    """A hit takes no lock: an entry that is learned again is there at every moment, and never smaller."""
    subject, is_done = cache(max_entries=100), Event()
    subject.learn("c", route_of((1, 0)), 0)

    def learn_on():
        for n in range(1, 1_000):
            subject.learn("c", route_of((1 + n % 8, 0)), 0)
            subject.learn(f"other-{n}", route_of(), 0)
        is_done.set()

    seen, largest = 0, 0
    with ThreadPoolExecutor(1) as pool:
        learning = pool.submit(learn_on)
        while not is_done.is_set() or not seen:
            route = subject.get_fresh("c", 0)
            assert route is not None
            assert route.max_shard_count >= largest
            largest, seen = route.max_shard_count, seen + 1
        learning.result()
    assert subject.peek("c").max_shard_count == 8


class SlowRegistry(FakeRegistry):
    """A registry whose response waits to be released."""

    def __init__(self):
        super().__init__()
        self.asked, self.released = Event(), Event()

    def get(self, conversation_id):
        self.asked.set()
        assert self.released.wait(60)
        return super().get(conversation_id)


def test_concurrent_misses_share_one_request():
    """Eight threads that miss the same route at once: Redis is asked once, and all get its response."""
    registry = SlowRegistry()
    registry.routes["c"] = route_of((4, 0))
    source = RouteSource(cache=cache(), registry=registry, telemetry=FakeTelemetry(), timer=lambda: 0.0)
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(source.get_route, "c", 0)
        assert registry.asked.wait(60)
        rest = [pool.submit(source.get_route, "c", 0) for _ in range(7)]
        done, _ = wait(rest, timeout=0.2)
        assert not done
        registry.released.set()
        responses = [future.result() for future in (first, *rest)]
    assert set(responses) == {route_of((4, 0))}
    assert registry.reads == 1


def test_a_failing_request_fails_all_who_wait():
    """Redis away: everybody goes on with what is known, and the next one asks again."""
    registry = FakeRegistry()
    registry.is_down = True
    source = RouteSource(cache=cache(), registry=registry, telemetry=FakeTelemetry(), timer=lambda: 0.0)
    assert source.get_route("c", 0) == route_of()
    registry.is_down = False
    registry.routes["c"] = route_of((4, 0))
    assert source.get_route("c", 0) == route_of((4, 0))
