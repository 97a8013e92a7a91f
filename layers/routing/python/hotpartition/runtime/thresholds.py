"""The detector's thresholds, as the consumer's settings have them."""

from __future__ import annotations

from hotpartition.core.detector import Thresholds
from hotpartition.runtime.settings import ConsumerSettings


def build_thresholds(settings: ConsumerSettings) -> Thresholds:
    """Take the detector's numbers from the settings."""
    return Thresholds(
        hot_at_once_wcu=settings.hot_at_once_wcu,
        hot_sustained_wcu=settings.hot_sustained_wcu,
        target_shard_wcu=settings.target_shard_wcu,
        max_shard_count=settings.max_shard_count,
    )
