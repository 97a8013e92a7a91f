"""A clock, telemetry and background work by hand: what has no real part that a test could hold."""

from __future__ import annotations

from collections.abc import Callable

from hotpartition.core.backoff import Clock
from hotpartition.core.errors import ThrottledError
from hotpartition.core.merge import KeyQuery

KEY_RANGE_THROTTLE = ThrottledError(["TableWriteKeyRangeThroughputExceeded"])


class FakeClock:
    """A clock that only moves when it is told to; sleeping moves it."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms
        self.slept: list[float] = []
        self.on_sleep: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_ms += round(seconds * 1000)
        self.on_sleep()

    def as_clock(self, random: Callable[[], float] = lambda: 0.5) -> Clock:
        return Clock(now_ms=lambda: self.now_ms, sleep=self.sleep, random=random)


def lies_within(query: KeyQuery, sort_key: str) -> bool:
    """Say whether a sort key is within a query's bounds."""
    after = query.after
    return (
        (query.first is None or sort_key >= query.first)
        and (query.last is None or sort_key <= query.last)
        and (after is None or (sort_key < after if query.newest_first else sort_key > after))
    )


class FakeTelemetry:
    """Remembers what was counted and logged."""

    def __init__(self) -> None:
        self.counts: dict[str, float] = {}
        self.events: list[tuple[str, dict[str, object]]] = []

    def count(self, metric: str, value: float = 1.0) -> None:
        self.counts[metric] = self.counts.get(metric, 0.0) + value

    def event(self, message: str, **facts: object) -> None:
        self.events.append((message, facts))

    def flush(self) -> None:
        """Nothing is held back."""


class InlineBackground:
    """Does background work at once."""

    def submit(self, work: Callable[[], None]) -> bool:
        work()
        return True
