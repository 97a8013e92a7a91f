"""The report: one HTML file that tells the problem, the product, its effect and its cost to somebody new to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hotpartition.core.detector import Reason
from tools.reports.charts import Picture
from tools.reports.page import render
from tools.simulation.report_pictures import STRATEGY_NAMES, course_of
from tools.simulation.results import Comparison
from tools.simulation.scale import ScaleStudy
from tools.simulation.tuning import Sweep, TuningStudy

COURSE_MEASURES = {
    "offered, WCU/s": "offered",
    "failed, WCU/s": "failed",
    "refused by DynamoDB, retries included, WCU/s": "refused",
    "N, shards": "shard_count",
    "write latency p99, ms": "p99_ms",
}
"""What the tables beside the pictures show over time, and where a course has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What a report is made of; `command` makes the same one again."""

    comparison: Comparison
    scale: ScaleStudy
    tuning: TuningStudy
    command: str


def build_report(contents: Contents, pictures: Mapping[str, Picture]) -> str:
    """Build the report's HTML: self-contained, without scripts, the same for the same results."""
    return render(
        "simulation.html.j2",
        contents=contents,
        comparison=contents.comparison,
        runs={run.strategy: run for run in contents.comparison.runs},
        names=STRATEGY_NAMES,
        columns=[STRATEGY_NAMES[run.strategy] for run in contents.comparison.runs],
        course_tables=_course_tables(contents.comparison),
        pictures=pictures,
        sweep_rows={
            sweep.name: [(point.value, *point.measures.values()) for point in sweep.points]
            for sweep in contents.tuning.sweeps
        },
        unlucky=str(Reason.UNLUCKY_PARTITION),
        at=at,
        rare=rare,
    )


def at(sweep: Sweep, value: float, measure: str) -> float:
    """Return a measure at one value of the setting; infinite where it never happened."""
    found = next(point for point in sweep.points if point.value == value).measures[measure]
    return float("inf") if found is None else found


def rare(per_hour: float) -> str:
    """Say how often something happens that is expected so often in an hour."""
    if per_hour >= 1:
        return f"{per_hour:,.0f} times in such an hour"
    if per_hour > 1 / 8_766:
        return f"once in {1 / per_hour:,.0f} such hours"
    if per_hour > 1 / 8_766 / 1_000:
        return f"once in {1 / per_hour / 8_766:,.0f} years of such hours"
    return "less than once in a thousand years of such hours"


def _course_tables(comparison: Comparison) -> Mapping[str, Iterable[tuple[float | None, ...]]]:
    """List each measure over time: rows of the time and each strategy's value."""
    courses = [course_of(run) for run in comparison.runs]
    width, bins = courses[0].bin_seconds, min(len(course.offered) for course in courses)
    times = [index * width for index in range(bins)]
    return {
        title: list(zip(times, *(getattr(course, name) for course in courses), strict=False))
        for title, name in COURSE_MEASURES.items()
    }
