"""How a figure is taken: interleaved runs of ours and the rival's, the median of each, and the bars they must hold."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

CPU_CONDITIONS = (
    "CPU of the measuring process only, all its threads (time.process_time); the garbage collector is on, "
    "and has just collected when a batch begins; one batch of each side warms up and is not counted"
)
WALL_CONDITIONS = CPU_CONDITIONS.replace(
    "CPU of the measuring process only, all its threads (time.process_time)", "wall time (time.perf_counter)"
)


@dataclass(frozen=True, slots=True)
class Bar:
    """A bound on a figure: `of` is "value", "ratio" or the name of a detail."""

    of: str
    at_most: float | None = None
    at_least: float | None = None

    def holds(self, figures: Mapping[str, float]) -> bool:
        """Say whether the figure keeps within the bound."""
        figure = figures[self.of]
        return (self.at_most is None or figure <= self.at_most) and (self.at_least is None or figure >= self.at_least)

    def __str__(self) -> str:
        sign, bound = ("<=", self.at_most) if self.at_most is not None else (">=", self.at_least)
        return f"{self.of} {sign} {bound:,g}"


@dataclass(frozen=True, slots=True)
class Samples:
    """One figure a run for each side, in the order of the runs."""

    ours: tuple[float, ...]
    rival: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One row as measured.

    `details` are further figures by name, which bars may name; `conditions` says how it was measured, for a reader who
    wants to repeat it.
    """

    unit: str
    rival: str
    samples: Samples
    bars: Sequence[Bar]
    conditions: str
    details: Mapping[str, float] = field(default_factory=dict)

    @property
    def value(self) -> float:
        """Ours: the median of its runs."""
        return median(self.samples.ours)

    @property
    def rival_value(self) -> float:
        """The rival's: the median of its runs."""
        return median(self.samples.rival)

    @property
    def ratio(self) -> float:
        """Ours as a share of the rival's."""
        return self.value / self.rival_value

    @property
    def figures(self) -> dict[str, float]:
        """Everything that a bar can name."""
        return {**self.details, "value": self.value, "ratio": self.ratio}

    @property
    def missed(self) -> list[Bar]:
        """The bars that do not hold."""
        return [bar for bar in self.bars if not bar.holds(self.figures)]


def interleave(ours: Callable[[], float], rival: Callable[[], float], runs: int) -> Samples:
    """Run both sides by turns, so that a drift of the machine meets both alike; who begins changes with each run."""
    figures: dict[Callable[[], float], list[float]] = {ours: [], rival: []}
    for run in range(runs):
        for side in (ours, rival) if run % 2 == 0 else (rival, ours):
            figures[side].append(side())
    return Samples(tuple(figures[ours]), tuple(figures[rival]))


def warm_up(*sides: Callable[[], object]) -> None:
    """Run each side once, without looking at the figure."""
    for side in sides:
        side()


def cpu_seconds(work: Callable[[], object]) -> float:
    """Measure the CPU that this process spends on a piece of work, in all its threads."""
    return _spent(time.process_time, work)


def wall_seconds(work: Callable[[], object]) -> float:
    """Measure how long a piece of work takes."""
    return _spent(time.perf_counter, work)


def _spent(clock: Callable[[], float], work: Callable[[], object]) -> float:
    gc.collect()
    started = clock()
    work()
    return clock() - started
