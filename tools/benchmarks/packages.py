"""Our layers as they are deployed, and the rivals' packages: the same versions, as pip installs them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from hotpartition_cdk.bundle import LIBRARY, LOCK, DependencyBundle, SourceBundle, run_pip
from hotpartition_cdk.bytecode import find_interpreter
from hotpartition_cdk.configuration import Host
from infra.bundle import CACHE, MESSAGES
from infra.environments import choose_environment
from tools.benchmarks.setup import ROOT


def build_layers() -> tuple[Path, ...]:
    """Build the layers of the API's functions for this machine, with the bytecode that is deployed."""
    target = choose_environment("local", Host.current()).target
    interpreter = find_interpreter(target.python_version, os.environ)
    ours = [
        SourceBundle(package=package, cache=CACHE, interpreter=interpreter).build() for package in (LIBRARY, MESSAGES)
    ]
    return *ours, DependencyBundle(lock=LOCK, target=target, cache=CACHE, interpreter=interpreter).build(run_pip)


def install_plain() -> Path:
    """Install boto3, redis, Powertools and pydantic, with all they need and all they bring; once for each lock file."""
    key = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:16]
    folder = ROOT / "build" / "bench" / f"plain-{key}"
    done = folder / ".complete"
    if not done.exists():
        arguments = ["install", "--quiet", "--disable-pip-version-check", "--no-input", "--upgrade", "--require-hashes"]
        run_pip([*arguments, "--target", str(folder / "python"), "--requirement", str(LOCK)])
        done.touch()
    return folder / "python"


def size_bytes(folder: Path, *, with_bytecode: bool = True) -> int:
    """Sum up the files of a folder."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files if with_bytecode or path.suffix != ".pyc")
