"""`python -m tools.patterns`: the command."""

from __future__ import annotations

import sys

from tools.patterns.study import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
