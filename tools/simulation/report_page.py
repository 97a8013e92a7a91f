"""The report: one HTML file that tells the problem, the product, its effect and its cost to somebody new to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from hotpartition.core.detector import Reason
from tools.reports.charts import Picture
from tools.reports.page import number, percent, render, seconds
from tools.simulation.measure import PhaseName
from tools.simulation.read_rush import RushRun
from tools.simulation.report_pictures import STRATEGY_NAMES, Contents, course_of
from tools.simulation.results import Comparison, Distribution, StrategySummary

COURSE_MEASURES = {
    "offered, WCU/s": "offered",
    "failed, WCU/s": "failed",
    "refused by DynamoDB, retries included, WCU/s": "refused",
    "N, shards": "shard_count",
    "write latency p99, ms": "p99_ms",
}
"""What the tables beside the pictures show over time, and where a course has it."""


def build_report(contents: Contents, pictures: Mapping[str, Picture]) -> str:
    """Build the report's HTML: self-contained, without scripts, the same for the same results."""
    return render(
        "simulation.html.j2",
        contents=contents,
        comparison=contents.comparison,
        runs={run.strategy: run for run in contents.comparison.runs},
        names=STRATEGY_NAMES,
        summaries={summary.strategy: summary for summary in contents.comparison.summaries},
        phase_tables=_phase_tables(contents.comparison.summaries),
        spread=spread,
        since_onset=since_onset,
        moment=moment,
        phase_columns=["", *PHASE_MEASURES],
        rushes={run.name: run for run in contents.read_rush.runs},
        rush_rows=RUSH_ROWS,
        columns=[STRATEGY_NAMES[run.strategy] for run in contents.comparison.runs],
        course_tables=_course_tables(contents.comparison),
        pictures=pictures,
        unlucky=str(Reason.UNLUCKY_PARTITION),
    )


def spread(values: Distribution, digits: int = 1, factor: float = 1.0, unit: str = "") -> str:
    """Write the median of the seeds and, in brackets, their lowest and highest value where they differ."""
    if values.count == values.missing:
        return "-"

    def written(value: float | None) -> str:
        return "never" if value is None else number(factor * value, digits)

    low, high = written(values.lowest), written(None if values.missing else values.highest)
    median = written(values.p50) + (unit if values.p50 is not None else "")
    return median if low == high else f"{median} ({low} to {high})"


def since_onset(values: Distribution) -> str:
    """Write how long after the onset something happened in the seeds: at once, after so long, or never."""
    if values.count == values.missing:
        return "never"
    return "at once" if values.highest == 0 and not values.missing else spread(values, 2, unit=" s")


def moment(value: float | None) -> str:
    """Write how long after the onset something happened in one run."""
    return "at once" if value == 0 else seconds(value)


PHASE_MEASURES: Mapping[str, tuple[str, int, float]] = {
    "queries a page": ("queries_per_page", 1, 1.0),
    "read units a page": ("rcu_per_page", 1, 1.0),
    "page p99, ms": ("page_p99_ms", 0, 1.0),
    "writes stored within 1 s, %": ("stored_within_second_share", 1, 100.0),
    "write p50, ms": ("stored_p50_ms", 0, 1.0),
    "write p99, ms": ("stored_p99_ms", 0, 1.0),
}
"""Columns of the tables by phase: each with its figure, its digits and a factor."""


RUSH_ROWS: Mapping[str, Callable[[RushRun], str]] = {
    "pages asked for": lambda run: number(run.offered),
    "refused": lambda run: percent(run.refused, run.offered),
    "from the environment's own cache": lambda run: percent(run.from_l1, run.offered),
    "from Redis": lambda run: percent(run.from_redis + run.from_waiting, run.offered),
    "from DynamoDB": lambda run: percent(run.from_dynamodb, run.offered),
    "found read-hot after": lambda run: moment(run.found_seconds) if run.found_seconds is not None else "-",
    "all is served after": lambda run: moment(run.served_after_seconds),
    "copies in Redis (R)": lambda run: number(run.copies_at_end),
    "fills in the worst second": lambda run: number(run.most_fills_in_a_second) if run.copies else "-",
    "queries throttled": lambda run: number(run.throttled_queries),
    "read units a second": lambda run: number(run.read_units_per_second, 0),
    "age of what is served: p50, ms": lambda run: number(run.age_ms.p50, 0) if run.copies else "-",
    "p99, ms": lambda run: number(run.age_ms.p99, 0) if run.copies else "-",
    "oldest, ms": lambda run: number(run.age_ms.longest, 0) if run.copies else "-",
    "latency p99, ms": lambda run: number(run.latency_ms.p99, 1),
    "busiest Redis node, commands/s": lambda run: number(run.busiest_node_commands_per_second),
    "of 100,000": lambda run: percent(run.busiest_node_share, 1.0),
    "MB/s of pages from it": lambda run: number(run.busiest_node_bytes_per_second / 1e6, 0),
    "messages written, failed": lambda run: f"{number(run.writes_stored)}, {number(run.writes_failed)}",
}
"""The rows of the read rush's table: each with what it shows of a run."""


def _phase_tables(summaries: Iterable[StrategySummary]) -> Mapping[PhaseName, Sequence[Sequence[str]]]:
    """List each phase's rows: a strategy's name and its figures."""
    return {
        name: [
            (
                STRATEGY_NAMES[summary.strategy],
                *(
                    spread(getattr(summary.phase(name), figure), digits, factor)
                    for figure, digits, factor in PHASE_MEASURES.values()
                ),
            )
            for summary in summaries
        ]
        for name in PhaseName
    }


def _course_tables(comparison: Comparison) -> Mapping[str, Iterable[tuple[float | None, ...]]]:
    """List each measure over time: rows of the time and each strategy's value."""
    courses = [course_of(run) for run in comparison.runs]
    width, bins = courses[0].bin_seconds, min(len(course.offered) for course in courses)
    times = [index * width for index in range(bins)]
    return {
        title: list(zip(times, *(getattr(course, name) for course in courses), strict=False))
        for title, name in COURSE_MEASURES.items()
    }
