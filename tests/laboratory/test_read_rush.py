"""The read rush: with the page cache a few reads serve everybody, without it most are refused."""

from dataclasses import replace

import pytest

from hotpartition.engine.read_cache import ReadCache
from tools.scenarios.read_rush import ReadRush, judge, run_rush
from tools.world.product import Parts

pytestmark = pytest.mark.slow

SMALL = ReadRush(name="small", description="A fiftieth.", seconds=3.0, copies=3, scale=0.02, writes_per_second=1_000.0)


@pytest.fixture(scope="module")
def cached():
    return run_rush(SMALL, 1)


@pytest.fixture(scope="module")
def uncached():
    return run_rush(replace(SMALL, copies=0, seconds=2.0), 1)


def test_a_few_fills_serve_a_read_hot_conversation(cached):
    """Nothing is refused, what is served is fresh, and every page is accounted for."""
    assert [bar.name for bar in judge([cached], bound_ms=3000.0) if not bar.holds] == []
    assert cached.offered == pytest.approx(3_000, rel=0.1)
    by_origin = cached.from_l1 + cached.from_redis + cached.from_waiting + cached.from_dynamodb
    assert by_origin + cached.refused == cached.offered
    assert cached.from_l1 > 0.5 * cached.offered
    assert cached.safety.reads > 0


def test_without_the_cache_most_is_refused(uncached):
    """By the partitions, or for want of an environment that does not wait for them."""
    (bar,) = judge([uncached], bound_ms=3000.0)
    assert bar.holds
    assert uncached.refused + uncached.from_dynamodb == uncached.offered
    assert uncached.throttled_queries > 0


def test_a_rush_that_nobody_knew_of_is_found_and_served():
    """However busy the partitions are by then: those who were refused leave them to the one who reads for all."""
    run = run_rush(replace(SMALL, copies=0, is_watched=True, scale=0.03, seconds=4.0, writes_per_second=0.0), 2)
    assert run.seconds[0].refused > 0.9 * run.seconds[0].offered
    assert [bar.name for bar in judge([run], bound_ms=3000.0) if not bar.holds] == []


def test_the_same_seed_gives_the_same_run(cached):
    """Whatever ran before it in this process."""
    assert run_rush(SMALL, 1) == cached


class OldPages(ReadCache):
    """A page cache that takes no notice of ages: what it has once read it serves for ever."""

    def get(self, key, load, **limits):
        read_once = self.__dict__.setdefault("read_once", {})
        if key not in read_once:
            read_once[key] = super().get(key, load, **limits)
        return read_once[key]


def test_pages_beyond_the_bound_are_found_out():
    """By their age, and by the history checker, which knows no ages: they lack what was written."""
    run = run_rush(replace(SMALL, seconds=5.0), 1, Parts(page_cache=OldPages))
    missed = {bar.name for bar in judge([run], bound_ms=3000.0) if not bar.holds}
    assert "small: age of what was served, longest" in missed
    assert run.safety.found["stale"] > 0
