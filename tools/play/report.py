"""The report of a demonstration: one HTML file with its pictures inside, readable without network or script."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tools.figures import nearest_rank
from tools.history import Verdict
from tools.local.metering import TimelineRow
from tools.play.charts import Color, Picture, draw, number, palette_css, panel, percent, seconds, stack, steps
from tools.play.client import HttpApi, Recorder
from tools.play.cooling import NOT_CLOSED, Cooled
from tools.play.readers import Asked
from tools.play.verdict import Hot, Judgement, Machine, Summary, Throttles, is_key_of, summary_document
from tools.play.watch import Observations, Raise

if TYPE_CHECKING:
    from matplotlib.axes import Axes  # slow to import, and needed for a report alone

NOT_YET = Judgement(())
X_LABEL = "seconds since the workload began"


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What is known once the workload was played and everything read; moments are in seconds since the epoch."""

    recorder: Recorder
    observations: Observations
    hot: Hot
    started_at: float
    workload_ended_at: float
    unread: tuple[str, ...]
    rush: tuple[Asked, ...]
    """The requests of the rush of readers, which began at `rush_began`."""
    rush_began: float
    cooled: Cooled = NOT_CLOSED


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Everything that a report is made from."""

    played: Played
    summary: Summary
    history: Verdict
    throttles: Throttles
    machine: Machine
    timeline: tuple[TimelineRow, ...]
    words: type[HttpApi]
    """What the application calls its parts."""
    done: tuple[str, ...]
    """What was done, in sentences."""
    judgement: Judgement = NOT_YET

    @property
    def started_at(self) -> float:
        """When the workload began."""
        return self.played.started_at

    @property
    def raises(self) -> list[Raise]:
        """The raises that were seen, by time."""
        return sorted(self.played.observations.raises)

    @property
    def length(self) -> int:
        """How many seconds the workload lasted, the last one begun included."""
        return max(1, ceil(self.played.workload_ended_at - self.started_at))


def build_pictures(run: Run) -> Mapping[str, Picture]:
    """Draw all pictures of a report, by their names."""
    return {picture.name: picture for picture in (_draw_load(run), _draw_latency(run))}


def build_report(run: Run, pictures: Mapping[str, Picture]) -> str:
    """Build the HTML of a report: all is escaped that does not say it is markup, and each name needs a value."""
    figures = {
        **summary_document(run.summary, run.history, run.judgement, run.machine),
        "not_judged": ", ".join(run.judgement.not_judged) or "nothing",
    }
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"number": number, "percent": percent, "seconds": seconds}
    template = environment.get_template("demo.html.j2")
    return template.render(run=run, figures=figures, pictures=pictures, palette=palette_css())


def remove_results(folder: Path) -> None:
    """Remove what an older run wrote, so that an interrupted one leaves nothing behind that looks like its own."""
    for file in (folder / "summary.json", folder / "report.html", *folder.glob("*.svg")):
        file.unlink(missing_ok=True)


def _draw_load(run: Run) -> Picture:
    name = run.summary.hot_conversation
    own = [load for load in run.timeline if is_key_of(load.key, name)]
    on_base = _count(run, ((load.at_ms / 1000, load.writes) for load in own if load.key == name))
    on_shards = _count(run, ((load.at_ms / 1000, load.writes) for load in own if load.key != name))
    refused = _count(run, ((load.at_ms / 1000, load.throttled_writes) for load in own))
    offered = _count(run, ((at, 1) for at, conversation in run.played.recorder.offered_at if conversation == name))

    def paint(load: Axes, spread: Axes) -> None:
        _mark_time(run, load, spread)
        layers = [(on_base, Color.CALM, "stored on the base key"), (on_shards, Color.BLUE, "on shards")]
        stack(load, layers, width=1)
        steps(load, offered, width=1, color=Color.INK, label="offered by clients")
        steps(load, refused, width=1, color=Color.ORANGE, label="refused by DynamoDB")
        _mark_limit(run, load)
        panel(load, f"Writes to {name}", y="writes/s")
        points = [(0.0, 0), *((one.seen_at - run.started_at, one.shard_count) for one in run.raises)]
        seconds, counts = zip(*points, (float(run.length), points[-1][1]), strict=True)
        spread.step(seconds, counts, where="post", color=Color.PURPLE, label="N, the number of shards")
        for at, count in points[1:]:
            left = at < 0.7 * run.length
            spread.annotate(
                f"{count} at {at:.1f} s",
                (at, count),
                xytext=(6 if left else -6, -14),
                textcoords="offset points",
                ha="left" if left else "right",
            )
        panel(spread, "Shards for new messages (0: base key)", y="N, shards", x=X_LABEL, top=1.15 * max(1, *counts))
        spread.locator_params(axis="y", integer=True)

    label = f"Writes a second to {name}, and the number of its shards, over time"
    return draw(paint, name="load", label=label, heights=(210, 120))


def _draw_latency(run: Run) -> Picture:
    name, recorder = run.summary.hot_conversation, run.played.recorder
    p50_ms, p99_ms = (
        _latency(run, share, ((timing.at, timing.seconds) for timing in recorder.timings)) for share in (0.5, 0.99)
    )
    queued_p99_ms = _latency(run, 0.99, ((timing.at, timing.queued_seconds) for timing in recorder.timings))
    others = [load for load in run.timeline if not is_key_of(load.key, name)]
    written = _count(run, ((load.at_ms / 1000, load.writes) for load in others))
    refused = _count(run, ((load.at_ms / 1000, load.throttled_writes) for load in others))
    offered = _count(run, ((at, 1) for at, conversation in recorder.offered_at if conversation != name))

    def paint(latency: Axes, quiet: Axes) -> None:
        _mark_time(run, latency, quiet)
        steps(latency, p99_ms, width=1, color=Color.GREEN, label="write request, p99")
        steps(latency, p50_ms, width=1, color=Color.BLUE, label="p50")
        queued = [None if ms is None or ms < 1 else ms for ms in queued_p99_ms]
        steps(latency, queued, width=1, color=Color.SOFT, label="wait for this machine, p99")
        panel(latency, f"Latency of write requests, all {run.words.collection}s", y="ms, logarithmic", log=True)
        stack(quiet, [(written, Color.CALM, "stored")], width=1)
        steps(quiet, offered, width=1, color=Color.INK, label="offered by clients")
        steps(quiet, refused, width=1, color=Color.ORANGE, label="refused by DynamoDB")
        panel(
            quiet,
            f"Writes to the {run.history.conversations - 1} quiet {run.words.collection}s",
            y="writes/s",
            x=X_LABEL,
        )

    label = f"Latency of write requests, and writes a second to the quiet {run.words.collection}s, over time"
    return draw(paint, name="latency", label=label, heights=(180, 150))


def _mark_time(run: Run, *axes: Axes) -> None:
    """Mark in each panel when the conversation was hot, and when N was raised."""
    for axis in axes:
        axis.set_xlim(0, run.length)
        hot = run.played.hot
        begins, ends = hot.begins - run.started_at, hot.ends - run.started_at
        axis.axvspan(begins, ends, color=Color.BAND, label="hot period", zorder=0.4)
        for raised in run.raises:
            seen = raised.seen_at - run.started_at
            axis.axvline(seen, color=Color.PURPLE, linewidth=1.2, linestyle=":", label="N is raised")


def _mark_limit(run: Run, axis: Axes) -> None:
    limit = run.summary.partition_limit_wcu
    axis.axhline(limit, color=Color.YELLOW, linewidth=1.4, linestyle="--", label=f"one partition takes {limit:g}")


def _by_second(run: Run, values: Iterable[tuple[float, float]]) -> Mapping[int, list[float]]:
    seconds: dict[int, list[float]] = defaultdict(list)
    for at, value in values:
        if run.started_at <= at < run.started_at + run.length:
            seconds[int(at - run.started_at)].append(value)
    return seconds


def _count(run: Run, counts: Iterable[tuple[float, float]]) -> list[float]:
    """Add up counts second by second."""
    seconds = _by_second(run, counts)
    return [sum(seconds.get(second, ())) for second in range(run.length)]


def _latency(run: Run, share: float, latencies: Iterable[tuple[float, float]]) -> list[float | None]:
    """Find a quantile of each second's latencies, in ms."""
    seconds = _by_second(run, latencies)
    known = (sorted(seconds.get(second, ())) for second in range(run.length))
    return [1000 * nearest_rank(values, share) if values else None for values in known]
