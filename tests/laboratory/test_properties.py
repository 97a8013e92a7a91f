"""What holds for any traffic."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.limits import (
    Demand,
    Kind,
    OnDemand,
    Partitions,
    Resource,
    Table,
    TableConfig,
    admit,
)

LIMIT = 20.0
KEYS = [f"k{number}" for number in range(8)]
FEW = Partitions(write_limit_wcu=LIMIT, read_limit_rcu=LIMIT, count=3)

gaps = st.floats(0, 1.5, allow_subnormal=False)
units = st.one_of(st.integers(1, 20), st.floats(0.5, 20))
requests = st.lists(st.tuples(gaps, st.sampled_from(KEYS), units), min_size=1, max_size=150)


UNLIMITED = OnDemand(quota_wcu=None, quota_rcu=None)


def build():
    return Table(TableConfig(throughput=UNLIMITED, partitions=FEW))


def build_index():
    return Resource("index", UNLIMITED, FEW, is_index=True)


def _demands(table, index, key, index_key, amount):
    return [Demand(table, Kind.WRITE, key, amount), Demand(index, Kind.WRITE, index_key, amount)]


def most_over_any_window(taken, limit):
    """Return by how much the units of any window [a, b] exceed `limit` x (b - a + 1 s), at most."""
    excess = [
        units_before - limit * at
        for (at, _), units_before in zip(taken, [0, *accumulate(u for _, u in taken)], strict=False)
    ]
    most = -limit
    for end, total in enumerate(accumulate(amount for _, amount in taken)):
        most = max(most, total - limit * taken[end][0] - min(excess[: end + 1]) - limit)
    return most


@given(requests, st.booleans())
def test_no_partition_takes_more_than_its_limit_in_any_window(asked, reads):
    """In any T seconds at most T + 1 seconds' worth, whatever came before; and the debt of one read."""
    table = build()
    now = 0.0
    taken = {}
    for gap, key, amount in asked:
        now += gap
        if (table.read if reads else table.write)(key, amount, now) is None:
            taken.setdefault(table.partition_index(key), []).append((now, amount))
    for each in taken.values():
        debt = max(units for _, units in each) if reads else 0
        assert most_over_any_window(each, LIMIT) <= debt + 1e-3


@given(requests, st.lists(st.sampled_from(KEYS), min_size=1, max_size=3))
def test_a_refusal_takes_nothing(asked, index_keys):
    """Two tables, one of which is never asked what the other refuses: they end with the same levels."""
    table, spared = build(), build()
    index, spared_index = build_index(), build_index()
    now = 0.0
    for number, (gap, key, amount) in enumerate(asked):
        now += gap
        index_key = index_keys[number % len(index_keys)]
        if admit(_demands(table, index, key, index_key, amount), now) is None:
            assert admit(_demands(spared, spared_index, key, index_key, amount), now) is None
    for key in KEYS:
        for one, other in ((table, spared), (index, spared_index)):
            levels = [[bucket.level(now) for bucket in each.buckets(Kind.WRITE, key, now)] for each in (one, other)]
            assert levels[0] == levels[1]


@settings(max_examples=25)
@given(st.floats(5, 60), st.sampled_from([0.02, 0.1, 0.5]), st.integers(3, 12))
def test_an_interval_takes_what_its_single_writes_would(rate, step, seconds):
    """The aggregated entry against writes of 0.01 units one by one: equal within a step's worth."""
    apart, together = build(), build()
    single = sum(
        0.01 * (apart.write("a", 0.01, number * 0.01 / rate) is None) for number in range(round(seconds * rate * 100))
    )
    steps = round(seconds / step)
    summed = sum(together.write_many("a", rate * step, (n + 1) * step, step).units for n in range(steps))
    assert summed == pytest.approx(single, abs=0.05 + 1e-3 * single)


@settings(max_examples=25)
@given(st.floats(1, 200), st.sampled_from([0.1, 1.0, 2.5]))
def test_evenly_spread_traffic_takes_what_its_partitions_have(demand, step):
    """Three partitions of equal width: three times the limit at most, and all that is demanded below it."""
    table = build()
    steps = 20
    taken = sum(table.write_evenly(demand * step, (n + 1) * step, step).units for n in range(steps))
    seconds = steps * step
    assert taken == pytest.approx(min(demand * seconds, 3 * LIMIT * (seconds + 1)))
