"""How a figure is taken and kept: interleaved runs of ours and the rival's, their medians, and the bars they must hold.

One JSON file a row (`out/bench/<name>.json`), and one table of all.
"""

from __future__ import annotations

import gc
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from tools.bench.setup import Setup
from tools.figures import at_least, at_most

PACKAGES = ("aws-lambda-powertools", "awslambdaric", "boto3", "botocore", "pydantic", "pydynox", "redis", "urllib3")
WALL_CONDITIONS = (
    "wall time (time.perf_counter); the garbage collector is on, and has just collected when a batch begins; one batch "
    "of each side warms up and is not counted"
)
CPU_CONDITIONS = WALL_CONDITIONS.replace(
    "wall time (time.perf_counter)", "CPU of the measuring process only, all its threads (time.process_time)"
)
MILLISECONDS = 1e3
MICROSECONDS = 1e6
TRIMMED_RUNS = 5
"""From this many runs on, one disturbed run on either side does not count as spread."""

Samples = tuple[tuple[float, float], ...]
"""Ours and the rival's figure of each run: both sides of a run met the same machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One row as measured.

    `at_most` and `at_least` are its bars, by what they are on: "value", "ratio" or one of the `details`, which are
    further figures. `conditions` says how it was measured, for a reader who wants to repeat it.
    """

    unit: str
    rival: str
    samples: Samples
    conditions: str
    at_most: Mapping[str, float] = field(default_factory=dict)
    at_least: Mapping[str, float] = field(default_factory=dict)
    details: Mapping[str, float] = field(default_factory=dict)


def ratios(samples: Samples) -> list[float]:
    """List ours as a share of the rival's, run by run."""
    return [ours / rival for ours, rival in samples]


def spread(runs: Sequence[float]) -> tuple[float, float]:
    """Return the smallest and the largest run, but for one on each side where five or more leave enough to judge by."""
    ordered = sorted(runs)
    middle = ordered[1:-1] if len(ordered) >= TRIMMED_RUNS else ordered
    return middle[0], middle[-1]


def interleave(ours: Callable[[], float], rival: Callable[[], float], runs: int, *, warms_up: bool = True) -> Samples:
    """Run both sides by turns, so that a drift of the machine meets both alike; who begins changes with each run.

    To warm up, each side runs once more before, and is not counted.
    """
    if warms_up:
        ours()
        rival()
    taken = []
    for run in range(runs):
        if run % 2:
            second, first = rival(), ours()
        else:
            first, second = ours(), rival()
        taken.append((first, second))
    return tuple(taken)


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


Work = Callable[[int], object]
"""Makes the call with this number."""


def mean_of(
    work: Work, count: int, *, spent: Callable[[Callable[[], object]], float] = cpu_seconds, unit: float = MICROSECONDS
) -> Callable[[], float]:
    """Build what measures a call: the mean of many, one after the other."""
    return lambda: spent(lambda: [work(number) for number in range(count)]) / count * unit


def compare(
    setup: Setup,
    ours: Work,
    rival: Work,
    count: int,
    *,
    rival_name: str,
    at_most: Mapping[str, float],
    conditions: str,
    spent: Callable[[Callable[[], object]], float] = cpu_seconds,
    unit: float = MICROSECONDS,
    more: int = 1,
) -> Measured:
    """Measure the mean of `count` calls on both sides; the library's side makes `more` times as many."""
    our_mean = mean_of(ours, count * more, spent=spent, unit=unit)
    rival_mean = mean_of(rival, count, spent=spent, unit=unit)
    is_wall = spent is wall_seconds
    return Measured(
        unit=("ms" if unit == MILLISECONDS else "us") + ("" if is_wall else " of CPU"),
        rival=rival_name,
        samples=interleave(our_mean, rival_mean, setup.runs),
        at_most=at_most,
        conditions=f"{WALL_CONDITIONS if is_wall else CPU_CONDITIONS}; mean of {count} calls; {conditions}",
    )


def build_document(name: str, measured: Measured, machine: Mapping[str, Any]) -> dict[str, Any]:
    """Build the content of a row's file: the medians of the runs, and of their ratios; where runs lie; the bars."""
    ours, rival = zip(*measured.samples, strict=True)
    runs = {"value": ours, "ratio": ratios(measured.samples)}
    figures = {**measured.details, **{of: median(values) for of, values in runs.items()}}
    spreads = {of: spread(values) for of, values in runs.items()}
    bars = list(_build_bars(measured, figures, spreads))
    return {
        "name": name,
        "value": figures["value"],
        "unit": measured.unit,
        "rival": measured.rival,
        "rival_value": median(rival),
        "ratio": figures["ratio"],
        "bars": bars,
        "holds": all(bar["holds"] for bar in bars),
        "spread": {of: {"from": low, "to": high} for of, (low, high) in spreads.items()},
        "runs": {"ours": ours, "rival": rival},
        "details": dict(measured.details),
        "conditions": measured.conditions,
        "machine": dict(machine),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
    }


def _build_bars(
    measured: Measured, figures: Mapping[str, float], spreads: Mapping[str, tuple[float, float]]
) -> Iterator[dict[str, Any]]:
    """Hold the figures; a bar within the spread of what it is on is not judged: other runs could decide otherwise."""
    for sign, bound, limits in (("<=", at_most, measured.at_most), (">=", at_least, measured.at_least)):
        for of, limit in limits.items():
            bar = bound(f"{of} {sign} {limit:,g}", figures[of], limit, measured.unit)
            low, high = spreads.get(of, (limit, limit))
            yield {"bar": bar.name, "holds": bar.holds, "judged": not low < limit < high}


def describe_machine() -> dict[str, Any]:
    """Describe what figures are taken on; `platform.processor` is empty on Linux."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": next(iter(names), platform.processor()),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "load_average": round(os.getloadavg()[0], 2),
    }


def print_table(documents: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print one line a row."""
    columns = ("row", "ours", "rival", "unit", "ratio", "spread", "bars")
    table = Table(*columns, title="ours against what one would use instead")
    for document in documents:
        low, high = document["spread"]["ratio"].values()
        table.add_row(
            document["name"],
            _figure(document["value"]),
            _figure(document["rival_value"]),
            document["unit"],
            f"{document['ratio']:.2f}",
            f"{low:.2f} to {high:.2f}",
            "\n".join(bar["bar"] + _outcome(bar) for bar in document["bars"]),
            style="red" if any(map(is_missed, document["bars"])) else None,
        )
    console.print(table)


def is_missed(bar: Mapping[str, Any]) -> bool:
    """Say whether a bar of a row's file was judged and missed."""
    return bool(bar["judged"] and not bar["holds"])


def _outcome(bar: Mapping[str, Any]) -> str:
    return "  MISSED" if is_missed(bar) else "" if bar["judged"] else "  not judged"


def _figure(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 1000 else f"{figure:.3g}"
