"""`make simulate-patterns`: the patterns of write sharding, measured on one workload, and which to choose."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from statistics import fmean
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
    Workload,
)
from tools.patterns.run import ReadKind, Sample, simulate
from tools.quantiles import nearest_rank
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """One kind of read: means, and latencies in ms."""

    count: int
    queries: float
    rcu: float
    items: float
    p50_ms: float
    p99_ms: float

    @classmethod
    def of(cls, kinds: Sequence[ReadKind]) -> Reads:
        """Sum up the reads of several runs."""
        seconds = sorted(each for kind in kinds for each in kind.seconds)
        return cls(
            count=len(seconds),
            queries=_mean([each for kind in kinds for each in kind.queries]),
            rcu=_mean([each for kind in kinds for each in kind.rcu]),
            items=_mean([each for kind in kinds for each in kind.items]),
            p50_ms=_ms(seconds, 0.5),
            p99_ms=_ms(seconds, 0.99),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternResult:
    """One pattern under one workload, over several seeds.

    `failed_share` is of all writes of the run, `failed_share_at_end` of its last seconds, `refused_share` of the
    attempts in the close-ups, `refused_by_index_share` the part of it that an index refused.
    `index_refusals_after_raise` counts writes that the index refused once every writer had the raised route (for a
    fixed number of shards: at any time), most of which the next choice took; `failed_after_raise` those that failed.
    `shard_counts` are the N at the end, seed by seed.
    """

    pattern: str
    title: str
    workload: str
    seeds: int
    failed_share: float
    failed_share_worst: float
    failed_share_at_end: float
    refused_share: float
    refused_by_index_share: float
    index_refusals_after_raise: float
    failed_after_raise: float
    write_p50_ms: float
    write_p99_ms: float
    wcu_per_write: float
    lag_p50_ms: float | None
    lag_p99_ms: float | None
    raised_seconds: float | None
    shard_counts: tuple[int, ...]
    reads: Mapping[str, Reads]

    @classmethod
    def of(cls, pattern: Pattern, workload: Workload, samples: Sequence[Sample]) -> PatternResult:
        """Sum up the runs of one pattern."""
        counts = [sample.counts for sample in samples]
        attempts = sum(each.attempts for each in counts)
        writes = sorted(each for sample in samples for each in sample.write_seconds)
        lags = sorted(each for of_run in counts for each in of_run.lag_seconds)
        raises = [sample.raises[0].at_seconds for sample in samples if sample.raises]
        shares = [sample.failed / sample.offered for sample in samples]
        return cls(
            pattern=pattern.name,
            title=pattern.title,
            workload=workload.name,
            seeds=len(samples),
            failed_share=_round(fmean(shares)),
            failed_share_worst=_round(max(shares)),
            failed_share_at_end=_mean([sample.failed_share_at_end for sample in samples], 5),
            refused_share=_round(sum(each.refused for each in counts) / attempts),
            refused_by_index_share=_round(sum(each.refused_by_index for each in counts) / attempts),
            index_refusals_after_raise=_round(sum(sample.index_refusals_after_raise for sample in samples)),
            failed_after_raise=_round(sum(sample.failed_after_raise for sample in samples)),
            write_p50_ms=_ms(writes, 0.5),
            write_p99_ms=_ms(writes, 0.99),
            wcu_per_write=_mean([sample.wcu_per_write for sample in samples]),
            lag_p50_ms=_ms(lags, 0.5) if lags else None,
            lag_p99_ms=_ms(lags, 0.99) if lags else None,
            raised_seconds=_mean(raises) if raises else None,
            shard_counts=tuple(sample.final_shard_count for sample in samples),
            reads={name: Reads.of([sample.reads[name] for sample in samples]) for name in samples[0].reads},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternStudy:
    """The comparison: each pattern under the workloads where it matters, and what a wrong N does."""

    seeds: int
    assumptions: tuple[str, ...]
    results: tuple[PatternResult, ...]
    planned: tuple[PatternResult, ...]
    hot_index: tuple[HotIndexResult, ...]
    bars: tuple[Bar, ...]
    passed: bool

    def result(self, pattern: str, workload: str) -> PatternResult:
        """Find one of the results."""
        return next(each for each in self.results if (each.pattern, each.workload) == (pattern, workload))


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


def _mean(values: Sequence[float], digits: int = 2) -> float:
    return round(fmean(values), digits)


def _round(value: float) -> float:
    return round(value, 5)


def _ms(ordered: Sequence[float], share: float) -> float:
    return round(1000 * nearest_rank(ordered, share), 1)


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
