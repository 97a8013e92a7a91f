"""Instants as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

_LAST_TIME_MS = 253_402_300_799_999


def format_time(time_ms: int) -> str:
    """Format an instant, Unix ms, as RFC 3339 in UTC with ms. Years past 9999 are shown as the end of 9999."""
    seconds, ms = divmod(min(time_ms, _LAST_TIME_MS), 1000)
    # `isoformat` takes a fifth of the time of `strftime`; the part cut off is the offset of UTC.
    return f"{datetime.fromtimestamp(seconds, UTC).isoformat()[:-6]}.{ms:03d}Z"
