"""`make demo`: a chat workload against the local run; one conversation gets hot, and every message is checked.

`MESSAGES` in the environment names a .jsonl or .jsonl.gz file, which is replayed instead of the generated workload.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from tools.figures import MISSED, say_bars
from tools.play.run import Plan, carry_out
from tools.play.workload import choose_scale, generate_workload, measure_speed, read_messages_file, replay_workload

READ_RUSH_SECONDS = 6.0
MOST_NOTES = 20


async def run(options: argparse.Namespace) -> int:
    """Play the demonstration, from a file of messages if one is named."""
    cores, duration, messages = usable_cores(), options.duration, os.environ.get("MESSAGES")
    speed = measure_speed(cores)
    if messages:
        found = read_messages_file(Path(messages))
        scale = choose_scale(cores=cores, speed=speed, largest_conversation=len(found[0][1]))
        workload = replay_workload(found, name=Path(messages).name, scale=scale, duration_seconds=duration)
    else:
        scale = choose_scale(cores=cores, speed=speed)
        workload = generate_workload(seed=options.seed, scale=scale, duration_seconds=duration)
    plan = Plan(
        workload=workload,
        scale=scale,
        seed=options.seed,
        cores=cores,
        speed=speed,
        out_dir=options.out,
        environment=options.environment,
        read_rush_seconds=READ_RUSH_SECONDS,
        cools=True,
    )
    return await present(plan)


def usable_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def steady_clock() -> Callable[[], float]:
    """Build a clock that reads like the wall clock and never goes back: the history's order depends on it."""
    offset = time.time() - time.monotonic()
    return lambda: offset + time.monotonic()


async def present(plan: Plan) -> int:
    """Carry out a plan, print the bars and the verdict, and whatever explains a failure; give the exit status."""
    console = Console(highlight=False, soft_wrap=True)
    run = await carry_out(plan, console=console, now=steady_clock())
    judgement = run.judgement
    passed = judgement.verdict == "pass"
    say_bars(judgement.bars)
    if judgement.not_judged:
        console.print(f"not judged: {', '.join(judgement.not_judged)}", style="yellow")
    details = [f"{one.fault}: {one.conversation_id} {one.message_id}: {one.detail}" for one in run.history.examples]
    if not passed:
        details += [f"unexpected: {note}" for note in run.recorder.notes[:MOST_NOTES]]
        details.append(f"what the functions said: {plan.out_dir / 'local' / 'logs'}")
    for detail in details:
        console.print(f"     {detail}", markup=False)
    console.print(run.machine.description, style="" if run.machine.kept_up else "yellow")
    console.print(
        f"verdict: [bold {'green' if passed else 'red'}]{judgement.verdict}[/] after "
        f"{run.seconds:.0f} s; {plan.summary_file}, {plan.report_file}",
    )
    return 0 if passed else MISSED
