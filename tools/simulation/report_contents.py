"""What the report of `make simulate` is made of."""

from __future__ import annotations

from dataclasses import dataclass

from tools.simulation.read_rush import RushStudy
from tools.simulation.results import Comparison
from tools.simulation.scale import ScaleStudy
from tools.simulation.tuning import TuningStudy


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What a report is made of; `command` makes the same one again."""

    comparison: Comparison
    read_rush: RushStudy
    scale: ScaleStudy
    tuning: TuningStudy
    command: str
