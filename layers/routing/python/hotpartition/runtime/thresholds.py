"""The thresholds by which writes are judged, as settings have them."""

from __future__ import annotations

from hotpartition.core.detector import Thresholds
from hotpartition.runtime.settings import HeatSettings, LoadSettings, SizeSettings


def build_thresholds(load: LoadSettings, size: SizeSettings, heat: HeatSettings | None = None) -> Thresholds:
    """Take the decision's numbers from the settings; without `heat`, the load that one key serves is the only limit."""
    return Thresholds(
        hot_at_once_wcu=load.hot_at_once_wcu,
        hot_sustained_wcu=heat.hot_sustained_wcu if heat else load.hot_at_once_wcu,
        target_shard_wcu=load.target_shard_wcu,
        max_shard_count=size.max_shard_count,
    )
