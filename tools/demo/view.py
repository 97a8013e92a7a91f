"""The live view of a demonstration: a table that renews itself on a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tools.demo.client import Counts, Recorder
from tools.demo.observer import Event, Observations

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


class View(Protocol):
    """Shows pictures."""

    pause_seconds: float

    def show(self, picture: Picture) -> None:
        """Show one picture."""
        ...


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

    pause_seconds = LINE_SECONDS

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


class LiveView:
    """Renews a table on a terminal."""

    pause_seconds = LIVE_SECONDS

    def __init__(self, live: Live, *, started_at: float) -> None:
        self._live = live
        self._started_at = started_at

    def show(self, picture: Picture) -> None:
        """Renew the table."""
        self._live.update(render(picture, started_at=self._started_at))


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


def live_display(console: Console) -> Live:
    """Build the display that a `LiveView` renews; it is shown while its context is open."""
    return Live(console=console, refresh_per_second=4, transient=False)


async def keep_showing(view: View, camera: Camera, *, stopped: asyncio.Event) -> None:
    """Show a picture now and then until stopped, and one at the end."""
    while not stopped.is_set():
        view.show(camera.take())
        try:
            await asyncio.wait_for(stopped.wait(), view.pause_seconds)
        except TimeoutError:
            continue
    view.show(camera.take())
