"""Hundreds of seeds with all faults on, of messages, tables and counters; nothing may be lost, doubled or undone.

- `make simulate-faults`: messages. An operation is one request of a client to the API: a write, a page or a lookup,
  repetitions included. What the functions then ask of DynamoDB and Redis is counted apart.
- `make simulate-table-faults`: items of a `ShardedTable` are created, changed, overwritten and deleted by environments
  that die, among raises, over a network that loses, delays and refuses. An operation is one call of the library.
- `make simulate-counters`: a rush, in which one counter steps to 10,000 additions a second, without tokens; none is
  refused once its raise has reached the writers. And additions with tokens, while environments die, responses get lost,
  requests happen late, the counters are raised, and clients repeat; each counts once. In odd seeds a cancelled
  transaction binds its token, in even ones it does not.
"""

from __future__ import annotations

import atexit
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from tools.simulation.counter_run import RushRun, TokenRun, run_rush, run_tokens
from tools.simulation.results import Bar, FaultSeed, FaultStudy
from tools.simulation.run import simulate
from tools.simulation.scenarios import scenario_by_name
from tools.simulation.studies import (
    at_least,
    at_most,
    conclude,
    parse_seeds,
    replay_command,
    replay_study,
    run_all,
    sum_faults,
    write_result,
)
from tools.simulation.table_network import Aws, open_aws
from tools.simulation.table_run import TableRun, run_table

MESSAGES, TABLES, COUNTERS = "faults", "table-faults", "counters"
MOST_SEEDS = 300
COUNTER_SEEDS = 50
RUSH_SEEDS = 3
LEAST_OPERATIONS = 1_000_000
LEAST_ADDITIONS = 2_000
"""Of each seed, on average: 100,000 of them all."""


def run_messages(seed: int) -> FaultSeed:
    """Run one seed."""
    run = simulate(scenario_by_name(MESSAGES), seed)
    return FaultSeed(
        seed=seed,
        operations=run.operations,
        store_operations=run.cost.store_operations,
        acknowledged=run.safety.acknowledged,
        raises=len(run.raises),
        safety=run.safety,
        faults=run.faults,
    )


def judge_messages(
    runs: Sequence[FaultSeed], *, least_seeds: int = MOST_SEEDS, least_operations: int = LEAST_OPERATIONS
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
        scenario=MESSAGES,
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


def run_tables(seed: int) -> TableRun:
    """Run one seed."""
    return run_table(_aws(), seed)


def judge_tables(runs: Sequence[TableRun], *, least_seeds: int = MOST_SEEDS) -> TableStudy:
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
        scenario=TABLES,
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


@dataclass(frozen=True, slots=True)
class CounterStudy:
    """All seeds together, and how they stand against the bars."""

    scenario: str
    first_seed: int
    seeds: int
    additions: int
    attempts: int
    reads: int
    raises: int
    breaches: int
    faults: tuple[tuple[str, int], ...]
    failing_seeds: tuple[int, ...]
    bars: tuple[Bar, ...]
    passed: bool
    rushes: tuple[RushRun, ...]
    runs: tuple[TokenRun, ...]


def judge_counters(
    runs: Sequence[TokenRun], rushes: Sequence[RushRun], *, least_seeds: int = COUNTER_SEEDS
) -> CounterStudy:
    """Sum up all seeds, and hold them against the bars."""
    failing = tuple(run.seed for run in runs if run.breaches)
    additions = sum(run.persisted for run in runs)
    bars = (
        at_least("seeds in which every addition with a token counted once", len(runs) - len(failing), least_seeds, ""),
        at_least(
            "additions with tokens that were repeated until acknowledged", additions, LEAST_ADDITIONS * least_seeds, ""
        ),
        at_least("additions in a second of the rush", min(run.per_second for run in rushes), 9_800, ""),
        at_most("onset of the rush to its raise", max(run.raised_seconds or 1e9 for run in rushes), 2.0, "s"),
        at_most(
            "refused, begun half a second after the raise or later",
            max(run.refused_after for run in rushes),
            0,
            "additions",
        ),
        at_most("wrong sums in rushes", sum(len(run.breaches) for run in rushes), 0, "reads"),
    )
    return CounterStudy(
        scenario=COUNTERS,
        first_seed=min(run.seed for run in runs),
        seeds=len(runs),
        additions=additions,
        attempts=sum(run.attempts for run in runs),
        reads=sum(run.reads for run in runs),
        raises=sum(run.raises for run in runs),
        breaches=sum(len(run.breaches) for run in runs),
        faults=sum_faults(run.faults for run in runs),
        failing_seeds=failing,
        bars=bars,
        passed=all(bar.holds for bar in bars),
        rushes=tuple(rushes),
        runs=tuple(runs),
    )


def _finish(
    study: FaultStudy | TableStudy | CounterStudy,
    out_dir: Path,
    began: float,
    figures: str,
    *,
    replay: Callable[[int], str],
    details: str = "",
) -> int:
    """Write a study's result, print its figures, and return the exit status."""
    path = write_result(study, out_dir, f"{study.scenario}.json")
    figures = f"{figures}, {time.perf_counter() - began:.0f} s"
    replays = map(replay, study.failing_seeds)
    return conclude(figures, faults=study.faults, bars=study.bars, replays=replays, path=path, details=details)


def study_messages(arguments: Sequence[str]) -> int:
    """Run the command `faults`."""
    seeds, out_dir = parse_seeds(MESSAGES, arguments, about=__doc__, seeds=MOST_SEEDS)
    began = time.perf_counter()
    replay = partial(replay_command, MESSAGES)
    study = judge_messages(run_all("faults", run_messages, seeds, replay=replay))
    figures = (
        f"{study.seeds} seeds, {study.operations:,} client requests ({study.store_operations:,} requests to DynamoDB), "
        f"{study.acknowledged:,} acknowledged messages, {study.reads:,} reads, {study.raises:,} raises"
    )
    return _finish(study, out_dir, began, figures, replay=replay)


def study_tables(arguments: Sequence[str]) -> int:
    """Run the command `table-faults`."""
    seeds, out_dir = parse_seeds(TABLES, arguments, about=__doc__, seeds=MOST_SEEDS)
    began = time.perf_counter()
    replay = partial(replay_study, TABLES)
    study = judge_tables(run_all("table", run_tables, seeds, replay=replay), least_seeds=min(MOST_SEEDS, len(seeds)))
    figures = (
        f"{study.seeds} seeds, {study.operations:,} calls ({study.store_operations:,} requests to DynamoDB), "
        f"{study.created:,} items created, {study.changed:,} changes, {study.deleted:,} deleted, "
        f"{study.reads:,} reads, {study.raises:,} raises"
    )
    return _finish(study, out_dir, began, figures, replay=replay)


def study_counters(arguments: Sequence[str]) -> int:
    """Run the command `counters`."""
    seeds, out_dir = parse_seeds(COUNTERS, arguments, about=__doc__, seeds=COUNTER_SEEDS)
    began = time.perf_counter()
    replay = partial(replay_study, COUNTERS)
    rushes = run_all("rush", run_rush, seeds[:RUSH_SEEDS], replay=replay)
    runs = run_all("tokens", run_tokens, seeds, replay=replay)
    study = judge_counters(runs, rushes, least_seeds=min(COUNTER_SEEDS, len(seeds)))
    figures = (
        f"{study.seeds} seeds, {study.additions:,} additions with tokens, repeated until acknowledged "
        f"({study.attempts:,} attempts), {study.raises:,} raises, {study.reads:,} reads"
    )
    details = "".join(
        f"rush {rush.seed}: {rush.offered:,} additions, raised to {', '.join(map(str, rush.shard_counts))} after "
        f"{rush.raised_seconds:.2f} s; {rush.refused:,} refused before; then p99 {rush.latency_after_ms.p99:g} ms, "
        f"{rush.attempts_for_each_after:g} requests for each\n"
        for rush in study.rushes
    )
    return _finish(study, out_dir, began, figures, replay=replay, details=details)
