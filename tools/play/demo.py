"""`make demo`: a chat workload against the local run; one conversation gets hot, and every message is checked.

`MESSAGES` in the environment names a .jsonl or .jsonl.gz file, whose messages take the place of the generated ones.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from tools.play.run import Plan, present
from tools.play.workload import generate_workload, measure_scale, read_messages_file, replay_workload


async def run(options: argparse.Namespace) -> int:
    """Play the demonstration, from a file of messages if one is named."""
    file = os.environ.get("MESSAGES")
    found = read_messages_file(Path(file)) if file else ()
    scale = measure_scale(len(found[0][1]) if found else None)
    workload = generate_workload(seed=options.seed, scale=scale, duration_seconds=options.duration)
    if file:
        workload = replay_workload(workload, found, name=Path(file).name)
    plan = Plan(
        workload=workload,
        scale=scale,
        seed=options.seed,
        out_dir=options.out,
        environment=options.environment,
        is_whole=True,
    )
    return await present(plan)
