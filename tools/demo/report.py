"""The report of a demonstration: one HTML file with its plots inside, readable without network or script."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from tools.demo.judge import is_key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tools.demo.judge import Hot, Judgement, Summary, Throttles
    from tools.demo.observer import Event, KeyLoad, Raise
    from tools.history_checker import Verdict

BIN_SECONDS = 0.5
MOST_KEYS_DRAWN = 32
WIDTH = 1000.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 14.0, 14.0, 26.0

Points = list[tuple[float, float]]

STYLE = """
:root { color-scheme: light dark; --ground: #f7f8fa; --card: #ffffff; --ink: #1b2430; --soft: #5d6b7c; --line: #dde3ea;
  --grid: #e9edf2; --offered: #1b2430; --written: #2f7fd6; --throttled: #d6423b; --good: #1c8a4e; --bad: #c8352e;
  --limit: #b7791f; --hot: #f3a73b22; --base: #8895a7; --n: #7a4fd0; }
@media (prefers-color-scheme: dark) { :root { --ground: #10151c; --card: #18202a; --ink: #e8edf3; --soft: #93a1b2;
  --line: #2b3643; --grid: #232d39; --offered: #e8edf3; --written: #5aa2f0; --throttled: #ff6b62; --good: #46c585;
  --bad: #ff6b62; --limit: #e0a84a; --hot: #f3a73b1c; --base: #74839a; --n: #a98bf0; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink); line-height: 1.5;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 36px 20px 60px; }
h1 { font-size: 27px; margin: 0 0 6px; letter-spacing: -0.01em; } h2 { font-size: 18px; margin: 0 0 4px; }
p { margin: 0 0 10px; } .soft { color: var(--soft); } .small { font-size: 13px; }
header { display: flex; gap: 20px; align-items: flex-start; justify-content: space-between; margin-bottom: 22px; }
.verdict { padding: 7px 18px; border-radius: 99px; color: #fff; font-weight: 650; letter-spacing: 0.05em; }
.pass { background: #1c8a4e; } .fail { background: #c8352e; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(160px, 1fr)); gap: 12px; margin-bottom: 16px; }
.tile, section { background: var(--card); border: 1px solid var(--line); border-radius: 12px; }
.tile { padding: 13px 16px; } .tile b { display: block; font-size: 25px; font-weight: 650; line-height: 1.25;
  font-variant-numeric: tabular-nums; } .tile span { color: var(--soft); font-size: 13px; }
section { padding: 18px 20px; margin-bottom: 16px; } svg { display: block; width: 100%; height: auto; }
.keys { display: grid; grid-template-columns: repeat(auto-fill, minmax(300px, 1fr)); gap: 10px 16px; }
.keys h3 { font: 600 13px/1.3 ui-monospace, "SF Mono", Menlo, Consolas, monospace; margin: 6px 0 0; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(400px, 1fr)); gap: 16px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
td, th { text-align: left; padding: 5px 8px 5px 0; border-bottom: 1px solid var(--grid); vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; padding-right: 0; overflow-wrap: anywhere; }
.yes { color: var(--good); font-weight: 700; } .no { color: var(--bad); font-weight: 700; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 13px; color: var(--soft); margin: 2px 0 8px; }
.legend i { display: inline-block; width: 16px; height: 9px; border-radius: 2px; margin-right: 6px; }
.legend i.line { height: 0; border-top: 2px solid; border-radius: 0; vertical-align: middle; }
.legend i.dashed { height: 0; border-top: 2px dashed; border-radius: 0; vertical-align: middle; }
ol, ul { margin: 6px 0 0; padding-left: 20px; } li { margin-bottom: 4px; }
text { fill: var(--soft); font-size: 12px; font-family: inherit; } .grid { stroke: var(--grid); }
.offered { fill: none; stroke: var(--offered); stroke-width: 1.6; } .limit { stroke: var(--limit);
  stroke-dasharray: 5 4; } .throttled { fill: var(--throttled); } .written { fill: var(--written); }
.raise { stroke: var(--n); stroke-width: 1.5; } .n { fill: none; stroke: var(--n); stroke-width: 2.2; }
.hot { fill: var(--hot); } .mark { fill: var(--n); font-weight: 600; }
""".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Everything that a report tells; moments are in seconds since the epoch."""

    summary: Summary
    judgement: Judgement
    history: Verdict
    throttles: Throttles
    hot: Hot
    started_at: float
    ended_at: float
    offered_at: tuple[tuple[float, str], ...]
    timeline: tuple[KeyLoad, ...]
    raises: tuple[Raise, ...]
    events: tuple[Event, ...]
    steps: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plot:
    """The frame of one plot: what it spans, and where that lies in the picture."""

    seconds: float
    highest: float
    height: float
    width: float = WIDTH

    def x(self, second: float) -> float:
        share = min(1.0, max(0.0, second / self.seconds))
        return round(LEFT + share * (self.width - LEFT - RIGHT), 1)

    def y(self, value: float) -> float:
        share = value / self.highest if self.highest else 0.0
        return round(self.height - BOTTOM - share * (self.height - TOP - BOTTOM), 1)

    def path(self, points: Iterable[tuple[float, float]]) -> str:
        return "M" + "L".join(f"{self.x(at)},{self.y(value)}" for at, value in points)

    def line(self, points: Points, css: str) -> str:
        return f'<path class="{css}" d="{self.path(points)}"/>' if points else ""

    def area(self, upper: Points, lower: Points, *, attributes: str, title: str) -> str:
        path = self.path([*upper, *reversed(lower)])
        return f'<path {attributes} d="{path}Z"><title>{escape(title)}</title></path>'

    def vertical(self, second: float, css: str) -> str:
        x = self.x(second)
        return f'<line class="{css}" x1="{x}" x2="{x}" y1="{TOP}" y2="{self.height - BOTTOM}"/>'

    def horizontal(self, value: float, css: str) -> str:
        y = self.y(value)
        return f'<line class="{css}" x1="{LEFT}" x2="{self.width - RIGHT}" y1="{y}" y2="{y}"/>'

    def frame(self, *, ticks: int = 4) -> str:
        parts = []
        for value in _ticks(self.highest, ticks):
            parts.append(self.horizontal(value, "grid"))
            parts.append(f'<text x="{LEFT - 7}" y="{self.y(value) + 4}" text-anchor="end">{value:g}</text>')
        parts += [
            f'<text x="{self.x(second)}" y="{self.height - 7}" text-anchor="middle">{second:g} s</text>'
            for second in _ticks(self.seconds, 8 if self.width == WIDTH else 4)
        ]
        return "".join(parts)

    def svg(self, content: str, *, label: str) -> str:
        return (
            f'<svg viewBox="0 0 {self.width:g} {self.height:g}" role="img" aria-label="{escape(label, quote=True)}">'
            f"{content}</svg>"
        )


def build_report(run: Run) -> str:
    """Build the HTML of a report."""
    summary = run.summary
    title = f"One hot conversation, {summary.acknowledged:,} messages"
    verdict = run.judgement.verdict
    sections = [_hot_section(run), _keys_section(run), _quiet_section(run), _tables(run), _done_section(run)]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>hotpartition: {verdict}</title><style>{STYLE}</style></head>\n<body><main>\n"
        f'<header><div><h1>{escape(title)}</h1><p class="soft">{escape(_headline(run))}</p></div>'
        f'<div class="verdict {verdict}">{verdict.upper()}</div></header>\n'
        f"{_reasons(run)}{_tiles(run)}\n" + "\n".join(sections) + "\n</main></body></html>\n"
    )


def _headline(run: Run) -> str:
    summary = run.summary
    if summary.onset_to_raise_seconds is None:
        return f"{summary.hot_conversation} became hot, and N was not raised."
    first = run.raises[0].shard_count if run.raises else summary.max_n
    return (
        f"{summary.hot_conversation} became hotter than one partition can serve; "
        f"{summary.onset_to_raise_seconds:.1f} s later its new messages were spread over {first} shards. "
        "Clients went on naming the conversation and nothing else."
    )


def _reasons(run: Run) -> str:
    if not run.judgement.reasons:
        return ""
    items = "".join(f'<li class="no">{escape(reason)}</li>' for reason in run.judgement.reasons)
    return f"<section><h2>Why it failed</h2><ul>{items}</ul></section>\n"


def _tiles(run: Run) -> str:
    summary, throttles = run.summary, run.throttles
    raised = "never" if summary.onset_to_raise_seconds is None else f"{summary.onset_to_raise_seconds:.2f} s"
    tiles = (
        (f"{summary.acknowledged:,}", f"messages acknowledged in {summary.conversations} conversations"),
        (
            f"{summary.missing} / {summary.duplicated} / {summary.out_of_order}",
            "missing / duplicated / out of order",
        ),
        (raised, "from the onset to the raise"),
        (f"{summary.max_n}", "largest N: shards of the hot conversation"),
        (f"{throttles.in_first_second} → {throttles.in_last_third}", "refusals: first second → last third of the heat"),
    )
    body = "".join(
        f'<div class="tile"><b>{escape(figure)}</b><span>{escape(text)}</span></div>' for figure, text in tiles
    )
    return f'<div class="tiles">{body}</div>'


def _hot_section(run: Run) -> str:
    name = run.summary.hot_conversation
    own = [load for load in run.timeline if is_key_of(load.key, name)]
    written = _by_key(run, own, lambda load: load.writes)
    throttled = _series(run, ((load.at_ms / 1000, load.throttled_writes) for load in own))
    offered = _series(run, ((at, 1) for at, conversation in run.offered_at if conversation == name))
    keys = sorted(written, key=_key_order)
    stacked = [sum(written[key].get(index, 0.0) for key in keys) for index in range(_bins(run))]
    highest = _ceiling(max([*stacked, *offered.values(), *throttled.values(), run.summary.partition_limit_wcu]))
    plot = _Plot(seconds=_seconds(run), highest=highest, height=300)
    parts = [_hot_band(run, plot), plot.frame()]
    below = [0.0] * _bins(run)
    for position, key in enumerate(keys):
        above = [low + written[key].get(index, 0.0) for index, low in enumerate(below)]
        attributes = f'fill="{_key_color(key, position, len(keys))}" fill-opacity="0.85"'
        parts.append(plot.area(_points(above), _points(below), attributes=attributes, title=f"written to {key}"))
        below = above
    parts += [
        plot.horizontal(run.summary.partition_limit_wcu, "limit"),
        plot.line(_line(run, offered), "offered"),
        f'<g style="fill:none;stroke:var(--throttled);stroke-width:1.8">{plot.line(_line(run, throttled), "")}</g>',
        *(plot.vertical(raised.seen_at - run.started_at, "raise") for raised in run.raises),
    ]
    legend = _legend(
        ("line", "var(--offered)", "offered by clients"),
        ("", "var(--base)", "written to the base key"),
        ("", _key_color("#", 1, 3), "written to shards, one shade each"),
        ("line", "var(--throttled)", "refused by DynamoDB (with the function's own retries)"),
        ("dashed", "var(--limit)", "what one partition takes"),
        ("", "var(--hot)", "hot period"),
    )
    return (
        f"<section><h2>{escape(name)}: offered, written, refused</h2>"
        f'<p class="soft small">Writes per second of the conversation that became hot, by physical partition key.</p>'
        f"{legend}{plot.svg(''.join(parts), label='writes per second of the hot conversation')}"
        f"{_shard_count_plot(run)}</section>"
    )


def _shard_count_plot(run: Run) -> str:
    plot = _Plot(seconds=_seconds(run), highest=_ceiling(max(run.summary.max_n, 1)), height=130)
    level, points = 0, [(0.0, 0.0)]
    marks = []
    for raised in sorted(run.raises):
        at = raised.seen_at - run.started_at
        higher = max(level, raised.shard_count)
        points += [(at, float(level)), (at, float(higher))]
        level = higher
        end = at > 0.8 * plot.seconds
        marks.append(plot.vertical(at, "raise"))
        marks.append(
            f'<text class="mark" x="{plot.x(at) + (-6 if end else 6)}" y="{plot.y(higher) + 16}" '
            f'text-anchor="{"end" if end else "start"}">raised to N = {raised.shard_count} at {at:.1f} s</text>'
        )
    points.append((plot.seconds, float(level)))
    content = _hot_band(run, plot) + plot.frame(ticks=2) + "".join(marks) + plot.line(points, "n")
    return (
        f'<p class="soft small">N, the number of shards that new messages are spread over (0: base key only).</p>'
        f"{plot.svg(content, label='N over time')}"
    )


def _keys_section(run: Run) -> str:
    name = run.summary.hot_conversation
    own = [load for load in run.timeline if is_key_of(load.key, name)]
    written = _by_key(run, own, lambda load: load.writes)
    throttled = _by_key(run, own, lambda load: load.throttled_writes)
    keys = sorted({*written, *throttled}, key=_key_order)
    peaks = [
        written.get(key, {}).get(index, 0.0) + throttled.get(key, {}).get(index, 0.0)
        for key in keys
        for index in range(_bins(run))
    ]
    highest = _ceiling(max([*peaks, run.summary.partition_limit_wcu]))
    pictures = "".join(
        _key_picture(run, key, written.get(key, {}), throttled.get(key, {}), highest) for key in keys[:MOST_KEYS_DRAWN]
    )
    more = len(keys) - MOST_KEYS_DRAWN
    left_out = f'<p class="soft small">{more} more keys are not drawn.</p>' if more > 0 else ""
    legend = _legend(
        ("line", "var(--offered)", "offered to the key"),
        ("", "var(--written)", "written"),
        ("", "var(--throttled)", "refused"),
        ("dashed", "var(--limit)", "partition limit"),
    )
    return (
        "<section><h2>The same, key by key</h2>"
        '<p class="soft small">Requests per second to each physical partition key of the hot conversation, on one '
        f"scale: the base key {escape(name)}, and its shard keys {escape(name)}#0 and so on.</p>"
        f'{legend}<div class="keys">{pictures}</div>{left_out}</section>'
    )


def _key_picture(
    run: Run, key: str, written: Mapping[int, float], throttled: Mapping[int, float], highest: float
) -> str:
    plot = _Plot(seconds=_seconds(run), highest=highest, height=130, width=340)
    bins = range(_bins(run))
    floor = [0.0 for _ in bins]
    low = [written.get(index, 0.0) for index in bins]
    high = [low[index] + throttled.get(index, 0.0) for index in bins]
    refused, stored = round(sum(throttled.values()) * BIN_SECONDS), round(sum(written.values()) * BIN_SECONDS)
    content = (
        _hot_band(run, plot)
        + plot.frame(ticks=2)
        + plot.area(_points(low), _points(floor), attributes='class="written"', title=f"{stored} written to {key}")
        + plot.area(_points(high), _points(low), attributes='class="throttled"', title=f"{refused} refused at {key}")
        + plot.line(_points(high), "offered")
        + plot.horizontal(run.summary.partition_limit_wcu, "limit")
        + "".join(plot.vertical(raised.seen_at - run.started_at, "raise") for raised in run.raises)
    )
    facts = f'<span class="soft">{stored:,} written, {refused:,} refused</span>'
    name = f"#{key.rpartition('#')[2]}" if "#" in key else "base key"
    return f"<div><h3>{escape(name)} {facts}</h3>{plot.svg(content, label=f'requests to {key}')}</div>"


def _quiet_section(run: Run) -> str:
    name = run.summary.hot_conversation
    others = [load for load in run.timeline if not is_key_of(load.key, name)]
    written = _series(run, ((load.at_ms / 1000, load.writes) for load in others))
    throttled = _series(run, ((load.at_ms / 1000, load.throttled_writes) for load in others))
    offered = _series(run, ((at, 1) for at, conversation in run.offered_at if conversation != name))
    plot = _Plot(
        seconds=_seconds(run),
        highest=_ceiling(max([*written.values(), *throttled.values(), *offered.values(), 1.0])),
        height=170,
    )
    bins = range(_bins(run))
    low = [written.get(index, 0.0) for index in bins]
    content = (
        _hot_band(run, plot)
        + plot.frame(ticks=3)
        + plot.area(
            _points(low), _points([0.0 for _ in bins]), attributes='class="written" fill-opacity="0.7"', title="written"
        )
        + plot.line(_line(run, offered), "offered")
        + f'<g style="fill:none;stroke:var(--throttled)">{plot.line(_line(run, throttled), "")}</g>'
    )
    spread = sorted({load.key.rpartition("#")[0] for load in others if "#" in load.key})
    also = f" Also spread over shards: {', '.join(spread)}." if spread else " All of them stayed on their base keys."
    legend = _legend(
        ("line", "var(--offered)", "offered"),
        ("", "var(--written)", "written"),
        ("line", "var(--throttled)", "refused"),
    )
    return (
        f"<section><h2>The {run.summary.conversations - 1} quiet conversations</h2>"
        f'<p class="soft small">All together, writes per second.{escape(also)}</p>{legend}'
        f"{plot.svg(content, label='writes per second of the quiet conversations')}</section>"
    )


def _tables(run: Run) -> str:
    conditions = "".join(
        f'<tr><td class="{"yes" if one.holds else "no"}">{"✓" if one.holds else "✗"}</td>'
        f'<td>{escape(one.name)}</td><td class="soft">{escape(one.figures)}</td></tr>'
        for one in run.judgement.conditions
    )
    figures = "".join(
        f'<tr><td>{escape(name)}</td><td class="number">{escape(_figure(value))}</td></tr>'
        for name, value in [*asdict(run.summary).items(), ("verdict", run.judgement.verdict)]
    )
    examples = "".join(
        f"<li>{escape(f'{found.fault}: {found.conversation_id} {found.message_id}: {found.detail}')}</li>"
        for found in run.history.examples
    )
    faults = f"<h2>Breaches found</h2><ul>{examples}</ul>" if examples else ""
    return (
        f'<div class="columns"><section><h2>Verdict</h2><table>{conditions}</table>{faults}</section>'
        f"<section><h2>Figures</h2><table>{figures}</table></section></div>"
    )


def _done_section(run: Run) -> str:
    steps = "".join(f"<li>{escape(step)}</li>" for step in run.steps)
    events = "".join(
        f'<tr><td class="number">{event.at - run.started_at:.1f} s</td><td style="padding-left:12px">'
        f"{escape(event.text)}</td></tr>"
        for event in sorted(run.events, key=lambda event: event.at)
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in run.notes)
    unexpected = f"<h2>Unexpected answers</h2><ul>{notes}</ul>" if notes else ""
    happened = ""
    if events or notes:
        happened = f"<section><h2>What happened</h2><table>{events}</table>{unexpected}</section>"
    return f'<div class="columns"><section><h2>What was done</h2><ol>{steps}</ol></section>{happened}</div>'


def _legend(*entries: tuple[str, str, str]) -> str:
    items = "".join(
        f'<span><i class="{kind}" style="{"border-color" if kind else "background"}:{color}"></i>{escape(text)}</span>'
        for kind, color, text in entries
    )
    return f'<div class="legend">{items}</div>'


def _hot_band(run: Run, plot: _Plot) -> str:
    left, right = plot.x(run.hot.begins - run.started_at), plot.x(run.hot.ends - run.started_at)
    height = plot.height - TOP - BOTTOM
    return f'<rect class="hot" x="{left}" y="{TOP}" width="{round(right - left, 1)}" height="{height}"/>'


def _seconds(run: Run) -> float:
    return max(1.0, run.ended_at - run.started_at)


def _bins(run: Run) -> int:
    return int(_seconds(run) / BIN_SECONDS) + 1


def _series(run: Run, counts: Iterable[tuple[float, float]]) -> dict[int, float]:
    """Sum counts into bins, as rates per second."""
    series: dict[int, float] = defaultdict(float)
    for at, count in counts:
        index = int((at - run.started_at) / BIN_SECONDS)
        if at >= run.started_at and index < _bins(run):
            series[index] += count / BIN_SECONDS
    return series


def _by_key(run: Run, loads: Iterable[KeyLoad], count: Callable[[KeyLoad], float]) -> dict[str, dict[int, float]]:
    keys: dict[str, list[KeyLoad]] = defaultdict(list)
    for load in loads:
        keys[load.key].append(load)
    return {key: _series(run, ((load.at_ms / 1000, count(load)) for load in own)) for key, own in keys.items()}


def _line(run: Run, series: Mapping[int, float]) -> Points:
    return _points([series.get(index, 0.0) for index in range(_bins(run))])


def _points(values: Sequence[float]) -> Points:
    return [((index + 0.5) * BIN_SECONDS, value) for index, value in enumerate(values)]


def _key_order(key: str) -> int:
    index = key.rpartition("#")[2]
    return int(index) if "#" in key and index.isdigit() else -1


def _key_color(key: str, position: int, count: int) -> str:
    if "#" not in key:
        return "var(--base)"
    share = position / max(1, count - 1)
    return f"hsl({215 - 60 * share:.0f} {68 - 12 * share:.0f}% {46 + 16 * (position % 2)}%)"


def _ticks(highest: float, wanted: int) -> list[float]:
    """Choose round values from 0 to the highest, about as many as wanted."""
    step = _ceiling(highest / wanted) if highest > 0 else 1.0
    return [round(index * step, 6) for index in range(int(highest / step + 1e-9) + 1)]


def _ceiling(value: float) -> float:
    """Round up to a value that reads well on an axis."""
    magnitude = 1.0
    while magnitude * 10 <= value:
        magnitude *= 10
    while magnitude > value > 0:
        magnitude /= 10
    rounds = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
    below = [(low, high) for low, high in pairwise((0.0, *rounds)) if low * magnitude < value <= high * magnitude]
    return below[0][1] * magnitude if below else 10 * magnitude


def _figure(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return f"{value:,}" if isinstance(value, int) else str(value)
