"""`make simulate-counters`: counters in a rush, and additions with tokens while everything fails.

A rush: one counter steps to 10,000 additions a second, without tokens; none is refused once its raise has reached the
writers. Tokens: environments die, responses get lost, requests happen late, the counters are raised, and clients
repeat; each addition counts once. In odd seeds a cancelled transaction binds its token, in even ones it does not.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tools.simulation.counter_run import RushRun, TokenRun, run_rush, run_tokens
from tools.simulation.results import Bar
from tools.simulation.studies import MISSED, at_least, at_most, parse_seeds, run_all, say_bars, write_result

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
    faults: Counter[str] = Counter()
    for run in runs:
        faults.update(dict(run.faults))
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
        faults=tuple(sorted(faults.items())),
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
    rushes = run_all("rush", run_rush, seeds[:RUSH_SEEDS], scenario="counter-rush", replay=replay_command)
    runs = run_all("tokens", run_tokens, seeds, scenario=SCENARIO, replay=replay_command)
    study = judge(runs, rushes, least_seeds=min(SEEDS, len(seeds)))
    path = write_result(study, out_dir, "counters.json")
    sys.stdout.write(
        f"{study.seeds} seeds, {study.additions:,} additions with tokens, repeated until acknowledged "
        f"({study.attempts:,} attempts), {study.raises:,} raises, {study.reads:,} reads, "
        f"{time.perf_counter() - began:.0f} s\n"
    )
    sys.stdout.write("struck: " + ", ".join(f"{name} {count:,}" for name, count in study.faults) + "\n")
    for rush in study.rushes:
        sys.stdout.write(
            f"rush {rush.seed}: {rush.offered:,} additions, raised to {', '.join(map(str, rush.shard_counts))} after "
            f"{rush.raised_seconds:.2f} s; {rush.refused:,} refused before; then p99 {rush.latency_after_ms.p99:g} ms, "
            f"{rush.attempts_for_each_after:g} requests for each\n"
        )
    say_bars(study.bars)
    for seed in study.failing_seeds:
        sys.stdout.write(f"see it again with: {replay_command(SCENARIO, seed)}\n")
    sys.stdout.write(f"{path}\n")
    return 0 if study.passed else MISSED


def replay_command(scenario: str, seed: int) -> str:
    """Name the command that runs a seed again."""
    del scenario
    return f"python -m tools.simulation counters --first-seed {seed} --seeds 1"
