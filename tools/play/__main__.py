"""`python -m tools.play demo | example | soak | detect | read | acceptance`: the exit status says whether it passed."""

from __future__ import annotations

import sys
from importlib import import_module

PLAYS = ("demo", "example", "soak", "detect", "read", "acceptance")


def main(arguments: list[str]) -> int:
    """Run one of them, with its own arguments."""
    if not arguments or arguments[0] not in PLAYS:
        sys.stderr.write(f"usage: python -m tools.play {' | '.join(PLAYS)}\n")
        return 2
    name, *own = arguments
    status: int = import_module(f"tools.play.{name}").main(own)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
