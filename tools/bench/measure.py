"""How a figure is taken and kept: interleaved runs of ours and the rival's, their medians, and the bars they must hold.

One JSON file a row (`out/bench/<name>.json`), and a line on the screen.
"""

from __future__ import annotations

import gc
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from operator import ge, le
from pathlib import Path
from statistics import median
from typing import Any

PACKAGES = ("aws-lambda-powertools", "awslambdaric", "boto3", "botocore", "pydantic", "pydynox", "redis", "urllib3")
VALUES = ("value", "rival_value")
RUNS = 5
"""Of each side: enough to leave the most disturbed one at either end out of the spread."""
MICROSECONDS = 1e6
COLLECTED = "the garbage collector is on, and has just collected when a batch begins; one batch of each side warms up"
CPU = f"CPU of the measuring process only, all its threads (time.process_time); {COLLECTED}"
WALL = f"wall time (time.perf_counter); {COLLECTED}"

Samples = Sequence[tuple[float, float]]
"""Ours and the rival's figure of each run: both sides of a run met the same machine."""
Work = Callable[[int], object]
"""Makes the call with this number."""
Clock = Callable[[], float]


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


def interleave(ours: Callable[[], float], rival: Callable[[], float]) -> Samples:
    """Run both sides by turns, so that a drift of the machine meets both alike; who begins changes with each run.

    To warm up, each side runs once more before, and is not counted.
    """
    ours()
    rival()
    taken = []
    for run in range(RUNS):
        if run % 2:
            second, first = rival(), ours()
        else:
            first, second = ours(), rival()
        taken.append((first, second))
    return taken


def mean_us(work: Work, count: int, clock: Clock = time.process_time) -> float:
    """Measure a call: the mean of many, one after the other."""
    gc.collect()
    started = clock()
    for number in range(count):
        work(number)
    return (clock() - started) / count * MICROSECONDS


def compare(
    ours: Work,
    rival: Work,
    count: int,
    *,
    rival_name: str,
    conditions: str,
    clock: Clock = time.process_time,
    more: int = 1,
    **bars: Mapping[str, float],
) -> Measured:
    """Measure the mean of `count` calls on both sides; the library's side makes `more` times as many."""
    is_cpu = clock is time.process_time
    return Measured(
        unit="us of CPU" if is_cpu else "us",
        rival=rival_name,
        samples=interleave(lambda: mean_us(ours, count * more, clock), lambda: mean_us(rival, count, clock)),
        conditions=f"{CPU if is_cpu else WALL}; mean of {count} calls; {conditions}",
        **bars,
    )


def list_ratios(samples: Samples) -> list[float]:
    """List ours as a share of the rival's, run by run."""
    return [ours / rival for ours, rival in samples]


def build_document(name: str, measured: Measured, machine: Mapping[str, Any]) -> dict[str, Any]:
    """Build the content of a row's file: the medians of the runs, and of their ratios; where runs lie; the bars."""
    ours, rival = zip(*measured.samples, strict=True)
    runs = {"value": ours, "ratio": list_ratios(measured.samples)}
    figures = {**measured.details, **{of: median(values) for of, values in runs.items()}}
    spreads = {of: _spread(values) for of, values in runs.items()}
    return {
        "name": name,
        "value": figures["value"],
        "unit": measured.unit,
        "rival": measured.rival,
        "rival_value": median(rival),
        "ratio": figures["ratio"],
        "bars": list(_hold(measured, figures, spreads)),
        "spread": {of: {"from": low, "to": high} for of, (low, high) in spreads.items()},
        "runs": {"ours": ours, "rival": rival},
        "details": dict(measured.details),
        "conditions": measured.conditions,
        "machine": dict(machine),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
    }


def _spread(runs: Sequence[float]) -> tuple[float, float]:
    """Return the smallest and the largest run, but for one on each side, which may have been disturbed."""
    ordered = sorted(runs)
    return ordered[1], ordered[-2]


def _hold(
    measured: Measured, figures: Mapping[str, float], spreads: Mapping[str, tuple[float, float]]
) -> Iterator[dict[str, Any]]:
    """Hold the figures; a bar within the spread of what it is on is not judged: other runs could decide otherwise."""
    for sign, holds, limits in (("<=", le, measured.at_most), (">=", ge, measured.at_least)):
        for of, limit in limits.items():
            low, high = spreads.get(of, (limit, limit))
            judged = not low < limit < high
            yield {"bar": f"{of} {sign} {limit:,g}", "holds": holds(figures[of], limit), "judged": judged}


def is_missed(bar: Mapping[str, Any]) -> bool:
    """Say whether a bar of a row's file was judged and missed."""
    return bool(bar["judged"] and not bar["holds"])


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


def say(document: Mapping[str, Any]) -> str:
    """Put a row into words: both figures, their ratio and where its runs lie, and the bars."""
    ours, rival = (f"{document[of]:,.0f}" if document[of] >= 1000 else f"{document[of]:.3g}" for of in VALUES)
    low, high = document["spread"]["ratio"].values()
    figures = f"ratio {document['ratio']:.2f} ({low:.2f} to {high:.2f}), {ours} against {rival} {document['unit']}"
    return f"{document['name']}: {figures}; {', '.join(map(_say_bar, document['bars']))}"


def _say_bar(bar: Mapping[str, Any]) -> str:
    outcome = " MISSED" if is_missed(bar) else "" if bar["judged"] else " not judged"
    return f"{bar['bar']}{outcome}"
