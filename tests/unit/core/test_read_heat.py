"""The read detector: one second decides, whatever arrives in whatever order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotpartition.core.read_heat import ReadReason, decide_reads, loud_rcu
from hotpartition.core.reports import Report
from hotpartition.core.window import CollectionReports, ReportWindow
from support.fleet import START_MS

HOT_RCU = 1_500.0
START_SLOT = START_MS // 250


def decide(window, now_ms=START_MS, collection="c"):
    return decide_reads(collection, window.as_mapping().get(collection, CollectionReports()), HOT_RCU, now_ms=now_ms)


def window_of(reports):
    window = ReportWindow(loud_rcu(HOT_RCU))
    for report in reports:
        window.add(report, START_MS)
    return window


def steady(rcu_per_second, slots):
    return [Report("c", slot, "e", rcu_per_second / 4, pages=1.0) for slot in slots]


@pytest.mark.parametrize(("rcu", "is_hot"), [(1_500, False), (1_501, True)])
def test_one_second_above_the_limit_is_hot(rcu, is_hot):
    assert (decide(window_of(steady(rcu, range(START_SLOT - 3, START_SLOT + 1)))).reason == "read-hot") is is_hot


def test_heat_counts_for_five_seconds():
    """So that a report that comes late, or a consumer that does, misses none."""
    window = window_of(steady(2_000, range(START_SLOT - 3, START_SLOT + 1)))
    assert decide(window, START_MS + 4_999).reason is ReadReason.READ_HOT
    assert decide(window, START_MS + 5_000).reason is ReadReason.BELOW_THRESHOLD


def test_a_decision_says_its_load():
    """The hottest second, and the slots of the last five."""
    decision = decide(window_of(steady(4_000, [START_SLOT - 1, START_SLOT]) + steady(1_000, [START_SLOT - 12])))
    assert decision.rcu_per_second == 2_000
    assert decision.per_slot_rcu == (0.0,) * 7 + (250.0,) + (0.0,) * 10 + (1_000.0, 1_000.0)


reports = st.builds(
    Report,
    collection=st.sampled_from("cd"),
    slot=st.integers(START_SLOT - 64, START_SLOT + 9),
    source=st.sampled_from(["e", "f"]),
    value=st.integers(1, 30).map(lambda k: 100.0 * k),
    pages=st.just(1.0),
)


@given(st.lists(reports, max_size=30), st.randoms(use_true_random=False))
def test_order_and_repetition_change_nothing_and_no_hot_key_is_left_out(arriving, random):
    """Against a plain sum of each source's largest value."""
    again = [random.choice(arriving) for _ in arriving]
    window, other = window_of(arriving), window_of(random.sample([*arriving, *again], 2 * len(arriving)))
    for collection in "cd":
        largest = {}
        for report in arriving:
            if report.collection == collection and START_SLOT - 60 <= report.slot <= START_SLOT + 8:
                place = report.slot, report.source
                largest[place] = max(report.value, largest.get(place, 0.0))
        ends = range(START_SLOT - 19, START_SLOT + 1)
        seconds = [sum(rcu for (slot, _), rcu in largest.items() if end - 4 < slot <= end) for end in ends]
        decision = decide(window, collection=collection)
        assert decision == decide(other, collection=collection)
        assert decision.rcu_per_second == max(seconds)
        assert (decision.reason is ReadReason.READ_HOT) == (max(seconds) > HOT_RCU)
        assert collection in window.to_judge() or decision.reason is ReadReason.BELOW_THRESHOLD


def test_what_left_the_horizon_is_forgotten():
    window = window_of(steady(2_000, range(START_SLOT - 3, START_SLOT + 1)))
    window.forget(START_MS + 15_000)
    assert window.to_judge() == ["c"]
    window.forget(START_MS + 15_250)
    assert (window.to_judge(), window.as_mapping()) == ([], {})
