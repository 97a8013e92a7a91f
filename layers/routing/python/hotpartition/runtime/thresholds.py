"""The detectors' thresholds, as the consumer's settings have them."""

from __future__ import annotations

from hotpartition.core.detector import Thresholds
from hotpartition.core.read_heat import ReadThresholds
from hotpartition.runtime.table_settings import ConsumerSettings


def build_thresholds(settings: ConsumerSettings) -> Thresholds:
    """Take the detector's numbers from the settings."""
    return Thresholds(
        hot_at_once_wcu=settings.hot_at_once_wcu,
        hot_sustained_wcu=settings.hot_sustained_wcu,
        target_shard_wcu=settings.target_shard_wcu,
        max_shard_count=settings.max_shard_count,
    )


def build_read_thresholds(settings: ConsumerSettings) -> ReadThresholds:
    """Take the numbers of the detector of read heat from the settings."""
    return ReadThresholds(
        hot_at_once_rcu=settings.hot_at_once_rcu,
        hot_sustained_rcu=settings.hot_sustained_rcu,
        cooled_rcu=settings.cooled_rcu,
        pages_per_copy=settings.pages_per_copy,
    )
