"""How long a request takes: a distribution given by its percentiles, drawn from a seeded source.

AWS promises "consistent single-digit millisecond performance at any scale" and no percentiles; the profiles here are
assumptions of that order. Give your own measurements where they matter.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

Profile = Mapping[float, float]
"""Milliseconds by percentile, 0 to 100; both ends are there, and latencies rise."""
WRITE_PROFILE: Final[Profile] = MappingProxyType({0: 2.0, 50: 4.5, 90: 7.0, 99: 14.0, 99.9: 35.0, 100: 200.0})
READ_PROFILE: Final[Profile] = MappingProxyType({0: 1.2, 50: 2.8, 90: 5.0, 99: 11.0, 99.9: 30.0, 100: 200.0})


class Latency:
    """Draws latencies of one profile, in seconds; between two percentiles the logarithm is interpolated."""

    def __init__(self, profile: Profile, source: random.Random) -> None:
        self._random = source
        self._ranks = [percentile / 100 for percentile in profile]
        self._logs = [math.log(milliseconds / 1000) for milliseconds in profile.values()]

    def draw(self) -> float:
        """Return one latency in seconds."""
        return self.at(self._random.random())

    def at(self, rank: float) -> float:
        """Return the latency in seconds that the share `rank` (0 to 1) of all requests stays within."""
        right = min(bisect_right(self._ranks, rank), len(self._ranks) - 1)
        left = right - 1
        share = (rank - self._ranks[left]) / (self._ranks[right] - self._ranks[left])
        return math.exp(self._logs[left] + share * (self._logs[right] - self._logs[left]))
