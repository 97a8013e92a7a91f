"""The live view of a demonstration: a table that renews itself on a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tools.load.client import Counts, Recorder
from tools.load.observer import Event, Observations, stopped_within

LINE_SECONDS = 2.0
LIVE_SECONDS = 0.5
EVENTS_SHOWN = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What a view shows at one moment; rates are per second since the last picture."""

    seconds: float
    phase: str
    writes_per_second: float
    throttles_per_second: float
    reads_per_second: float
    acknowledged: int
    waiting: int
    shard_count: int
    environments: int
    events: tuple[Event, ...]


class Camera:
    """Takes pictures of a run."""

    def __init__(
        self, recorder: Recorder, observations: Observations, *, now: Callable[[], float], started_at: float
    ) -> None:
        self._recorder = recorder
        self._observations = observations
        self._now = now
        self._started_at = started_at
        self._last_at = started_at
        self._last: Counts = replace(recorder.counts)
        self.phase = "starting"

    def take(self) -> Picture:
        """Take a picture of this moment."""
        now, counts = self._now(), replace(self._recorder.counts)
        past = max(1e-6, now - self._last_at)
        last = self._last
        self._last_at, self._last = now, counts
        # A message that is acknowledged once more counts once, as it does in the verdict.
        acknowledged = counts.acknowledged - counts.replays
        settled = len(self._recorder.unresolved) + acknowledged
        return Picture(
            seconds=now - self._started_at,
            phase=self.phase,
            writes_per_second=(counts.acknowledged - last.acknowledged) / past,
            throttles_per_second=(counts.throttled - last.throttled) / past,
            reads_per_second=(counts.pages - last.pages) / past,
            acknowledged=acknowledged,
            waiting=max(0, counts.offered - settled),
            shard_count=self._observations.shard_count,
            environments=self._observations.most_environments,
            events=tuple(self._observations.events[-EVENTS_SHOWN:]),
        )


class LineView:
    """Prints one line a picture, and each event once."""

    def __init__(self, write_line: Callable[[str], None], *, started_at: float) -> None:
        self._write_line = write_line
        self._started_at = started_at
        self._told: set[tuple[float, str]] = set()

    def show(self, picture: Picture) -> None:
        """Print a line."""
        for event in picture.events:
            if (event.at, event.text) not in self._told:
                self._told.add((event.at, event.text))
                self._write_line(f"{event.at - self._started_at:6.1f} s  * {event.text}")
        self._write_line(
            f"{picture.seconds:6.1f} s  {picture.phase:<9} {picture.writes_per_second:6.1f} writes/s "
            f"{picture.throttles_per_second:6.1f} throttles/s {picture.reads_per_second:6.1f} reads/s  "
            f"N {picture.shard_count}  environments {picture.environments}  "
            f"acknowledged {picture.acknowledged}  waiting {picture.waiting}"
        )


def render(picture: Picture, *, started_at: float) -> Panel:
    """Draw a picture for a terminal."""
    table = Table.grid(padding=(0, 3))
    for _ in range(4):
        table.add_column(justify="right")
        table.add_column(justify="left", style="dim")
    throttles = f"[{'red' if picture.throttles_per_second >= 1 else 'green'}]{picture.throttles_per_second:.0f}[/]"
    table.add_row(
        *(f"[bold]{picture.writes_per_second:.0f}[/]", "writes/s", throttles, "throttles/s"),
        *(f"{picture.reads_per_second:.0f}", "reads/s", f"[bold magenta]{picture.shard_count}[/]", "N"),
    )
    table.add_row(
        *(f"{picture.acknowledged:,}", "acknowledged", f"{picture.waiting}", "waiting"),
        *(f"{picture.environments}", "environments", f"{picture.seconds:.0f}", "seconds"),
    )
    events = [Text(f"{event.at - started_at:6.1f} s  {event.text}", style="cyan") for event in picture.events]
    return Panel(Group(table, *events), title=f"hotpartition demo: {picture.phase}", title_align="left")


@asynccontextmanager
async def open_view(console: Console, *, started_at: float) -> AsyncIterator[tuple[Callable[[Picture], None], float]]:
    """Open what shows pictures; with it comes the pause between two of them, in seconds."""
    if not console.is_terminal:
        view = LineView(lambda line: console.print(line, highlight=False, soft_wrap=True), started_at=started_at)
        yield view.show, LINE_SECONDS
        return
    with Live(console=console, refresh_per_second=4, transient=False) as live:
        yield lambda picture: live.update(render(picture, started_at=started_at)), LIVE_SECONDS


async def keep_showing(
    show: Callable[[Picture], None], camera: Camera, *, pause_seconds: float, stopped: asyncio.Event
) -> None:
    """Show a picture now and then until stopped, and one at the end."""
    while not stopped.is_set():
        show(camera.take())
        await stopped_within(stopped, pause_seconds)
    show(camera.take())
