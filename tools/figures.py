"""What a study measured: quantiles, distributions over seeds, and bars that it is held against.

Quantiles are always a value that occurred, never one between two; None stands for what did not happen.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from math import inf
from types import SimpleNamespace
from typing import Any

MISSED = 1
"""Exit status when a bar was missed."""


class Outcome(SimpleNamespace):
    """What a run came to, or a part of that: figures by name. docs/simulation-summary.md says what they mean."""


def plain(value: Any) -> Any:
    """Return an outcome, or a part of one, in types that `json` takes: its `default`."""
    if isinstance(value, Outcome):
        return vars(value)
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"{type(value)} cannot be written as JSON")


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


def latency(values_ms: Sequence[float]) -> Outcome:
    """Sum up latencies as clients feel them, in ms; all 0 where nothing was measured."""
    ordered = sorted(values_ms) or [0.0]
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999, "longest": 1.0}
    return Outcome(
        count=len(values_ms),
        mean=round(sum(ordered) / len(ordered), 3),
        **{name: round(nearest_rank(ordered, share), 3) for name, share in shares.items()},
    )


def distribution(values: Iterable[float | None]) -> Outcome:
    """Lay out one value of many runs; one that did not happen counts as infinitely late, and as `missing`."""
    ordered = sorted(inf if value is None else value for value in values)
    known = [value for value in ordered if value < inf]

    def at(share: float) -> float | None:
        value = nearest_rank(ordered, share) if ordered else inf
        return None if value == inf else round(value, 4)

    return Outcome(
        count=len(ordered),
        missing=len(ordered) - len(known),
        lowest=round(known[0], 4) if known else None,
        p50=at(0.5),
        p95=at(0.95),
        p99=at(0.99),
        highest=round(known[-1], 4) if known else None,
    )
