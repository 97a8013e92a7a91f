"""`python -m tools.scenarios <command>`: the simulator's commands; each has its own `--help`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

COMMANDS: Mapping[str, str] = {
    "compare": "tools.scenarios.report:main",
    "faults": "tools.scenarios.studies:study_messages",
    "table-faults": "tools.scenarios.studies:study_tables",
    "faults-in-band": "tools.scenarios.studies:study_messages_in_band",
    "table-faults-in-band": "tools.scenarios.studies:study_tables_in_band",
    "table-faults-fold": "tools.scenarios.studies:study_folds",
    "counters": "tools.scenarios.studies:study_counters",
    "in-band": "tools.scenarios.in_band:main",
    "step": "tools.scenarios.studies:study_step",
    "replay": "tools.world.run:replay",
}
"""Each command's module and function; imported only when it is asked for, since some bring matplotlib along."""

MISUSED = 2


def main(arguments: Sequence[str]) -> int:
    """Run a command."""
    if not arguments or arguments[0] not in COMMANDS:
        sys.stderr.write(f"usage: python -m tools.scenarios {{{','.join(COMMANDS)}}} ...\n")
        return MISUSED
    module, _, function = COMMANDS[arguments[0]].partition(":")
    run: Callable[[Sequence[str]], int] = getattr(import_module(module), function)
    return run(arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
