"""What a study measured: quantiles, distributions over seeds, and bars that it is held against.

Quantiles are always a value that occurred, never one between two. `dataclasses.asdict` gives any of these values as
`json` takes it; None stands for what did not happen.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

MISSED = 1
"""Exit status when a bar was missed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One condition: what was measured, the limit, and whether it holds."""

    name: str
    measured: float | None
    limit: float
    unit: str
    holds: bool


def at_most(name: str, measured: float | None, limit: float, unit: str) -> Bar:
    """Build a bar that a value may not pass."""
    holds = measured is not None and measured <= limit
    return Bar(name=name, measured=measured, limit=limit, unit=unit, holds=holds)


def at_least(name: str, measured: float | None, limit: float, unit: str) -> Bar:
    """Build a bar that a value has to reach."""
    holds = measured is not None and measured >= limit
    return Bar(name=name, measured=measured, limit=limit, unit=unit, holds=holds)


def say_bars(bars: Iterable[Bar]) -> None:
    """Print each bar with what was measured."""
    for bar in bars:
        measured = "never" if bar.measured is None else f"{bar.measured:g}"
        verdict = "holds" if bar.holds else "MISSED"
        sys.stdout.write(f"{verdict:<7} {bar.name}: {measured} (bar: {bar.limit:g} {bar.unit})\n")


def nearest_rank(ordered: Sequence[float], share: float) -> float:
    """Return a quantile by the nearest-rank method. REQUIRES: values in ascending order, at least one."""
    return ordered[min(len(ordered) - 1, max(0, int(-(-share * len(ordered) // 1)) - 1))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Latencies as clients feel them, in ms; all 0 where nothing was measured."""

    count: int = 0
    mean: float = 0.0
    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    p999: float = 0.0
    longest: float = 0.0

    @classmethod
    def of(cls, values_ms: Sequence[float]) -> Latency:
        """Sum up latencies."""
        if not values_ms:
            return cls()
        ordered = sorted(values_ms)
        return cls(
            count=len(ordered),
            mean=round(sum(ordered) / len(ordered), 3),
            p50=round(nearest_rank(ordered, 0.5), 3),
            p95=round(nearest_rank(ordered, 0.95), 3),
            p99=round(nearest_rank(ordered, 0.99), 3),
            p999=round(nearest_rank(ordered, 0.999), 3),
            longest=round(ordered[-1], 3),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """A measured value over many seeds; `missing` counts the seeds in which it did not happen."""

    count: int
    missing: int
    lowest: float | None
    p50: float | None
    p95: float | None
    p99: float | None
    highest: float | None

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Distribution:
        """Sum up one value of many runs; one that did not happen counts as infinitely late."""
        ordered = sorted(inf if value is None else value for value in values)
        known = [value for value in ordered if value < inf]

        def at(share: float) -> float | None:
            value = nearest_rank(ordered, share) if ordered else inf
            return None if value == inf else round(value, 4)

        return cls(
            count=len(ordered),
            missing=len(ordered) - len(known),
            lowest=round(known[0], 4) if known else None,
            p50=at(0.5),
            p95=at(0.95),
            p99=at(0.99),
            highest=round(known[-1], 4) if known else None,
        )

    def text(self) -> str:
        """Write the median and, in brackets, the lowest and highest value where they differ."""
        if self.p50 is None:
            return "never"
        highest = "never" if self.missing else f"{self.highest:g}"
        same = self.lowest == self.highest and not self.missing
        return f"{self.p50:g}" + ("" if same else f" ({self.lowest:g} to {highest})")
