"""Builds the leases of writers, and the times of the protocol that closes routes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hotpartition.core.closes import TIMES, CloseTimes
from hotpartition.core.ports import JournalReading, Telemetry
from hotpartition.core.store_clock import SECOND_MS
from hotpartition.engine.leases import Leases
from hotpartition.engine.route_cache import MAX_ROUTES
from hotpartition.runtime.settings import Settings


def build_close_times(settings: Settings, times: CloseTimes = TIMES) -> CloseTimes:
    """Take the length of leases from the settings."""
    return replace(times, lease_ms=round(settings.lease_seconds * SECOND_MS))


def find_close_times(settings: Settings, times: CloseTimes = TIMES) -> CloseTimes | None:
    """Say by which times keys are closed; None: not at all, since that is switched off or writers have no leases."""
    return build_close_times(settings, times) if settings.is_closing and settings.lease_seconds else None


def build_leases(
    settings: Settings,
    *,
    journal: JournalReading,
    telemetry: Telemetry,
    now_ms: Callable[[], int],
    times: CloseTimes = TIMES,
) -> Leases | None:
    """Build the leases of a process's writers; None where the settings say that nothing is closed."""
    times = build_close_times(settings, times)
    if not times.lease_ms:
        return None
    return Leases(journal=journal, telemetry=telemetry, times=times, now_ms=now_ms, max_entries=MAX_ROUTES)
