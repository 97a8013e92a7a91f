"""What the trials pass and fail on."""

import pytest

from tools.trials import detect, kill
from tools.trials.rig import Heat


def heat(after=1.0, shard_counts=(4,), share=0.05):
    return Heat(raised_after_seconds=after, shard_counts=shard_counts, environments=50, largest_share=share)


def test_detection_passes_at_its_bars():
    """19 of 20 in time, 18 of 20 in one raise, nobody above a tenth."""
    heats = [heat()] * 17 + [
        heat(after=2.0),
        heat(after=2.5, shard_counts=(3, 8)),
        heat(shard_counts=(3, 8), share=0.1),
    ]
    assert detect.judge(heats) == []


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ([heat(after=2.01)] * 2, "18 of 20 raised within 2 s"),
        ([heat(after=None, shard_counts=())] * 2, "18 of 20 raised within 2 s"),
        ([heat(shard_counts=(3, 8))] * 3, "17 of 20 took one raise"),
        ([heat(share=0.11)], "one environment offered 11.0%"),
    ],
)
def test_detection_fails_below_its_bars(odd, words):
    """And says which."""
    faults = detect.judge([heat()] * (20 - len(odd)) + odd)
    assert any(words in fault for fault in faults)


def trial(shard_counts=(4,), quiet_n=0, killed_after=1.0):
    return kill.Trial(heat=heat(shard_counts=shard_counts), quiet_n=quiet_n, killed_after_seconds=killed_after)


def test_kills_may_cost_one_step_and_no_more():
    """One shard more than without a kill is allowed."""
    undisturbed = [trial(killed_after=None), trial((3,), killed_after=None)]
    assert kill.judge([*undisturbed, trial((5,)), trial((2,))]) == []
    assert kill.judge([*undisturbed, trial((6,))]) == ["N of 6, at most 5 expected"]
    assert kill.judge([*undisturbed, trial(())]) == ["trial 2: not raised"]
    assert kill.judge([*undisturbed, trial(quiet_n=2)]) == ["trial 2: the quiet conversation was raised"]
