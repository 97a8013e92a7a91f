"""The page's pictures, drawn from the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tools.patterns.results import PatternResult, PatternStudy
from tools.reports.charts import Picture, draw, panel
from tools.reports.palette import Color

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def build_pictures(study: PatternStudy) -> Mapping[str, Picture]:
    """Draw all pictures, by their names."""
    drawn = (_writes(study), _reads(study), _planned(study))
    return {picture.name: picture for picture in drawn}


def label_of(result: PatternResult) -> str:
    """Name a result: its pattern, and the workload if it is the one with a busy device."""
    return result.title if result.workload == "even" else f"{result.title}, busy device"


def _writes(study: PatternStudy) -> Picture:
    def paint(axis: Axes) -> None:
        values = [100 * each.failed_share for each in study.results]
        _bars(axis, [label_of(each) for each in study.results], [(values, Color.ORANGE, "writes that failed")])
        axis.set_xlim(0, 100)
        panel(axis, "Writes that failed", y="pattern", x="% of ten minutes' writes")
        _names(axis, [label_of(each) for each in study.results])

    return draw(paint, name="failed", label="Share of writes that failed, for each pattern", heights=(300,))


def _reads(study: PatternStudy) -> Picture:
    kinds = (("range", Color.BLUE), ("targeted", Color.PURPLE), ("newest", Color.GREEN))
    names = [label_of(each) for each in study.results]

    def paint(*axes: Axes) -> None:
        measures = (
            ("rcu", "Read units of one read", "RCU, logarithmic"),
            ("p99_ms", "Latency of one read, p99", "ms, logarithmic"),
        )
        for axis, (measure, title, unit) in zip(axes, measures, strict=True):
            series = [
                ([getattr(each.reads[kind], measure) for each in study.results], color, kind) for kind, color in kinds
            ]
            _bars(axis, names, series)
            axis.set_xscale("log")
            panel(axis, title, y="pattern", x=unit)
            _names(axis, names)

    label = "Read units and latency of range reads, targeted reads and newest pages, for each pattern"
    return draw(paint, name="reads", label=label, heights=(380, 380), shares_x=False)


def _planned(study: PatternStudy) -> Picture:
    def paint(axis: Axes) -> None:
        counts = [each.shard_counts[0] for each in study.planned]
        axis.plot(
            counts, [100 * each.failed_share for each in study.planned], color=Color.BLUE, marker="o", label="mean"
        )
        worst = [100 * each.failed_share_worst for each in study.planned]
        axis.plot(counts, worst, color=Color.ORANGE, linestyle="--", marker="o", label="worst seed")
        panel(axis, "A fixed N, for the same load", y="% of writes that failed", x="N, shards")

    return draw(paint, name="planned", label="Share of writes that failed for several fixed N", heights=(200,))


def _bars(axis: Axes, names: Sequence[str], series: Sequence[tuple[Sequence[float], Color, str]]) -> None:
    height = 0.8 / len(series)
    for number, (values, color, text) in enumerate(series):
        places = [index + (number - (len(series) - 1) / 2) * height for index in range(len(names))]
        axis.barh(places, values, height=height, color=color, label=text)


def _names(axis: Axes, names: Sequence[str]) -> None:
    """Name the rows, from top to bottom; after `panel`, which gives axes plain numbers."""
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.4, -0.6)
