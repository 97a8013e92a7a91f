"""Instants as text; and DynamoDB's time, derived from the `Date` of its responses and a process's own clock. Pure.

A response's `Date` is a whole second: at some moment between its request and its arrival, DynamoDB's clock was in that
second. So each response bounds how far the process's clock may be off, from both sides, and several together bound it
closely. Within the bounds the process's clock is taken at its word: most clocks are right to some milliseconds.
"""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from threading import Lock

SECOND_MS = 1_000
DRIFT_MS = 20.0
"""By how much the bounds are widened with each response: clocks run at different speeds."""

_LAST_TIME_MS = 253_402_300_799_999


def format_time(time_ms: int) -> str:
    """Format an instant, Unix ms, as RFC 3339 in UTC with ms. Years past 9999 are shown as the end of 9999."""
    seconds, ms = divmod(min(time_ms, _LAST_TIME_MS), 1000)
    return f"{_format_second(seconds)}.{ms:03d}Z"


@lru_cache(maxsize=8)
def _format_second(seconds: int) -> str:
    # `isoformat` takes a fifth of the time of `strftime`; the part cut off is the offset of UTC.
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:-6]


@lru_cache(maxsize=8)
def read_date(date: str | None) -> int | None:
    """Read the `Date` of a response, RFC 9110, as Unix ms; None where it is missing or cannot be read."""
    try:
        return round(parsedate_to_datetime(date or "").timestamp()) * SECOND_MS
    except ValueError:
        return None


class StoreClock:
    """How far a process's clock is off. Safe under threads."""

    def __init__(self) -> None:
        """Trust the process's clock until a response says otherwise."""
        self._least_ms, self._most_ms = float("-inf"), float("inf")
        self._lock = Lock()

    def learn(self, second_ms: int | None, sent_ms: float, received_ms: float) -> None:
        """Take in the `Date` of a response, as `read_date` returns it; None is ignored.

        Its request was sent, and it was there, at these times of the process's clock, Unix ms.
        """
        if second_ms is None:
            return
        least_ms, most_ms = second_ms - received_ms, second_ms + SECOND_MS - sent_ms
        with self._lock:
            self._least_ms = max(self._least_ms - DRIFT_MS, least_ms)
            self._most_ms = min(self._most_ms + DRIFT_MS, most_ms)
            if self._least_ms > self._most_ms:
                # The process's clock was set: only what it says from now on counts.
                self._least_ms, self._most_ms = least_ms, most_ms

    def at(self, now_ms: float) -> int:
        """Return DynamoDB's time, Unix ms, at a time of the process's clock."""
        with self._lock:
            return round(now_ms + min(max(0.0, self._least_ms), self._most_ms))
