"""`make acceptance`: `hotpartition check` against a local run of its own, as it ends a deployment.

Writes `out/check/summary.json`, the check's own report; the exit status is its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hotpartition_cli.check import check
from hotpartition_cli.outcomes import Outcome
from hotpartition_cli.screen import Screen
from hotpartition_cli.stacks import LocalStack
from tools.play.stack import BROKEN, Stack, StackError, environment_options

PATIENT = {"registry_connect_timeout_ms": 5_000, "registry_command_timeout_ms": 5_000}
"""How fast this machine's Redis responds is not what is checked."""


async def accept(out_dir: Path) -> Mapping[str, Any]:
    """Start a local run whose Redis asks for TLS and a user, as on AWS, and check it."""
    environments = environment_options("min", {"write_message": 2, "read_messages": 2})
    async with Stack(out_dir, "--redis-auth", "--settings", json.dumps(PATIENT), *environments) as stack:
        ready = await stack.ready()
        local = LocalStack(ready["control_url"])
        outcome = await asyncio.to_thread(check, local, lambda _: None, wait_seconds=30.0)
    return {**outcome.document, "python": platform.python_version()}


def main(arguments: Sequence[str]) -> int:
    """Check, print the table, and return 0 when everything passed."""
    parser = argparse.ArgumentParser(prog="python -m tools.play acceptance", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/check"), metavar="FOLDER")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        document = asyncio.run(accept(options.out))
    except StackError as error:
        print(error, file=sys.stderr)
        return BROKEN
    summary = options.out / "summary.json"
    summary.write_text(json.dumps(document, indent=2) + "\n")
    Screen(as_json=False).show("check", Outcome(document))
    print(summary)
    return 0 if document["passed"] else 1
