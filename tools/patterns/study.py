"""`make simulate-patterns`: the patterns of write sharding, measured on one workload, and which to choose."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from tools.bars import MISSED, Bar, at_least, at_most, say_bars
from tools.patterns.hot_index import HOT_INDEXES, HotIndexResult, simulate_hot_index
from tools.patterns.model import (
    ASSUMPTIONS,
    BEGINNING,
    EVEN,
    PATTERNS,
    PLANNED_SHARDS,
    SKEWED,
    TEN_MINUTES,
    WORKLOADS,
    Pattern,
)
from tools.patterns.results import PatternResult, PatternStudy
from tools.patterns.run import Sample, simulate
from tools.workers import open_workers

OUT_DIR = Path("out/patterns")
SEEDS = 3
BY_ATTRIBUTE = ("calculated", "adaptive", "adaptive-attribute")
"""The patterns that are run with a busy device as well: to all others it is one device among many."""
THROWS_EACH = 4
"""How often more seeds there are for a planned N: which shards share a partition differs much."""
SOURCE_INDEX_REFUSES = 0.5
"""Most of the load: what the bar says of the source's single index key."""


HOT_INDEX_REFUSES = 0.7


class Job(NamedTuple):
    """One run: a pattern by name, with another N if one is given."""

    pattern: str
    workload: str
    seed: int
    planned: int | None = None

    def build(self) -> Pattern:
        """Build the pattern."""
        found = PATTERNS[self.pattern]
        return found if self.planned is None else replace(found, shards=self.planned, title=f"N = {self.planned}")


def run(job: Job) -> Sample:
    """Run one job, in a process of the pool."""
    return simulate(job.build(), WORKLOADS[job.workload], job.seed, TEN_MINUTES if job.planned is None else BEGINNING)


def list_jobs(seeds: int) -> list[list[Job]]:
    """List all runs, those of one result together."""
    pairs = [(name, EVEN.name) for name in PATTERNS] + [(name, SKEWED.name) for name in BY_ATTRIBUTE]
    runs = [[Job(name, workload, seed) for seed in range(1, seeds + 1)] for name, workload in pairs]
    throws = range(1, THROWS_EACH * seeds + 1)
    return runs + [[Job("random", EVEN.name, seed, planned) for seed in throws] for planned in PLANNED_SHARDS]


def summarize(
    runs: Sequence[Sequence[Job]],
    samples: Sequence[Sequence[Sample]],
    seeds: int,
    hot_index: Sequence[HotIndexResult],
) -> PatternStudy:
    """Sum all runs up, and hold them against the bars."""
    results = [
        (jobs[0], PatternResult.of(jobs[0].build(), WORKLOADS[jobs[0].workload], of_jobs))
        for jobs, of_jobs in zip(runs, samples, strict=True)
    ]
    study = PatternStudy(
        seeds=seeds,
        assumptions=tuple(ASSUMPTIONS),
        results=tuple(result for job, result in results if job.planned is None),
        planned=tuple(result for job, result in results if job.planned is not None),
        hot_index=tuple(hot_index),
        bars=(),
        passed=False,
    )
    bars = judge(study)
    return replace(study, bars=bars, passed=all(bar.holds for bar in bars))


def judge(study: PatternStudy) -> tuple[Bar, ...]:
    """Hold the results against the bars."""
    ours, source = study.result("adaptive-buckets", EVEN.name), study.result("buckets", EVEN.name)
    plain_index, sharded_index, _ = study.hot_index
    return (
        at_most(
            "writes that fail after the raise, adaptive with time buckets",
            ours.failed_after_raise,
            0,
            "writes",
        ),
        at_least(
            "writes that failed where the index has one key for each bucket",
            source.failed_share,
            SOURCE_INDEX_REFUSES,
            "as a share",
        ),
        at_least(
            "updates throttled by an index with one hot value",
            plain_index.throttled_share,
            HOT_INDEX_REFUSES,
            "as a share",
        ),
        at_most("the same, ShardedIndex(fixed(8))", sharded_index.throttled_share_worst, 0, "as a share"),
    )


def write_summary(study: PatternStudy, out_dir: Path) -> Path:
    """Write `summary.json`, and return its path."""
    out_dir.mkdir(parents=True, exist_ok=True)
    path = out_dir / "summary.json"
    path.write_text(json.dumps({"format": 1, "patterns": asdict(study)}, indent=1) + "\n", encoding="utf-8")
    return path


def say(study: PatternStudy, console: Console) -> None:
    """Print the decision matrix."""
    table = Table(title="5,000 writes/s of 1 KB on one key, ten minutes")
    for name in ("pattern", "devices", "N", "failed", "refused", "write p99", "WCU/write", "index lag p99"):
        table.add_column(name, justify="left" if name in {"pattern", "devices"} else "right")
    for kind in ("range", "targeted", "newest"):
        table.add_column(f"{kind}: queries, RCU, p99", justify="right")
    for each in study.results:
        reads = [f"{r.queries:.0f}, {r.rcu:.0f}, {r.p99_ms:.0f} ms" for r in each.reads.values()]
        table.add_row(
            each.title,
            each.workload,
            ", ".join(map(str, sorted(set(each.shard_counts)))),
            f"{each.failed_share:.1%}",
            f"{each.refused_share:.1%}",
            f"{each.write_p99_ms:.0f} ms",
            f"{each.wcu_per_write:.2f}",
            "-" if each.lag_p99_ms is None else f"{each.lag_p99_ms:.0f} ms",
            *reads,
        )
    console.print(table)
    for hot in study.hot_index:
        console.print(
            f"one hot value, {hot.title}: {hot.throttled_share:.1%} of the updates throttled (worst seed "
            f"{hot.throttled_share_worst:.1%}), {hot.failed_share:.1%} failed"
        )
    for each in study.planned:
        console.print(
            f"random suffix, {each.title}: {each.failed_share:.1%} failed (worst seed {each.failed_share_worst:.1%}), "
            f"{each.refused_share:.1%} of attempts refused"
        )


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tools.patterns", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"runs of each pattern ({SEEDS})")
    parser.add_argument("--out", type=Path, default=OUT_DIR)
    options = parser.parse_args(arguments)
    runs = list_jobs(options.seeds)
    began = time.perf_counter()
    seeds = range(1, options.seeds + 1)
    with open_workers({"patterns": sum(map(len, runs))}) as (pool, advance):
        hot = [[pool.submit(simulate_hot_index, index, seed) for seed in seeds] for index in HOT_INDEXES]
        futures = [[pool.submit(run, job) for job in jobs] for jobs in runs]
        for future in chain.from_iterable(futures):
            future.add_done_callback(lambda _: advance["patterns"]())
        samples = [[future.result() for future in each] for each in futures]
        hot_samples = [[future.result() for future in each] for each in hot]
    hot_index = [HotIndexResult.of(index, each) for index, each in zip(HOT_INDEXES, hot_samples, strict=True)]
    study = summarize(runs, samples, options.seeds, hot_index)
    path = write_summary(study, options.out)
    say(study, Console(width=200))
    say_bars(study.bars)
    print(f"{time.perf_counter() - began:.0f} s\n{path}")
    return 0 if study.passed else MISSED
