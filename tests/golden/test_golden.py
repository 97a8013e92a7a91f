"""The golden files: input traces through the real counter, codec and consumer, and the decision logs that come out.

Each trace of `traces.py` and `read_traces.py` has a text file next to this one, reviewed like code. A change of the
detection shows up as its diff; `UPDATE_GOLDEN=1 pytest tests/golden/test_golden.py` writes them anew. What must hold
whatever the files say is asserted below them.
"""

import os
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from golden.read_traces import READ_TRACES, render_reads
from golden.traces import TRACES, render, run_trace, since_onset

FOLDER = Path(__file__).parent


LOGS = {f"{name}.txt": partial(render, name) for name in TRACES}
READ_LOGS = {f"reads/{name}.txt": partial(render_reads, name) for name in READ_TRACES}


@pytest.mark.parametrize(("name", "render_log"), [*LOGS.items(), *READ_LOGS.items()], ids=[*LOGS, *READ_LOGS])
def test_the_decision_log_is_the_golden_one(name, render_log):
    """Same trace, same text; with UPDATE_GOLDEN=1 the text is taken as the new truth."""
    text, path = render_log(), FOLDER / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert path.read_text() == text


def test_every_golden_file_has_its_trace():
    """No file stays behind when a trace is renamed."""
    assert {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.txt")} == LOGS.keys() | READ_LOGS.keys()


@pytest.mark.parametrize("name", TRACES)
def test_only_what_is_hot_is_raised(name):
    """Warm and calm neighbours keep their base keys; so does the slow burn under the threshold, without a decision."""
    hot = {"room", "hall"} if name == "two-hot-conversations" else {"room"}
    assert run_trace(name).routes.keys() == (hot if name != "slow-burn" else set())
    assert name != "slow-burn" or run_trace(name).decisions == []


@pytest.mark.parametrize("name", TRACES)
def test_throttles_end_once_the_writers_have_followed(name):
    """No write is refused later than a cached route's TTL after the last raise (and nothing was, without one)."""
    run = run_trace(name)
    raises = run.raises("room") + run.raises("hall")
    last_raise_ms = max((r.after_onset_ms for r in raises), default=0)
    if run.fleet.last_throttle_ms is not None:
        assert since_onset(run.fleet.last_throttle_ms) <= last_raise_ms + 2_000


def test_a_ramp_is_followed_by_few_raises():
    """Each raise has room to grow into: at least twice the load that set it off. The last one serves the whole ramp."""
    raises = run_trace("ramp").raises()
    assert 2 <= len(raises) <= 4
    assert all(later.shard_count >= 1.8 * earlier.shard_count for earlier, later in pairwise(raises))
    assert raises[-1].shard_count >= 8_000 / 800


def test_a_flash_crowd_is_covered_while_it_arrives_and_stays_covered():
    """N is sized from the rise, serves the peak of 12,000 WCU/s at 1,000 a key, and does not fall with the crowd."""
    run = run_trace("flash-crowd")
    assert len(run.raises()) <= 2
    assert run.raises()[0].after_onset_ms <= 2_000
    assert run.routes["room"].max_shard_count >= 12


def test_a_clock_that_jumps_ahead_is_left_out():
    """Its reports are counted as out of window, in number about its share of the load; the one that is behind fits."""
    ahead, back = run_trace("clock-jump-ahead"), run_trace("clock-jump-back")
    assert ahead.consumers[0].summary.out_of_window == pytest.approx(ahead.fleet.sent * 6 / 16 / 20, rel=0.3)
    assert back.consumers[0].summary.out_of_window == 0
