"""The real clocks."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from threading import Lock

from hotpartition.core.backoff import Clock


def wall_clock_ms() -> int:
    """Return Unix time in ms."""
    return time.time_ns() // 1_000_000


class ElapsedTime:
    """A monotonic clock, in seconds, that goes on while an environment is frozen. Safe under threads.

    `time.monotonic` may stand still then. So each step is the larger one of that and of the wall clock: where the wall
    clock is set forward, ages by it seem higher than they are, and never lower.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._monotonic, self._wall = monotonic, wall
        self._last = monotonic(), wall()
        self._elapsed = 0.0
        self._lock = Lock()

    def __call__(self) -> float:
        """Return the seconds that have passed since this was made."""
        with self._lock:
            now = self._monotonic(), self._wall()
            self._elapsed += max(now[0] - self._last[0], now[1] - self._last[1], 0.0)
            self._last = now
            return self._elapsed


def system_clock() -> Clock:
    """Build the real clock, sleep and chance."""
    # Seeded here: the module's own generator is in a snapshot that many environments start from (SnapStart).
    return Clock(now_ms=wall_clock_ms, sleep=time.sleep, random=random.Random().random)
