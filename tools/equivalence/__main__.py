"""`python -m tools.equivalence`: the command."""

from __future__ import annotations

import sys

from tools.equivalence.study import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
