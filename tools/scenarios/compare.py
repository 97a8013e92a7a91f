"""Strategies side by side on one rush: the first part of `make simulate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tools.figures import Outcome, distribution
from tools.scenarios.seeds import spread, total
from tools.scenarios.step import SMALL_STEP
from tools.world.run import simulate
from tools.world.strategies import Strategy, alarm, in_band, none, ours, sources, static

SEEDS = 12
STRATEGIES: Mapping[str, Callable[[], Strategy]] = {
    "none": none,
    "sources": sources,
    "alarm": alarm,
    "static": static,
    "in_band": in_band,
    "ours": ours,
}


def run(seed: int, name: str) -> Outcome:
    """Run one seed of a strategy."""
    return simulate(SMALL_STEP, seed, STRATEGIES[name]())


def summarize(runs: Sequence[Outcome]) -> dict[str, Any]:
    """Sum up one strategy over many seeds.

    `wcu_per_stored_wcu`: write units that DynamoDB charged for each that was stored for clients: what is refused is not
    charged. `acknowledged`, `missing` and `duplicated` are sums.
    """
    stored = [max(1.0, run.writes.offered_wcu - run.writes.failed_wcu) for run in runs]
    return {
        "strategy": runs[0].strategy,
        **spread(
            runs,
            *("raised_seconds", "prompt_seconds", "final_shard_count", "unserved_share_of_ten_minutes"),
            write_p99_ms="writes.latency_ms.p99",
            hot_page_rcu="hot_reads.rcu_per_page",
            quiet_page_rcu="quiet_reads.rcu_per_page",
            hot_page_p50_ms="hot_reads.latency_ms.p50",
        ),
        "wcu_per_stored_wcu": distribution(run.cost.wcu / wcu for run, wcu in zip(runs, stored, strict=True)),
        "acknowledged": total(runs, "safety.acknowledged"),
        "missing": sum(run.safety.found["missing"] for run in runs),
        "duplicated": sum(run.safety.found["duplicated"] for run in runs),
    }
