"""How long cached pages are fresh and usable: by TTL and bound, jittered, refreshed early at random."""

from random import Random

import pytest

from hotpartition.core.freshness import COPIES, CacheLimits, choose_copy, freshness_of_copy, freshness_of_load

LIMITS = CacheLimits(ttl_ms=1_000, bound_ms=3_000)


def freshness(*, cost_ms=0, random=lambda: 0.0):
    return freshness_of_load(LIMITS, read_at_ms=10_000, cost_ms=cost_ms, random=random)


def test_a_page_is_fresh_for_its_ttl_and_usable_up_to_the_bound():
    """From when its read began."""
    assert [freshness().is_fresh_at(now_ms) for now_ms in (10_000, 10_999, 11_000)] == [True, True, False]
    assert [freshness().is_usable_at(now_ms) for now_ms in (10_000, 12_999, 13_000)] == [True, True, False]


def test_ttls_vary_by_a_fifth():
    """So that environments that got a page together do not find it stale together."""
    random = Random(1).random
    ends = [freshness(random=random).fresh_until_ms for _ in range(1_000)]
    assert 10_800 <= min(ends) < 10_810
    assert 10_990 < max(ends) <= 11_000


def test_the_more_a_page_costs_the_earlier_somebody_refreshes_it():
    """The mean is its cost, as XFetch has it; never by more than half of the TTL."""
    random = Random(2).random
    draws = [iter([0.0, random()]) for _ in range(5_000)]
    early = [11_000 - freshness(cost_ms=20, random=lambda draw=draw: next(draw)).fresh_until_ms for draw in draws]
    assert sum(early) / len(early) == pytest.approx(20, rel=0.1)
    assert freshness(cost_ms=60_000, random=iter([0.0, 0.9]).__next__).fresh_until_ms == 10_500


def test_what_redis_gave_is_kept_for_a_quarter_of_the_ttl():
    """However young it is, and however much of the bound is left: Redis's own part of the bound ends there."""
    copied = freshness_of_copy(LIMITS, asked_at_ms=10_100, age_ms=100, cost_ms=0, random=lambda: 0.0)
    assert copied == (10_000, 10_350, 10_350)
    assert LIMITS.keep_ms + LIMITS.l1_ms == LIMITS.bound_ms


def test_a_page_from_redis_is_no_longer_fresh_than_its_age_allows():
    """Its age is counted from when Redis was asked: it was no older then than Redis said later."""
    copied = freshness_of_copy(LIMITS, asked_at_ms=10_100, age_ms=900, cost_ms=0, random=lambda: 0.0)
    assert copied == (9_200, 10_200, 10_350)


def test_a_lease_is_no_longer_than_the_ttl():
    """A quarter of a second at most."""
    assert [CacheLimits(ttl_ms, 3 * ttl_ms).lease_ms for ttl_ms in (100.0, 1_000.0)] == [100, 250]


def test_environments_spread_over_the_copies_and_keep_theirs():
    """Evenly, by their ids alone."""
    chosen = [choose_copy(f"environment-{index}") for index in range(8_000)]
    assert chosen == [choose_copy(f"environment-{index}") for index in range(8_000)]
    assert all(2_500 < chosen.count(copy) < 2_834 for copy in range(COPIES))
