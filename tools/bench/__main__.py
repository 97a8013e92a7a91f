"""`make bench`: takes every row's figures, each in a process of its own with fresh servers, and prints one table."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tools.bench.measure import Measured, build_document, describe_machine, is_missed, print_table
from tools.bench.setup import ROOT, function_environment
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
OUT = ROOT / "out" / "bench"
WORK = OUT / "work"
START_SECONDS = 10.0


@asynccontextmanager
async def running_servers() -> AsyncIterator[tuple[int, int]]:
    """Start a DynamoDB stand-in and a Redis, and yield their ports."""
    redis, port = RedisServer(find_binary(os.environ), WORK / "redis", free_port()), free_port()
    redis.erase()
    with (WORK / "stand_in.log").open("wb") as log:
        stand_in = await start_process([sys.executable, "-m", "tools.bench.stand_in", str(port)], log=log, cwd=ROOT)
    try:
        await redis.start()
        if not await is_listening(stand_in, port, seconds=START_SECONDS):
            raise LocalRunError("the DynamoDB stand-in does not start")
        yield port, redis.port
    finally:
        await redis.kill()
        await kill(stand_in)


async def take_figures(name: str) -> None:
    """Measure a row in this process, and write its file."""
    machine = describe_machine()
    async with running_servers() as ports:
        # Before the row's module is imported: the functions read it as they would in Lambda.
        os.environ.update(function_environment(*ports))
        module, function = ROWS[name].split(".")
        measure: Callable[[], Measured] = getattr(importlib.import_module(f"tools.bench.{module}"), function)
        # In a thread, since cold starts have a loop of their own; this one waits meanwhile.
        document = build_document(name, await asyncio.to_thread(measure), machine)
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
    print(f"{name}: ratio {document['ratio']:.2f} ({time.monotonic() - started:.0f} s)", flush=True)
    return document


def main(arguments: Sequence[str]) -> int:
    """Measure rows and print the table; the status says whether all ran, with --strict whether no bar was missed."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description=main.__doc__)
    parser.add_argument("--only", action="append", choices=ROWS, metavar="NAME", help="measure this row alone")
    parser.add_argument("--strict", action="store_true", help="a missed bar is a failure")
    parser.add_argument("--row", choices=ROWS, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    WORK.mkdir(parents=True, exist_ok=True)
    if chosen.row:
        asyncio.run(take_figures(chosen.row))
    documents: list[Mapping[str, Any] | None] = [measure_row(name) for name in chosen.only or ROWS]
    measured = [document for document in documents if document is not None]
    print_table(measured)
    is_any_missed = any(is_missed(bar) for document in measured for bar in document["bars"])
    return int(len(measured) < len(documents) or (chosen.strict and is_any_missed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
