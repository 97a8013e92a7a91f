"""Builds the layers in advance: `python -m infra.bundle`. A synthesis then needs neither network nor uv."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from hotpartition_cdk.bundle import LOCK, DependencyBundle, Interpreter, find_interpreter, run_uv
from hotpartition_cdk.configuration import LayerTarget
from hotpartition_cdk.errors import ConfigurationError
from infra.config import load_environment
from infra.environments import ENVIRONMENT_NAMES

ROOT = Path(__file__).resolve().parent.parent

CACHE = ROOT / "build" / "layers"

MESSAGES = ROOT / "layers" / "messages" / "python" / "hotpartition_messages"


def main(arguments: Sequence[str]) -> str | None:
    """Build the dependency layers of the named environments; return what went wrong, if anything."""
    parser = argparse.ArgumentParser(prog="python -m infra.bundle", description=main.__doc__)
    names = f"{', '.join(ENVIRONMENT_NAMES)} or one of your own"
    parser.add_argument("--environment", action="append", metavar="NAME", help=f"{names}; may be repeated")
    parser.add_argument("--find", metavar="VERSION", help="print where a Python of this version is, and build nothing")
    given = parser.parse_args(arguments)
    if given.find:
        found = find_interpreter(given.find)
        print(found.path if found else "")  # noqa: T201 - for the Makefile
        return None
    chosen: list[str] = given.environment or ["local"]
    try:
        for name in chosen:
            target = load_environment(name, ROOT).target
            interpreter = find_interpreter(target.python_version, may_fetch=True)
            bundle = DependencyBundle(lock=LOCK, target=target, cache=CACHE, interpreter=interpreter)
            folder = bundle.build(run_uv)
            print(f"{name}: {folder.relative_to(ROOT)}{_say_bytecode(target, interpreter)}")  # noqa: T201 - for people
    except ConfigurationError as error:
        return str(error)
    return None


def _say_bytecode(target: LayerTarget, interpreter: Interpreter | None) -> str:
    if interpreter is None:
        version = target.python_version
        return (
            f", without bytecode: no Python {version} was found here and none could be fetched, so cold starts compile"
            f" it. Put python{version} on the PATH (`uv python install {version}` does) and run this again"
        )
    return f", with bytecode of Python {target.python_version}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
