"""The routes of a process: bounded, short-lived, never forgetful, confirmed for writes, asked for by one at a time."""

from concurrent.futures import ThreadPoolExecutor, wait
from random import Random
from threading import Event

import pytest

from hotpartition.core.ports import JournalEntry
from hotpartition.engine.registry_routes import RegistryRoutes
from hotpartition.engine.route_cache import RouteCache
from support.builders import route_of
from support.fakes import FakeClock, FakeTelemetry
from support.world import Registry, Table

FOUR, EIGHT = route_of((4, 0)), route_of((8, 0))


def cache(ttl_seconds=2.0, max_entries=10, random=lambda: 0.0):
    return RouteCache(ttl_seconds=ttl_seconds, max_entries=max_entries, random=random)


class Process:
    """Routes in a Redis and a journal in memory, and a clock that each call sets."""

    def __init__(self, **options):
        self.clock = FakeClock(0)
        self.registry, self.table = Registry(self.clock), Table()
        self.routes = RegistryRoutes(
            registry=self.registry,
            journal=self.table.journal,
            telemetry=FakeTelemetry(),
            now_ms=lambda: self.clock.now_ms,
            random=lambda: 0.0,
            ttl_seconds=2.0,
            **options,
        )

    def raise_to(self, route, *, in_journal=True):
        self.registry.routes["c"] = route
        if in_journal:
            self.table.routes["c"] = JournalEntry(route)

    def write(self, now_ms):
        self.clock.now_ms = now_ms
        return self.routes.for_write("c")

    def read(self, now_ms):
        self.clock.now_ms = now_ms
        return self.routes.for_read("c")

    def refused(self, now_ms):
        self.clock.now_ms = now_ms
        return self.routes.refused("c")


def test_an_entry_is_fresh_for_its_ttl_and_known_after_it():
    """A stale route is still a route: what Redis's absence leaves."""
    subject = cache()
    known = subject.learn("c", 1_000, shown=FOUR)
    assert subject.get_fresh("c", 2_999) == known
    assert subject.get_fresh("c", 3_000) is None
    assert subject.peek("c") == known
    assert subject.get_fresh("unknown", 0) is None
    assert subject.peek("unknown").shown == route_of()


def test_a_ttl_shorter_than_after_a_throttle_stays():
    """An operator who wants routes younger than that gets them."""
    subject = cache(ttl_seconds=0.1)
    subject.learn("c", 0, is_brief=True)
    assert [subject.get_fresh("c", now_ms) is None for now_ms in (99, 100)] == [False, True]


def test_learning_never_takes_anything_away():
    """An emptied or set-back Redis does not shrink what is known, and tells writers nothing."""
    subject = cache()
    subject.learn("c", 0, shown=FOUR)
    known = subject.learn("c", 10, hinted=route_of((8, 5)))
    assert (known.hinted, known.shown) == (route_of((4, 0), (8, 5)), FOUR)
    assert subject.learn("c", 20)[:2] == known[:2]


def test_what_was_learned_longest_ago_goes_first():
    """The bound holds, and what is in use stays, since it is learned again when its TTL ends."""
    subject = cache(max_entries=2)
    for name in ("a", "b", "a", "c"):
        subject.learn(name, 0, shown=FOUR)
    assert [subject.peek(name).shown == FOUR for name in ("a", "b", "c")] == [True, False, True]


def test_looking_up_costs_no_draw_and_changes_nothing():
    """Chance is spent when a route is learned; a hit leaves the order of eviction as it is."""
    draws = []
    subject = cache(max_entries=2, random=lambda: draws.append(0) or 0.5)
    for name in ("a", "b"):
        subject.learn(name, 0, shown=FOUR)
    for now_ms in (0, 1, 5_000):
        subject.get_fresh("a", now_ms)
        subject.peek("a")
    assert len(draws) == 2
    subject.learn("c", 0)
    assert subject.peek("a").shown == route_of()


def test_ttls_vary():
    """Entries made at the same time do not end at the same time."""
    subject = cache(random=Random(3).random)
    # The cache is bounded to 10; each of those has its own end between 1.6 and 2 s.
    ends = {subject.learn(f"c{i}", 0).fresh_until_ms for i in range(200)}
    assert len(ends) > 100
    assert 1_600 <= min(ends) <= max(ends) <= 2_000


def test_lookups_beside_a_thread_that_learns_always_find_the_route():
    """A hit takes no lock: an entry that is learned again is there at every moment, and never smaller."""
    subject, is_done = cache(max_entries=100), Event()
    subject.learn("c", 0, shown=route_of((1, 0)))

    def learn_on():
        for n in range(1, 1_000):
            subject.learn("c", 0, shown=route_of((1 + n % 8, 0)))
            subject.learn(f"other-{n}", 0)
        is_done.set()

    seen, largest = 0, 0
    with ThreadPoolExecutor(1) as pool:
        learning = pool.submit(learn_on)
        while not is_done.is_set() or not seen:
            known = subject.get_fresh("c", 0)
            assert known is not None
            assert known.shown.max_shard_count >= largest
            largest, seen = known.shown.max_shard_count, seen + 1
        learning.result()
    assert subject.peek("c").shown.max_shard_count == 8


def test_what_a_throttled_write_learned_is_asked_again_soon():
    """It got the route of just before the raise: fresh for a quarter of a second, not for a whole TTL."""
    process = Process()
    assert process.write(0) == process.refused(100) == route_of()
    process.raise_to(FOUR)
    assert [process.write(now_ms) for now_ms in (349, 350)] == [route_of(), FOUR]
    process.raise_to(EIGHT)
    assert process.write(2_349) == FOUR


def test_copies_are_as_fresh_as_the_route():
    """One look-up tells both; what is learned elsewhere leaves them. Without Redis, they are known for a minute."""
    process = Process()
    process.registry.mark_read_hot("c")
    assert process.read(0) == (route_of(), 3)
    assert process.write(0) == route_of()
    assert process.registry.reads == 1
    process.registry.copies.clear()
    process.clock.now_ms = 1_000
    process.routes.learn("c", JournalEntry(FOUR))
    assert [process.read(now_ms).copies for now_ms in (1_999, 2_999, 3_000)] == [3, 3, 0]
    process.registry.mark_read_hot("c")
    assert process.read(5_000).copies == 3
    process.registry.is_down = True
    assert [process.read(now_ms).copies for now_ms in (6_999, 7_000, 66_999, 67_000)] == [3, 3, 3, 0]
    assert process.read(67_000).route == FOUR
    process.registry.is_down = False
    process.registry.copies.clear()
    assert process.read(67_000).copies == 0


def test_a_process_that_reads_and_writes_asks_redis_once():
    """A read's look-up serves the next write, which asks the journal for what Redis showed beyond it."""
    process = Process()
    process.raise_to(FOUR)
    assert process.read(0).route == FOUR
    assert process.table.calls == []
    assert process.write(1) == FOUR
    assert (process.registry.reads, process.table.calls) == (1, ["get c"])


def test_writes_use_only_what_the_journal_has_shown():
    """Redis may invent; what the journal did not show is looked up again, at longer and longer intervals."""
    process = Process()
    process.raise_to(FOUR, in_journal=False)
    for now_ms in range(0, 20_000, 10):
        assert process.write(now_ms) == route_of()
        assert process.read(now_ms).route == FOUR
    assert 5 <= len(process.table.calls) <= 10


def test_what_a_read_saw_in_the_journal_is_there_for_writes():
    """Without another look-up; Redis is repaired where its hint lacked it."""
    process = Process()
    assert process.read(0).route == route_of()
    assert process.routes.learn("c", JournalEntry(FOUR), hint=route_of()) == FOUR
    assert process.write(1) == FOUR
    assert process.table.calls == []


def test_concurrent_misses_share_one_request():
    """Eight threads that miss the same route at once: Redis and journal are asked once, and all get the response."""
    process = Process()
    process.raise_to(FOUR)
    asked, released, look_up = Event(), Event(), process.registry.get_for_reading

    def wait_and_look_up(collection):
        asked.set()
        assert released.wait(60)
        return look_up(collection)

    process.registry.get_for_reading = wait_and_look_up
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(process.write, 0)
        assert asked.wait(60)
        rest = [pool.submit(process.write, 0) for _ in range(7)]
        done, _ = wait(rest, timeout=0.2)
        assert not done
        released.set()
        responses = [future.result() for future in (first, *rest)]
    assert set(responses) == {FOUR}
    assert (process.registry.reads, process.table.calls) == (1, ["get c"])


@pytest.mark.parametrize("asks_copies", [True, False])
def test_a_failing_request_fails_all_who_wait(asks_copies):
    """Redis away: what is known goes on, and the next one asks again."""
    process = Process(asks_copies=asks_copies)
    process.registry.is_down = True
    assert process.write(0) == route_of()
    process.registry.is_down = False
    process.raise_to(FOUR)
    assert process.write(0) == FOUR
