"""The report of a demonstration: the page of heat with what was seen in the run, and the run's figures. One file."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from hotpartition.core.times import format_time
from hotpartition_cli.heat import PAGE, build_policy
from tools.local.metering import TimelineRow
from tools.play.verdict import is_key_of

if TYPE_CHECKING:
    from tools.play.run import Run

TEMPLATES = Path(__file__).parent / "templates"
COLUMNS = 120
"""Of the page of heat."""
MOST_KEYS = 40
"""Keys whose load a report shows: those that took most."""
ALL_SEEN = {"active": 0, "is_complete": True, "is_all": True, "streams": 1, "gap": None}


def build_report(run: Run) -> str:
    """Build the HTML of a report: all is escaped that does not say it is markup, and each name needs a value."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["number"] = number
    style = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    titled = PAGE.replace("<title>hotpartition", f"<title>hotpartition: {run.judgement.verdict}", 1)
    html = environment.get_template("demo.html.j2").render(
        run=run,
        raises=sorted(run.seen.raises),
        figures={**run.summary, "not_judged": ", ".join(run.judgement.not_judged) or "nothing"},
        page=re.split("<!-- (?:above|below|recorded) -->", titled.replace("</style>", f"{style}</style>", 1)),
        recorded=record(run),
    )
    policy = f'<meta http-equiv="Content-Security-Policy" content="{escape(build_policy(html))}">'
    return html.replace('<meta charset="utf-8">', f'<meta charset="utf-8">\n{policy}', 1)


def number(value: float | str | None) -> str:
    """Write a number the way people read it; texts stay as they are, and what is not known is a dash."""
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:,}"


@dataclass(slots=True)
class Load:
    """What keys took of DynamoDB's model, in units; what was refused of writes counts with each attempt."""

    written: float = 0.0
    refused: float = 0.0
    read: float = 0.0

    def add(self, row: TimelineRow) -> None:
        """Add what a physical key took."""
        self.written += row.write_wcu
        self.refused += row.throttled_wcu
        self.read += row.read_rcu


def record(run: Run) -> Mapping[str, Any]:
    """Build the feed of the page of heat from what DynamoDB's model saw; its clock begins with the workload."""
    began, written = run.started_at, {name for _, name in run.recorder.offered_at}
    named = ((row.at_ms / 1000 - began, re.sub(r"#_?\d+$", "", row.key), row) for row in run.timeline)
    rows = [(at, name, row) for at, name, row in named if name in written and at >= 0]
    length = max((at for at, _, _ in rows), default=0.0) + 1
    step = length / COLUMNS
    loads: list[defaultdict[str, Load]] = [defaultdict(Load) for _ in range(COLUMNS)]
    total = Counter[str]()
    for at, name, row in rows:
        loads[int(at / step)][name].add(row)
        total[name] += row.writes + row.throttled_writes + row.reads
    names = {name for name, _ in total.most_common(MOST_KEYS)}
    closes = find_closes(run)
    looks = []
    for column, seen in enumerate(loads, 1):
        route = _route_at(run, closes, began + column * step)
        routes = [
            {**_describe(name, load, step), **(route if name == run.name else _route(run, 0, None))}
            for name, load in seen.items()
            if name in names
        ]
        looks.append({**ALL_SEEN, "at": _format(column * step), "seconds": step, "routes": routes})
    return {
        "looks": looks,
        "state": [("", f"{run.name} became hot {run.hot.begins - began:.0f} s after the start.")],
        "about": f"What DynamoDB's model took and refused, every attempt counted: means of {step:.1f} s.",
        "window_seconds": length,
        "every": step / 2,
        "mean_seconds": step,
        "routes": {run.name: {"steps": _list_steps(run, closes), "decision": "", **_describe_shards(run)}},
    }


def find_closes(run: Run) -> list[float]:
    """List from when on the hot key was on its base key again."""
    closes = {close.at_ms / 1000 for close in run.seen.closes if close.is_confirmed}
    return sorted(closes | ({run.closed_at} if run.closed_at else set()))


def _describe(name: str, load: Load, step: float) -> Mapping[str, Any]:
    """Describe the load of a key in one column, as a row of a look."""
    offered = load.written + load.refused
    return {
        "conversation_id": name,
        "wcu_per_second": round(offered / step, 1),
        "throttled_share": round(load.refused / offered, 3) if offered else 0.0,
        "rcu_per_second": round(load.read / step, 1),
    }


def _route_at(run: Run, closes: Iterable[float], moment: float) -> Mapping[str, Any]:
    """Describe the route of the hot key at a moment, as the same row does."""
    closed_at = max((at for at in closes if at <= moment), default=None)
    raises = [one.shard_count for one in run.seen.raises if one.seen_at <= moment]
    return _route(run, max(raises, default=0) if closed_at is None else 0, closed_at)


def _route(run: Run, shard_count: int, closed_at: float | None) -> Mapping[str, Any]:
    return {
        "shard_count": shard_count,
        "capacity_wcu_per_second": run.figures["hot_threshold_wcu"] * max(1, shard_count),
        "closed_at": None if closed_at is None else _format(closed_at - run.started_at),
    }


def _list_steps(run: Run, closes: Iterable[float]) -> list[tuple[str, str, str]]:
    """List the raises and closes of the hot key, each with the time of its first position and of its coming."""
    steps = [(one.since_ms / 1000, str(one.shard_count), one.seen_at, "raised") for one in run.seen.raises]
    steps += [(at, "0", at, "closed") for at in closes]
    return [
        (_format(since)[:19].replace("T", " "), n, f"{what} {at - run.started_at:.1f} s after the start")
        for since, n, at, what in sorted(steps)
    ]


def _describe_shards(run: Run) -> Mapping[str, Any]:
    """Describe what the keys of the hot key took while it was hot."""
    length, loads = run.hot.ends - run.hot.begins, defaultdict[str, Load](Load)
    for row in run.timeline:
        if is_key_of(row.key, run.name) and run.hot.begins <= row.at_ms / 1000 < run.hot.ends:
            loads[row.key].add(row)
    shards = [
        {
            "key": key,
            "wcu_per_second": load.written / length,
            "refused_wcu_per_second": load.refused / length,
            "rcu_per_second": load.read / length,
        }
        for key, load in sorted(loads.items(), key=lambda one: (len(one[0]), one[0]))
    ]
    return {"shards": shards, "over": "mean while it was hot"}


def _format(seconds: float) -> str:
    return format_time(int(1000 * seconds))
