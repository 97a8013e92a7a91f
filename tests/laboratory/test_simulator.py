"""What runs show: how strategies differ; and how studies judge and write them."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from tools.figures import Outcome, at_least, at_most, distribution, latency
from tools.history import FAULTS, Finding
from tools.scenarios import counter_faults, message_faults, report, step, table_faults
from tools.scenarios.__main__ import STUDIES
from tools.scenarios.message_faults import HUNT
from tools.scenarios.seeds import Part, Study, Verdict, gather, write_study
from tools.world.run import simulate
from tools.world.scenario import HOT, Readers
from tools.world.strategies import ALARM_SECONDS, ours
from tools.world.workload import stepping

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


SHORT_STEP = replace(
    step.SMALL_STEP,
    flows=(stepping(HOT, loads=(100.0, 2_400.0), between=(2.0, inf), body_bytes=(39_000, 40_000)),),
    seconds=10.0,
    onset=2.0,
    other_wcu=0.0,
    readers=Readers(per_second=5.0, strong_share=0.5, limits=(10,)),
)
"""A step that takes a second of CPU: 2,400 WCU/s in items of 40 KiB."""


@pytest.fixture(scope="module")
def runs():
    """The step, met by each strategy."""
    return {name: simulate(SHORT_STEP, 1, build()) for name, (_, build) in report.STRATEGIES.items()}


def test_the_page_shows_each_strategy_and_each_bar(runs):
    """A row of figures for each strategy, and what a bar is on, as text."""
    late = at_most("<late>", None, 5, "ms")
    page = report.build_page([report.summarize([run]) for run in runs.values()], [late])
    assert page.count("<td>") == len(report.ROWS) * len(runs) + 3
    assert re.findall("<th>([^<]+)</th><td>", page) == [*report.ROWS, "&lt;late&gt;"]
    assert "<th></th>" + "".join(f"<th>{title}</th>" for title, _ in report.STRATEGIES.values()) in page
    assert f"<td>{runs['alarm'].raised_seconds:g}</td>" in page
    assert "<td>None</td><td>5 ms</td><td>no</td>" in page
    assert all(text in page for text in report.ASSUMPTIONS)


def test_the_strategies_differ_as_they_should(runs):
    """On a step, no mitigation fails for good, the sources never notice, and the rest is relieved in time.

    A person comes after minutes: by then a quarter of a rush of ten minutes is lost.
    """
    unrelieved = {name for name, run in runs.items() if run.relieved_seconds is None}
    # In band, a process learns of a raise with its next refusal, and a thousand of them write little each.
    assert unrelieved - {"in_band"} == {"none", "sources"}
    assert runs["in_band"].raised_seconds < 2.0
    assert runs["none"].writes.failed > 10 * max(1, runs["ours"].writes.failed)
    assert runs["sources"].raises == ()
    # Each write and each read asks Redis for N.
    assert runs["sources"].cost.redis_commands > runs["sources"].writes.requests
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


def test_a_setting_that_no_function_has_is_refused():
    """Left out, it would have its default, and the scenario would prove less."""
    assert replace(SHORT_STEP, settings={"hot_at_once_rcu": 9.0}).settings_of("consumer").hot_at_once_rcu == 9.0
    with pytest.raises(ValueError, match="hot_at_onec_rcu"):
        replace(SHORT_STEP, settings={"hot_at_onec_rcu": 9.0})


def changed(run, **figures):
    return Outcome(**vars(run) | figures)


WRITES = {"failed_wcu": 0.0, "waited": 0, "waited_seconds": 0.0, "stored_within_second_share": 1.0}
STEP = Outcome(
    raised_seconds=1.0,
    on_shards_seconds=3.0,
    relieved_seconds=3.0,
    shard_counts=(13,),
    final_shard_count=13,
    repeated_share=0.01,
    late_failed_share=0.0,
    writes=Outcome(**WRITES, latency_ms=Outcome(p99=9.0)),
)
TOKENS = Outcome(seed=3, breaches=(), persisted=2_000, attempts=0, reads=0, raises=0, faults={})
RUSH = Outcome(breaches=(), per_second=9_800.0, raised_seconds=2.0, refused_after=0)
ITEMS = Outcome(seed=3, breaches=(), counts={"confirmed_closes": 1, "void_announcements": 0}, faults={})
NONE = dict.fromkeys(FAULTS, 0)
MESSAGES = Outcome(seed=3, safety=Outcome(found=NONE), operations=3_333, closes=(1, 0), faults={})
LOW = {name: [changed(STEP, final_shard_count=4)] for name in step.VARIANTS}
JUDGES = {
    "step": (STEP, lambda run: step.judge({"step": [STEP, run], "no mitigation": [STEP], **LOW})),
    "tokens": (TOKENS, lambda run: counter_faults.judge({"tokens": [run], "rush": [RUSH]})),
    "rush": (RUSH, lambda run: counter_faults.judge({"tokens": [TOKENS], "rush": [run]})),
    "items": (ITEMS, lambda run: table_faults.judge({"table-faults": [run]})),
    "messages": (MESSAGES, lambda run: message_faults.judge({"faults": [run]})),
}
BREACHES = Finding("missing", "room", "b", ""), Finding("undone", "room", "c", "")


@pytest.mark.parametrize(
    ("study", "changes", "bars", "failing"),
    [
        ("step", {"raised_seconds": 2.1}, ["onset to raise, p99"], []),
        ("step", {"raised_seconds": None}, ["onset to raise, p99"], []),
        ("step", {"on_shards_seconds": 4.25}, ["onset to 95 % of new writes on shards, p99"], []),
        ("step", {"shard_counts": (9, 13)}, ["seeds in which the final N was reached in one raise"], []),
        ("step", {"final_shard_count": 17}, ["N, worst seed"], []),
        ("step", {"repeated_share": 0.06}, ["puts beyond one for each write, once on shards"], []),
        ("step", {"late_failed_share": 0.011}, ["failed of what was offered after 4 s, worst seed"], []),
        ("tokens", {"breaches": BREACHES}, ["seeds in which an addition with a token did not count once"], [3]),
        ("tokens", {"persisted": 1_999}, ["additions with tokens, repeated until acknowledged"], []),
        ("rush", {"per_second": 9_799.0}, ["additions in a second of the rush"], []),
        ("rush", {"refused_after": 1}, ["refused half a second after the raise or later"], []),
        ("rush", {"raised_seconds": None}, ["onset of the rush to its raise"], []),
        ("rush", {"breaches": BREACHES}, ["wrong sums in rushes"], []),
        ("items", {"breaches": BREACHES}, ["items missing", "items undone"], [3]),
        ("messages", {"safety": Outcome(found={**NONE, "undone": 1})}, ["messages undone"], [3]),
        ("messages", {"operations": 3_332}, ["client requests"], []),
        ("messages", {"closes": (0, 0)}, ["confirmed closes"], []),
    ],
)
def test_each_bar_of_a_study_is_held(study, changes, bars, failing):
    """A run that falls short of one misses that one; the seed of a breach is named."""
    good, judge = JUDGES[study]
    assert judge(good).passed
    verdict = judge(changed(good, **changes))
    assert ([each.name for each in verdict.bars if not each.holds], [*verdict.failing]) == (bars, failing)


def test_every_field_of_a_run_is_documented(tmp_path):
    """docs/simulation-summary.md names it."""
    small = replace(HUNT, seconds=2.0)
    study = Study(
        "small", "", [Part("one", lambda seed: simulate(small, seed, ours()), 2)], lambda runs: Verdict(bars=[])
    )
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
        command = name.removesuffix("-in-band").removesuffix("-fold")
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
