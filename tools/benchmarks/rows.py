"""The rows, and how one is measured: in a process of its own, which `python -m tools.benchmarks` starts."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tools.benchmarks.measuring import Measured
from tools.benchmarks.results import build_document, describe_machine, describe_versions, write_document
from tools.benchmarks.setup import Setup, function_environment

ROWS = {
    "record": "counting.measure_record",
    "route": "counting.measure_route",
    "write": "writes.measure_write",
    "write-floor": "writes.measure_floor",
    "read-16": "pages.measure_time",
    "read-16-cpu": "pages.measure_cpu",
    "read-16-tail": "tail.measure_tail",
    "read-items": "pages.measure_items",
    "page-after-rush": "pages.measure_rush",
    "page-l1": "pages.measure_l1",
    "page-redis": "pages.measure_redis",
    "consumer": "consumer.measure_consumer",
    "cold-write": "cold.measure_write",
    "cold-read": "cold.measure_read",
    "table-put": "writes.measure_table_put",
    "layer-size": "cold.measure_layers",
}
"""Each row's name, and the function that takes its figures."""


def find_row(name: str) -> Callable[[Setup], Measured]:
    """Import a row's module, and nothing else that is measured; return its function. REQUIRES: one of `ROWS`."""
    module, function = ROWS[name].split(".")
    measure: Callable[[Setup], Measured] = getattr(importlib.import_module(f"tools.benchmarks.{module}"), function)
    return measure


def main(arguments: Sequence[str]) -> None:
    """Measure a row and write its file."""
    parser = argparse.ArgumentParser(prog="python -m tools.benchmarks.rows", description=main.__doc__)
    parser.add_argument("name", choices=ROWS)
    parser.add_argument("--dynamodb-port", type=int, required=True)
    parser.add_argument("--redis-port", type=int, required=True)
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--effort", type=float, required=True)
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args(arguments)
    machine = describe_machine()
    # Before the row's module is imported: the functions read it as they would in Lambda.
    os.environ.update(function_environment(chosen.dynamodb_port, chosen.redis_port))
    setup = Setup(
        dynamodb_port=chosen.dynamodb_port, redis_port=chosen.redis_port, runs=chosen.runs, effort=chosen.effort
    )
    measured = find_row(chosen.name)(setup)
    write_document(chosen.out, build_document(chosen.name, measured, machine=machine, versions=describe_versions()))
    sys.stdout.flush()
    os._exit(0)  # idle threads of what was measured would be waited for


if __name__ == "__main__":
    main(sys.argv[1:])
