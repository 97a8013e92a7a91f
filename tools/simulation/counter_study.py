"""`make simulate-counters`: counters in a rush, and additions with tokens while everything fails.

A rush: one counter steps to 10,000 additions a second, without tokens; none is refused once its raise has reached the
writers. Tokens: environments die, responses get lost, requests happen late, the counters are raised, and clients
repeat; each addition counts once. In odd seeds a cancelled transaction binds its token, in even ones it does not.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tools.simulation.counter_run import RushRun, TokenRun, run_rush, run_tokens
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

SCENARIO = "counters"
SEEDS = 50
RUSH_SEEDS = 3
LEAST_ADDITIONS = 2_000
"""Of each seed, on average: 100,000 of them all."""


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


def judge(runs: Sequence[TokenRun], rushes: Sequence[RushRun], *, least_seeds: int = SEEDS) -> CounterStudy:
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
        scenario=SCENARIO,
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


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    seeds, out_dir = parse_seeds(SCENARIO, arguments, about=__doc__, seeds=SEEDS)
    began = time.perf_counter()
    replay = partial(replay_study, SCENARIO)
    rushes = run_all("rush", run_rush, seeds[:RUSH_SEEDS], replay=replay)
    runs = run_all("tokens", run_tokens, seeds, replay=replay)
    study = judge(runs, rushes, least_seeds=min(SEEDS, len(seeds)))
    path = write_result(study, out_dir, "counters.json")
    figures = (
        f"{study.seeds} seeds, {study.additions:,} additions with tokens, repeated until acknowledged "
        f"({study.attempts:,} attempts), {study.raises:,} raises, {study.reads:,} reads, "
        f"{time.perf_counter() - began:.0f} s"
    )
    details = "".join(
        f"rush {rush.seed}: {rush.offered:,} additions, raised to {', '.join(map(str, rush.shard_counts))} after "
        f"{rush.raised_seconds:.2f} s; {rush.refused:,} refused before; then p99 {rush.latency_after_ms.p99:g} ms, "
        f"{rush.attempts_for_each_after:g} requests for each\n"
        for rush in study.rushes
    )
    replays = map(replay, study.failing_seeds)
    return conclude(figures, faults=study.faults, bars=study.bars, replays=replays, path=path, details=details)
