"""Measures one row in a process of its own, which `python -m tools.benchmarks` starts."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.benchmarks.results import build_document, describe_machine, describe_versions, write_document
from tools.benchmarks.rows import ROW_NAMES, find_row
from tools.benchmarks.setup import Setup, function_environment


def main(arguments: Sequence[str]) -> None:
    """Measure a row and write its file."""
    parser = argparse.ArgumentParser(prog="python -m tools.benchmarks.row", description=main.__doc__)
    parser.add_argument("name", choices=ROW_NAMES)
    parser.add_argument("--dynamodb-port", type=int, required=True)
    parser.add_argument("--redis-port", type=int, required=True)
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--effort", type=float, required=True)
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args(arguments)
    machine = describe_machine()
    # Before the row's module is imported: the functions read it as they would in Lambda.
    os.environ.update(function_environment(chosen.dynamodb_port, chosen.redis_port))
    setup = Setup(
        dynamodb_port=chosen.dynamodb_port, redis_port=chosen.redis_port, runs=chosen.runs, effort=chosen.effort
    )
    measured = find_row(chosen.name)(setup)
    write_document(chosen.out, build_document(chosen.name, measured, machine=machine, versions=describe_versions()))
    sys.stdout.flush()
    os._exit(0)  # idle threads of what was measured would be waited for


if __name__ == "__main__":
    main(sys.argv[1:])
