"""Bars: what a study measured, held against limits."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass

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


def at_least(name: str, measured: float, limit: float, unit: str) -> Bar:
    """Build a bar that a value has to reach."""
    return Bar(name=name, measured=measured, limit=limit, unit=unit, holds=measured >= limit)


def say_bars(bars: Iterable[Bar]) -> None:
    """Print each bar with what was measured."""
    for bar in bars:
        measured = "never" if bar.measured is None else f"{bar.measured:g}"
        verdict = "holds" if bar.holds else "MISSED"
        sys.stdout.write(f"{verdict:<7} {bar.name}: {measured} (bar: {bar.limit:g} {bar.unit})\n")
