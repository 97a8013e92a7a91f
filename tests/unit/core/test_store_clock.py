"""DynamoDB's time, by the `Date` of its responses."""

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotpartition.core.store_clock import DRIFT_MS, StoreClock, read_date

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
