"""The verdict at its edges, and the figures that it rests on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tools.history import Verdict
from tools.local.metering import TimelineRow
from tools.play.scale import choose_scale
from tools.play.verdict import (
    Bars,
    Hot,
    Summary,
    Throttles,
    bars_for,
    count_taken_by_one_key,
    count_throttles,
    first_raise_after,
    judge,
    measure_machine,
)
from tools.play.watch import Raise
from tools.play.workload import Offer, Workload, generate_workload

GOOD = Summary(
    rejected=0,
    hot_conversation="hot",
    hot_threshold_wcu=20.0,
    partition_limit_wcu=20.0,
    sampling_distance_wcu=1.25,
    onset_to_raise_seconds=3.0,
    raises=1,
    max_n=4,
    throttled_before_raise=10,
    throttled_after_raise=3,
    environments=10,
    duration_seconds=90.0,
)
FAULTLESS = Verdict(
    acknowledged=5000,
    conversations=50,
    reads=200,
    missing=0,
    duplicated=0,
    out_of_order=0,
    altered=0,
    phantom=0,
    unverified=0,
    examples=(),
)
FALLING = Throttles(before_raise=10, after_raise=3, in_first_second=10, in_last_third=9)


def load(at_ms: int, key: str, throttled: int) -> TimelineRow:
    return TimelineRow(at_ms, key, writes=1, throttled_writes=throttled)


def judged(summary=GOOD, history=FAULTLESS, throttles=FALLING, **more):
    return judge(summary=summary, history=history, throttles=throttles, bars=Bars(), **more)


def test_a_run_that_just_reaches_every_bar_passes():
    """The bars themselves are enough."""
    assert judged().verdict == "pass"
    assert judged().reasons == ()


def test_a_close_while_the_heat_lasts_fails_the_run_on_any_machine():
    judgement = judged(closes_in_heat=1, kept_up=False)
    assert judgement.reasons == ("not closed in the heat: 1 closes while it was hot",)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"max_n": 3}, "largest N: 3, at least 4 needed"),
        ({"onset_to_raise_seconds": 3.001}, "onset to raise: 3.00 s, at most 3 s allowed"),
        ({"onset_to_raise_seconds": None}, "onset to raise: N was never raised after the onset"),
    ],
)
def test_one_figure_beyond_its_bar_fails_the_run(changes, reason):
    """Each condition of the summary fails alone, and says why."""
    judgement = judged(summary=replace(GOOD, **changes))
    assert judgement.verdict == "fail"
    assert len(judgement.reasons) == 1
    assert judgement.reasons[0].startswith(reason)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"acknowledged": 4999}, "messages acknowledged: 4999, at least 5000 needed"),
        ({"conversations": 49}, "conversations: 49, at least 50 needed"),
        ({"missing": 1}, "no message missing: 1 of 5000 acknowledged"),
        ({"duplicated": 1}, "no message duplicated: 1 of 5000"),
        ({"out_of_order": 1}, "no message out of order: 1 of 5000"),
        ({"altered": 1}, "no message altered: 1 of 5000"),
        ({"phantom": 1}, "no message from nowhere: 1 of 5000"),
        ({"stale": 1}, "no page beyond the staleness bound: 1 of 5000"),
        ({"unverified": 1}, "every message looked for: 4999 of 5000"),
    ],
)
def test_one_fault_of_the_history_fails_the_run(changes, reason):
    """The promise is about contents as well, and a message that nobody looked for proves nothing."""
    judgement = judged(history=replace(FAULTLESS, **changes))
    assert len(judgement.reasons) == 1
    assert judgement.reasons[0].startswith(reason)


def test_a_response_that_the_api_promises_not_to_give_fails_the_run():
    """One is enough, even if every message came through; it is quoted."""
    judgement = judged(unexpected=("write to c answered 500: {}", "read of c answered 502: {}"))
    assert judgement.verdict == "fail"
    assert judgement.reasons == ("no unexpected response: 2 noted, the first: write to c answered 500: {}",)


@pytest.mark.parametrize(("first", "last", "verdict"), [(1, 0, "pass"), (0, 0, "fail"), (5, 5, "fail"), (5, 6, "fail")])
def test_throttles_have_to_fall(first, last, verdict):
    """Fewer in the last third than in the first second; none at all means that nothing was hot."""
    assert judged(throttles=replace(FALLING, in_first_second=first, in_last_third=last)).verdict == verdict


def test_throttles_are_counted_by_when_and_where_they_were():
    """Only the hot conversation's own keys count, the onset's bucket belongs to the first second."""
    timeline = [
        load(9_500, "hot", 1),
        load(10_000, "hot", 2),
        load(11_000, "hot", 4),
        load(11_250, "hot#3", 8),
        load(11_250, "hotter", 100),
        load(11_250, "quiet", 100),
        load(18_000, "hot", 16),
        load(19_250, "hot#0", 32),
        load(22_250, "hot", 64),
    ]
    counted = count_throttles(timeline, conversation_id="hot", raised_at=11.25, hot=Hot(begins=10.2, ends=22.2))
    assert counted == Throttles(before_raise=7, after_raise=120, in_first_second=6, in_last_third=32)
    never = count_throttles(timeline, conversation_id="hot", raised_at=None, hot=Hot(begins=10.2, ends=22.2))
    assert (never.before_raise, never.after_raise) == (127, 0)


def test_the_raise_of_an_onset_is_the_first_after_it():
    """A raise before the onset was for something else."""
    raises = [Raise(5.0, 4, 0), Raise(12.0, 16, 0), Raise(11.0, 8, 0)]
    assert first_raise_after(raises, 10.0) == Raise(11.0, 8, 0)
    assert first_raise_after(raises, 13.0) is None


@pytest.mark.parametrize(("queued_long", "late", "kept_up"), [(0, 0, True), (5, 5, True), (6, 0, False), (0, 6, False)])
def test_a_machine_keeps_up_while_few_messages_wait_for_it(queued_long, late, kept_up):
    """At most one in twenty waits more than 50 ms for an environment, or is offered late; 50 ms are not long."""
    waits = [0.05] * (100 - queued_long) + [0.2] * queued_long
    machine = measure_machine(waits, [0.25] * (100 - late) + [0.3] * late)
    assert machine.kept_up is kept_up
    assert f"{queued_long} of 100 write requests" in machine.describe()


SLOW = replace(GOOD, onset_to_raise_seconds=9.0, max_n=3)
FEW = replace(FAULTLESS, acknowledged=4000)


def test_a_load_that_was_not_offered_in_time_is_not_judged():
    """Nothing that depends on time, and N only by what DynamoDB saw; the promises all the same."""
    steady = replace(FALLING, in_last_third=10)
    judgement = judged(SLOW, FEW, throttles=steady, kept_up=False, busiest_second=60)
    assert judgement.verdict == "pass"
    assert judgement.not_judged == ("messages acknowledged", "onset to raise", "throttles fall")
    assert judged(SLOW, FEW, throttles=steady, kept_up=False, busiest_second=61).reasons == (
        "largest N: 3, at least 4 needed",
    )
    assert judged(replace(SLOW, max_n=0), FEW, kept_up=False, busiest_second=20).verdict == "pass"
    assert judged(SLOW, replace(FEW, missing=1), kept_up=False).verdict == "fail"


def test_a_small_workload_is_held_to_what_it_has():
    """Bars shrink to it; the generated workload of a machine at its usual speed has no excuse."""
    assert bars_for(generate_workload(seed=1, scale=choose_scale(cores=2))) == Bars()
    offers = tuple(Offer(0.0, f"c{number % 3}", "s", "b") for number in range(100))
    times = {"onset_seconds": 0.0, "hot_end_seconds": 1.0, "duration_seconds": 1.0}
    held = bars_for(Workload(offers=offers, hot_conversation="c0", description="", **times))
    assert held == Bars(acknowledged=95, conversations=3)


@pytest.mark.parametrize(("speed", "hot", "quiet"), [(1.0, 60.0, 45.0), (0.5, 30.0, 22.5), (0.01, 12.0, 9.0)])
def test_a_slow_machine_plays_the_same_story_smaller(speed, hot, quiet):
    """As much slower as the machine, and never so slow that it would not be hot: three times what a partition takes."""
    scale = choose_scale(cores=2, speed=speed)
    assert (scale.hot_writes_per_second, scale.quiet_writes_per_second) == (hot, quiet)
    assert scale.partition_write_limit_wcu == hot / 3


def test_one_key_takes_what_its_partition_does():
    """Two seconds of thirty writes each, at a limit of 20: what was saved before them, and 20 a second."""
    moments = [1_700_000_000 + at / 30 for at in range(60)]
    assert count_taken_by_one_key(moments, 20.0) == pytest.approx(60, abs=1)
    assert count_taken_by_one_key([*moments, *moments], 20.0) == pytest.approx(60, abs=1)
    assert count_taken_by_one_key([], 20.0) == 0
