"""Studies: runs for many seeds on two processes, summed up, held against bars, and written as JSON."""

from __future__ import annotations

import gc
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from operator import attrgetter
from os import cpu_count
from pathlib import Path
from typing import Any

from tools.figures import MISSED, Bar, Outcome, at_least, at_most, distribution, plain, say_bars
from tools.history import FAULTS, Fault

PROCESSES = min(2, cpu_count() or 1)
"""What the studies' times are meant for: two cores, whatever the machine has."""
OUT_DIR = Path("out/simulation")
LEAST_CLOSES, LEAST_VOID = 500, 100
"""Of all seeds of a study of faults."""


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of run of a study: `run` makes an outcome of a seed, for `seeds` of them at most."""

    name: str
    run: Callable[[int], Any]
    seeds: int


@dataclass(slots=True, kw_only=True)
class Verdict:
    """What a study says: fields of its JSON, bars, and the seeds that broke a promise."""

    bars: Sequence[Bar]
    fields: Mapping[str, Any] = field(default_factory=dict)
    failing: Sequence[int] = ()
    pages: Mapping[str, str] = field(default_factory=dict)
    """Texts that are written beside the JSON, by file name."""

    @property
    def passed(self) -> bool:
        """Whether each bar holds."""
        return all(bar.holds for bar in self.bars)


@dataclass(frozen=True, slots=True)
class Study:
    """A study: its command's name, the runs it is made of, and how they are judged, by the names of its parts."""

    name: str
    about: str
    parts: Sequence[Part]
    judge: Callable[[Mapping[str, list[Any]]], Verdict]
    file: str = ""
    """The name of its JSON, if not its own."""


def run_study(study: Study, out_dir: Path, *, first_seed: int, most: int | None) -> int:
    """Run a study, for `most` seeds of each kind of run at most, and return the exit status."""
    began = time.perf_counter()
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn"), initializer=gc.disable) as pool:
        runs = gather(study, pool, first_seed=first_seed, most=most)
    verdict = study.judge(runs)
    path = write_study(study, runs, verdict, out_dir, first_seed)
    sys.stdout.write(f"{study.about}\n{time.perf_counter() - began:.0f} s\n")
    say_bars(verdict.bars)
    for seed in verdict.failing:
        sys.stdout.write(f"again: python -m tools.scenarios {study.name} --first-seed {seed} --seeds 1\n")
    sys.stdout.write(f"{path}\n")
    return 0 if verdict.passed else MISSED


def gather(study: Study, pool: Executor, *, first_seed: int = 1, most: int | None = None) -> dict[str, list[Any]]:
    """Do all runs of a study; the results come in the order of the seeds, whatever order they are done in."""
    under_way = {}
    for part in study.parts:
        count = part.seeds if most is None else min(part.seeds, most)
        under_way[part.name] = pool.map(partial(_run_and_tidy, part.run), range(first_seed, first_seed + count))
    runs: dict[str, list[Any]] = {}
    for name, results in under_way.items():
        runs[name] = list(results)
        sys.stderr.write(f"{name}: {len(runs[name])} done\n")
    return runs


def write_study(
    study: Study, runs: Mapping[str, Sequence[Any]], verdict: Verdict, out_dir: Path, first_seed: int = 1
) -> Path:
    """Write what a study says: its judge's fields, its bars, and each run."""
    first, *others = (part.name for part in study.parts)
    document = {
        "scenario": study.name,
        "first_seed": first_seed,
        "seeds": len(runs[first]),
        **verdict.fields,
        "bars": verdict.bars,
        "passed": verdict.passed,
        "failing_seeds": verdict.failing,
        "runs": runs[first],
        **({"others": {name: runs[name] for name in others}} if others else {}),
    }
    out_dir.mkdir(parents=True, exist_ok=True)
    for name, text in verdict.pages.items():
        (out_dir / name).write_text(text, encoding="utf-8")
    path = out_dir / (study.file or f"{study.name}.json")
    path.write_text(json.dumps(document, indent=1, default=plain) + "\n", encoding="utf-8")
    return path


def breach_bars(things: str, found: Mapping[Fault, int]) -> list[Bar]:
    """Build a bar for each kind of breach: there is none of them."""
    return [at_most(f"{things} {fault}", found.get(fault, 0), 0, things) for fault in FAULTS]


def close_bars(confirmed: int, void: int, share: float) -> list[Bar]:
    """Build the bars that say that closes were at stake; `share`: of the seeds that they are for."""
    return [
        at_least("confirmed closes", confirmed, int(LEAST_CLOSES * share), "closes"),
        at_least("announcements that stay void", void, int(LEAST_VOID * share), "announcements"),
    ]


def total(runs: Iterable[Any], path: str) -> Any:
    """Sum up a figure of many runs; `path` is its name, with those of what it is in before it."""
    return sum(map(attrgetter(path), runs))


def spread(runs: Sequence[Any], *names: str, **paths: str) -> dict[str, Outcome]:
    """Lay out figures over many runs, under their own names or under others."""
    places = {**{name: name for name in names}, **paths}
    return {name: distribution(map(attrgetter(path), runs)) for name, path in places.items()}


def add_up(runs: Iterable[Any], name: str) -> dict[str, int]:
    """Sum up a field that counts by name, over many runs."""
    summed: Counter[str] = Counter()
    for run in runs:
        summed.update(dict(getattr(run, name)))
    return dict(sorted(summed.items()))


def _run_and_tidy(run: Callable[[int], Any], seed: int) -> Any:
    """Look for garbage in circles between two runs only: among a run's many objects, it takes a fifth of the time."""
    result = run(seed)
    gc.collect()
    return result
