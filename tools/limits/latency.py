"""How long a request takes: a distribution given by its percentiles, drawn from a seeded source.

AWS promises "consistent single-digit millisecond performance at any scale" and no percentiles; the profiles here are
assumptions of that order. Give your own measurements where they matter.
"""

from __future__ import annotations

import itertools
import math
import random
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class LatencyProfile:
    """Milliseconds by percentile (0 to 100, both needed). Between two of them the logarithm is interpolated."""

    percentiles_ms: Mapping[float, float]

    def __post_init__(self) -> None:
        points = sorted(self.percentiles_ms.items())
        if not points or points[0][0] != 0 or points[-1][0] != 100:
            raise ValueError("a latency profile needs the percentiles 0 and 100")
        if points[0][1] <= 0 or any(low[1] > high[1] for low, high in itertools.pairwise(points)):
            raise ValueError("latencies should be greater than 0 and rise with their percentiles")


WRITE_PROFILE: Final = LatencyProfile(MappingProxyType({0: 2.0, 50: 4.5, 90: 7.0, 99: 14.0, 99.9: 35.0, 100: 200.0}))
READ_PROFILE: Final = LatencyProfile(MappingProxyType({0: 1.2, 50: 2.8, 90: 5.0, 99: 11.0, 99.9: 30.0, 100: 200.0}))
REFUSAL_PROFILE: Final = LatencyProfile(MappingProxyType({0: 1.0, 50: 2.2, 90: 4.0, 99: 9.0, 99.9: 25.0, 100: 150.0}))
"""A throttled request: refused without touching the data."""


@dataclass(slots=True)
class Latency:
    """Draws latencies of one profile, in seconds."""

    profile: LatencyProfile
    random: random.Random
    _ranks: list[float] = field(init=False)
    _logs: list[float] = field(init=False)

    def __post_init__(self) -> None:
        points = sorted(self.profile.percentiles_ms.items())
        self._ranks = [percentile / 100 for percentile, _ in points]
        self._logs = [math.log(milliseconds / 1000) for _, milliseconds in points]

    def draw(self) -> float:
        """Return one latency in seconds."""
        return self.at(self.random.random())

    def at(self, rank: float) -> float:
        """Return the latency in seconds that the share `rank` (0 to 1) of all requests stays within."""
        right = min(bisect_right(self._ranks, rank), len(self._ranks) - 1)
        left = right - 1
        share = (rank - self._ranks[left]) / (self._ranks[right] - self._ranks[left])
        return math.exp(self._logs[left] + share * (self._logs[right] - self._logs[left]))
