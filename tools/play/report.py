"""The report of a demonstration: the page of heat with what was seen in the run, and the run's figures. One file."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from hotpartition.core.times import format_time
from hotpartition_cli.heat import PAGE, build_policy
from tools.history import Verdict
from tools.local.metering import TimelineRow
from tools.play.verdict import Judgement, Machine, Throttles, is_key_of
from tools.play.watch import Raise

if TYPE_CHECKING:
    from tools.play.run import Playing

HISTORY_FIGURES = ("acknowledged", "missing", "duplicated", "out_of_order", "conversations", "reads")
"""What `summary.json` has of a history's verdict."""
TEMPLATES = Path(__file__).parent / "templates"
COLUMNS = 120
"""Of the page of heat."""
MOST_KEYS = 40
"""Keys whose load a report shows: those that took most."""
ALL_SEEN = {"active": 0, "is_complete": True, "is_all": True, "streams": 1, "gap": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Everything that a run is judged by, and a report made from."""

    played: Playing
    figures: Mapping[str, Any]
    """What `summary.json` has beside those of the history, the verdict and the machine."""
    history: Verdict
    throttles: Throttles
    machine: Machine
    timeline: tuple[TimelineRow, ...]

    @property
    def raises(self) -> list[Raise]:
        """The raises that were seen, by time."""
        return sorted(self.played.seen.raises)

    @property
    def closes(self) -> list[float]:
        """From when on it was on its base key again."""
        closes = {close.at_ms / 1000 for close in self.played.seen.closes if close.is_confirmed}
        if self.played.cooled.closed_at is not None:
            closes.add(self.played.cooled.closed_at)
        return sorted(closes)


def build_summary(run: Run, judgement: Judgement) -> dict[str, Any]:
    """Build what `summary.json` holds."""
    return {
        **{name: getattr(run.history, name) for name in HISTORY_FIGURES},
        **run.figures,
        "verdict": judgement.verdict,
        "not_judged": list(judgement.not_judged),
        "machine_kept_up": run.machine.kept_up,
        "machine": run.machine.describe(),
    }


def build_report(run: Run, judgement: Judgement) -> str:
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
    titled = PAGE.replace("<title>hotpartition", f"<title>hotpartition: {judgement.verdict}", 1)
    html = environment.get_template("demo.html.j2").render(
        run=run,
        judgement=judgement,
        words=run.played.plan.application,
        figures={**build_summary(run, judgement), "not_judged": ", ".join(judgement.not_judged) or "nothing"},
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


def remove_results(folder: Path) -> None:
    """Remove what an older run wrote, so that an interrupted one leaves nothing behind that looks like its own."""
    for file in (folder / "summary.json", folder / "report.html", *folder.glob("report*.png")):
        file.unlink(missing_ok=True)


def record(run: Run) -> Mapping[str, Any]:
    """Build the feed of the page of heat from what DynamoDB's model saw; its clock begins with the workload."""
    began = run.played.started_at
    rows = list(_known_rows(run))
    length = max((row.at_ms / 1000 for row, _ in rows), default=began) + 1 - began
    step = length / COLUMNS
    loads: list[defaultdict[str, Load]] = [defaultdict(Load) for _ in range(COLUMNS)]
    total = Counter[str]()
    for row, name in rows:
        loads[int((row.at_ms / 1000 - began) / step)][name].add(row)
        total[name] += row.writes + row.throttled_writes + row.reads
    names = {name for name, _ in total.most_common(MOST_KEYS)}
    looks = []
    for column, seen in enumerate(loads, 1):
        routes = [_describe(run, name, load, column * step, step) for name, load in seen.items() if name in names]
        looks.append({**ALL_SEEN, "at": _format(column * step), "seconds": step, "routes": routes})
    hot = run.played.hot_conversation
    return {
        "looks": looks,
        "state": [("", f"{hot} became hot {run.played.hot.begins - began:.0f} s after the start.")],
        "about": f"What DynamoDB's model took and refused, every attempt counted: means of {step:.1f} s.",
        "window_seconds": length,
        "every": step / 2,
        "mean_seconds": step,
        "routes": {hot: _describe_hot(run)},
    }


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


def _known_rows(run: Run) -> Iterator[tuple[TimelineRow, str]]:
    """Yield the rows of the application's keys since the start, each with its key."""
    names = {name for _, name in run.played.writer.recorder.offered_at}
    for row in run.timeline:
        name = re.sub(r"#_?\d+$", "", row.key)
        if name in names and row.at_ms / 1000 >= run.played.started_at:
            yield row, name


def _describe(run: Run, name: str, load: Load, at: float, step: float) -> Mapping[str, Any]:
    """Describe the load of a key in one column, as a row of a look; `at` is in seconds since the start."""
    offered = load.written + load.refused
    began, is_hot = run.played.started_at, name == run.played.hot_conversation
    closed_at = max((moment for moment in run.closes if moment <= began + at), default=None) if is_hot else None
    raises = [one for one in run.raises if one.seen_at <= began + at] if is_hot and closed_at is None else []
    shard_count = max((one.shard_count for one in raises), default=0)
    return {
        "conversation_id": name,
        "wcu_per_second": round(offered / step, 1),
        "throttled_share": round(load.refused / offered, 3) if offered else 0.0,
        "rcu_per_second": round(load.read / step, 1),
        "shard_count": shard_count,
        "capacity_wcu_per_second": run.figures["hot_threshold_wcu"] * max(1, shard_count),
        "closed_at": None if closed_at is None else _format(closed_at - began),
    }


def _describe_hot(run: Run) -> Mapping[str, Any]:
    """Describe the route of the hot key, and what its keys took while it was hot."""
    hot, name, began = run.played.hot, run.played.hot_conversation, run.played.started_at
    loads: defaultdict[str, Load] = defaultdict(Load)
    for row in run.timeline:
        if is_key_of(row.key, name) and hot.begins <= row.at_ms / 1000 < hot.ends:
            loads[row.key].add(row)
    length = hot.ends - hot.begins
    steps = [(one.since_ms / 1000, str(one.shard_count), one.seen_at - began, "raised") for one in run.raises]
    steps += [(at, "0", at - began, "closed") for at in run.closes]
    return {
        "steps": [
            (_format(since)[:19].replace("T", " "), n, f"{what} {at:.1f} s after the start")
            for since, n, at, what in sorted(steps)
        ],
        "decision": "",
        "shards": [
            {
                "key": key,
                "wcu_per_second": load.written / length,
                "refused_wcu_per_second": load.refused / length,
                "rcu_per_second": load.read / length,
            }
            for key, load in sorted(loads.items(), key=lambda one: (len(one[0]), one[0]))
        ],
        "over": "mean while it was hot",
    }


def _format(seconds: float) -> str:
    return format_time(int(1000 * seconds))
