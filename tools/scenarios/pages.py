"""What newest pages cost while a key is hot, and a rush in which Redis is emptied. `make simulate-pages`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from tools.figures import Distribution, at_most
from tools.scenarios.seeds import Part, Study, Verdict
from tools.scenarios.step import SMALL_STEP
from tools.world.run import RunResult, simulate
from tools.world.strategies import in_band, ours
from tools.world.workload import ConversationFlow, Workload

SEEDS, EMPTIED_SEEDS = 5, 8
BODIES = {"400 B": (200, 300), "1 KiB": (700, 800), "16 KiB": (15_800, 16_100)}
MOST_RCU, MOST_IN_BAND_RCU = 45.0, 48.0
"""Of all pages of items of 16 KiB, in the mean."""
MOST_WAITS = 500
EMPTIED_AT = 7.0


def run(seed: int, *, body: str = "16 KiB", is_in_band: bool = False, is_emptied: bool = False) -> RunResult:
    """Run one seed: the comparison's rush, with items of another size."""
    hot, quiet = SMALL_STEP.workload.flows
    if isinstance(hot, ConversationFlow):
        hot = replace(hot, body_bytes=BODIES[body])
    scenario = replace(
        SMALL_STEP,
        workload=Workload((hot, quiet)),
        emptied_at=(EMPTIED_AT,) if is_emptied else (),
        name=f"pages {body}",
    )
    return simulate(scenario, seed, in_band() if is_in_band else ours())


def judge(by_part: Mapping[str, list[RunResult]]) -> Verdict:
    """Hold what all pages cost in the mean, and what waits, against the bars."""
    costs = {name: Distribution.of(map(_mean_rcu, runs)) for name, runs in by_part.items()}
    means = {name: sum(map(_mean_rcu, runs)) / len(runs) for name, runs in by_part.items()}
    emptied = by_part["emptied"]
    waits = Distribution.of(float(run.writes.waited) for run in emptied)
    breaches = sum(sum(run.safety.found.values()) for runs in by_part.values() for run in runs)
    return Verdict(
        fields={"rcu_per_page": costs, "waits_when_emptied": waits},
        bars=[
            at_most("read units of a page", means["16 KiB"], MOST_RCU, "RCU"),
            at_most("read units of a page, in band", means["in band"], MOST_IN_BAND_RCU, "RCU"),
            at_most("writes that fail when Redis is emptied", sum(run.writes.failed for run in emptied), 0, "writes"),
            at_most("waits when Redis is emptied, median", waits.p50, MOST_WAITS, "waits"),
            at_most("the judge's findings", breaches, 0, "messages"),
        ],
    )


def _mean_rcu(run: RunResult) -> float:
    reads = (run.hot_reads, run.quiet_reads)
    return sum(each.rcu_per_page * each.pages for each in reads) / max(1, sum(each.pages for each in reads))


STUDY = Study(
    "pages",
    "What newest pages cost in a rush, and a rush in which Redis is emptied.",
    [
        *(Part(body, partial(run, body=body), SEEDS) for body in BODIES),
        Part("in band", partial(run, is_in_band=True), SEEDS),
        Part("emptied", partial(run, is_emptied=True), EMPTIED_SEEDS),
    ],
    judge,
)
