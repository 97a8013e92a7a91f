"""The sweeps: their detector against the product's, and that each shows what its setting does."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from hotpartition.control.consumer import POLL_MS
from hotpartition.core.detector import REPORT_DELAY_MS, CollectionReports, decide
from hotpartition.core.reports import Report
from hotpartition.core.route import EMPTY_ROUTE
from hotpartition.core.sampler import SLOT_MS
from support.builders import THRESHOLDS
from tools.simulation.tuning import PLANS, measure
from tools.simulation.tuning_cache import seconds_to_shards
from tools.simulation.tuning_detection import Rule, detection_delays, draw_slots, false_raises_per_hour, first_triggers
from tools.simulation.tuning_hedge import read_pages

FIRST_SLOT = 7_200_000_000


def first_raise_ms(loads, z):
    """When the product's own decision raises, polled every 100 ms, in ms after the first slot began."""
    reports, added = CollectionReports(), 0
    for now_ms in range(0, (len(loads) + 2) * SLOT_MS, POLL_MS):
        while added < len(loads) and (added + 1) * SLOT_MS <= now_ms:
            for index in range(round(loads[added] / z)):
                time_ms = (FIRST_SLOT + added) * SLOT_MS
                reports.add(Report("c", FIRST_SLOT + added, f"e{index}", z, time_ms, 0))
            added += 1
        decisions = decide("c", reports, EMPTY_ROUTE, THRESHOLDS, now_ms=FIRST_SLOT * SLOT_MS + now_ms)
        if any(d.generation for d in decisions):
            return now_ms
    return None


@pytest.mark.parametrize("load", [850, 1_000, 1_200, 4_000])
def test_the_rule_on_arrays_is_the_detectors(load):
    """On the same reports, the product raises at the first poll after the slot that tells the size."""
    rule = Rule()
    slots, _ = draw_slots(rule, 100.0, float(load), trials=12, random=np.random.default_rng(load))
    slots = slots[:, : rule.sustained_slots + 50]
    for loads, trigger in zip(slots, first_triggers(rule, slots), strict=True):
        expected = None
        if trigger + 2 <= len(loads):
            ready_ms = int(trigger + 2) * SLOT_MS + REPORT_DELAY_MS
            expected = -(-ready_ms // POLL_MS) * POLL_MS
        assert first_raise_ms(loads.tolist(), rule.sampling_distance_wcu) == expected


def test_a_larger_step_is_decided_sooner_and_what_is_not_hot_never():
    """Median delays fall with the load; half of the threshold is left alone."""
    medians = [
        np.median(detection_delays(Rule(), 100, load, trials=400, seed=1)) for load in (900, 1_200, 2_000, 4_000)
    ]
    assert medians == sorted(medians, reverse=True)
    assert 0.65 < medians[-1] < 1.0
    assert (detection_delays(Rule(), 100, 400, trials=50, seed=1) == inf).all()


def test_false_raises_are_those_of_decision_9():
    """Its table, for 2,000 environments."""
    for z, expected in ((10.0, 0.57), (7.0, 6e-3), (5.0, 5e-6)):
        found = false_raises_per_hour(replace(Rule(), sampling_distance_wcu=z), 600.0, 50)
        assert found == pytest.approx(expected, rel=0.1)


def test_noise_is_kept_out_by_every_default():
    """Less than one false raise in a year of quiet hours, with each threshold and window alone."""
    for name in ("at-once-threshold", "sustained-threshold", "at-once-window", "sustained-window", "sampling-distance"):
        plan = next(plan for plan in PLANS if plan.name == name)
        assert measure(name, plan.default, 1).measures["false_raises_per_hour"] < 1 / 8_766


def test_every_default_is_among_the_values_of_its_sweep():
    """So that the report can say what it does."""
    assert [plan.name for plan in PLANS if plan.default not in plan.values] == []


def test_a_longer_cache_ttl_delays_the_way_to_the_shards():
    """Not at all, since what a throttled writer gets is cached for a quarter of a second; by a TTL if it lived one."""
    whole = [
        np.median([seconds_to_shards(ttl, seed, is_ttl_brief_after_throttle=False) for seed in range(3)])
        for ttl in (1.0, 4.0)
    ]
    assert 1.5 < whole[1] - whole[0] < 3.5
    assert seconds_to_shards(4.0, 1) <= 1.0


@pytest.mark.slow
def test_hedges_cut_the_tail_within_their_budget():
    """Off, there are none; on, a page's p99 falls by a third at least, for at most 5 % more queries and four saved."""
    off, eager, on = (read_pages(quantile, pages=4_000, seed=2) for quantile in (0.0, 0.5, 0.97))
    assert off.extra_share == 0
    assert 0.05 < eager.extra_share <= 0.0527
    assert on.p99_ms < off.p99_ms * 2 / 3
    assert 0.01 < on.extra_share <= 0.0527


def test_points_are_pure_functions():
    """The same point twice, and another seed."""
    assert measure("at-once-window", 0.5, 3) == measure("at-once-window", 0.5, 3)
    assert measure("at-once-window", 0.5, 3) != measure("at-once-window", 0.5, 4)
    assert read_pages(0.95, pages=100, seed=3) == read_pages(0.95, pages=100, seed=3)
    assert read_pages(0.95, pages=100, seed=3) != read_pages(0.95, pages=100, seed=4)
