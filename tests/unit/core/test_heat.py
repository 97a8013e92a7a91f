"""The heat that operators see is what the fleet offers, from the same reports that the detector decides by."""

import pytest

from hotpartition.core.detector import ReportWindow
from hotpartition.core.heat import NO_HEAT, Heat, measure_heat
from hotpartition.core.reports import WriteReport
from support.fleet import START_MS, Fleet


def measure(arrivals, at_ms):
    window = ReportWindow()
    for arrival in arrivals:
        if arrival.at_ms <= at_ms:
            window.add(arrival.report, at_ms)
    reports = window.as_mapping().get("c")
    return measure_heat(reports, at_ms) if reports else NO_HEAT


@pytest.mark.parametrize("rate", [300, 3_000])
def test_heat_is_the_mean_of_the_last_five_seconds(rate):
    """Within the sampling error, and though the last slot is not over yet."""
    arrivals = Fleet().offer(lambda _: rate, 8_000)
    heat = measure(arrivals, START_MS + 8_000)
    assert heat.wcu_per_second == pytest.approx(rate, rel=0.1)
    assert heat.throttled_share == 0


def test_what_ended_is_forgotten_after_five_seconds():
    """The mean falls with the slots that leave it, to nothing."""
    arrivals = Fleet().offer(lambda _: 2_000, 5_000)
    assert measure(arrivals, START_MS + 7_600).wcu_per_second == pytest.approx(1_000, rel=0.15)
    assert measure(arrivals, START_MS + 10_500) == NO_HEAT


def test_the_throttled_share_is_a_share_of_the_load():
    """Half of the time everything is refused."""
    arrivals = Fleet(is_throttled=lambda now_ms: now_ms % 500 >= 250).offer(lambda _: 2_000, 8_000)
    assert measure(arrivals, START_MS + 8_000).throttled_share == pytest.approx(0.5, abs=0.06)


def test_hand_worked():
    """Two environments, each with 10 WCU in one slot, the second one throttled: 20 WCU in five seconds."""
    window = ReportWindow()
    slot = START_MS // 250
    for source, is_throttled in (("a", False), ("b", True)):
        window.add(WriteReport("c", slot, source, 10.0, START_MS, 0, is_throttled), START_MS + 1_000)
    assert measure_heat(window.as_mapping()["c"], START_MS + 1_000) == Heat(4.0, 0.5)
