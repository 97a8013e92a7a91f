"""`python -m tools.simulation <command>`: the simulator's commands; each has its own `--help`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

COMMANDS: Mapping[str, str] = {
    "compare": "tools.simulation.report",
    "faults": "tools.simulation.fault_study",
    "table-faults": "tools.simulation.table_study",
    "counters": "tools.simulation.counter_study",
    "step": "tools.simulation.step_study",
    "replay": "tools.simulation.replay",
}
"""Each command's module; imported only when it is asked for, since some bring matplotlib along."""

MISUSED = 2


def main(arguments: Sequence[str]) -> int:
    """Run a command."""
    if not arguments or arguments[0] not in COMMANDS:
        sys.stderr.write(f"usage: python -m tools.simulation {{{','.join(COMMANDS)}}} ...\n")
        return MISUSED
    run: Callable[[Sequence[str]], int] = import_module(COMMANDS[arguments[0]]).main
    return run(arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
