"""The page cache under any interleaving: environments whose wall clocks disagree and that die at any point, one Redis.

Each request runs as a task of the simulator's engine, and gives way at every call to Redis and DynamoDB and at every
wait, for as long as hypothesis likes.
"""

from collections.abc import Callable
from math import inf
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotpartition.core.backoff import Clock
from hotpartition.core.errors import RegistryUnavailableError, RetryLaterError, StoreUnavailableError
from hotpartition.core.page_freshness import LEASE_MS
from hotpartition.engine.page_cache import REFUSED_MS, Origin, PageCache
from hotpartition.redis.pages import RedisPageStore
from support.fakes import FakeTelemetry
from tools.world.clock import Engine

from .test_page_cache import LIMITS, Text

pytestmark = pytest.mark.slow

COMMAND_MS = 60
"""What a response of Redis may take before its client gives up: two attempts of 30 ms."""
LATE_MS = 4_500
"""How late a page may reach Redis: its process or its connection is starved, while Redis is well."""
REDIS_SKEW_MS = -37_000
"""By how much Redis's clock differs from everybody's."""


class Served(NamedTuple):
    """A page that was served: when, when its read and its request began, and the age that was reported."""

    at_ms: int
    read_at_ms: int
    asked_at_ms: int
    age_ms: int
    origin: Origin

    @property
    def true_age_ms(self) -> int:
        return self.at_ms - self.read_at_ms


class World:
    """Virtual time, Redis, and a DynamoDB whose newest page tells when it was read."""

    def __init__(self, draw: Callable[[int], int], *, late_ms: int = LATE_MS):
        self.engine = Engine()
        self.late_ms = late_ms
        self.draw = draw
        self.store = Redis(self)
        self.fills: list[int] = []
        self.served: list[Served] = []
        self.refused = 0
        self.refused_at_ms = 0
        self.is_throttled = False

    @property
    def now_ms(self) -> int:
        return self.engine.now_ms()

    def at(self, ms: int, work: Callable[[], None]) -> None:
        self.engine.at(ms / 1000, lambda: self.engine.spawn(work))

    def pause(self, ms: float) -> None:
        self.engine.sleep(ms / 1000)

    def die(self) -> None:
        """Stop the environment that is at work, for ever."""
        self.engine.wait(lambda _: False, None)

    def run(self) -> None:
        self.engine.run_until(inf)
        self.engine.close()


class Redis:
    """The commands of cached pages, on a clock of its own. It takes its time on the way there and back, or is away.

    It is a connection and its client at once; fields of hashes end when they should.
    """

    def __init__(self, world: World):
        self.world = world
        self.is_down = False
        self.fields: dict[tuple[str, str], tuple[str, int]] = {}

    @property
    def now_ms(self) -> int:
        return self.world.now_ms + REDIS_SKEW_MS

    def call(self, key, command):
        return command(self)

    def hget(self, key, name):
        return self._send(COMMAND_MS, lambda: self._run("HGET", key, name))

    def run_together(self, key, *commands):
        return self._send(COMMAND_MS, lambda: [self._run(*command) for command in commands])

    def hsetex(self, key, name, value, *, pxat):
        self._send(self.world.late_ms, lambda: self.fields.update({(key, name): (value, pxat)}))

    def _send(self, most_ms, effect):
        def arrive():
            if self.is_down:
                raise RegistryUnavailableError("down")
            return effect()

        return self.world.engine.call(self.world.draw(most_ms) / 1000, arrive, self.world.draw(COMMAND_MS) / 1000)

    def _run(self, command, key, *words):
        value, ends_at_ms = self.fields.get((key, words[-2] if command == "HSETEX" else words[-1]), ("", 0))
        is_there = self.now_ms < ends_at_ms
        match command:
            case "HGET":
                return value if is_there else None
            case "HPTTL":
                return [ends_at_ms - self.now_ms if is_there else -2]
            case "HPEXPIRETIME":
                return [ends_at_ms if is_there else -2]
            case "HSETEX":
                if not is_there:
                    self.fields[key, words[-2]] = words[-1], self.now_ms + words[2]
                return int(not is_there)


def environment(world: World, name: str, skew_ms: int) -> PageCache[str]:
    clock = Clock(
        now_ms=lambda: world.now_ms + skew_ms,
        sleep=lambda seconds: world.pause(seconds * 1000),
        random=lambda: world.draw(99) / 100,
    )
    started_ms = world.now_ms + skew_ms % 1_000

    def timer() -> float:
        return (world.now_ms - started_ms) / 1000

    return PageCache(
        store=RedisPageStore(world.store, "t", FakeTelemetry(), timer),
        codec=Text(),
        limits=LIMITS,
        telemetry=FakeTelemetry(),
        clock=clock,
        timer=timer,
        environment_id=name,
        max_entries=10,
        max_bytes=10_000,
    )


def request(world: World, cache: PageCache[str], copies: int, *, read_ms: int, dies: bool) -> Callable[[], None]:
    """Build a request; one that dies does so in the middle of its read."""

    def fill() -> tuple[str, float]:
        world.fills.append(world.now_ms)
        began_ms = world.now_ms
        world.pause(read_ms / 2)
        if dies:
            world.die()
        world.pause(read_ms / 2)
        if world.is_throttled:
            world.refused_at_ms = world.now_ms
            raise StoreUnavailableError
        return str(began_ms), 1.0

    def work() -> None:
        asked_at_ms = world.now_ms
        try:
            page = cache.get_page("c", "newest", copies, fill)
        except RetryLaterError:
            assert world.now_ms - world.refused_at_ms < 1.5 * REFUSED_MS
            world.refused += 1
            return
        world.served.append(Served(world.now_ms, int(page.page), asked_at_ms, page.age_ms, page.origin))

    return work


REQUESTS = st.lists(
    st.tuples(
        # When: around the first read, and around when it reaches the bound, nobody having read in between.
        st.one_of(st.integers(0, 300), st.integers(2_200, 3_300), st.integers(0, 8_000)),
        st.integers(0, 4),  # by which environment
        st.sampled_from([1, 1, 1, 2, 3]),  # copies, as it was told
        st.sampled_from([4, 20, 400, 1_500]),  # what a read takes
        st.sampled_from([False, False, False, False, True]),  # whether its environment dies
    ),
    min_size=20,
    max_size=60,
)
SKEWS = st.lists(st.sampled_from([0, 5, -900, -60_000, 60_000]), min_size=5, max_size=5)
TROUBLES = st.lists(st.tuples(st.integers(0, 8_000), st.sampled_from(["away", "back", "emptied", "refuse", "serve"])))


def trouble(world: World, what: str) -> Callable[[], None]:
    def work() -> None:
        match what:
            case "away" | "back":
                world.store.is_down = what == "away"
            case "emptied":
                world.store.fields.clear()
            case _:
                world.is_throttled = what == "refuse"

    return work


@given(seed=st.integers(0, 2**32), skews=SKEWS, requests=REQUESTS, troubles=TROUBLES)
@settings(max_examples=150)
def test_nothing_is_served_that_is_older_than_the_bound(seed, skews, requests, troubles):
    """Nor is an age reported that is too small, whatever wall clocks say, who dies, and how late pages reach Redis.

    No request fails but those whose own read was refused.
    """
    random = Random(seed)
    world = World(lambda most: random.choice((0, most, random.randint(0, most))))
    caches = [environment(world, f"e{index}", skew_ms) for index, skew_ms in enumerate(skews)]
    for at_ms, index, copies, read_ms, dies in requests:
        world.at(at_ms, request(world, caches[index], copies, read_ms=read_ms, dies=dies))
    for at_ms, what in troubles:
        world.at(at_ms, trouble(world, what))
    world.run()
    died = sum(dies for *_, dies in requests)
    assert len(world.served) + world.refused >= len(requests) - died
    # A page that was read for this very request is as new as the request could have it.
    shared = [each for each in world.served if each.read_at_ms < each.asked_at_ms]
    assert [each for each in shared if each.true_age_ms > LIMITS.bound_ms] == []
    assert [each for each in world.served if each.age_ms < each.true_age_ms] == []


@given(seed=st.integers(0, 2**32), requests=REQUESTS)
@settings(max_examples=15)
def test_without_skew_and_trouble_ages_stay_near_the_ttl(seed, requests):
    """A page is stale for no longer than dead holders' leases and one read."""
    random = Random(seed)
    world = World(lambda most: random.randint(0, min(most, 5)), late_ms=5)
    caches = [environment(world, f"e{index}", 0) for index in range(5)]
    for index, cache in enumerate(caches):
        # So many requests that somebody always looks.
        for at_ms in range(0, 8_000, 50):
            world.at(at_ms + index, request(world, cache, 2, read_ms=20, dies=False))
    for at_ms, index, _, _, dies in requests[:8]:
        world.at(at_ms, request(world, caches[index], 2, read_ms=20, dies=dies))
    world.run()
    deaths = sum(dies for *_, dies in requests[:8])
    assert max(each.true_age_ms for each in world.served) <= LIMITS.ttl_ms + (deaths + 1) * LEASE_MS
    # Each lease allows for one read; who died, or waited for one that did, may have read besides.
    assert len(world.fills) <= 8_400 / LEASE_MS + 5 * (deaths + 1)
