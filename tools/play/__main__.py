"""`python -m tools.play demo | example | soak | detect | read | acceptance`: the exit status says whether it passed."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from tools.local.processes import LocalRunError
from tools.play.workload import DEFAULT_DURATION_SECONDS, WorkloadError

BROKEN, INTERRUPTED = 2, 130
"""Exit statuses when there was no run to judge, and when it was stopped."""


def up_to(most: int, number: type[int | float]) -> Callable[[str], float]:
    """Build what parses a number that is more than 0 and not too large."""

    def parse(text: str) -> float:
        with suppress(ValueError):
            if 0 < (value := number(text)) <= most:
                return value
        kind = "a whole number" if number is int else "a number"
        raise argparse.ArgumentTypeError(f"{text!r} should be {kind} that is more than 0 and at most {most:,}")

    return parse


SECONDS, TRIALS = up_to(86_400, float), up_to(1_000, int)
SEED = {"--seed": {"type": int, "default": 1, "help": "of the workload and the clients (1)"}}
PLAYED = {"--duration": {"type": SECONDS, "default": DEFAULT_DURATION_SECONDS, "help": "of the workload"}, **SEED}
ENVIRONMENT = {"choices": ("dev", "lite"), "default": "dev", "help": "which one is shown (dev)"}
WHEEL = {"type": Path, "required": True, "help": "hotpartition, as it is installed"}
SOAKED = {
    "--seconds": {"type": SECONDS, "default": 600.0, "help": "how long messages are written (600)"},
    "--seed": {"type": int, "help": "of load and faults; by default a new one"},
}
COMMANDS: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
    "demo": ("out/demo", {"--environment": ENVIRONMENT, **PLAYED}),
    "example": ("out/example", {"--wheel": WHEEL, **PLAYED}),
    "soak": ("out/soak", SOAKED),
    "detect": ("out/detect", {"--trials": {"type": TRIALS, "default": 20}, **SEED}),
    "read": ("out/read-trials", {"--trials": {"type": TRIALS, "default": 50}, **SEED}),
    "acceptance": ("out/check", {}),
}
"""Each command, where its results go, and its options; a module of its name runs it."""


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.play", description=__doc__)
    commands = parser.add_subparsers(dest="name", required=True)
    for name, (out, options) in COMMANDS.items():
        own = commands.add_parser(name)
        own.add_argument("--out", type=Path, default=Path(out), metavar="DIR", help=f"where the results go ({out})")
        for option, how in options.items():
            own.add_argument(option, **how)
    return parser.parse_args(arguments)


async def run(options: argparse.Namespace) -> int:
    """Run a command; Ctrl-C, SIGTERM and a closed terminal all stop everything, in the background as well."""
    task = asyncio.ensure_future(import_module(f"tools.play.{options.name}").run(options))
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(ending, task.cancel)
    status: int = await task
    return status


def main(arguments: Sequence[str]) -> int:
    """Run one of them, and give the exit status."""
    options = parse_arguments(arguments)
    try:
        status = asyncio.run(run(options))
    except* (WorkloadError, LocalRunError) as group:
        print(f"{options.name}: {_first(group)}", file=sys.stderr)
        status = BROKEN
    except* (KeyboardInterrupt, asyncio.CancelledError):
        print(f"{options.name}: interrupted, everything was stopped", file=sys.stderr)
        status = INTERRUPTED
    return status


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
