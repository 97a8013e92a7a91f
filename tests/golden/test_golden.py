"""The golden files: input traces through the real counter, codec and consumer, and the decision logs that come out.

Each trace of `traces.py` has a text file next to this one, reviewed like code. A change of the detection shows up as
its diff; `UPDATE_GOLDEN=1 pytest tests/golden/test_golden.py` writes them anew. What must hold whatever the files say
is asserted below them.
"""

import os
from itertools import pairwise
from pathlib import Path

import pytest

from golden.traces import BACKFILL_MS, ONSET_MS, TRACES, UNLUCKY_SHARDS, perform, render, run_trace
from hotpartition.core.detector import size_route
from hotpartition.core.reports import WriteReport
from hotpartition.core.sampler import SLOT_MS
from support.builders import THRESHOLDS
from support.fleet import START_MS

FOLDER = Path(__file__).parent
ONSET_SLOT_START_MS = ONSET_MS // SLOT_MS * SLOT_MS - ONSET_MS

STEPS = {
    "step-x4": ("room", 0, 1_600),
    "step-x40": ("room", 0, 16_000),
    "two-hot-conversations": ("room", 0, 4_000),
    "chatty-environment": ("room", 0, 2_000),
    "slow-clients": ("room", 0, 4_000),
    "lone-ancient-id": ("room", 0, 4_000),
    "clock-jump-ahead": ("room", 0, 4_000),
    "clock-jump-back": ("room", 0, 4_000),
    "clean": ("room", 0, 4_000),
    "duplicated-and-reordered": ("room", 0, 4_000),
}
"""Traces with a step in load: the conversation, its onset in ms after the trace's, and the load it steps to."""


@pytest.mark.parametrize("name", TRACES)
def test_the_decision_log_is_the_golden_one(name):
    """Same trace, same text; with UPDATE_GOLDEN=1 the text is taken as the new truth."""
    text, path = render(run_trace(name)), FOLDER / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert path.read_text() == text


def test_every_golden_file_has_its_trace():
    """No file stays behind when a trace is renamed."""
    assert {path.stem for path in FOLDER.glob("*.txt")} <= set(TRACES)


@pytest.mark.parametrize("name", [*STEPS, "hall"])
def test_a_step_of_any_size_is_one_raise_within_two_seconds(name):
    """One raise to the final N, soon, and large enough for the load at 800 WCU/s a shard."""
    trace, (conversation_id, onset_ms, rate) = (
        ("two-hot-conversations", ("hall", 500, 1_600)) if name == "hall" else (name, STEPS[name])
    )
    (raised,) = run_trace(trace).raises(conversation_id)
    assert raised.reason == "raised"
    assert 0 < raised.after_onset_ms - onset_ms <= 2_000
    assert rate / 800 <= raised.shard_count <= min(size_route(1.25 * rate, THRESHOLDS), THRESHOLDS.max_shard_count)
    # Never later than the start of the slot where the heat began.
    assert raised.since_ms <= onset_ms + SLOT_MS


@pytest.mark.parametrize("name", sorted(STEPS.keys() - {"slow-clients"}))
def test_live_heat_is_raised_from_its_own_second_on(name):
    """`since` lies a little before the heat, not far: readers of the time before need not look in the shards."""
    conversation_id, onset_ms, _ = STEPS[name]
    (raised,) = run_trace(name).raises(conversation_id)
    assert ONSET_SLOT_START_MS - 1_000 <= raised.since_ms - onset_ms <= ONSET_SLOT_START_MS


@pytest.mark.parametrize("name", TRACES)
def test_only_what_is_hot_is_raised(name):
    """Warm and calm neighbours keep their base keys; so does the slow burn under the threshold."""
    hot = {"room", "hall"} if name == "two-hot-conversations" else {"room"}
    assert run_trace(name).routes.keys() == (hot if name != "slow-burn" else set())


@pytest.mark.parametrize("name", TRACES)
def test_throttles_end_once_the_writers_have_followed(name):
    """No write is refused later than a cached route's TTL after the last raise (and nothing was, without one)."""
    run = run_trace(name)
    raises = run.raises("room") + run.raises("hall")
    last_raise_ms = max((r.after_onset_ms for r in raises), default=0)
    if run.fleet.last_throttle_ms is not None:
        assert run.since_onset(run.fleet.last_throttle_ms) <= last_raise_ms + 2_000


def test_the_slow_burn_was_near_the_threshold():
    """The trace is worth its name: reports of 700 WCU/s and more over five seconds, none of them above 800."""
    (line,) = [line for line in render(run_trace("slow-burn")).splitlines() if "highest load" in line]
    assert 700 < float(line.split()[-4]) < 800
    assert run_trace("slow-burn").decisions == []


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


def test_two_hot_conversations_are_sized_by_their_own_load():
    """Neither waits for the other or is counted with it."""
    run = run_trace("two-hot-conversations")
    assert run.routes["room"].max_shard_count >= 1.5 * run.routes["hall"].max_shard_count


def test_since_reaches_a_late_backfill():
    """Old times are cured like live traffic: in one raise, within two seconds, twice as far back as they reach."""
    run = run_trace("late-backfill")
    live, backfill = run.raises()
    assert live.since_ms > -1_000
    assert 0 < backfill.after_onset_ms - BACKFILL_MS <= 2_000
    # A slot of this backfill is 50 s of its messages' time.
    assert backfill.after_onset_ms - backfill.since_ms == pytest.approx(2 * 7_200_000, abs=2 * 50_000)


def test_since_reaches_slow_clients():
    """A third of the heat carries times of 20 s ago: their retries find the shards, too."""
    (raised,) = run_trace("slow-clients").raises()
    assert raised.since_ms <= -20_000 + SLOT_MS


def test_a_lone_ancient_id_leaves_since_alone():
    """The report is there, with its time of 1970, and `since` is where it is without it."""
    run = run_trace("lone-ancient-id")
    assert [WriteReport.decode(e.text).position for e in run.recording].count(0) >= 1
    (raised,) = run.raises()
    assert raised.since_ms > -1_500


def test_duplicates_and_disorder_change_no_raise():
    """The same raise from the same loads at the same time, with twice the entries."""
    clean, disorder = run_trace("clean"), run_trace("duplicated-and-reordered")
    assert disorder.fleet.sent > 1.8 * clean.fleet.sent
    assert disorder.routes == clean.routes
    assert disorder.raises() == clean.raises()
    facts = [
        [(at_ms, d["rate_wcu_per_second"], d["per_slot_wcu"]) for at_ms, d in run.decisions if d["generation"]]
        for run in (clean, disorder)
    ]
    assert facts[0] == facts[1]


def test_a_clock_that_jumps_ahead_is_left_out():
    """Its reports are counted as out of window, in number about its share of the load; the one that is behind fits."""
    ahead, back = run_trace("clock-jump-ahead"), run_trace("clock-jump-back")
    assert ahead.summary.out_of_window == pytest.approx(ahead.fleet.sent * 6 / 16 / 20, rel=0.3)
    assert back.summary.out_of_window == 0


def test_an_unlucky_partition_is_left_behind_by_doubling():
    """One raise by load; then, 5 s later and not before, N doubles until the rest takes what that one refuses."""
    raises = run_trace("unlucky-partition").raises()
    assert [r.reason for r in raises] == ["raised"] + ["unlucky-partition"] * (len(raises) - 1)
    for earlier, later in pairwise(raises):
        assert later.shard_count == 2 * earlier.shard_count
        assert later.after_onset_ms - earlier.after_onset_ms >= 5_000
    assert len(raises) >= 2
    assert 3_000 * UNLUCKY_SHARDS / raises[-1].shard_count <= 1_000


@pytest.mark.parametrize("name", TRACES)
def test_everything_that_was_sent_was_read(name):
    """No entry is malformed or passed over, and none is left out but for a broken clock."""
    run = run_trace(name)
    assert run.summary.malformed == 0
    assert run.summary.out_of_window == 0 or name == "clock-jump-ahead"
    assert run.summary.entries == len(run.recording)


def test_a_trace_is_a_function_of_its_seed():
    """Run twice, read the same: nothing depends on the machine, the hash seed or the order of tests."""
    assert render(perform(TRACES["step-x4"])) == render(run_trace("step-x4"))
    assert run_trace("step-x4").decisions[0][0] > START_MS
