"""Strategies side by side on one rush: the first part of `make simulate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tools.figures import Distribution
from tools.scenarios.step import SMALL_STEP
from tools.world.run import RunResult, simulate
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


def run(seed: int, name: str) -> RunResult:
    """Run one seed of a strategy."""
    return simulate(SMALL_STEP, seed, STRATEGIES[name]())


def summarize(runs: Sequence[RunResult]) -> dict[str, Any]:
    """Sum up one strategy over many seeds.

    `wcu_per_stored_wcu`: write units that DynamoDB charged for each that was stored for clients: what is refused is not
    charged. `acknowledged`, `missing` and `duplicated` are sums.
    """
    names = ("raised_seconds", "prompt_seconds", "final_shard_count", "unserved_share_of_ten_minutes")
    stored = [max(1.0, run.writes.offered_wcu - run.writes.failed_wcu) for run in runs]
    return {
        "strategy": runs[0].strategy,
        **{name: Distribution.of(getattr(run, name) for run in runs) for name in names},
        "wcu_per_stored_wcu": Distribution.of(run.cost.wcu / wcu for run, wcu in zip(runs, stored, strict=True)),
        "write_p99_ms": Distribution.of(run.writes.latency_ms.p99 for run in runs),
        "hot_page_rcu": Distribution.of(run.hot_reads.rcu_per_page for run in runs),
        "quiet_page_rcu": Distribution.of(run.quiet_reads.rcu_per_page for run in runs),
        "hot_page_p50_ms": Distribution.of(run.hot_reads.latency_ms.p50 for run in runs),
        "acknowledged": sum(run.safety.acknowledged for run in runs),
        "missing": sum(run.safety.found["missing"] for run in runs),
        "duplicated": sum(run.safety.found["duplicated"] for run in runs),
    }
