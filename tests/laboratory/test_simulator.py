"""What runs show: how strategies differ, what is paid where nothing is hot; and how studies judge and write them."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tools.figures import Outcome, at_least, at_most, distribution, latency
from tools.scenarios import compare, step
from tools.scenarios.__main__ import STUDIES
from tools.scenarios.message_faults import HUNT
from tools.scenarios.seeds import Part, Study, Verdict, gather, write_study
from tools.world.run import simulate
from tools.world.scenario import HOT, Readers
from tools.world.strategies import ALARM_SECONDS, ours
from tools.world.workload import ConversationFlow, Step

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def run(scenario, seed, strategy=None, **more):
    return simulate(scenario, seed, strategy or ours(), **more)


def short_step(after=2400.0):
    """Build a step that takes a second of CPU: 2,400 WCU/s in items of 40 KiB."""
    flow = ConversationFlow(
        conversation_id=HOT, shape=Step(before=100.0, after=after, onset=2.0), body_bytes=(39_000, 40_000)
    )
    return replace(
        step.SMALL_STEP,
        flows=(flow,),
        seconds=10.0,
        onset=2.0,
        other_wcu=0.0,
        readers=Readers(per_second=5.0, strong_share=0.5, limits=(10,)),
    )


@pytest.fixture(scope="module")
def strategies():
    return {name: run(short_step(), 1, build()) for name, build in compare.STRATEGIES.items()}


def test_the_strategies_differ_as_they_should(strategies):
    """On a step, no mitigation fails for good, the sources never notice, and the rest is relieved in time.

    A person comes after minutes: by then a quarter of a rush of ten minutes is lost.
    """
    runs = strategies
    unrelieved = {name for name, run in runs.items() if run.relieved_seconds is None}
    # In band, a process learns of a raise with its next refusal, and a thousand of them write little each.
    assert unrelieved - {"in_band"} == {"none", "sources"}
    assert runs["in_band"].raised_seconds < 2.0
    assert runs["none"].writes.failed > 10 * max(1, runs["ours"].writes.failed)
    assert runs["sources"].raises == ()
    assert runs["sources"].writes.failed > 0.8 * runs["none"].writes.failed
    assert runs["ours"].raised_seconds < 2.0
    assert runs["ours"].on_shards_seconds < 4.0
    assert runs["static"].final_shard_count == runs["alarm"].final_shard_count == 16
    assert runs["static"].hot_reads.queries_per_page > runs["none"].hot_reads.queries_per_page == 1.0
    assert runs["static"].prompt_seconds == 0.0
    assert runs["alarm"].raised_seconds == ALARM_SECONDS <= runs["alarm"].prompt_seconds
    unserved = {name: run.unserved_share_of_ten_minutes for name, run in runs.items()}
    assert unserved["ours"] < 0.05
    assert 0.25 < unserved["alarm"] < 0.75 * unserved["none"]
    assert not any(any(run.safety.found.values()) for run in runs.values())


def test_what_is_not_hot_pays_nothing():
    """One query a page, and no more write units."""
    calm = short_step(after=100.0)
    none, ours = (run(calm, 1, compare.STRATEGIES[name]()) for name in ("none", "ours"))
    assert ours.cost.wcu == none.cost.wcu
    assert ours.hot_reads.queries_per_page == 1.0
    assert ours.raises == ()


def sound(**changes):
    """Build the run of a step that meets all bars, from one of silence."""
    quiet = run(replace(step.step(), seconds=5.1, other_wcu=0.0, drain_seconds=0.5), 1)
    good = {"raised_seconds": 1.0, "on_shards_seconds": 3.0, "shard_counts": (13,), "final_shard_count": 13}
    return changed(quiet, **good, repeated_share=0.01, **changes)


def changed(run, **figures):
    return Outcome(**vars(run) | figures)


@pytest.mark.parametrize(
    ("changes", "bar"),
    [
        ({}, None),
        ({"raised_seconds": 2.1}, "onset to raise, p99"),
        ({"raised_seconds": None}, "onset to raise, p99"),
        ({"on_shards_seconds": 4.25}, "onset to 95 % of new writes on shards, p99"),
        ({"shard_counts": (9, 13)}, "seeds in which the final N was reached in one raise"),
        ({"final_shard_count": 17}, "N, worst seed"),
        ({"repeated_share": 0.06}, "puts beyond one for each write, once on shards"),
        ({"late_failed_share": 0.011}, "failed of what was offered after 4 s, worst seed"),
    ],
)
def test_each_bar_of_the_step_is_held(changes, bar):
    """A run that falls short of one misses that one."""
    good = sound()
    small = changed(good, final_shard_count=4)
    by_part = {"no mitigation": [good], **{name: [small] for name in step.VARIANTS}}
    verdict = step.judge({"step": [good, changed(good, **changes)], **by_part})
    assert [each.name for each in verdict.bars if not each.holds] == ([bar] if bar else [])


def test_every_field_of_a_run_is_documented(tmp_path):
    """docs/simulation-summary.md names it."""
    small = replace(HUNT, seconds=2.0)
    study = Study("small", "", [Part("one", lambda seed: run(small, seed), 2)], lambda runs: Verdict(bars=[]))
    with ThreadPoolExecutor(1) as pool:
        path = write_study(study, gather(study, pool, first_seed=7), Verdict(bars=[]), tmp_path)
    summary = json.loads(path.read_text())
    assert [each["seed"] for each in summary["runs"]] == [7, 8]
    for each in summary["runs"]:
        each["faults"], each["counters"] = [], []
    names = set(re.findall(r'"(\w+)": ', json.dumps(summary)))
    assert sorted(names - set(re.findall(r"`([a-z0-9_]+)`", (ROOT / "docs/simulation-summary.md").read_text()))) == []


def test_every_study_has_a_target_and_a_row():
    """The Makefile and docs/testing.md name those that there are."""
    makefile, page = (ROOT / "Makefile").read_text(), (ROOT / "docs/testing.md").read_text()
    for name in STUDIES:
        command = name.removesuffix("-in-band").removesuffix("-fold") if name != "in-band" else name
        assert f"tools.scenarios {command}" in makefile
        assert ("make simulate" if name == "simulate" else f"make simulate-{command}") in page


def test_what_did_not_happen_counts_as_endless():
    """A quantile that falls among the seeds in which nothing happened is unknown, not small, and misses any bar."""
    seen = distribution([1.0, None, 3.0, 2.0])
    assert (seen.missing, seen.lowest, seen.p50, seen.p99, seen.highest) == (1, 1.0, 2.0, None, 3.0)
    assert not at_most("late", seen.p99, 9.0, "s").holds
    assert not at_least("late", seen.p99, 0.0, "s").holds


def test_latencies_are_summed_up():
    """Quantiles are those of the nearest rank."""
    summed = latency([float(value) for value in range(1, 1001)])
    assert (summed.p50, summed.p95, summed.p99, summed.p999, summed.longest) == (500, 950, 990, 999, 1000)
