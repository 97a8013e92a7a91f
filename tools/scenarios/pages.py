"""What newest pages cost while a key is hot, and a rush in which Redis is emptied. `make simulate-pages`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Any

from tools.figures import Outcome, at_most, distribution
from tools.scenarios.seeds import Part, Study, Verdict, total
from tools.scenarios.step import LARGE_BODY, SMALL_BODY, SMALL_STEP
from tools.world.run import simulate
from tools.world.strategies import Strategy, in_band, ours

SEEDS, EMPTIED_SEEDS = 5, 8
BODIES = {"400 B": (200, 300), "1 KiB": SMALL_BODY, "16 KiB": LARGE_BODY}
EMPTIED_AT = 7.0


def run(seed: int, *, body: str = "16 KiB", strategy: Callable[[], Strategy] = ours, **others: Any) -> Outcome:
    """Run one seed: the comparison's rush, with items of another size."""
    hot, quiet = SMALL_STEP.flows
    flows = replace(hot, body_bytes=BODIES[body]), quiet
    return simulate(replace(SMALL_STEP, flows=flows, name=f"pages {body}", **others), seed, strategy())


def judge(by_part: Mapping[str, list[Outcome]]) -> Verdict:
    """Hold what all pages cost in the mean, and what waits, against the bars."""
    means = {name: [_mean_rcu(run) for run in runs] for name, runs in by_part.items()}
    costs, emptied = {name: distribution(each) for name, each in means.items()}, by_part["emptied"]
    waits = distribution(run.writes.waited for run in emptied)
    breaches = sum(sum(run.safety.found.values()) for runs in by_part.values() for run in runs)
    return Verdict(
        fields={"rcu_per_page": costs, "waits_when_emptied": waits},
        bars=[
            at_most("read units of a page", fmean(means["16 KiB"]), 45, "RCU"),
            at_most("read units of a page, in band", fmean(means["in band"]), 48, "RCU"),
            at_most("writes that fail when Redis is emptied", total(emptied, "writes.failed"), 0, "writes"),
            at_most("waits when Redis is emptied, median", waits.p50, 500, "waits"),
            at_most("the judge's findings", breaches, 0, "messages"),
        ],
    )


def _mean_rcu(run: Outcome) -> float:
    reads = (run.hot_reads, run.quiet_reads)
    mean: float = sum(each.rcu_per_page * each.pages for each in reads) / max(1, total(reads, "pages"))
    return mean


STUDY = Study(
    "pages",
    "What newest pages cost in a rush, and a rush in which Redis is emptied.",
    [
        *(Part(body, partial(run, body=body), SEEDS) for body in BODIES),
        Part("in band", partial(run, strategy=in_band), SEEDS),
        Part("emptied", partial(run, emptied_at=EMPTIED_AT), EMPTIED_SEEDS),
    ],
    judge,
)
