"""One module a row: `measure(setup)` takes its figures. A row's name is its module's, with hyphens."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from tools.benchmarks.measuring import Measured
from tools.benchmarks.setup import Setup

ROW_NAMES = (
    "record",
    "route",
    "write",
    "write-floor",
    "read-16",
    "read-16-cpu",
    "read-16-tail",
    "read-items",
    "page-after-rush",
    "page-l1",
    "page-redis",
    "consumer",
    "cold-write",
    "cold-read",
    "table-put",
    "layer-size",
)


def find_row(name: str) -> Callable[[Setup], Measured]:
    """Import a row's module and return its `measure`. REQUIRES: one of `ROW_NAMES`."""
    module = importlib.import_module(f"tools.benchmarks.rows.{name.replace('-', '_')}")
    measure: Callable[[Setup], Measured] = module.measure
    return measure
