"""What a demonstration says while it runs: each event, and its figures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace

from rich.console import Console

from tools.play.client import Counts, Recorder
from tools.play.watch import Observations, stopped_within

LINE_SECONDS = 2.0


class View:
    """What is new of a run each time that it is looked at."""

    def __init__(
        self, recorder: Recorder, observations: Observations, *, now: Callable[[], float], started_at: float
    ) -> None:
        self._recorder = recorder
        self._observations = observations
        self._now = now
        self._started_at = self._last_at = started_at
        self._last: Counts = replace(recorder.counts)
        self._shown = 0
        self.phase = "starting"

    def new_events(self) -> Iterator[str]:
        """Yield the events since the last look."""
        events = self._observations.events[self._shown :]
        self._shown += len(events)
        for event in events:
            yield f"{event.at - self._started_at:6.1f} s  * {event.text}"

    def figures(self) -> str:
        """Give the figures of this moment; rates are those since the last look."""
        now, counts, last = self._now(), replace(self._recorder.counts), self._last
        past = max(1e-6, now - self._last_at)
        self._last_at, self._last = now, counts
        # A message that is acknowledged once more counts once, as it does in the verdict.
        acknowledged = counts.acknowledged - counts.replays
        waiting = max(0, counts.offered - counts.unresolved - acknowledged)
        return (
            f"{now - self._started_at:6.1f} s  {self.phase:<9} "
            f"{(counts.acknowledged - last.acknowledged) / past:6.1f} writes/s "
            f"{(counts.throttled - last.throttled) / past:6.1f} throttles/s "
            f"{(counts.pages - last.pages) / past:6.1f} reads/s  "
            f"N {self._observations.shard_count}  environments {self._observations.most_environments}  "
            f"acknowledged {acknowledged}  waiting {waiting}"
        )


async def keep_showing(view: View, console: Console, *, stopped: asyncio.Event) -> None:
    """Show the view now and then until stopped, and once at the end."""
    is_last = False
    while not is_last:
        is_last = stopped.is_set()
        for line in (*view.new_events(), view.figures()):
            console.print(line)
        await stopped_within(stopped, LINE_SECONDS)
