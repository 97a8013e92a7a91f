"""The studies' bars: each is missed when it should be."""

from dataclasses import replace

import pytest

from tools.figures import Distribution, Latency
from tools.history import FAULTS
from tools.scenarios.results import FaultSeed, Raise, RunResult, Safety, Series
from tools.scenarios.studies import judge_messages, judge_step
from tools.world.run import simulate
from tools.world.scenario import scenario_by_name

SOUND = Safety(acknowledged=10, reads=5)


def seed(number=1, operations=600, safety=SOUND, closes=2, void=1):
    return FaultSeed(
        seed=number,
        operations=operations,
        store_operations=2 * operations,
        acknowledged=safety.acknowledged,
        raises=1,
        confirmed_closes=closes,
        void_announcements=void,
        safety=safety,
        faults=(("redis outage", 2),),
    )


def missed(study):
    return [bar.name for bar in study.bars if not bar.holds]


def test_sound_seeds_pass():
    """Enough seeds and operations without a breach pass, and the faults add up."""
    study = judge_messages([seed(1), seed(2)], least_seeds=2, least_operations=1200)
    assert (study.passed, study.operations, study.faults) == (True, 1200, (("redis outage", 4),))


@pytest.mark.parametrize(
    ("runs", "bar"),
    [
        ([seed(1, operations=1200)], "seeds"),
        ([seed(1), seed(2, operations=599)], "operations"),
        ([seed(1), seed(2, safety=replace(SOUND, missing=1))], "lost messages"),
        ([seed(1), seed(2, safety=replace(SOUND, duplicated=1))], "doubled messages"),
        (
            [seed(1), seed(2, safety=replace(SOUND, unverified=1))],
            "other breaches (order, content, invented, not looked for)",
        ),
        ([seed(1, closes=1), seed(2, closes=1)], "confirmed closes"),
    ],
)
def test_each_shortfall_is_named(runs, bar):
    """What falls short misses its own bar, and the seeds that broke the promise are listed."""
    study = judge_messages(runs, least_seeds=2, least_operations=1200)
    assert missed(study) == [bar]
    assert not study.passed
    assert study.failing_seeds == tuple(run.seed for run in runs if not run.safety.holds)


@pytest.fixture(scope="module")
def quiet_run():
    """A real result to change: of nothing but silence."""
    silent = replace(scenario_by_name("step"), seconds=5.1, other_wcu=0.0, drain_seconds=0.5)
    return replace(simulate(silent, 1, "none"), series=Series())


def step_run(quiet_run, **changes) -> RunResult:
    raised = Raise(
        at_seconds=6.0, conversation_id=quiet_run.hot_conversation, shard_count=8, since_seconds=5.0, reason=""
    )
    sound = {"raised_seconds": 1.0, "on_shards_seconds": 3.0, "late_failed_share": 0.0, "raises": (raised,)}
    sound["repeated_share"] = 0.01
    if "shard_count" in changes:
        sound["raises"] = (replace(raised, shard_count=changes.pop("shard_count")),)
    writes = replace(quiet_run.writes, failed_wcu=changes.pop("failed_wcu", 10.0))
    return replace(quiet_run, **{**sound, **changes}, writes=writes)


@pytest.mark.parametrize(
    ("changes", "bar"),
    [
        ({}, None),
        ({"raised_seconds": 2.1}, "onset to raise, p99"),
        ({"raised_seconds": None}, "onset to raise, p99"),
        ({"on_shards_seconds": 4.25}, "onset to 95 % of new writes on shards, p99"),
        ({"raises": ()}, "seeds in which the final N was reached in one raise"),
        ({"shard_count": 17}, "N, worst seed"),
        ({"repeated_share": 0.06}, "puts beyond one for each write, once on shards"),
        ({"failed_wcu": 31.0}, "failed writes, of those without mitigation, worst seed"),
        ({"late_failed_share": 0.011}, "failed of what was offered after 4 s, worst seed"),
    ],
)
def test_each_step_bar_is_held(quiet_run, changes, bar):
    """The step passes with sound runs, and misses the very bar that a run falls short of."""
    none = [step_run(quiet_run, failed_wcu=wcu) for wcu in (1000.0, 2000.0)]
    study = judge_step([step_run(quiet_run), step_run(quiet_run, **changes)], none, scenario_by_name("step"))
    assert missed(study) == ([bar] if bar else [])
    assert study.passed == (bar is None)
    assert study.unmitigated_failed_wcu == 1000.0


def test_what_did_not_happen_counts_as_endless():
    """A quantile that falls among the seeds in which nothing happened is unknown, not small."""
    seen = Distribution.of([1.0, None, 3.0, 2.0])
    assert (seen.missing, seen.lowest, seen.p50, seen.p99, seen.highest) == (1, 1.0, 2.0, None, 3.0)


def test_latencies_are_summed_up():
    """Quantiles are those of the nearest rank."""
    latency = Latency.of([float(value) for value in range(1, 1001)])
    assert (latency.p50, latency.p95, latency.p99, latency.p999, latency.longest) == (500, 950, 990, 999, 1000)


def test_safety_holds_only_without_any_breach():
    """Each kind of breach alone breaks it."""
    kinds = FAULTS
    assert SOUND.holds
    assert not any(replace(SOUND, **{kind: 1}).holds for kind in kinds)
    assert isinstance(SOUND, Safety)
