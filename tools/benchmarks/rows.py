"""The rows, and how one is measured: in a process of its own, which `python -m tools.benchmarks` starts."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
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
    "page-l1": "pages.measure_l1",
    "page-redis": "pages.measure_redis",
    "consumer": "consumer.measure_consumer",
    "cold-write": "cold.measure_write",
    "cold-read": "cold.measure_read",
    "cold-write-lite": "cold.measure_write_lite",
    "table-put": "tables.measure_put",
    "table-put-curl": "tables.measure_put_curl",
    "table-update": "tables.measure_update",
    "table-query-8": "tables.measure_query",
    "table-query-8-curl": "tables.measure_query_curl",
}
"""Each row's name, and the function that takes its figures."""


def find_row(name: str) -> Callable[[Setup], Measured]:
    """Import a row's module, and nothing else that is measured; return its function. REQUIRES: one of `ROWS`."""
    module, function = ROWS[name].split(".")
    measure: Callable[[Setup], Measured] = getattr(importlib.import_module(f"tools.benchmarks.{module}"), function)
    return measure


def main(name: str, out_dir: str, surroundings: str) -> None:
    """Measure a row and write its file; `surroundings` are the fields of a `Setup`, as JSON."""
    machine, setup = describe_machine(), Setup(**json.loads(surroundings))
    # Before the row's module is imported: the functions read it as they would in Lambda.
    os.environ.update(function_environment(setup.dynamodb_port, setup.redis_port))
    measured = find_row(name)(setup)
    document = build_document(name, measured, machine=machine, versions=describe_versions())
    write_document(Path(out_dir), document)
    sys.stdout.flush()
    os._exit(0)  # idle threads of what was measured would be waited for


if __name__ == "__main__":
    main(*sys.argv[1:])
