"""`make simulate-table-faults`: hundreds of seeds of `ShardedTable` with everything failing; nothing may be undone.

Items are created, changed, overwritten and deleted by environments that die, among raises, over a network that loses,
delays and refuses, with a Redis that fails, forgets and lies. An operation is one call of the library.
"""

from __future__ import annotations

import atexit
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial

from tools.simulation.results import Bar
from tools.simulation.studies import (
    at_least,
    at_most,
    conclude,
    parse_seeds,
    replay_study,
    run_all,
    sum_faults,
    write_result,
)
from tools.simulation.table_network import Aws, open_aws
from tools.simulation.table_run import TableRun, run_table

SCENARIO = "table-faults"
SEEDS = 300


@dataclass(frozen=True, slots=True)
class TableStudy:
    """All seeds together, and how they stand against the bars."""

    scenario: str
    first_seed: int
    seeds: int
    operations: int
    store_operations: int
    created: int
    changed: int
    deleted: int
    reads: int
    raises: int
    lost: int
    doubled: int
    updates_lost: int
    other_breaches: int
    faults: tuple[tuple[str, int], ...]
    failing_seeds: tuple[int, ...]
    bars: tuple[Bar, ...]
    passed: bool
    runs: tuple[TableRun, ...]


@cache
def _aws() -> Aws:
    """Start moto once a process, until its end: making its clients takes as long as a seed."""
    opened = ExitStack()
    atexit.register(opened.close)
    return opened.enter_context(open_aws())


def run_seed(seed: int) -> TableRun:
    """Run one seed."""
    return run_table(_aws(), seed)


def judge(runs: Sequence[TableRun], *, least_seeds: int = SEEDS) -> TableStudy:
    """Sum up all seeds, and hold them against the bars."""
    found: Counter[str] = Counter(breach.fault for run in runs for breach in run.breaches)
    lost, doubled, updates_lost = (found[fault] for fault in ("missing", "duplicated", "undone"))
    others = found.total() - lost - doubled - updates_lost
    bars = (
        at_least("seeds", len(runs), least_seeds, "seeds"),
        at_most("lost items", lost, 0, "items"),
        at_most("doubled items and changes", doubled, 0, "items"),
        at_most("lost changes", updates_lost, 0, "changes"),
        at_most("other breaches (order, invented, come back)", others, 0, "items"),
    )
    return TableStudy(
        scenario=SCENARIO,
        first_seed=min(run.seed for run in runs),
        seeds=len(runs),
        operations=sum(run.operations for run in runs),
        store_operations=sum(run.requests for run in runs),
        created=sum(run.created for run in runs),
        changed=sum(run.changed for run in runs),
        deleted=sum(run.deleted for run in runs),
        reads=sum(run.reads for run in runs),
        raises=sum(run.raises for run in runs),
        lost=lost,
        doubled=doubled,
        updates_lost=updates_lost,
        other_breaches=others,
        faults=sum_faults(run.faults for run in runs),
        failing_seeds=tuple(run.seed for run in runs if run.breaches),
        bars=bars,
        passed=all(bar.holds for bar in bars),
        runs=tuple(runs),
    )


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    seeds, out_dir = parse_seeds(SCENARIO, arguments, about=__doc__, seeds=SEEDS)
    began = time.perf_counter()
    replay = partial(replay_study, SCENARIO)
    study = judge(run_all("table", run_seed, seeds, replay=replay), least_seeds=min(SEEDS, len(seeds)))
    path = write_result(study, out_dir, "table-faults.json")
    figures = (
        f"{study.seeds} seeds, {study.operations:,} calls ({study.store_operations:,} requests to DynamoDB), "
        f"{study.created:,} items created, {study.changed:,} changes, {study.deleted:,} deleted, "
        f"{study.reads:,} reads, {study.raises:,} raises, {time.perf_counter() - began:.0f} s"
    )
    replays = map(replay, study.failing_seeds)
    return conclude(figures, faults=study.faults, bars=study.bars, replays=replays, path=path)
