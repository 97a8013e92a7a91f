"""Builds the leases of writers, and the times of the protocol that closes routes."""

from __future__ import annotations

from collections.abc import Callable

from hotpartition.core.closes import CloseTimes
from hotpartition.core.ports import JournalReading, Telemetry
from hotpartition.core.store_clock import SECOND_MS
from hotpartition.engine.leases import Leases
from hotpartition.runtime.settings import ClosingSettings, LeaseSettings


def build_close_times(leases: LeaseSettings, closing: ClosingSettings | None = None) -> CloseTimes:
    """Take the times of leases, and of closes, from the settings."""
    pause_seconds = 0.0 if closing is None else closing.close_pause_seconds
    seconds = leases.lease_seconds, leases.lease_margin_seconds, pause_seconds
    return CloseTimes(*[round(each * SECOND_MS) for each in seconds])


def find_close_times(leases: LeaseSettings, closing: ClosingSettings) -> CloseTimes | None:
    """Say by which times keys are closed; None: not at all, since that is switched off or writers have no leases."""
    return build_close_times(leases, closing) if closing.is_closing and leases.lease_seconds else None


def build_leases(
    settings: LeaseSettings,
    *,
    journal: JournalReading,
    telemetry: Telemetry,
    now_ms: Callable[[], int],
    max_entries: int,
) -> Leases | None:
    """Build the leases of a process's writers; None where the settings say that nothing is closed."""
    times = build_close_times(settings)
    if not times.lease_ms:
        return None
    return Leases(journal=journal, telemetry=telemetry, times=times, now_ms=now_ms, max_entries=max_entries)
