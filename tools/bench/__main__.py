"""`make bench`: takes every row's figures, each in a process of its own with fresh servers, and prints a line."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tools.bench.measure import Measured, build_document, describe_machine, is_missed, say
from tools.bench.setup import ROOT, function_environment
from tools.local.processes import free_port, serving
from tools.local.redis import running_redis

ROWS = {
    "record": "calls.measure_record",
    "route": "calls.measure_route",
    "write": "calls.measure_write",
    "write-floor": "calls.measure_floor",
    "read-16": "pages.measure_time",
    "read-16-cpu": "pages.measure_cpu",
    "page-l1": "pages.measure_l1",
    "page-redis": "pages.measure_redis",
    "item-l1": "tables.measure_item",
    "item-redis": "tables.measure_item_redis",
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
OUT = ROOT / "out" / "bench"
WORK = OUT / "work"


@contextmanager
def running_servers() -> Iterator[tuple[int, int]]:
    """Start a DynamoDB stand-in and a Redis, and yield their ports."""
    port = free_port()
    command = [sys.executable, "-m", "tools.bench.stand_in", str(port)]
    with (
        TemporaryDirectory() as folder,
        serving("the DynamoDB stand-in", command, port, ROOT),
        running_redis(Path(folder)) as redis,
    ):
        yield port, redis.port


def take_figures(name: str) -> None:
    """Measure a row in this process, and write its file."""
    machine = describe_machine()
    with running_servers() as ports:
        # Before the row's module is imported: the functions read it as they would in Lambda.
        os.environ.update(function_environment(*ports))
        module, function = ROWS[name].split(".")
        measure: Callable[[], Measured] = getattr(importlib.import_module(f"tools.bench.{module}"), function)
        document = build_document(name, measure(), machine)
    (OUT / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n")
    sys.stdout.flush()
    os._exit(0)  # idle threads of what was measured would be waited for


def measure_row(name: str) -> dict[str, Any] | None:
    """Measure one row and return its document, or None when it failed; its error is on stderr then."""
    started, log_path, path = time.monotonic(), WORK / f"{name}.log", OUT / f"{name}.json"
    path.unlink(missing_ok=True)  # a row that fails leaves nothing behind that looks like its own
    with log_path.open("wb") as log:  # the functions' metrics and log lines
        command = [sys.executable, "-m", "tools.bench", "--row", name]
        status = subprocess.run(command, stdout=log, stderr=log, cwd=ROOT, check=False).returncode
    if status:
        print(f"{name} failed:\n{log_path.read_text(errors='replace')[-4000:]}", file=sys.stderr)
        return None
    document: dict[str, Any] = json.loads(path.read_text())
    print(f"{say(document)} ({time.monotonic() - started:.0f} s)", flush=True)
    return document


def main(arguments: Sequence[str]) -> int:
    """Measure rows, a line each; the status says whether all ran, with --strict whether no bar was missed."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description=main.__doc__)
    parser.add_argument("--only", action="append", choices=ROWS, metavar="NAME", help="measure this row alone")
    parser.add_argument("--strict", action="store_true", help="a missed bar is a failure")
    parser.add_argument("--row", choices=ROWS, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    WORK.mkdir(parents=True, exist_ok=True)
    if chosen.row:
        take_figures(chosen.row)
    documents: list[Mapping[str, Any] | None] = [measure_row(name) for name in chosen.only or ROWS]
    measured = [document for document in documents if document is not None]
    is_any_missed = any(is_missed(bar) for document in measured for bar in document["bars"])
    return int(len(measured) < len(documents) or (chosen.strict and is_any_missed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
