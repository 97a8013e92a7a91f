"""How a figure is taken and kept: interleaved runs of ours and the rival's, their medians, and the bars they must hold.

One JSON file a row (`out/bench/<name>.json`), and one table of all.
"""

from __future__ import annotations

import gc
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

PACKAGES = ("aws-lambda-powertools", "awslambdaric", "boto3", "botocore", "pydantic", "pydynox", "redis", "urllib3")
CPU_CONDITIONS = (
    "CPU of the measuring process only, all its threads (time.process_time); the garbage collector is on, "
    "and has just collected when a batch begins; one batch of each side warms up and is not counted"
)
MILLISECONDS = 1e3
MICROSECONDS = 1e6
TRIMMED_RUNS = 5
"""From so many runs on, one disturbed run on either side does not count as spread."""
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

    def is_within(self, spread: tuple[float, float]) -> bool:
        """Say whether the bound lies inside a spread, so that other runs could decide otherwise."""
        bound = self.at_least if self.at_most is None else self.at_most
        return bound is not None and spread[0] < bound < spread[1]

    def __str__(self) -> str:
        sign, bound = ("<=", self.at_most) if self.at_most is not None else (">=", self.at_least)
        return f"{self.of} {sign} {bound:,g}"


@dataclass(frozen=True, slots=True)
class Samples:
    """One figure a run for each side, in the order of the runs."""

    ours: tuple[float, ...]
    rival: tuple[float, ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        """Ours as a share of the rival's, run by run: both sides of a run met the same machine."""
        return tuple(ours / rival for ours, rival in zip(self.ours, self.rival, strict=True))


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
        """Ours as a share of the rival's: the median of the runs' ratios, and so never outside of their spread."""
        return median(self.samples.ratios)

    @property
    def spreads(self) -> dict[str, tuple[float, float]]:
        """Where the middle runs lie, from and to, for each figure that is taken in every run."""
        return {"value": spread(self.samples.ours), "ratio": spread(self.samples.ratios)}

    @property
    def figures(self) -> dict[str, float]:
        """Everything that a bar can name."""
        return {**self.details, "value": self.value, "ratio": self.ratio}

    @property
    def missed(self) -> list[Bar]:
        """The bars that do not hold, those that cannot be judged among them."""
        return [bar for bar in self.bars if not bar.holds(self.figures)]

    @property
    def unjudged(self) -> list[Bar]:
        """The bars that lie within the spread of what they are on: these runs do not decide them."""
        return [bar for bar in self.bars if bar.of in self.spreads and bar.is_within(self.spreads[bar.of])]


def spread(runs: Sequence[float]) -> tuple[float, float]:
    """Return the smallest and the largest run, but for one on each side where five or more leave enough to judge by."""
    ordered = sorted(runs)
    middle = ordered[1:-1] if len(ordered) >= TRIMMED_RUNS else ordered
    return middle[0], middle[-1]


def interleave(ours: Callable[[], float], rival: Callable[[], float], runs: int, *, warms_up: bool = False) -> Samples:
    """Run both sides by turns, so that a drift of the machine meets both alike; who begins changes with each run.

    To warm up, each side runs once more before, and is not counted.
    """
    if warms_up:
        ours()
        rival()
    figures: dict[Callable[[], float], list[float]] = {ours: [], rival: []}
    for run in range(runs):
        for side in (ours, rival) if run % 2 == 0 else (rival, ours):
            figures[side].append(side())
    return Samples(tuple(figures[ours]), tuple(figures[rival]))


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


def describe_machine() -> dict[str, Any]:
    """Describe what the figures were taken on."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "load_average": round(os.getloadavg()[0], 2),
    }


def describe_versions() -> dict[str, str]:
    """List the versions of everything that is compared."""
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


def build_document(
    name: str, measured: Measured, *, machine: Mapping[str, Any], versions: Mapping[str, str]
) -> dict[str, Any]:
    """Build the content of a row's file."""
    return {
        "name": name,
        "value": measured.value,
        "unit": measured.unit,
        "rival": measured.rival,
        "rival_value": measured.rival_value,
        "ratio": measured.ratio,
        "bars": [
            {"bar": str(bar), "holds": bar not in measured.missed, "judged": bar not in measured.unjudged}
            for bar in measured.bars
        ],
        "holds": not measured.missed,
        "spread": {of: {"from": low, "to": high} for of, (low, high) in measured.spreads.items()},
        "runs": {"ours": measured.samples.ours, "rival": measured.samples.rival},
        "details": dict(measured.details),
        "conditions": measured.conditions,
        "machine": dict(machine),
        "versions": dict(versions),
    }


def print_table(documents: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print one line a row."""
    table = Table(
        "row", "ours", "rival", "unit", "ratio", "spread", "bars", title="ours against what one would use instead"
    )
    for column in (1, 2, 4, 5):
        table.columns[column].justify = "right"
    for document in documents:
        ratios = document["spread"]["ratio"]
        table.add_row(
            document["name"],
            _figure(document["value"]),
            _figure(document["rival_value"]),
            document["unit"],
            f"{document['ratio']:.2f}",
            f"{ratios['from']:.2f} to {ratios['to']:.2f}",
            "\n".join(bar["bar"] + _outcome(bar) for bar in document["bars"]),
            style="red" if any(bar["judged"] and not bar["holds"] for bar in document["bars"]) else None,
        )
    console.print(table)


def _outcome(bar: Mapping[str, Any]) -> str:
    if not bar["judged"]:
        return "  not judged"
    return "" if bar["holds"] else "  MISSED"


def _figure(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 1000 else f"{figure:.3g}"


def _processor() -> str:
    """Name the processor; `platform.processor` is empty on Linux."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
