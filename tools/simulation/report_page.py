"""The report: one HTML file about the problem, the product, its effect and its cost, and its pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hotpartition_messages.page_costs import Load, read_pages
from tools.reports.charts import Picture, draw, panel, stack, steps
from tools.reports.page import percent
from tools.reports.palette import Color
from tools.simulation.cooling import CoolingStudy
from tools.simulation.read_rush import RushStudy
from tools.simulation.results import Comparison, PhaseName, RunResult
from tools.simulation.scale import ScaleLevel, ScaleStudy

if TYPE_CHECKING:
    from matplotlib.axes import Axes


from collections.abc import Callable

from hotpartition.core.detector import Reason
from tools.reports.page import number, render, seconds
from tools.simulation.read_rush import RushRun
from tools.simulation.results import Distribution, StrategySummary

STRATEGY_NAMES: Mapping[str, str] = {
    "none": "DynamoDB alone",
    "sdk": "SDK's retries",
    "sources": "once-a-minute poller",
    "alarm": "alarm, then by hand",
    "queue": "queue in front",
    "static": "every key salted",
    "in_band": "hotpartition, in band",
    "ours": "hotpartition",
    "oracle": "oracle",
}
LEVEL_LINES = ((Color.BLUE, "-"), (Color.PURPLE, "--"), (Color.GREEN, "-."))

RUSH_LAYERS = (
    ("l1", Color.CALM, "from the environment's own cache"),
    ("redis", Color.BLUE, "from Redis"),
    ("waited", Color.PURPLE, "from Redis, after waiting"),
    ("dynamodb", Color.GREEN, "from DynamoDB"),
    ("refused", Color.ORANGE, "refused"),
)
DRAWN_RUSHES = ("cached", "found", "uncached")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What a report is made of; `command` makes the same one again."""

    comparison: Comparison
    read_rush: RushStudy
    scale: ScaleStudy
    cooling: CoolingStudy
    command: str


def build_pictures(contents: Contents) -> Mapping[str, Picture]:
    """Draw all pictures of a report, by their names."""
    comparison, scale = contents.comparison, contents.scale
    drawn = (
        _outcome(comparison),
        _read_rush(contents.read_rush),
        _detection(scale),
        _loads(scale),
    )
    return {picture.name: picture for picture in drawn}


def _read_rush(study: RushStudy) -> Picture:
    """Draw where a rush's pages came from, second by second, with the cache and without."""
    runs = [run for run in study.runs if run.name in DRAWN_RUSHES] or study.runs

    def paint(*axes: Axes) -> None:
        for axis, run in zip(axes, runs, strict=True):
            layers = [
                ([getattr(second, name) for second in run.seconds], color, text) for name, color, text in RUSH_LAYERS
            ]
            stack(axis, layers, width=1.0)
            steps(axis, [second.offered for second in run.seconds], width=1.0, color=Color.INK, label="asked for")
            scaled = "" if run.scale == 1 else f", at {run.scale:g} of the load"
            title = f"{run.name.replace('-', ' ')}{scaled}: {percent(run.refused, run.offered)} refused"
            panel(axis, title, y="pages/s", x="seconds" if axis is axes[-1] else "", top=1.1 * run.pages_per_second)

    label = "Where the newest page of a read-hot conversation came from, with the page cache and without"
    return draw(paint, name="read-rush", label=label, heights=[130] * len(runs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """A run bin by bin, for as long as something is offered; what follows is clients giving up. Loads are in WCU/s."""

    bin_seconds: float
    offered: Sequence[float]
    on_base: Sequence[float]
    on_shards: Sequence[float]
    late: Sequence[float]
    failed: Sequence[float]

    @property
    def seconds(self) -> float:
        """How long it is."""
        return len(self.offered) * self.bin_seconds


def course_of(run: RunResult) -> Course:
    """Read a run's course from its series."""
    series = run.series
    bins = max((index + 1 for index, wcu in enumerate(series.offered_wcu) if wcu), default=len(series.offered_wcu))

    def rates(amounts: Sequence[float]) -> list[float]:
        return [amount / series.bin_seconds for amount in amounts[:bins]]

    stored, prompt = rates(series.stored_wcu), rates(series.prompt_wcu)
    # What lies on shards is known by the time at which it was stored, the rest by the time at which it was offered.
    parts = zip(series.on_shards_wcu, series.table_wcu, prompt, strict=False)
    on_shards = [wcu * min(1.0, part / whole) if whole else 0.0 for part, whole, wcu in parts]
    return Course(
        bin_seconds=series.bin_seconds,
        offered=rates(series.offered_wcu),
        on_base=[whole - part for whole, part in zip(prompt, on_shards, strict=True)],
        on_shards=on_shards,
        late=[whole - part for whole, part in zip(stored, prompt, strict=True)],
        failed=rates(series.failed_wcu),
    )


def _outcome(comparison: Comparison) -> Picture:
    """Draw a panel for each strategy: what was offered, as stored on the base key, stored on shards, and failed."""
    courses = [course_of(run) for run in comparison.runs]
    highest = 1.05 * max(max(course.offered) for course in courses)

    def paint(*axes: Axes) -> None:
        for axis, run, course in zip(axes, comparison.runs, courses, strict=True):
            layers = (
                (course.on_base, Color.CALM, "stored on the base key"),
                (course.on_shards, Color.BLUE, "stored on shards"),
                (course.late, Color.YELLOW, "stored after more than 1 s"),
                (course.failed, Color.ORANGE, "failed: clients gave up"),
            )
            stack(axis, layers, width=course.bin_seconds)
            steps(axis, course.offered, width=course.bin_seconds, color=Color.INK, label="offered by clients")
            axis.axvline(run.onset_seconds, color=Color.SOFT, linestyle=":", label="the rush begins")
            title = f"{STRATEGY_NAMES[run.strategy]}: {percent(run.writes.failed_wcu, run.writes.offered_wcu)} failed"
            if first := next((r for r in run.raises if r.conversation_id == run.hot_conversation), None):
                axis.axvline(first.at_seconds, color=Color.PURPLE, label="N is raised")
            title += f" here ({run.left_out_seconds:.0f} s left out)" if run.left_out_seconds else ""
            panel(axis, title, y="WCU/s", x="seconds" if axis is axes[-1] else "", top=highest)
            axis.set_xlim(0, course.seconds)

    label = "Writes over time for each strategy: stored on the base key, stored on shards, failed"
    return draw(paint, name="comparison", label=label, heights=[112] * len(courses))


def _detection(study: ScaleStudy) -> Picture:
    def paint(delays: Axes, errors: Axes) -> None:
        for level, (color, line) in zip(study.levels, LEVEL_LINES, strict=False):
            seconds, shares = zip(*_distribution(level.delays_seconds), strict=True)
            delays.plot(seconds, shares, color=color, linestyle=line, label=f"{level.writes_per_second:,} writes/s")
        delays.set_xlim(0, 1.5)
        panel(delays, "How soon a rush is detected", y="% of rushes", x="seconds from onset to the decision", top=104)
        for wcu, name, color in (("600", "quiet_error", Color.ORANGE), ("4,000", "rush_error", Color.PURPLE)):
            for line, marker, measure, words in (("", "o", name, "measured"), ("-", "", f"{name}_theory", "computed")):
                values = [100 * getattr(level, measure) for level in study.levels]
                text = f"{words}, {wcu} WCU/s"
                errors.plot(_sizes(study.levels), values, color=color, linestyle=line, marker=marker, label=text)
        errors.set_xscale("log")
        panel(
            errors,
            "Error of the estimate of one second",
            y="% of the load",
            x="writes/s of the whole fleet, logarithmic",
            top=12,
        )

    label = "Detection delay and estimation error for three sizes of the fleet"
    return draw(paint, name="scale-detection", label=label, heights=(190, 190), shares_x=False)


def _loads(study: ScaleStudy) -> Picture:
    lines = (
        ("writes_per_second", Color.SOFT, ":", "writes"),
        ("registry_lookups_per_second", Color.ORANGE, "--", "Redis: route lookups"),
        ("reports_per_second", Color.BLUE, "-", "Redis: reports"),
        ("consumer_decisions_per_second", Color.PURPLE, "-.", "decisions if all were judged"),
    )

    def paint(axis: Axes) -> None:
        for name, color, line, text in lines:
            values = [getattr(level, name) for level in study.levels]
            axis.plot(_sizes(study.levels), values, color=color, linestyle=line, marker="o", label=text)
        axis.set_xscale("log")
        x = "writes/s of the whole fleet, logarithmic"
        panel(axis, "What detection and routing add", y="a second, logarithmic", x=x, log=True)

    label = "Reports, route lookups and decisions a second for three sizes of the fleet"
    return draw(paint, name="scale-loads", label=label, heights=(260,))


def _sizes(levels: Iterable[ScaleLevel]) -> list[int]:
    return [level.writes_per_second for level in levels]


def _distribution(delays: Sequence[float | None]) -> list[tuple[float, float]]:
    ordered = sorted(delay for delay in delays if delay is not None)
    total = len(delays)
    known = [(delay, 100 * share / total) for rank, delay in enumerate(ordered) for share in (rank, rank + 1)]
    return [(0.0, 0.0), *known, (1.5, 100 * len(ordered) / total)]


def build_report(contents: Contents, pictures: Mapping[str, Picture]) -> str:
    """Build the report's HTML: self-contained, without scripts, the same for the same results."""
    summaries = {summary.strategy: summary for summary in contents.comparison.summaries}
    shard_count = round(summaries["ours"].final_shard_count.p50 or 0)
    return render(
        "simulation.html.j2",
        contents=contents,
        comparison=contents.comparison,
        runs={run.strategy: run for run in contents.comparison.runs},
        names=STRATEGY_NAMES,
        summaries=summaries,
        uncached=read_pages(shard_count, Load(messages_per_second=1.0, item_bytes=1024, page=50)),
        phase_tables=_phase_tables(contents.comparison.summaries),
        spread=spread,
        since_onset=since_onset,
        moment=moment,
        phase_columns=["", *PHASE_MEASURES],
        rushes={run.name: run for run in contents.read_rush.runs},
        rush_rows=RUSH_ROWS,
        columns=[STRATEGY_NAMES[run.strategy] for run in contents.comparison.runs],
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
