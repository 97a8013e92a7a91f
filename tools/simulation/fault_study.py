"""`make simulate-faults`: hundreds of seeds with all faults on; nothing may be lost, nothing doubled.

An operation is one request of a client to the API: a write, a page or a lookup, repetitions included. What the
functions then ask of DynamoDB and Redis is counted apart.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from tools.simulation.results import FaultSeed, FaultStudy
from tools.simulation.run import simulate
from tools.simulation.scenarios import scenario_by_name
from tools.simulation.studies import (
    at_least,
    at_most,
    conclude,
    parse_seeds,
    replay_command,
    run_all,
    sum_faults,
    write_result,
)

SCENARIO = "faults"
SEEDS = 300
LEAST_OPERATIONS = 1_000_000


def run_seed(seed: int) -> FaultSeed:
    """Run one seed."""
    run = simulate(scenario_by_name(SCENARIO), seed)
    return FaultSeed(
        seed=seed,
        operations=run.operations,
        store_operations=run.cost.store_operations,
        acknowledged=run.safety.acknowledged,
        raises=len(run.raises),
        safety=run.safety,
        faults=run.faults,
    )


def judge(
    runs: Sequence[FaultSeed], *, least_seeds: int = SEEDS, least_operations: int = LEAST_OPERATIONS
) -> FaultStudy:
    """Sum up all seeds, and hold them against the bars."""
    operations = sum(run.operations for run in runs)
    lost = sum(run.safety.missing for run in runs)
    doubled = sum(run.safety.duplicated for run in runs)
    undone = sum(run.safety.resurrected + run.safety.undone for run in runs)
    others = sum(
        run.safety.out_of_order + run.safety.altered + run.safety.phantom + run.safety.unverified for run in runs
    )
    bars = (
        at_least("seeds", len(runs), least_seeds, "seeds"),
        at_least("operations", operations, least_operations, "client requests"),
        at_most("lost messages", lost, 0, "messages"),
        at_most("doubled messages", doubled, 0, "messages"),
        at_most("deletions and edits undone", undone, 0, "messages"),
        at_most("other breaches (order, content, invented, not looked for)", others, 0, "messages"),
    )
    return FaultStudy(
        scenario=SCENARIO,
        first_seed=min(run.seed for run in runs),
        seeds=len(runs),
        operations=operations,
        store_operations=sum(run.store_operations for run in runs),
        acknowledged=sum(run.acknowledged for run in runs),
        reads=sum(run.safety.reads for run in runs),
        raises=sum(run.raises for run in runs),
        lost=lost,
        doubled=doubled,
        other_breaches=others,
        faults=sum_faults(run.faults for run in runs),
        failing_seeds=tuple(run.seed for run in runs if not run.safety.holds),
        bars=bars,
        passed=all(bar.holds for bar in bars),
        runs=tuple(runs),
    )


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    seeds, out_dir = parse_seeds("faults", arguments, about=__doc__, seeds=SEEDS)
    began = time.perf_counter()
    replay = partial(replay_command, SCENARIO)
    study = judge(run_all("faults", run_seed, seeds, replay=replay))
    path = write_result(study, out_dir, "faults.json")
    figures = (
        f"{study.seeds} seeds, {study.operations:,} client requests ({study.store_operations:,} requests to DynamoDB), "
        f"{study.acknowledged:,} acknowledged messages, {study.reads:,} reads, {study.raises:,} raises, "
        f"{time.perf_counter() - began:.0f} s"
    )
    replays = map(replay, study.failing_seeds)
    return conclude(figures, faults=study.faults, bars=study.bars, replays=replays, path=path)
