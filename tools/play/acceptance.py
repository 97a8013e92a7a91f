"""`make acceptance`: `hotpartition check` against a local run of its own, as it ends a deployment.

Writes `out/check/summary.json`, the check's own report; the exit status is its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform

from hotpartition_cli.callers import open_local
from hotpartition_cli.check import check
from hotpartition_cli.outcomes import Outcome
from hotpartition_cli.screen import Screen
from tools.figures import MISSED
from tools.play.stack import running_stack

ENVIRONMENTS = {"write_message": 2, "read_messages": 2}
PATIENT = {"registry_connect_timeout_ms": 5_000, "registry_command_timeout_ms": 5_000}
"""How fast this machine's Redis responds is not what is checked."""


async def run(options: argparse.Namespace) -> int:
    """Check a local run whose Redis asks for TLS and a user, as on AWS, and print the table."""
    async with running_stack(options.out, redis="guarded", settings=PATIENT, min_environments=ENVIRONMENTS) as control:
        local = open_local(control.url)
        outcome = await asyncio.to_thread(check, local, lambda _: None, wait_seconds=30.0)
    document = {**outcome.document, "python": platform.python_version()}
    summary = options.out / "summary.json"
    summary.write_text(json.dumps(document, indent=2) + "\n")
    Screen(as_json=False).show("check", Outcome(document))
    print(summary)
    return 0 if document["passed"] else MISSED
