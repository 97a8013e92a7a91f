"""`python -m tools.simulation <command>`: the simulator's commands; each has its own `--help`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

COMMANDS: Mapping[str, str] = {
    "compare": "tools.simulation.report:main",
    "faults": "tools.simulation.studies:study_messages",
    "table-faults": "tools.simulation.studies:study_tables",
    "faults-in-band": "tools.simulation.studies:study_messages_in_band",
    "table-faults-in-band": "tools.simulation.studies:study_tables_in_band",
    "table-faults-fold": "tools.simulation.studies:study_folds",
    "counters": "tools.simulation.studies:study_counters",
    "in-band": "tools.simulation.in_band:main",
    "step": "tools.simulation.studies:study_step",
    "replay": "tools.simulation.run:replay",
}
"""Each command's module and function; imported only when it is asked for, since some bring matplotlib along."""

MISUSED = 2


def main(arguments: Sequence[str]) -> int:
    """Run a command."""
    if not arguments or arguments[0] not in COMMANDS:
        sys.stderr.write(f"usage: python -m tools.simulation {{{','.join(COMMANDS)}}} ...\n")
        return MISUSED
    module, _, function = COMMANDS[arguments[0]].partition(":")
    run: Callable[[Sequence[str]], int] = getattr(import_module(module), function)
    return run(arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
