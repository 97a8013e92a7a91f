"""Bytecode for the functions' Python, compiled by an interpreter of that very version, if there is one here.

`python -m hotpartition_cdk.bytecode 3.13` prints where that interpreter is.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LAYER_ROOT = "/opt"
"""Where Lambda puts a layer's content; tracebacks name files there, on whatever machine they were compiled."""

_PROBE = (
    "import importlib.util, sys;"
    "print(*sys.version_info[:2], sys.version_info.releaselevel, importlib.util.MAGIC_NUMBER.hex())"
)


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python that compiles for a version. `magic` names the form of its bytecode."""

    path: str
    magic: str

    def compile(self, folder: Path, *, without: str = "") -> None:
        """Compile a layer's modules, but those whose path `without` (a regular expression) is found in.

        Unchecked: a layer's files never change, so nothing needs to compare them at import. A hash instead of a time,
        and no hash randomization: the same sources give the same bytes. Modules that this Python cannot read stay
        uncompiled.
        """
        arguments = ["-I", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
        arguments += ["-s", str(folder), "-p", LAYER_ROOT, *(["-x", without] if without else []), str(folder)]
        subprocess.run(  # noqa: S603 - fixed arguments
            [self.path, *arguments], check=False, capture_output=True, env={"PYTHONHASHSEED": "0"}
        )


@cache
def _probe(path: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - a Python of this machine
            [path, "-I", "-S", "-c", _PROBE], check=False, capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def find_interpreter(version: str, environ: Mapping[str, str]) -> Interpreter | None:
    """Find a released Python of a minor version such as `3.14`: this one, on the path, or among those of pyenv."""
    major, minor = version.split(".")
    for path in _candidates(version, environ):
        match _probe(path).split():
            case [found_major, found_minor, "final", magic] if (found_major, found_minor) == (major, minor):
                return Interpreter(path, magic)
    return None


def _candidates(version: str, environ: Mapping[str, str]) -> Iterator[str]:
    if f"{sys.version_info.major}.{sys.version_info.minor}" == version:
        yield sys.executable
    name = f"python{version}"
    for folder in environ.get("PATH", "").split(os.pathsep):
        # A shim of pyenv may be there and lead nowhere: it is tried, and the next one after it.
        if folder and (Path(folder) / name).is_file():
            yield str(Path(folder) / name)
    root = Path(environ.get("PYENV_ROOT") or Path(environ.get("HOME", "/")) / ".pyenv")
    yield from (str(path) for path in sorted((root / "versions").glob(f"{version}.*/bin/{name}"), reverse=True))


if __name__ == "__main__":
    # Prints the interpreter of a version, or nothing.
    found = find_interpreter(sys.argv[1], os.environ)
    print(found.path if found else "")  # noqa: T201 - for the Makefile
