"""What the report of `make simulate` is made of, and its pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tools.reports.charts import Picture, draw, panel, stack, steps
from tools.reports.page import percent
from tools.reports.palette import Color
from tools.simulation.read_rush import RushStudy
from tools.simulation.results import Comparison, RunResult
from tools.simulation.scale import ScaleLevel, ScaleStudy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STRATEGY_NAMES: Mapping[str, str] = {
    "none": "DynamoDB alone",
    "sdk": "SDK's retries",
    "sources": "once-a-minute poller",
    "alarm": "alarm, then by hand",
    "queue": "queue in front",
    "static": "every key salted",
    "ours": "hotpartition",
    "oracle": "oracle",
}
STRATEGY_LINES: Mapping[str, tuple[Color, str]] = {
    "none": (Color.ORANGE, "-"),
    "sdk": (Color.PURPLE, ":"),
    "sources": (Color.YELLOW, "--"),
    "alarm": (Color.INK, "--"),
    "queue": (Color.PURPLE, "-."),
    "static": (Color.BLUE, "-."),
    "ours": (Color.GREEN, "-"),
    "oracle": (Color.SOFT, ":"),
}
LEVEL_LINES = ((Color.BLUE, "-"), (Color.PURPLE, "--"), (Color.GREEN, "-."))


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What a report is made of; `command` makes the same one again."""

    comparison: Comparison
    read_rush: RushStudy
    scale: ScaleStudy
    command: str


def build_pictures(contents: Contents) -> Mapping[str, Picture]:
    """Draw all pictures of a report, by their names."""
    comparison, scale = contents.comparison, contents.scale
    drawn = (
        _outcome(comparison),
        _course(comparison),
        _read_rush(contents.read_rush),
        _detection(scale),
        _loads(scale),
    )
    return {picture.name: picture for picture in drawn}


RUSH_LAYERS = (
    ("l1", Color.CALM, "from the environment's own cache"),
    ("redis", Color.BLUE, "from Redis"),
    ("waited", Color.PURPLE, "from Redis, after waiting"),
    ("dynamodb", Color.GREEN, "from DynamoDB"),
    ("refused", Color.ORANGE, "refused"),
)


DRAWN_RUSHES = ("cached", "found", "uncached")


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
    refused: Sequence[float]
    shard_count: Sequence[int]
    p99_ms: Sequence[float | None]

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
    # A strategy that never changes N keeps no journal, and has its N from the start.
    counts = series.shard_count[:bins]
    return Course(
        bin_seconds=series.bin_seconds,
        offered=rates(series.offered_wcu),
        on_base=[whole - part for whole, part in zip(prompt, on_shards, strict=True)],
        on_shards=on_shards,
        late=[whole - part for whole, part in zip(stored, prompt, strict=True)],
        failed=rates(series.failed_wcu),
        refused=rates(series.throttled_wcu),
        shard_count=counts if any(counts) else [run.final_shard_count] * len(counts),
        p99_ms=[ms or None for ms in series.write_p99_ms[:bins]],
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


def _course(comparison: Comparison) -> Picture:
    def paint(shards: Axes, refused: Axes, latency: Axes) -> None:
        for run in comparison.runs:
            course, (color, line) = course_of(run), STRATEGY_LINES[run.strategy]
            for axis, values in ((shards, course.shard_count), (refused, course.refused), (latency, course.p99_ms)):
                name = STRATEGY_NAMES[run.strategy]
                steps(axis, values, width=course.bin_seconds, color=color, label=name, line=line)
                axis.set_xlim(0, course.seconds)
        panel(shards, "Shards of the hot conversation (0: base key)", y="N, shards")
        panel(refused, "Refused by DynamoDB, retries included", y="WCU/s")
        panel(latency, "Write latency, 99th percentile", y="ms, logarithmic", x="seconds", log=True)

    label = "N, refused writes and write latency over time, for each strategy"
    return draw(paint, name="course", label=label, heights=(140, 150, 190))


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
