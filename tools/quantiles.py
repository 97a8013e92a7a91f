"""Quantiles of what was measured: always a value that occurred, never one between two."""

from __future__ import annotations

from collections.abc import Sequence


def nearest_rank(ordered: Sequence[float], share: float) -> float:
    """Return a quantile by the nearest-rank method. REQUIRES: values in ascending order, at least one."""
    return ordered[min(len(ordered) - 1, max(0, int(-(-share * len(ordered) // 1)) - 1))]
