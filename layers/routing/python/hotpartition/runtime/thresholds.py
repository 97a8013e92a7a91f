"""The detectors' thresholds, as the consumer's settings have them."""

from __future__ import annotations

from hotpartition.control.cooling import CoolingLimits
from hotpartition.core.closes import WARM_SHARE, CloseTimes
from hotpartition.core.detector import Thresholds
from hotpartition.core.read_heat import ReadThresholds
from hotpartition.runtime.building_leases import build_close_times
from hotpartition.runtime.settings import ClosingSettings, ConsumerSettings, LeaseSettings


def build_thresholds(settings: ConsumerSettings) -> Thresholds:
    """Take the detector's numbers from the settings."""
    return Thresholds(
        hot_at_once_wcu=settings.load.hot_at_once_wcu,
        hot_sustained_wcu=settings.heat.hot_sustained_wcu,
        target_shard_wcu=settings.load.target_shard_wcu,
        max_shard_count=settings.size.max_shard_count,
    )


def build_read_thresholds(settings: ConsumerSettings) -> ReadThresholds:
    """Take the numbers of the detector of read heat from the settings."""
    return ReadThresholds(
        hot_at_once_rcu=settings.detection.hot_at_once_rcu,
        hot_sustained_rcu=settings.heat.hot_sustained_rcu,
        cooled_rcu=settings.detection.cooled_rcu,
        pages_per_copy=settings.detection.pages_per_copy,
    )


def find_close_times(leases: LeaseSettings, closing: ClosingSettings) -> CloseTimes | None:
    """Say by which times keys are closed; None: not at all, since that is switched off or writers have no leases."""
    return build_close_times(leases, closing) if closing.is_closing and leases.lease_seconds else None


def build_cooling_limits(settings: ConsumerSettings) -> CoolingLimits | None:
    """Say when the consumer closes what; None: never."""
    times = find_close_times(settings.leases, settings.closing)
    if times is None or not settings.keys.has_positions:
        return None
    return CoolingLimits(
        warm_wcu=settings.heat.hot_sustained_wcu * WARM_SHARE,
        close_after_ms=round(settings.closing.close_after_seconds * 1000),
        times=times,
    )
