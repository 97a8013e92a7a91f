"""`make bench`: takes every row's figures, each in a process of its own with fresh servers, and prints one table."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from tools.bench.measure import Measured, build_document, describe_machine, is_missed, print_table
from tools.bench.setup import ROOT, Setup, function_environment
from tools.local.processes import LocalRunError, free_port, is_listening, kill, start_process
from tools.local.redis import RedisServer, find_binary

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
OUT_DIR = ROOT / "out" / "bench"
RUNS = 5
_START_SECONDS = 10.0


def take_figures(name: str, out_dir: str, surroundings: str) -> None:
    """Measure a row in this process and write its file; `surroundings` are the fields of a `Setup`, as JSON."""
    machine, setup = describe_machine(), Setup(**json.loads(surroundings))
    # Before the row's module is imported: the functions read it as they would in Lambda.
    os.environ.update(function_environment(setup.dynamodb_port, setup.redis_port))
    module, function = ROWS[name].split(".")
    measure: Callable[[Setup], Measured] = getattr(importlib.import_module(f"tools.bench.{module}"), function)
    document = build_document(name, measure(setup), machine)
    (Path(out_dir) / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n")
    sys.stdout.flush()
    os._exit(0)  # idle threads of what was measured would be waited for


@asynccontextmanager
async def running_servers(work_dir: Path) -> AsyncIterator[tuple[int, int]]:
    """Start a DynamoDB stand-in and a Redis, and yield their ports."""
    work_dir.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - nothing else runs yet
    redis = RedisServer(find_binary(os.environ), work_dir / "redis", free_port())
    redis.erase()
    port = free_port()
    command = [sys.executable, "-m", "tools.bench.stand_in", str(port)]
    with (work_dir / "stand_in.log").open("wb") as log:
        stand_in = await start_process(command, log=log, cwd=ROOT)
    try:
        await redis.start()
        if not await is_listening(stand_in, port, seconds=_START_SECONDS):
            raise LocalRunError("the DynamoDB stand-in does not start")
        yield port, redis.port
    finally:
        await redis.kill()
        await kill(stand_in)


async def measure_row(name: str, *, runs: int, effort: float, out_dir: Path) -> dict[str, Any] | None:
    """Measure one row and return its document, or None when it failed; its error is on stderr then."""
    work_dir = out_dir / "work"
    (out_dir / f"{name}.json").unlink(missing_ok=True)
    async with running_servers(work_dir) as (dynamodb_port, redis_port):
        setup = Setup(dynamodb_port=dynamodb_port, redis_port=redis_port, runs=runs, effort=effort)
        command = [sys.executable, "-m", "tools.bench", "--row", name, str(out_dir), json.dumps(asdict(setup))]
        log_path = work_dir / f"{name}.log"  # the functions' metrics and log lines
        with log_path.open("wb") as log:
            process = await start_process(command, log=log, cwd=ROOT)
            try:
                status = await process.wait()
            finally:
                await kill(process)
    if status:
        print(f"{name} failed:\n{log_path.read_text(errors='replace')[-4000:]}", file=sys.stderr)
        return None
    document: dict[str, Any] = json.loads((out_dir / f"{name}.json").read_text())
    return document


async def measure_rows(names: Sequence[str], *, runs: int, effort: float, out_dir: Path) -> list[Mapping[str, Any]]:
    """Measure rows one after the other, a line for each; those that failed are left out."""
    documents: list[Mapping[str, Any]] = []
    for name in names:
        started = time.monotonic()
        document = await measure_row(name, runs=runs, effort=effort, out_dir=out_dir)
        outcome = "failed" if document is None else f"ratio {document['ratio']:.2f}"
        print(f"{name}: {outcome} ({time.monotonic() - started:.0f} s)", flush=True)
        documents += [] if document is None else [document]
    return documents


def main(arguments: Sequence[str]) -> int:
    """Measure rows and print the table; the status says whether all ran, with --strict whether no bar was missed."""
    if arguments[:1] == ["--row"]:
        take_figures(*arguments[1:])
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description=main.__doc__)
    parser.add_argument("--only", action="append", choices=ROWS, metavar="NAME", help="measure this row alone")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of each side (default %(default)s)")
    parser.add_argument("--effort", type=float, default=1.0, help="scales how much one run does (default 1.0)")
    parser.add_argument("--strict", action="store_true", help="a missed bar is a failure")
    parser.add_argument("--out", type=Path, default=OUT_DIR, help="folder for the results")
    chosen = parser.parse_args(arguments)
    names = chosen.only or list(ROWS)
    documents = asyncio.run(measure_rows(names, runs=chosen.runs, effort=chosen.effort, out_dir=chosen.out.resolve()))
    print_table(documents, Console())
    if len(documents) < len(names):
        return 1
    missed = any(is_missed(bar) for document in documents for bar in document["bars"])
    return int(chosen.strict and missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
