"""The report of a demonstration: the page of heat with what was seen in the run, and the run's figures. One file."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from hotpartition.core.times import format_time
from hotpartition_cli.heat import PAGE, build_policy
from tools.local.metering import TimelineRow
from tools.play.verdict import is_key_of

if TYPE_CHECKING:
    from tools.play.demo import Demonstration

PlaceT = TypeVar("PlaceT")
Load = dict[str, float]
"""What keys took, in units."""
UNITS = {"wcu_per_second": "write_wcu", "refused_wcu_per_second": "throttled_wcu", "rcu_per_second": "read_rcu"}

TEMPLATES = Path(__file__).parent / "templates"
COLUMNS = 120
"""Of the page of heat."""
ALL_SEEN = {"active": 0, "is_complete": True, "is_all": True, "streams": 1, "gap": None}


def build_report(run: Demonstration) -> str:
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
        figures={**run.summarize(), "not_judged": ", ".join(run.judgement.not_judged) or "nothing"},
        page=re.split("<!-- (?:above|below|recorded) -->", titled.replace("</style>", f"{style}</style>", 1)),
        recorded=record(run),
    )
    policy = f'<meta http-equiv="Content-Security-Policy" content="{escape(build_policy(html))}">'
    return html.replace('<meta charset="utf-8">', f'<meta charset="utf-8">\n{policy}', 1)


def number(value: object) -> str:
    """Write a number the way people read it, and what is not known as a dash; all else is text."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def sum_up(rows: Iterable[TimelineRow], place_of: Callable[[TimelineRow], PlaceT]) -> Mapping[PlaceT, Load]:
    """Sum up what physical keys took of DynamoDB's model by the place of each row; refusals count with each attempt."""
    loads: defaultdict[PlaceT, Load] = defaultdict(lambda: dict.fromkeys(UNITS, 0.0))
    for row in rows:
        load = loads[place_of(row)]
        for name, of in UNITS.items():
            load[name] += getattr(row, of)
    return loads


def record(run: Demonstration) -> Mapping[str, Any]:
    """Build the feed of the page of heat from what DynamoDB's model saw; its clock begins with the workload."""
    began, names = run.started_at, {name for _, name in run.recorder.offered_at}
    rows = [row for row in run.timeline if _name(row) in names and row.at_ms / 1000 >= began]
    length = max((row.at_ms / 1000 - began for row in rows), default=0.0) + 1
    step, changes = length / COLUMNS, list_changes(run)
    routes: list[list[Mapping[str, Any]]] = [[] for _ in range(COLUMNS)]
    for (column, name), load in sum_up(rows, lambda row: (int((row.at_ms / 1000 - began) / step), _name(row))).items():
        own = [change for change in changes if name == run.name and change.seen_at <= began + (column + 1) * step]
        routes[column].append(_describe(run, name, load, own, step))
    return {
        "looks": [
            {**ALL_SEEN, "at": _format(number * step), "seconds": step, "routes": own}
            for number, own in enumerate(routes, 1)
        ],
        "state": [("", f"{run.name} became hot {run.hot.begins - began:.0f} s after the start.")],
        "about": f"What DynamoDB's model took and refused, every attempt counted: means of {step:.1f} s.",
        "window_seconds": length,
        "every": step / 2,
        "mean_seconds": step,
        "routes": {run.name: _describe_keys(run, changes)},
    }


class Change(NamedTuple):
    """A raise or close of the hot key's route: when it was seen, N from then on, and from which position."""

    seen_at: float
    shard_count: int
    since: float


def list_changes(run: Demonstration) -> list[Change]:
    """List the raises and the confirmed closes as they came."""
    closes = {close.at_ms / 1000 for close in run.seen.closes if close.is_confirmed}
    closes |= {run.closed_at} if run.closed_at else set()
    raises = [Change(at, one.shard_count, one.since_ms / 1000) for one, at in run.seen.raises.items()]
    return sorted([*raises, *(Change(at, 0, at) for at in closes)])


def _name(row: TimelineRow) -> str:
    """Return the key that clients name, of a physical one."""
    return re.sub(r"#_?\d+$", "", row.key)


def _describe(
    run: Demonstration, name: str, load: Load, changes: Sequence[Change], seconds: float
) -> Mapping[str, Any]:
    """Describe a key in one column, as a row of a look, when these changes had come."""
    offered = load["wcu_per_second"] + load["refused_wcu_per_second"]
    shard_count = changes[-1].shard_count if changes else 0
    closed_at = max((change.since for change in changes if not change.shard_count), default=None)
    return {
        "conversation_id": name,
        "wcu_per_second": round(offered / seconds, 1),
        "throttled_share": round(load["refused_wcu_per_second"] / offered, 3) if offered else 0.0,
        "rcu_per_second": round(load["rcu_per_second"] / seconds, 1),
        "shard_count": shard_count,
        "capacity_wcu_per_second": run.figures["hot_threshold_wcu"] * max(1, shard_count),
        "closed_at": None if closed_at is None else _format(closed_at - run.started_at),
    }


def _describe_keys(run: Demonstration, changes: Iterable[Change]) -> Mapping[str, Any]:
    """Describe the steps of the hot key's route, and what its physical keys took while it was hot."""
    length, began = run.hot.ends - run.hot.begins, run.started_at
    in_heat = [row for row in run.timeline if run.hot.begins <= row.at_ms / 1000 < run.hot.ends]
    loads = sum_up((row for row in in_heat if is_key_of(row.key, run.name)), attrgetter("key"))
    shards = [
        {"key": key, **{name: units / length for name, units in load.items()}}
        for key, load in sorted(loads.items(), key=lambda one: (len(one[0]), one[0]))
    ]
    steps = [
        (
            _format(change.since)[:19].replace("T", " "),
            str(change.shard_count),
            f"{'raised' if change.shard_count else 'closed'} {change.seen_at - began:.1f} s after the start",
        )
        for change in sorted(changes, key=attrgetter("since"))
    ]
    return {"steps": steps, "decision": "", "shards": shards, "over": "mean while it was hot"}


def _format(seconds: float) -> str:
    return format_time(int(1000 * seconds))
