"""A quiet key is hot by chance next to never, and a report takes little of the consumer's memory."""

import tracemalloc
from math import exp

import pytest

from hotpartition.core.reports import Report
from hotpartition.core.sampler import SLOT_MS
from hotpartition.core.window import HORIZON_SLOTS, SLOTS_PER_SECOND, ReportWindow
from hotpartition.runtime.settings import Settings

NEGLIGIBLE = 1e-18
STATE_BYTES_PER_REPORT = 500


def convolve(a, b):
    total = [0.0] * (len(a) + len(b) - 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            total[i + j] += x * y
    return total[: max(i for i, odds in enumerate(total) if odds >= NEGLIGIBLE) + 1]


def crossings(mean_wcu, z):
    """Compute the odds of k crossings in one slot of one environment: c writes cross c / z times, rounded at random."""
    odds, term, count = [0.0] * 64, exp(-mean_wcu), 0
    while count <= mean_wcu or term > NEGLIGIBLE:
        sure, more = int(count / z + 1e-12), count / z % 1.0
        odds[sure] += term * (1 - more)
        odds[sure + 1] += term * more
        count += 1
        term *= mean_wcu / count
    return odds


def excess_odds(rate_wcu, z, environments, limit_wcu):
    """Compute the odds that a second of a steady load, shared evenly, is estimated above a limit."""
    power, total, times = crossings(rate_wcu * SLOT_MS / 1000 / environments, z), [1.0], environments * SLOTS_PER_SECOND
    while times:
        if times % 2:
            total = convolve(total, power)
        power, times = convolve(power, power), times // 2
    return sum(total[int(limit_wcu / z + 1e-9) + 1 :])


@pytest.mark.parametrize(("z", "environments", "most"), [(10.0, 100, 0.05), (10.0, 2_000, 0.6), (5.0, 2_000, 1e-5)])
def test_how_many_seconds_of_a_quiet_hour_are_hot_by_chance(z, environments, most):
    """Expected for 50 keys of 600 WCU/s each: why the sampling distance is 5."""
    limit = Settings.defaults("consumer").hot_at_once_wcu
    expected = 50 * 3_600 * SLOTS_PER_SECOND * excess_odds(600.0, z, environments, limit)
    assert most / 5 < expected <= most
    assert Settings.defaults("write").sampling_distance_wcu == 5.0


def test_a_report_takes_as_much_of_the_window_as_is_stated():
    """Of many keys and sources, over the whole horizon; within a quarter, whatever the interpreter."""
    count, span_ms, start_ms = 20_000, HORIZON_SLOTS * SLOT_MS, 1_800_000_000_000
    at = [start_ms + index * span_ms // count for index in range(count)]
    reports = [Report(f"c-{i * 7919 % 1_000:07}", t // SLOT_MS, f"{i:032x}", 5.0, t, 0) for i, t in enumerate(at)]
    entries = [report.encode() for report in reports]
    tracemalloc.start()
    try:
        window = ReportWindow()
        for entry in entries:
            window.add(Report.decode(entry), start_ms + span_ms)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken / count == pytest.approx(STATE_BYTES_PER_REPORT, rel=0.35)
