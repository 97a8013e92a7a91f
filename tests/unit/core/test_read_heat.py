"""The detector of read heat: it finds what is read too much, does not flap, and is the same whatever the order."""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotpartition.core.detector import HORIZON_SLOTS, MAX_SLOTS_AHEAD, SLOTS_PER_SECOND
from hotpartition.core.read_heat import (
    MAX_COPIES,
    CollectionReads,
    ReadReason,
    ReadThresholds,
    ReadWindow,
    Trigger,
    decide_reads,
)
from hotpartition.core.reports import ReadReport
from hotpartition.core.sampler import SLOT_MS, ReadSampler, slot_of
from support.builders import READ_THRESHOLDS

NOW_MS = 1_700_000_000_000
NOW = slot_of(NOW_MS)
PAGE_RCU = 5.0


def reads(*rcu_per_second):
    """Loads of seconds, oldest first, the last of which ends now."""
    subject = CollectionReads()
    for second, rcu in enumerate(reversed(rcu_per_second)):
        for slot in range(NOW - SLOTS_PER_SECOND * (second + 1) + 1, NOW - SLOTS_PER_SECOND * second + 1):
            if rcu:
                share = rcu / SLOTS_PER_SECOND
                subject.add(ReadReport("c", slot, "e", share, share / PAGE_RCU))
    return subject


def decide(subject, copies=0, thresholds=READ_THRESHOLDS):
    return decide_reads("c", subject, copies, thresholds, now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("seconds", "copies", "expected"),
    [
        ([], 0, (ReadReason.BELOW_THRESHOLD, 0, None)),
        ([1_500], 0, (ReadReason.BELOW_THRESHOLD, 0, None)),
        ([1_501], 0, (ReadReason.READ_HOT, 1, Trigger.AT_ONCE)),
        ([1_501, 0, 0, 0], 0, (ReadReason.READ_HOT, 1, Trigger.AT_ONCE)),
        ([1_501, 0, 0, 0, 0, 0], 0, (ReadReason.BELOW_THRESHOLD, 0, None)),
        ([1_000] * 5, 0, (ReadReason.BELOW_THRESHOLD, 0, None)),
        ([1_001] * 5, 0, (ReadReason.READ_HOT, 1, Trigger.SUSTAINED)),
        ([1_000] * 5, 2, (ReadReason.READ_HOT, 2, Trigger.WARM)),
        ([501] * 5, 2, (ReadReason.READ_HOT, 2, Trigger.WARM)),
        ([501] * 5 + [0] * 9, 2, (ReadReason.READ_HOT, 2, Trigger.WARM)),
        ([501] * 5 + [0] * 11, 2, (ReadReason.COOLED, 0, None)),
        ([1_501] + [0] * 13, 2, (ReadReason.READ_HOT, 2, Trigger.WARM)),
        ([1_501] + [0] * 15, 2, (ReadReason.COOLED, 0, None)),
        ([500] * 15, 2, (ReadReason.COOLED, 0, None)),
        ([501] * 5, 0, (ReadReason.BELOW_THRESHOLD, 0, None)),
    ],
)
def test_hot_at_once_or_sustained_warm_for_a_while_then_cooled(seconds, copies, expected):
    """Each threshold at its edge; what was never hot is not kept warm."""
    decision = decide(reads(*seconds), copies)
    assert (decision.reason, decision.copies, decision.trigger) == expected


@pytest.mark.parametrize(
    ("pages", "before", "copies"),
    [(20_000, 0, 1), (20_400, 0, 2), (50_000, 0, 3), (50_000, 5, 5), (400, 3, 3), (10_000_000, 0, MAX_COPIES)],
)
def test_copies_follow_the_pages_and_only_grow(pages, before, copies):
    """As many as carry all pages, were each of them taken from Redis."""
    decision = decide(reads(*[pages * PAGE_RCU] * 5), before)
    assert decision.copies == copies
    assert decision.pages_per_second == pytest.approx(pages)


def test_the_decision_says_what_it_saw():
    """The load that decided, and the slots that it came from."""
    decision = decide(reads(0, 0, 2_000, 4_000, 400))
    assert (decision.trigger, decision.rcu_per_second, decision.pages_per_second) == (Trigger.AT_ONCE, 4_000, 800)
    assert decision.per_slot_rcu == (0,) * 8 + (500,) * 4 + (1_000,) * 4 + (100,) * 4


REPORTS = st.lists(
    st.builds(
        ReadReport,
        collection=st.sampled_from("cd"),
        slot=st.integers(NOW - HORIZON_SLOTS - 5, NOW + MAX_SLOTS_AHEAD + 5),
        source=st.sampled_from("ab"),
        value_rcu=st.sampled_from([100.0, 400.0, 2_000.0, 100_000.0]),
        pages=st.just(20.0),
    ),
    max_size=40,
)
THRESHOLDS = st.builds(
    ReadThresholds,
    hot_at_once_rcu=st.sampled_from([50.0, 1_500.0, 9_000.0]),
    hot_sustained_rcu=st.sampled_from([60.0, 1_000.0]),
    cooled_rcu=st.sampled_from([20.0, 500.0]),
    pages_per_copy=st.just(30.0),
)


@given(REPORTS, THRESHOLDS, st.integers(0, 5), st.randoms(use_true_random=False))
def test_order_and_repetition_change_nothing(reports, thresholds, copies, random):
    """Whoever reads the stream comes to the same decision."""
    decisions = []
    shuffled = [*reports, *reports]
    random.shuffle(shuffled)
    for given_reports in (reports, shuffled):
        window = ReadWindow(thresholds)
        for report in given_reports:
            window.add(report, NOW_MS)
        decisions.append(decide(window.get("c"), copies, thresholds))
    assert decisions[0] == decisions[1]


@given(REPORTS, THRESHOLDS, st.integers(0, 4 * HORIZON_SLOTS))
def test_what_is_not_judged_would_be_below_threshold(reports, thresholds, later_slots):
    """At any later time, and whatever was forgotten until then; late and early reports are left out."""
    window = ReadWindow(thresholds)
    for report in reports:
        is_within = -HORIZON_SLOTS <= report.slot - NOW <= MAX_SLOTS_AHEAD
        assert window.add(report, NOW_MS) == is_within
    now_ms = NOW_MS + later_slots * SLOT_MS
    window.forget(now_ms)
    for collection in set("cd") - set(window.to_judge()):
        decision = decide_reads(collection, window.get(collection), 0, thresholds, now_ms=now_ms)
        assert decision.reason is ReadReason.BELOW_THRESHOLD


@given(REPORTS, THRESHOLDS, st.integers(1, 5))
def test_what_is_hot_is_hot_whatever_was_decided_before(reports, thresholds, copies):
    """A consumer that does not know what was decided before finds all heat; copies are never fewer with it known."""
    window = ReadWindow(thresholds)
    for report in reports:
        window.add(report, NOW_MS)
    anew, known = (decide(window.get("c"), before, thresholds) for before in (0, copies))
    if anew.copies:
        assert known.reason is ReadReason.READ_HOT
        assert known.copies == max(copies, anew.copies)
    else:
        assert known.copies == 0 or known.copies >= copies


@pytest.mark.parametrize("seed", range(20))
def test_a_load_around_the_threshold_does_not_flap(seed):
    """A minute of sampled load at 1,000 RCU/s, which is hot in every second moment: it becomes hot once, and stays."""
    random, window, copies, decisions = Random(seed), ReadWindow(READ_THRESHOLDS), 0, []
    fleet = [ReadSampler(environment_id=f"e{i}", sampling_distance_rcu=100, random=random.random) for i in range(100)]
    for tick in range(600):
        now_ms = NOW_MS + 100 * tick
        for _ in range(20):
            report = random.choice(fleet).record("c", PAGE_RCU, now_ms)
            if report is not None:
                window.add(report, now_ms)
        decision = decide_reads("c", window.get("c"), copies, READ_THRESHOLDS, now_ms=now_ms)
        copies = decision.copies
        decisions.append(decision.reason)
    changes = [after for before, after in pairwise(decisions) if before is not after]
    assert changes in ([], [ReadReason.READ_HOT])
