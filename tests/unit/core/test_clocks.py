"""DynamoDB's time by the `Date` of its responses; how long cached pages are fresh and usable.

It holds the tests of two modules, `times` and `freshness`, and each rule of either has its own.
"""

from datetime import UTC, datetime
from email.utils import format_datetime
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotpartition.core.freshness import COPIES, CacheLimits, choose_copy, freshness_of_copy, freshness_of_load
from hotpartition.core.times import DRIFT_MS, StoreClock, read_date

NOW_MS = 1_700_000_000_000


def date(store_ms):
    return read_date(format_datetime(datetime.fromtimestamp(store_ms // 1000, UTC), usegmt=True))


@given(
    skew_ms=st.integers(-(10**8), 10**8),
    responses=st.lists(st.tuples(st.integers(0, 60_000), st.integers(1, 400)), min_size=1, max_size=20),
)
def test_the_error_is_never_more_than_what_one_response_leaves(skew_ms, responses):
    """A second and the time that the response took, whatever the process's clock says."""
    clock = StoreClock()
    for after_ms, took_ms in sorted(responses):
        store_ms = NOW_MS + after_ms
        sent_ms = store_ms + skew_ms
        clock.learn(date(store_ms + took_ms // 2), sent_ms, sent_ms + took_ms)
        error_ms = clock.at(sent_ms + took_ms) - (store_ms + took_ms)
        assert abs(error_ms) <= 1_000 + took_ms + len(responses) * DRIFT_MS


def test_a_clock_that_no_response_contradicts_is_trusted():
    clock = StoreClock()
    assert clock.at(NOW_MS) == NOW_MS
    clock.learn(date(NOW_MS), NOW_MS + 300, NOW_MS + 310)
    assert clock.at(NOW_MS + 400) == NOW_MS + 400


def test_many_responses_bound_it_closely():
    clock, skew_ms = StoreClock(), 90_000
    for store_ms in range(NOW_MS, NOW_MS + 10_000, 130):
        clock.learn(date(store_ms), store_ms + skew_ms, store_ms + skew_ms + 5)
    assert abs(clock.at(NOW_MS + 10_000 + skew_ms) - (NOW_MS + 10_000)) <= 150


def test_a_clock_that_is_set_is_measured_anew():
    clock = StoreClock()
    clock.learn(date(NOW_MS), NOW_MS + 60_000, NOW_MS + 60_010)
    clock.learn(date(NOW_MS + 5_000), NOW_MS + 5_000, NOW_MS + 5_010)
    assert abs(clock.at(NOW_MS + 6_000) - (NOW_MS + 6_000)) <= 1_010


@pytest.mark.parametrize("told", [None, "", "yesterday", "2026-11-23T00:00:00Z"])
def test_a_date_that_cannot_be_read_tells_nothing(told):
    clock = StoreClock()
    clock.learn(read_date(told), NOW_MS, NOW_MS)
    assert clock.at(NOW_MS) == NOW_MS


LIMITS = CacheLimits(ttl_ms=1_000, bound_ms=3_000)


def freshness(*, cost_ms=0, random=lambda: 0.0):
    return freshness_of_load(LIMITS, read_at_ms=10_000, cost_ms=cost_ms, random=random)


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


@pytest.mark.parametrize(("age_ms", "kept"), [(100, (10_000, 10_350, 10_350)), (900, (9_200, 10_200, 10_350))])
def test_what_redis_gave_is_kept_for_a_quarter_of_the_ttl(age_ms, kept):
    """However young it is, and however much of the bound is left: Redis's own part of the bound ends there.

    It is no longer fresh than its age allows, counted from when Redis was asked: it was no older then.
    """
    assert freshness_of_copy(LIMITS, asked_at_ms=10_100, age_ms=age_ms, cost_ms=0, random=lambda: 0.0) == kept
    assert LIMITS.keep_ms + LIMITS.l1_ms == LIMITS.bound_ms


def test_a_lease_is_no_longer_than_the_ttl():
    """A quarter of a second at most."""
    assert [CacheLimits(ttl_ms, 3 * ttl_ms).lease_ms for ttl_ms in (100.0, 1_000.0)] == [100, 250]


def test_environments_spread_over_the_copies_and_keep_theirs():
    """Evenly, by their ids alone."""
    chosen = [choose_copy(f"environment-{index}") for index in range(8_000)]
    assert chosen == [choose_copy(f"environment-{index}") for index in range(8_000)]
    assert all(2_500 < chosen.count(copy) < 2_834 for copy in range(COPIES))
