"""What the comparison says: plain values, as they stand in `summary.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from tools.bars import Bar
from tools.patterns.hot_index import HotIndexResult
from tools.patterns.model import Pattern, Workload
from tools.patterns.run import ReadKind, Sample
from tools.quantiles import nearest_rank


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


def _mean(values: Sequence[float], digits: int = 2) -> float:
    return round(fmean(values), digits)


def _round(value: float) -> float:
    return round(value, 5)


def _ms(ordered: Sequence[float], share: float) -> float:
    return round(1000 * nearest_rank(ordered, share), 1)
