"""The report's pictures, from the results of the comparison, the scale study and the sweeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tools.simulation.report_charts import Axis, Panel, Picture, ceiling, steps
from tools.simulation.results import Comparison, RunResult
from tools.simulation.scale import ScaleStudy
from tools.simulation.tuning import Sweep, TuningStudy

ROW_HEIGHT = 156.0
PLOT_HEIGHT = 265.0
LEAST_FALSE_RAISES = 1e-9
"""Lower end of axes with false raises; less than one in a hundred thousand years is drawn as that."""

STRATEGY_COLORS = ("c0", "c1", "c2", "c3", "c5", "c4")
STRATEGY_NAMES: Mapping[str, str] = {
    "none": "no mitigation",
    "sources": "once-a-minute poller",
    "static": "every key salted",
    "ours": "hotpartition",
    "oracle": "oracle",
}


def strategy_name(strategy: str) -> str:
    """Return what people call a strategy."""
    return STRATEGY_NAMES.get(strategy, strategy)


def comparison_pictures(comparison: Comparison) -> tuple[Picture, ...]:
    """Draw the comparison: what became of the writes, then N, refusals and latency over time."""
    return (_outcome(comparison), _course(comparison))


def _outcome(comparison: Comparison) -> Picture:
    """Draw one row for each strategy: what was offered, as stored on the base key, stored on shards, and failed."""
    highest = ceiling(1.02 * max(max(_rates(run, run.series.offered_wcu)) for run in comparison.runs))
    panels = []
    for row, run in enumerate(comparison.runs):
        is_last = row == len(comparison.runs) - 1
        panel = Panel(
            x=Axis(low=0, high=_end(run), label="seconds" if is_last else ""),
            y=Axis(low=0, high=highest, label="WCU/s"),
            title=f"{strategy_name(run.strategy)}: {_share(run.writes.failed_wcu, run.writes.offered_wcu)} failed",
            height=ROW_HEIGHT,
            offset_y=row * (ROW_HEIGHT - 18),
        )
        _stack(panel, run)
        if row == 0:
            panel.vertical(run.onset_seconds, "event", "the rush begins")
        elif run.raised_seconds is not None:
            panel.vertical(
                run.onset_seconds + run.raised_seconds,
                "event",
                f"raised to N = {_first_raise(run)}, {_second(run)} later",
            )
        panels.append(panel)
    return Picture(
        name="comparison",
        label="Writes over time for each strategy: stored on the base key, stored on shards, failed",
        height=len(panels) * (ROW_HEIGHT - 18) + 18,
        panels=tuple(panels),
        legend=(
            ("mark", "offered"),
            ("base", "stored on the base key"),
            ("c3", "stored on shards"),
            ("c0", "failed: refused until the client gave up"),
        ),
    )


def _stack(panel: Panel, run: RunResult) -> None:
    series = run.series
    width = series.bin_seconds
    stored = _rates(run, series.stored_wcu)
    # What lies on shards is known by the time at which it was stored, the rest by the time at which it was offered.
    parts = zip(run.series.on_shards_wcu, run.series.table_wcu, strict=True)
    shares = [min(1.0, part / all_) if all_ else 0.0 for part, all_ in parts]
    shards = [share * wcu for share, wcu in zip(shares, stored, strict=False)]
    base = [all_ - part for all_, part in zip(stored, shards, strict=True)]
    all_of_it = [done + lost for done, lost in zip(stored, _rates(run, series.failed_wcu), strict=True)]
    floor = [0.0] * len(base)
    panel.area(steps(base, width), steps(floor, width), "base")
    panel.area(steps(stored, width), steps(base, width), "c3")
    panel.area(steps(all_of_it, width), steps(stored, width), "c0")
    panel.line(steps(_rates(run, series.offered_wcu), width), "mark")


def _course(comparison: Comparison) -> Picture:
    runs = comparison.runs
    end = max(_end(run) for run in runs)
    most = max(max(_shard_counts(run)) for run in runs)
    refused = max(max(_rates(run, run.series.throttled_wcu)) for run in runs)
    slowest = max(max(run.series.write_p99_ms) for run in runs)
    panels = (
        Panel(
            x=Axis(low=0, high=end),
            y=Axis(low=0, high=ceiling(max(most, 1)), label="shards (0: base key only)"),
            title="N over time",
            height=170,
        ),
        Panel(
            x=Axis(low=0, high=end),
            y=Axis(low=0, high=ceiling(max(refused, 1)), label="WCU/s, retries included"),
            title="Refused by DynamoDB",
            height=190,
            offset_y=160,
        ),
        Panel(
            x=Axis(low=0, high=end, label="seconds"),
            y=Axis(low=1, high=max(10.0, 10 * slowest), label="ms, logarithmic", is_log=True),
            title="Write latency, 99th percentile",
            height=210,
            offset_y=340,
        ),
    )
    for run, color in zip(runs, STRATEGY_COLORS, strict=False):
        width = run.series.bin_seconds
        panels[0].line(steps(_shard_counts(run), width), color)
        panels[1].line(steps(_rates(run, run.series.throttled_wcu), width), color)
        panels[2].line(steps([ms or 1.0 for ms in run.series.write_p99_ms[: _bins(run)]], width), color)
    return Picture(
        name="course",
        label="N, refused writes and write latency over time, for each strategy",
        height=550,
        panels=panels,
        legend=tuple((c, strategy_name(r.strategy)) for r, c in zip(runs, STRATEGY_COLORS, strict=False)),
    )


def scale_pictures(study: ScaleStudy) -> tuple[Picture, ...]:
    """Draw the scale study: how soon rushes are detected and how well loads are estimated, and what that loads."""
    return (_detection(study), _loads(study))


def _detection(study: ScaleStudy) -> Picture:
    colors = ("c2", "c4", "c3")
    delays = Panel(
        x=Axis(low=0, high=1.5, label="seconds from onset to the decision to raise"),
        y=Axis(low=0, high=100, label="% of rushes"),
        title="How soon a rush is detected",
        height=PLOT_HEIGHT,
        side=0,
    )
    for level, color in zip(study.levels, colors, strict=False):
        delays.line(_distribution(level.delays_seconds), color)
    errors = Panel(
        x=Axis(low=5e3, high=2e6, label="writes a second, whole fleet", is_log=True, ticks=(1e4, 1e5, 1e6)),
        y=Axis(low=0, high=12, label="% of the load, one second"),
        title="Error of the estimate: dots measured, lines computed",
        height=PLOT_HEIGHT,
        side=1,
    )
    for measured, theory, color in (
        ("quiet_error", "quiet_error_theory", "c0"),
        ("rush_error", "rush_error_theory", "c5"),
    ):
        for name, draw in ((measured, errors.dots), (theory, errors.line)):
            draw([(lv.writes_per_second, 100 * getattr(lv, name)) for lv in study.levels], color)
    return Picture(
        name="scale-detection",
        label="Detection delay and estimation error for three sizes of the fleet",
        height=PLOT_HEIGHT,
        panels=(delays, errors),
        legend=(
            *((c, f"{lv.writes_per_second:,} writes/s") for lv, c in zip(study.levels, colors, strict=False)),
            ("c0", "error at 600 WCU/s"),
            ("c5", "error at 4,000 WCU/s"),
        ),
    )


def _loads(study: ScaleStudy) -> Picture:
    panel = Panel(
        x=Axis(low=5e3, high=2e6, label="writes a second, whole fleet", is_log=True, ticks=(1e4, 1e5, 1e6)),
        y=Axis(low=1e3, high=1e7, label="a second, logarithmic", is_log=True),
        title="What detection and routing add",
        height=PLOT_HEIGHT,
    )
    lines = (
        ("writes_per_second", "c5", "writes"),
        ("registry_lookups_per_second", "c1", "Redis: questions for a route"),
        ("reports_per_second", "c2", "Redis: reports"),
        ("consumer_decisions_per_second", "c4", "consumer: decisions if it judged all"),
    )
    for name, color, _ in lines:
        points = [(float(lv.writes_per_second), float(getattr(lv, name))) for lv in study.levels]
        panel.line(points, color)
        panel.dots(points, color)
    return Picture(
        name="scale-loads",
        label="Reports, route lookups and decisions a second for three sizes of the fleet",
        height=PLOT_HEIGHT,
        panels=(panel,),
        legend=tuple((color, text) for _, color, text in lines),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Half:
    """One panel of a sweep: its measures with colour and words, and its axis."""

    title: str
    unit: str
    lines: tuple[tuple[str, str, str], ...]
    is_log: bool = False
    factor: float = 1.0
    high: float | None = None


_FALSE = _Half(
    title="Raised by chance",
    unit="expected in an hour of 50 conversations at 600 WCU/s",
    lines=(("false_raises_per_hour", "c0", "false raises an hour"),),
    is_log=True,
)


def _delays(loads: Sequence[int], high: float) -> _Half:
    colors = ("c2", "c4", "c3")
    lines = tuple(
        (f"delay_{load}_p99_seconds", color, f"step to {load:,} WCU/s, p99")
        for load, color in zip(loads, colors, strict=False)
    )
    return _Half(title="From onset to decision", unit="seconds", lines=lines, high=high)


HALVES: Mapping[str, tuple[_Half, _Half]] = {
    "at-once-threshold": (_FALSE, _delays((1_200, 2_000, 4_000), 6)),
    "sustained-threshold": (_FALSE, _delays((850, 900, 950), 20)),
    "at-once-window": (_FALSE, _delays((1_200, 2_000, 4_000), 4)),
    "sustained-window": (_FALSE, _delays((850, 900, 950), 16)),
    "sampling-distance": (
        _FALSE,
        _Half(
            title="Reports, and the estimate's error",
            unit="reports; WCU/s",
            lines=(
                ("reports_per_1000_wcu", "c2", "reports for 1,000 WCU"),
                ("relative_error_at_800_wcu", "c4", "standard error of one second at 800 WCU/s, in WCU/s"),
            ),
            high=700,
        ),
    ),
    "cache-life": (
        _Half(
            title="Questions to Redis",
            unit="a write, over 100,000 conversations and 1,000 environments",
            lines=(("lookups_per_write", "c1", "lookups for each write"),),
            high=1.0,
        ),
        _Half(
            title="Until 95 % of what is stored lies on the new shards",
            unit="seconds after the raise",
            lines=(
                ("seconds_to_shards", "c2", "as it is"),
                ("seconds_to_shards_whole_life_after_throttle", "c3", "if an answer after a throttle lived as long"),
            ),
            high=10,
        ),
    ),
    "hedge-quantile": (
        _Half(
            title="Queries asked a second time",
            unit="% of all",
            lines=(("extra_share", "c1", "hedges"),),
            factor=100,
            high=6,
        ),
        _Half(
            title="Latency of a page at N = 8",
            unit="ms, logarithmic",
            lines=(
                ("p99_ms", "c2", "p99"),
                ("p999_ms", "c4", "p99.9"),
                ("stalls_p99_ms", "c3", "p99, 1 % of queries stalled"),
                ("stalls_p999_ms", "c0", "p99.9, 1 % stalled"),
            ),
            is_log=True,
        ),
    ),
}


def tuning_pictures(study: TuningStudy) -> Mapping[str, Picture]:
    """Draw each sweep, by its name."""
    return {sweep.name: _sweep(sweep) for sweep in study.sweeps}


def _sweep(sweep: Sweep) -> Picture:
    halves = HALVES[sweep.name]
    return Picture(
        name=f"tuning-{sweep.name}",
        label=f"What {sweep.setting} trades for what",
        height=PLOT_HEIGHT,
        panels=tuple(_half(sweep, half, side) for side, half in enumerate(halves)),
        legend=(*((color, text) for half in halves for _, color, text in half.lines), ("mark", "default (dotted)")),
    )


def _half(sweep: Sweep, half: _Half, side: int) -> Panel:
    scales = {name: 800.0 if name == "relative_error_at_800_wcu" else half.factor for name, _, _ in half.lines}
    known = [
        scales[name] * value
        for name, _, _ in half.lines
        for point in sweep.points
        if (value := point.measures[name]) is not None
    ]
    if half is _FALSE:
        y = Axis(low=LEAST_FALSE_RAISES, high=1e5, label=half.unit, is_log=True)
    elif half.is_log:
        y = Axis(low=5, high=ceiling(max(known)), label=half.unit, is_log=True, ticks=(5, 10, 20, 50, 100, 200))
    else:
        y = Axis(low=0, high=half.high or ceiling(max(known)), label=half.unit)
    values = [point.value for point in sweep.points if sweep.name != "hedge-quantile" or point.value >= 0.8]
    unit = "" if sweep.unit == "share" else f", {sweep.unit}"
    panel = Panel(
        x=Axis(low=min(values), high=max(values), label=f"{_words(sweep)}{unit}"),
        y=y,
        title=half.title,
        height=PLOT_HEIGHT,
        side=side,
    )
    panel.vertical(sweep.default, "default")
    for name, color, _ in half.lines:
        points = [(p.value, p.measures[name]) for p in sweep.points if p.value in values]
        scaled = [(x, None if v is None else min(v * scales[name], y.high)) for x, v in points]
        panel.line(scaled, color)
        panel.dots(scaled, color)
    return panel


def _words(sweep: Sweep) -> str:
    return sweep.name.replace("-", " ") if sweep.name.endswith("window") else sweep.setting


def _distribution(delays: Iterable[float | None]) -> list[tuple[float, float]]:
    ordered = sorted(d for d in delays if d is not None)
    total = len(tuple(delays))
    return [
        (0.0, 0.0),
        *((d, 100 * share / total) for i, d in enumerate(ordered) for share in (i, i + 1)),
        (1.5, 100.0),
    ]


def _rates(run: RunResult, amounts: Sequence[float]) -> list[float]:
    """Turn the amounts of bins into rates, as far as the workload goes."""
    return [amount / run.series.bin_seconds for amount in amounts[: _bins(run)]]


def _shard_counts(run: RunResult) -> Sequence[int]:
    """List N over time; a strategy that never changes it keeps no journal, and has it from the start."""
    counts = run.series.shard_count[: _bins(run)]
    return counts if any(counts) else [run.final_shard_count] * len(counts)


def _bins(run: RunResult) -> int:
    """Count the bins until nothing is offered any more; what follows is clients giving up."""
    offered = run.series.offered_wcu
    return max((index + 1 for index, wcu in enumerate(offered) if wcu), default=len(offered))


def _end(run: RunResult) -> float:
    return _bins(run) * run.series.bin_seconds


def _first_raise(run: RunResult) -> int:
    return next(r.shard_count for r in run.raises if r.conversation_id == run.hot_conversation)


def _second(run: RunResult) -> str:
    return f"{run.raised_seconds:.1f} s" if run.raised_seconds is not None else ""


def _share(part: float, whole: float) -> str:
    share = 100 * part / whole if whole else 0.0
    return "none" if not part else f"{share:.1f} %" if share >= 0.1 else "less than 0.1 %"
