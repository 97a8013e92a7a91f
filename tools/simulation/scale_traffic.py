"""What is written in the scale study: who writes how much, drawn step by step from exact distributions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hotpartition.runtime.settings import WriterSettings

STEP_MS = 25
START_MS = 1_800_000_000_000
"""When a run begins (a moment in 2027): the beginning of a slot."""
WRITES_PER_ENVIRONMENT = 100
"""Writes a second of one environment: 10 ms a request, and no environment idles. Fewer would mean more of them."""
QUIET_WCU = 600.0
"""Load of the busiest conversation that is not hot: three quarters of the threshold, so noise has its chance."""
ZIPF_EXPONENT = 1.0
RUSH_FROM_WCU = 100.0
RUSH_TO_WCU = 4_000.0
"""A conversation of about 100 WCU/s steps to 4,000 within a moment: the step of the project's own bar."""
QUIET_MS = 1_500
"""Nothing is hot before; traffic is counted from the second slot to here."""
REST_MS = 2_000
"""Left after the last onset."""

DEFAULT_Z = WriterSettings.defaults().sampling.sampling_distance_wcu

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One size of the fleet. Rates are writes of one unit, per second; each run draws `rushes` onsets."""

    writes_per_second: int
    rushes: int
    seeds: int
    run_ms: int = 5_500
    z: float = DEFAULT_Z

    @property
    def environments(self) -> int:
        """Environments that share the load."""
        return self.writes_per_second // WRITES_PER_ENVIRONMENT

    @property
    def conversations(self) -> int:
        """One for each write a second: most are slow, the busiest have `QUIET_WCU`."""
        return self.writes_per_second


def popularity(level: Level) -> Floats:
    """List the conversations' steady rates in WCU/s, busiest first: Zipf, cut off at `QUIET_WCU`."""
    ranks = np.arange(1, level.conversations + 1) ** -ZIPF_EXPONENT
    low, high = 0.0, 10.0 * level.writes_per_second
    for _ in range(80):
        scale = (low + high) / 2
        if np.minimum(QUIET_WCU, scale * ranks).sum() < level.writes_per_second:
            low = scale
        else:
            high = scale
    rates: Floats = np.minimum(QUIET_WCU, high * ranks)
    return rates


@dataclass(slots=True)
class Rush:
    """One conversation that gets hot, and what became of it."""

    conversation: int
    onset_ms: int
    extra_wcu: float
    first_raise_ms: int | None = None
    shard_counts: list[int] = field(default_factory=list)


class Step(NamedTuple):
    """What is written at one moment: three columns of one length. A row is one environment's sum."""

    at_ms: int
    conversations: Integers
    environments: Integers
    wcu: Integers


class Traffic:
    """Draws a run's writes; `exact` leaves each in its own millisecond and does not add any up."""

    def __init__(self, level: Level, seed: int, *, exact: bool = False) -> None:
        self._level = level
        self._random = np.random.default_rng([level.writes_per_second, seed])
        self._exact = exact
        self._step_ms = 1 if exact else STEP_MS
        self.rates = popularity(level)
        self._cumulated = np.cumsum(self.rates)
        first = int(np.searchsorted(-self.rates, -RUSH_FROM_WCU))
        onsets = self._random.uniform(QUIET_MS, level.run_ms - REST_MS, level.rushes)
        self.rushes = [
            Rush(first + index, START_MS + int(onset), RUSH_TO_WCU - self.rates[first + index])
            for index, onset in enumerate(onsets)
        ]

    def steps(self) -> Iterator[Step]:
        """Draw the run, step by step; a step's writes count at its middle."""
        for begin_ms in range(START_MS, START_MS + self._level.run_ms, self._step_ms):
            conversations = np.concatenate([self._steady(), *self._rushing(begin_ms)])
            environments = self._random.integers(self._level.environments, size=len(conversations))
            if self._exact:
                order = self._random.permutation(len(conversations))
                ones = np.ones(len(conversations), dtype=np.int64)
                yield Step(begin_ms, conversations[order], environments[order], ones)
            else:
                cells, wcu = np.unique(conversations * self._level.environments + environments, return_counts=True)
                environments = cells % self._level.environments
                yield Step(begin_ms + self._step_ms // 2, cells // self._level.environments, environments, wcu)

    def _steady(self) -> Integers:
        total = self._cumulated[-1]
        writes = self._random.poisson(total * self._step_ms / 1000)
        chosen: Integers = np.searchsorted(self._cumulated, self._random.random(writes) * total, side="right")
        return chosen

    def _rushing(self, begin_ms: int) -> Iterator[Integers]:
        for rush in self.rushes:
            active_ms = min(begin_ms + self._step_ms - rush.onset_ms, self._step_ms)
            if active_ms > 0:
                writes = self._random.poisson(rush.extra_wcu * active_ms / 1000)
                yield np.full(writes, rush.conversation)
