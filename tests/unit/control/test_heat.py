"""The heat that operators see is what the fleet offers, from the same reports that the detector decides by."""

import pytest

from hotpartition.control.hot_keys import NO_HEAT, Heat, measure_heat
from hotpartition.core.reports import Report
from hotpartition.core.window import ReportWindow
from support.fleet import START_MS, Fleet


def measure(arrivals, at_ms):
    window = ReportWindow()
    for arrival in arrivals:
        if arrival.at_ms <= at_ms:
            window.add(arrival.report, at_ms)
    reports = window.as_mapping().get("c")
    return measure_heat(reports, at_ms) if reports else NO_HEAT


def test_what_ended_is_forgotten_after_five_seconds():
    """The mean falls with the slots that leave it, to nothing."""
    arrivals = Fleet().offer(lambda _: 2_000, 5_000)
    assert measure(arrivals, START_MS + 7_600).wcu_per_second == pytest.approx(1_000, rel=0.15)
    assert measure(arrivals, START_MS + 10_500) == NO_HEAT


def test_hand_worked():
    """Two environments, each with 10 WCU in one slot, the second one throttled: 20 WCU in five seconds.

    The last slot is not over yet, so it does not count.
    """
    window = ReportWindow()
    first = START_MS // 250
    for slot, source, is_throttled in ((first, "a", False), (first, "b", True), (first + 3, "a", False)):
        window.add(Report("c", slot, source, 10.0, START_MS, 0, is_throttled), START_MS + 1_000)
    assert measure_heat(window.as_mapping()["c"], START_MS + 1_000) == Heat(4.0, 0.5)
