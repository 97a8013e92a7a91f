"""`make demo`: a chat workload against the local run; one conversation gets hot, and every message is checked."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from tools.figures import MISSED, say_bars
from tools.play.report import Run
from tools.play.run import Plan, demonstrate
from tools.play.scale import WorkloadError, choose_scale, measure_speed
from tools.play.stack import BROKEN, StackError
from tools.play.verdict import Judgement
from tools.play.watch import ControlError
from tools.play.workload import DEFAULT_DURATION_SECONDS, generate_workload, read_messages_file, replay_workload

INTERRUPTED = 130
READ_RUSH_SECONDS = 6.0
LONGEST_SECONDS = 86_400


def parse_arguments(arguments: Sequence[str], environ: Mapping[str, str]) -> argparse.Namespace:
    """Parse the command line; `MESSAGES` in the environment names a file as `--messages` does."""
    parser = argparse.ArgumentParser(prog="make demo", description="Show a hot conversation being spread.")
    parser.add_argument(
        "--messages",
        type=Path,
        default=Path(environ["MESSAGES"]) if environ.get("MESSAGES") else None,
        metavar="FILE",
        help="replay this .jsonl or .jsonl.gz file instead of the generated workload (also: MESSAGES)",
    )
    parser.add_argument("--environment", choices=("dev", "lite"), default="dev", help="which one is shown (dev)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the workload and the clients (1)")
    parser.add_argument("--duration", type=positive, default=DEFAULT_DURATION_SECONDS, metavar="SECONDS")
    parser.add_argument("--out", type=Path, default=Path("out/demo"), metavar="DIR", help="where the results go")
    return parser.parse_args(arguments)


def positive(text: str) -> float:
    """Parse a number that is more than 0, and at most the seconds of a day."""
    value = float(text)
    if not 0 < value <= LONGEST_SECONDS:
        raise argparse.ArgumentTypeError(f"should be more than 0 and at most {LONGEST_SECONDS}")
    return value


def build_plan(options: argparse.Namespace, cores: int, speed: float) -> Plan:
    """Build the plan of a demonstration, from a file of messages if one is given."""
    duration = options.duration
    if options.messages is None:
        scale = choose_scale(cores=cores, speed=speed)
        workload = generate_workload(seed=options.seed, scale=scale, duration_seconds=duration)
    else:
        found = read_messages_file(options.messages)
        scale = choose_scale(cores=cores, speed=speed, largest_conversation=len(found[0][1]))
        workload = replay_workload(found, name=options.messages.name, scale=scale, duration_seconds=duration)
    return Plan(
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


def main(arguments: Sequence[str]) -> int:
    """Run a demonstration and give the exit status."""
    return present(partial(build_plan, parse_arguments(arguments, os.environ)), name="demo")


def present(build: Callable[[int, float], Plan], *, name: str) -> int:
    """Build a plan for this machine's cores at their speed, carry it out, say its outcome, and give the exit status."""
    console = Console(highlight=False, soft_wrap=True)
    try:
        cores = usable_cores()
        plan = build(cores, measure_speed(cores))
        run, judgement = asyncio.run(stoppable(plan, console))
    except* (WorkloadError, StackError, ControlError) as group:
        print(f"{name}: {_first(group)}", file=sys.stderr)
        status = BROKEN
    except* (KeyboardInterrupt, asyncio.CancelledError):
        print(f"{name}: interrupted, everything was stopped", file=sys.stderr)
        status = INTERRUPTED
    else:
        status = say_outcome(run, judgement, plan, console)
    return status


def usable_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


async def stoppable(plan: Plan, console: Console) -> tuple[Run, Judgement]:
    """Carry out a plan; Ctrl-C, SIGTERM and a closed terminal all stop everything, in the background as well."""
    task = asyncio.ensure_future(demonstrate(plan, console=console, now=steady_clock()))
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(ending, task.cancel)
    return await task


def steady_clock() -> Callable[[], float]:
    """Build a clock that reads like the wall clock and never goes back: the history's order depends on it."""
    offset = time.time() - time.monotonic()
    return lambda: offset + time.monotonic()


def say_outcome(run: Run, judgement: Judgement, plan: Plan, console: Console) -> int:
    """Print the bars and the verdict, and whatever explains a failure; give the exit status."""
    passed = judgement.verdict == "pass"
    say_bars(judgement.bars)
    if judgement.not_judged:
        console.print(f"not judged: {', '.join(judgement.not_judged)}", style="yellow")
    for found in run.history.examples:
        console.print(f"     {found.fault}: {found.conversation_id} {found.message_id}: {found.detail}", markup=False)
    if not passed:
        notes = [f"unexpected: {note}" for note in run.played.writer.recorder.notes]
        for text in (*notes, f"what the functions said: {plan.out_dir / 'local' / 'logs'}"):
            console.print(f"     {text}", markup=False)
    console.print(run.machine.describe(), style="" if run.machine.kept_up else "yellow")
    console.print(
        f"verdict: [bold {'green' if passed else 'red'}]{judgement.verdict}[/] after "
        f"{run.figures['duration_seconds']:.0f} s; {plan.summary_file}, {plan.report_file}",
    )
    return 0 if passed else MISSED


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
