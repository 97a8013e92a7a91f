"""What must hold of traces of reads, whatever their golden files say."""

from itertools import pairwise

import pytest

from golden.read_traces import COLLECTION, run_read_trace
from golden.stage import ONSET_MS
from golden.traces import since_onset
from hotpartition.core.detector import HORIZON_SLOTS
from hotpartition.core.read_heat import MAX_COPIES
from hotpartition.core.sampler import SLOT_MS
from support.builders import READ_THRESHOLDS


def reasons(name):
    return [facts["reason"] for _, facts in run_read_trace(name).decisions]


def copies(name):
    return [copies for _, _, copies in run_read_trace(name).stage.registry.marks]


def test_copies_follow_a_ramp_and_fall_only_when_it_has_cooled():
    """Enough for the pages of each moment; and no change but upwards."""
    marked = copies("ramp")
    assert marked == sorted(marked)
    assert max(marked) == 3
    run = run_read_trace("ramp")
    for at_ms, facts in run.decisions:
        if facts["copies"]:
            pages = run.fleet.loads[COLLECTION].rate(ONSET_MS + since_onset(at_ms) - 500)
            assert MAX_COPIES >= facts["copies"] >= 0.9 * pages / READ_THRESHOLDS.pages_per_copy
    assert reasons("ramp")[-1] == "cooled"


@pytest.mark.parametrize("name", ["around-the-threshold", "handover"])
def test_a_load_between_both_thresholds_keeps_what_was_decided(name):
    """It is hot once, and cools once, some ten seconds after it fell below the lower one; whichever consumer runs."""
    run = run_read_trace(name)
    changes = [after for before, after in pairwise(["", *reasons(name)]) if before != after]
    assert changes == ["read-hot", "cooled"]
    cooled_ms = next(at_ms for at_ms, facts in run.decisions if facts["reason"] == "cooled")
    # Five seconds that reach back before the fall are within the horizon until then.
    assert 10_000 <= since_onset(cooled_ms) - 18_000 <= HORIZON_SLOTS * SLOT_MS


def test_a_mark_never_ends_while_it_is_hot():
    """A minute is its TTL, and renewals come often enough that three may fail."""
    marks = run_read_trace("around-the-threshold").stage.registry.marks
    gaps = [later - earlier for (earlier, _, _), (later, _, _) in pairwise(marks)]
    assert gaps
    assert max(gaps) <= 15_100


def test_a_warm_conversation_is_left_alone():
    """Nothing is decided about it, let alone marked."""
    assert reasons("warm") == copies("warm") == []


def test_short_visits_do_not_flap():
    """Read-hot with the first of them, and then for as long as they come."""
    assert set(reasons("visits")) == {"read-hot"}
