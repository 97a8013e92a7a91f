"""A quiet hour: steady loads below the threshold are not raised, and how sure that is.

An hour of 50 conversations at 600 WCU/s is 108 million writes. They are not written one by one: what a slot reports is
drawn from its exact distribution (`scale_theory.py` says why). Every window of the hour is compared with the thresholds
and the busiest moments go through the real decision.
"""

from collections.abc import Sequence
from itertools import accumulate
from random import Random

import pytest

from golden.stage import Stage
from hotpartition.core.detector import (
    HORIZON_SLOTS,
    SLOTS_PER_SECOND,
    SUSTAINED_SECONDS,
    SUSTAINED_SLOTS,
    CollectionReports,
    decide,
)
from hotpartition.core.reports import WriteReport
from hotpartition.core.route import EMPTY_ROUTE
from hotpartition.core.sampler import SLOT_MS, slot_of
from support.builders import THRESHOLDS
from support.fleet import START_MS
from tools.simulation.scale import excess_odds, slot_odds

HOUR_SLOTS = 3_600 * SLOTS_PER_SECOND
WARM_CONVERSATIONS = 50
FIRST_SLOT = slot_of(START_MS)


def report_of(slot, index, z, conversation_id="c"):
    """A crossing of an environment that saw nothing else of this conversation in this slot."""
    return WriteReport(conversation_id, slot, f"e{index}", z, slot * SLOT_MS, 0)


def highest_sum(loads: Sequence[float], width: int) -> tuple[float, int]:
    """Find the highest sum of `width` neighbours, and where it ends."""
    totals = [0.0, *accumulate(loads)]
    return max((totals[end] - totals[max(end - width, 0)], end - 1) for end in range(1, len(totals)))


def decide_at(loads: Sequence[float], last: int, z: float):
    """Decide once the window that ends with a slot, and the slot that would tell the size, are over."""
    reports = CollectionReports()
    for slot in range(max(last - HORIZON_SLOTS, 0), min(last + 2, len(loads))):
        for index in range(round(loads[slot] / z)):
            reports.add(report_of(FIRST_SLOT + slot, index, z))
    return decide("c", reports, EMPTY_ROUTE, THRESHOLDS, now_ms=(FIRST_SLOT + last + 3) * SLOT_MS)


@pytest.mark.parametrize(("z", "environments"), [(10.0, 50), (5.0, 2_000)])
def test_an_hour_of_600_wcu_a_second_is_not_raised(z, environments):
    """50 conversations for an hour: no window of any of them is hot, and the decision agrees at the busiest."""
    random, odds = Random(f"warm-{z}"), slot_odds(600.0, z, environments).tolist()
    values, cumulated = [k * z for k in range(len(odds))], list(accumulate(odds))
    for _ in range(WARM_CONVERSATIONS):
        loads = random.choices(values, cum_weights=cumulated, k=HOUR_SLOTS)
        one_second, at = highest_sum(loads, SLOTS_PER_SECOND)
        five_seconds, five_at = highest_sum(loads, SUSTAINED_SLOTS)
        assert one_second <= THRESHOLDS.hot_at_once_wcu
        assert five_seconds / SUSTAINED_SECONDS <= THRESHOLDS.hot_sustained_wcu
        decisions = {d for last in (at, five_at) for d in decide_at(loads, last, z)}
        assert {(str(d.reason), d.generation) for d in decisions} == {("below-threshold", None)}
        assert sum(loads) / 3_600 == pytest.approx(600, rel=0.01)


@pytest.mark.parametrize(
    ("z", "environments", "at_most"),
    [
        (10.0, 50, 1e-3),
        (10.0, 100, 0.05),
        # A wide fleet at z = 10 is not sure: every second or third such hour has a second of 1,000 by chance.
        (10.0, 2_000, 0.6),
        (7.0, 2_000, 6e-3),
        (5.0, 2_000, 1e-5),
    ],
)
def test_how_many_windows_of_a_quiet_hour_are_hot_by_chance(z, environments, at_most):
    """Expected number in an hour of 50 conversations at 600 WCU/s; hardly any of it comes from the mean of 5 s."""
    limits_wcu = {
        SLOTS_PER_SECOND: THRESHOLDS.hot_at_once_wcu,
        SUSTAINED_SLOTS: THRESHOLDS.hot_sustained_wcu * SUSTAINED_SECONDS,
    }
    at_once, sustained = (
        WARM_CONVERSATIONS * HOUR_SLOTS * excess_odds(600.0, z, environments, slots=slots, limit_wcu=limit_wcu)
        for slots, limit_wcu in limits_wcu.items()
    )
    assert at_most / 5 < at_once + sustained <= at_most
    assert sustained < at_once / 10


def test_the_distribution_is_that_of_the_counter():
    """Mean and spread as the counter's docstring states them: unbiased, and sqrt(R z) where every share is thin."""
    odds = slot_odds(800.0, 10.0, 10_000)
    mean = sum(10 * k * p for k, p in enumerate(odds))
    variance = sum((10 * k - mean) ** 2 * p for k, p in enumerate(odds))
    assert mean * SLOTS_PER_SECOND == pytest.approx(800)
    assert (variance * SLOTS_PER_SECOND) ** 0.5 == pytest.approx((800 * 10) ** 0.5, rel=0.01)


def test_the_consumer_sees_quiet_conversations_without_asking_the_journal():
    """Five seconds of both kinds at once through the real job: no decision to log, no request to DynamoDB."""
    stage, random, z = Stage(), Random("both"), 10.0
    rates = {**{f"warm{i}": 600.0 for i in range(WARM_CONVERSATIONS)}, **{f"slow{i}": 0.1 for i in range(10_000)}}
    for conversation_id, rate in rates.items():
        at_ms, index = START_MS + random.expovariate(rate / z) * 1_000, 0
        while at_ms < START_MS + 5_000:
            stage.expect(round(at_ms) + 20, report_of(slot_of(int(at_ms)), index, z, conversation_id))
            at_ms, index = at_ms + random.expovariate(rate / z) * 1_000, index + 1
    consumer = stage.start_consumer(at_ms=START_MS, run_ms=5_500)
    stage.run(START_MS + 6_000)
    assert consumer.summary.entries > 14_000
    assert consumer.telemetry.decisions == []
    assert stage.table.calls == []
