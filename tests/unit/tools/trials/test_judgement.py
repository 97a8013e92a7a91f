"""What the trials pass and fail on."""

import pytest

from tools.demo.stack import StackError
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


def test_the_detection_summary_has_its_fields():
    """Other programs read them."""
    summary = detect.summarize([heat(), heat(after=None, shard_counts=())])
    assert summary == {
        "trials": 2,
        "detected": 1,
        "environments": 50,
        "onset_to_raise_seconds": [1.0, None],
        "raises": [1, 0],
        "max_n": [4, 0],
        "largest_share_of_threshold": [0.05, 0.05],
    }


def trial(shard_counts=(4,), quiet_n=0, killed_after=1.0):
    return kill.Trial(heat=heat(shard_counts=shard_counts), quiet_n=quiet_n, killed_after_seconds=killed_after)


def test_kills_may_cost_one_step_and_no_more():
    """One shard more than without a kill is allowed."""
    undisturbed = [trial(killed_after=None), trial((3,), killed_after=None)]
    assert kill.judge([*undisturbed, trial((5,)), trial((2,))]) == []
    assert kill.judge([*undisturbed, trial((6,))]) == ["N of 6, at most 5 expected"]
    assert kill.judge([*undisturbed, trial(())]) == ["trial 2: not raised"]
    assert kill.judge([*undisturbed, trial(quiet_n=2)]) == ["trial 2: the quiet conversation was raised"]


def test_a_stack_that_does_not_start_is_one_line(monkeypatch, capsys, tmp_path):
    """Exit status 2, as for everything that could not be run."""

    async def broken(*_):
        raise StackError("no redis-server")

    monkeypatch.setattr(detect, "run", broken)
    assert detect.main(["--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "the trials could not be run: no redis-server\n"
