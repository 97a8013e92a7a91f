"""The routes of a process: bounded, short-lived, never forgetful, confirmed for writes, asked for by one at a time.

It is about when a look-up is due: several tests name the last millisecond before it and the first one after.
"""

from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from hotpartition.core.errors import ThrottledError
from hotpartition.core.ports import JournalEntry
from hotpartition.engine.registry_routes import RegistryRoutes
from hotpartition.engine.route_cache import RouteCache
from hotpartition.redis.cluster import read_hot_key
from support.builders import route_of
from support.fakes import FakeClock, FakeTelemetry
from support.tables import TABLE_NAME
from support.world import Registry, Table

from .conftest import failing

NEVER_RAISED, FOUR, EIGHT = route_of(), route_of((4, 0)), route_of((8, 0))


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
            **{"ttl_seconds": 2.0, **options},
        )

    def raise_to(self, route):
        self.registry.routes["c"], self.table.routes["c"] = route, JournalEntry(route)

    def end_read_hot(self):
        self.registry.server.do("DEL", read_hot_key(TABLE_NAME, "c"))

    def write(self, now_ms):
        self.clock.now_ms = now_ms
        return self.routes.for_write("c")

    def read(self, now_ms):
        self.clock.now_ms = now_ms
        return self.routes.for_read("c")

    @property
    def look_ups(self):
        return self.table.calls.count("get c")


@pytest.fixture
def process():
    return Process()


def test_what_was_learned_longest_ago_goes_first():
    """What is in use stays, since it is learned again when its TTL ends. A look-up changes and draws nothing."""
    draws = []
    cache = RouteCache(ttl_seconds=2.0, max_entries=2, random=lambda: draws.append(0) or 0.5)
    for name in ("a", "b", "a"):
        cache.learn(name, 0, shown=FOUR)
    for now_ms in (0, 5_000):
        cache.get_fresh("b", now_ms)
        cache.peek("b")
    assert len(draws) == 3
    cache.learn("c", 0, shown=FOUR)
    assert [cache.peek(name).shown for name in ("a", "b", "c")] == [FOUR, NEVER_RAISED, FOUR]


def test_what_a_throttled_write_learned_is_asked_again_soon(process):
    """It got the route of just before the raise: fresh for a quarter of a second, not for a whole TTL."""
    assert process.write(100) == process.routes.refused("c") == NEVER_RAISED
    process.raise_to(FOUR)
    assert [process.write(now_ms) for now_ms in (349, 350)] == [NEVER_RAISED, FOUR]
    process.raise_to(EIGHT)
    assert process.write(2_349) == FOUR


def test_copies_are_as_fresh_as_the_route(process):
    """One look-up tells both; what is learned elsewhere leaves them. Without Redis, they are known for a minute."""
    process.registry.mark_read_hot("c")
    assert process.read(0) == (NEVER_RAISED, 3)
    assert process.write(0) == NEVER_RAISED
    assert process.registry.reads == 1
    process.end_read_hot()
    process.clock.now_ms = 1_000
    process.routes.learn("c", JournalEntry(FOUR))
    assert [process.read(now_ms).copies for now_ms in (1_999, 2_999, 3_000)] == [3, 3, 0]
    process.registry.mark_read_hot("c")
    assert process.read(5_000).copies == 3
    process.registry.is_down = True
    assert [process.read(now_ms).copies for now_ms in (6_999, 7_000, 66_999, 67_000)] == [3, 3, 3, 0]
    assert process.read(67_000).route == FOUR
    process.registry.is_down = False
    process.end_read_hot()
    assert process.read(67_000).copies == 0


def test_a_process_that_may_not_ask_for_the_mark_does_not():
    """Redis refuses a writer's user all of a look-up that has the mark in it."""
    process = Process(asks_copies=False)
    process.registry.mark_read_hot("c")
    process.raise_to(FOUR)
    assert process.read(0) == (FOUR, 0)


def test_a_process_that_reads_and_writes_asks_redis_once(process):
    """A read's look-up serves the next write, which asks the journal for what Redis showed beyond it; none after it."""
    process.raise_to(FOUR)
    assert (process.read(0).route, process.table.calls) == (FOUR, [])
    assert [process.write(now_ms) for now_ms in (1, 500, 1_000, 5_000)] == [FOUR] * 4
    assert (process.registry.reads, process.look_ups) == (2, 1)


@pytest.mark.parametrize(
    ("writes", "pause_ms", "is_ever_new", "failure", "look_ups"),
    [(3_600, 1_000, False, None, 69), (500, 10, True, None, 50), (100, 10, False, ThrottledError(), 10)],
    ids=["less and less", "ten times a second if they are ever new", "so often if it does not respond"],
)
def test_what_the_journal_does_not_show_is_looked_up_again(writes, pause_ms, is_ever_new, failure, look_ups):
    """Redis may invent: reads ask its shards, writes go on by what the journal has shown. A raise among it is found."""
    process = Process(ttl_seconds=0.0)
    process.table.on_call = failing("get", always=failure)
    for number in range(writes):
        process.registry.routes["c"] = route_of((7, number if is_ever_new else 0))
        assert process.write(number * pause_ms) == NEVER_RAISED
        assert process.read(number * pause_ms).route
    assert process.look_ups == look_ups
    process.table.on_call = lambda _: None
    process.raise_to(FOUR)
    assert process.write(writes * pause_ms + 100) == FOUR


@pytest.mark.parametrize("hint", [NEVER_RAISED, FOUR])
def test_what_a_read_saw_in_the_journal_is_there_for_writes(process, hint):
    """Without another look-up, whether Redis had shown it or not."""
    assert process.read(0).route == NEVER_RAISED
    assert process.routes.learn("c", JournalEntry(FOUR), hint=hint) == FOUR
    assert (process.write(1), process.table.calls) == (FOUR, [])


def test_a_read_of_the_journal_that_lags_is_repeated_a_moment_later(process):
    """Without leases such reads are eventually consistent."""
    process.raise_to(FOUR)
    process.table.lagging["c"] = JournalEntry()
    assert process.write(0) == NEVER_RAISED
    process.table.lagging.clear()
    assert [process.write(now_ms) for now_ms in (249, 250)] == [NEVER_RAISED, FOUR]


def test_what_is_to_be_confirmed_is_bounded(process, monkeypatch):
    """Of the keys that Redis showed last, and of those that the journal did not show."""
    monkeypatch.setattr("hotpartition.engine.registry_routes.MAX_ROUTES", 4)
    monkeypatch.setattr("hotpartition.engine.registry_routes.MAX_UNCONFIRMED", 3)
    names = [f"c{number}" for number in range(10)]
    for name in names:
        process.registry.routes[name] = FOUR
        assert process.routes.for_read(name).route == FOUR
    assert [*process.routes._unchecked] == names[-4:]
    for name in names:
        assert process.routes.for_write(name) == NEVER_RAISED
    assert [*process.routes._unconfirmed] == names[-3:]


def test_concurrent_misses_share_one_request(process):
    """Eight threads that miss the same route at once: Redis and journal are asked once, and all get the response."""
    process.raise_to(FOUR)
    others, look_up = [], process.registry.get_for_reading

    def look_up_late(collection):
        if not others:
            others.extend(pool.submit(process.write, 0) for _ in range(7))
            wait(others, timeout=0.2)
        return look_up(collection)

    process.registry.get_for_reading = look_up_late
    with ThreadPoolExecutor(8) as pool:
        assert [process.write(0), *(other.result() for other in others)] == [FOUR] * 8
    assert (process.registry.reads, process.look_ups) == (1, 1)


@pytest.mark.parametrize("asks_copies", [True, False])
def test_a_request_that_fails_leaves_what_is_known_and_the_next_one_asks_again(asks_copies):
    """What is known outlives its freshness."""
    process = Process(asks_copies=asks_copies)
    process.registry.is_down = True
    assert process.write(0) == NEVER_RAISED
    process.registry.is_down = False
    process.raise_to(FOUR)
    assert process.write(0) == FOUR
    process.registry.is_down = True
    assert process.write(60_000) == FOUR
