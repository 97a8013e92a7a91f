"""Many seeds at once: worker processes, their progress, and a file of results that is the same each time."""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from tools.simulation.results import Bar

ResultT = TypeVar("ResultT")

OUT_DIR = Path("out/simulation")
PROCESSES = min(2, os.cpu_count() or 1)
"""What the studies' times are meant for: two cores, whatever the machine has."""
MISSED = 1
"""Exit status when a bar was missed."""


def replay_command(scenario: str, seed: int) -> str:
    """Name the command that runs a seed again."""
    return f"make simulate-replay SCENARIO={scenario} SEED={seed}"


def replay_study(command: str, seed: int) -> str:
    """Name the command that runs a seed of a study again."""
    return f"python -m tools.simulation {command} --first-seed {seed} --seeds 1"


def parse_seeds(command: str, arguments: Sequence[str], *, about: str | None, seeds: int) -> tuple[range, Path]:
    """Parse the command line of a study: its seeds, `seeds` of them by default, and the folder for its result."""
    parser = argparse.ArgumentParser(prog=f"python -m tools.simulation {command}", description=about)
    parser.add_argument("--seeds", type=int, default=seeds, help=f"how many ({seeds})")
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=OUT_DIR)
    options = parser.parse_args(arguments)
    return range(options.first_seed, options.first_seed + options.seeds), options.out


def run_all(
    name: str, work: Callable[[int], ResultT], seeds: Iterable[int], *, replay: Callable[[int], str]
) -> list[ResultT]:
    """Do the work for each seed, on several processes; results come in the order of the seeds.

    `replay` names the command that runs a seed again.
    """
    listed = list(seeds)
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with (
        Progress(*columns, console=console, disable=not console.is_terminal) as progress,
        ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn"), initializer=gc.disable) as pool,
    ):
        bar = progress.add_task(name, total=len(listed))

        def advance(_: Future[ResultT]) -> None:
            progress.advance(bar)
            if not console.is_terminal:
                _say_each_tenth(progress.tasks[bar])

        futures = {seed: pool.submit(_run_and_tidy, work, seed) for seed in listed}
        for future in futures.values():
            future.add_done_callback(advance)
        return [_result_of(future, replay(seed)) for seed, future in futures.items()]


def _say_each_tenth(task: Task) -> None:
    """Say in a line of plain text how far the seeds are: where no terminal shows the bar."""
    done, total = int(task.completed), int(task.total or 0)
    if done * 10 // total > (done - 1) * 10 // total:
        sys.stderr.write(f"{task.description}: {done} of {total} seeds, {task.elapsed or 0:.0f} s\n")
        sys.stderr.flush()


def _result_of(future: Future[ResultT], command: str) -> ResultT:
    """Return a seed's result; whatever broke it is raised, and what it takes to see it again is said."""
    if error := future.exception():
        sys.stderr.write(f"a run broke; see it again with: {command}\n")
        raise error
    return future.result()


def _run_and_tidy(work: Callable[[int], ResultT], seed: int) -> ResultT:
    """Run a seed, and only then look for garbage in circles: to look among a run's many objects takes a fifth of it."""
    result = work(seed)
    gc.collect()
    return result


def write_result(result: Any, out_dir: Path, name: str) -> Path:
    """Write a result as JSON."""
    out_dir.mkdir(parents=True, exist_ok=True)
    path = out_dir / name
    path.write_text(json.dumps(asdict(result), indent=1) + "\n", encoding="utf-8")
    return path


def sum_faults(runs: Iterable[Sequence[tuple[str, int]]]) -> tuple[tuple[str, int], ...]:
    """Add up how often each kind of fault struck in several runs."""
    faults: Counter[str] = Counter()
    for run in runs:
        faults.update(dict(run))
    return tuple(sorted(faults.items()))


def conclude(
    figures: str,
    *,
    faults: Iterable[tuple[str, int]],
    bars: Sequence[Bar],
    replays: Iterable[str],
    path: Path,
    details: str = "",
) -> int:
    """Print a study's figures, what struck, its bars and how to replay what failed; return the exit status."""
    sys.stdout.write(f"{figures}\nstruck: " + ", ".join(f"{name} {count:,}" for name, count in faults) + "\n")
    sys.stdout.write(details)
    say_bars(bars)
    for command in replays:
        sys.stdout.write(f"replay with: {command}\n")
    sys.stdout.write(f"{path}\n")
    return 0 if all(bar.holds for bar in bars) else MISSED


def say_bars(bars: Iterable[Bar]) -> None:
    """Print each bar with what was measured."""
    for bar in bars:
        measured = "never" if bar.measured is None else f"{bar.measured:g}"
        verdict = "holds" if bar.holds else "MISSED"
        sys.stdout.write(f"{verdict:<7} {bar.name}: {measured} (bar: {bar.limit:g} {bar.unit})\n")


def at_most(name: str, measured: float | None, limit: float, unit: str) -> Bar:
    """Build a bar that a value may not pass."""
    holds = measured is not None and measured <= limit
    return Bar(name=name, measured=measured, limit=limit, unit=unit, holds=holds)


def at_least(name: str, measured: float, limit: float, unit: str) -> Bar:
    """Build a bar that a value has to reach."""
    return Bar(name=name, measured=measured, limit=limit, unit=unit, holds=measured >= limit)
