"""The detectors' thresholds, as the consumer's settings have them."""

from __future__ import annotations

from hotpartition.core.detector import Thresholds
from hotpartition.core.read_heat import ReadThresholds
from hotpartition.runtime.settings import ConsumerSettings


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
