"""The thresholds by which writes are judged, as settings have them."""

from __future__ import annotations

from hotpartition.core.detector import Thresholds
from hotpartition.runtime.settings import Settings


def build_thresholds(settings: Settings, *, is_sustained: bool = True) -> Thresholds:
    """Take the decision's numbers from the settings; unless `is_sustained`, the load of a second is the only limit."""
    return Thresholds(
        hot_at_once_wcu=settings.hot_at_once_wcu,
        hot_sustained_wcu=settings.hot_sustained_wcu if is_sustained else settings.hot_at_once_wcu,
        target_shard_wcu=settings.target_shard_wcu,
        max_shard_count=settings.max_shard_count,
    )
