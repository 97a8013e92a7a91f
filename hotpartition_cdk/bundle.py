"""Builds the content of the layers, for the functions' Python and architecture, without Docker.

The dependency layer: the parts of the locked packages that functions use. The layers of sources: the library, and code
built on it. All with bytecode where an interpreter of the functions' version is at hand. A built layer stays in a
cache, in a folder named by everything that it depends on, with a digest of its content. An unchanged folder is used
again, so a second synthesis needs neither network nor pip; one that was changed since is built again.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import hotpartition
from hotpartition_cdk.bytecode import Interpreter
from hotpartition_cdk.configuration import LayerTarget
from hotpartition_cdk.errors import ConfigurationError
from hotpartition_cdk.pruning import PRUNING, prune, source_only_pattern

LOCK = Path(__file__).resolve().parent / "dependencies" / "requirements.txt"
"""The packages that the construct's functions use, with versions and hashes."""

CLIENT_PACKAGES = frozenset({"redis"})
"""The ones that an adaptive `ShardedTable` needs in a function of the user's. Without boto3: Lambda's own has all its
services, and a layer would come before it."""

LIBRARY = Path(hotpartition.__file__).resolve().parent
"""The library's own code, wherever it is installed."""

SIGN_SECONDS = 10.0
BUNDLER_VERSION = 4
"""Raise this when the same lock file shall give other content."""

_DIGEST = "content.sha256"
"""File in a finished build that names its content."""

PipRunner = Callable[[Sequence[str]], None]
"""Runs pip with these arguments; raises `PipError`."""


class PipError(Exception):
    """pip failed; the message is pip's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencyBundle:
    """One build of the dependency layer.

    Without an interpreter there is no bytecode; `only` names the packages of the lock that are wanted, None all.
    """

    lock: Path
    target: LayerTarget
    cache: Path
    interpreter: Interpreter | None = None
    only: frozenset[str] | None = None

    @property
    def key(self) -> str:
        """Name the content: a hash over all it depends on, the same on every machine."""
        facts = {
            "bundler": BUNDLER_VERSION,
            "pruning": PRUNING,
            **self.target.model_dump(),
            "bytecode": self.interpreter and self.interpreter.magic,
        }
        return hashlib.sha256(f"{json.dumps(facts, sort_keys=True)}\0{self._read_lock()}".encode()).hexdigest()

    @property
    def folder(self) -> Path:
        """Where the finished build is: an asset root that contains `python/`."""
        # No dots in the name: the CDK would take the rest after one for a file's extension.
        python = self.target.python_version.replace(".", "")
        return self.cache / f"dependencies-{self.target.architecture}-python{python}-{self.key[:16]}"

    def build(self, run_pip: PipRunner) -> Path:
        """Build the layer unless it is there already, and return its folder.

        Raises:
            ConfigurationError: when pip fails; nothing is left behind then.
        """
        try:
            return _build_once(self.folder, partial(self._fill, run_pip=run_pip))
        except PipError as error:
            raise ConfigurationError(
                f"the dependency layer for Python {self.target.python_version} on {self.target.architecture} could not"
                f" be built from {self.lock.name}: {error}; synthesize once where the package index can be reached"
            ) from error

    def pip_arguments(self, folder: Path, lock: Path) -> list[str]:
        """Build pip's command line.

        `--no-deps`: the lock is complete, and pip would judge the packages' own conditions by the Python it runs on.
        """
        arguments = ["install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-compile", "--no-deps"]
        arguments += ["--only-binary=:all:", "--require-hashes"]
        if self.target.wheel_platforms:
            arguments += [f"--platform={tag}" for tag in self.target.wheel_platforms]
            arguments += ["--implementation", "cp", "--python-version", self.target.python_version]
        return [*arguments, "--target", str(folder), "--requirement", str(lock)]

    def _fill(self, draft: Path, *, run_pip: PipRunner) -> None:
        wanted = draft / self.lock.name
        wanted.write_text(self._read_lock())
        run_pip(self.pip_arguments(draft / "python", wanted))
        wanted.unlink()
        prune(draft / "python")
        if self.interpreter is not None:
            self.interpreter.compile(draft, without=source_only_pattern())

    def _read_lock(self) -> str:
        """Read the lock, or those entries of it that are wanted: `name==version` and hashes in indented lines."""
        text = self.lock.read_text()
        if self.only is None:
            return text
        entries = re.findall(r"^\S+==.*(?:\n[ \t]+.*)*\n?", text, flags=re.MULTILINE)
        return "".join(entry for entry in entries if entry.partition("==")[0] in self.only)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceBundle:
    """One build of a layer of a package of sources, and of their bytecode where there is an interpreter for it."""

    package: Path
    cache: Path
    interpreter: Interpreter | None

    @property
    def key(self) -> str:
        """Name the content, the same on every machine."""
        digest = hashlib.sha256(f"{BUNDLER_VERSION} {self.interpreter and self.interpreter.magic}".encode())
        for file in self._sources():
            digest.update(f"\0{self._place(file)}\0".encode() + file.read_bytes())
        return digest.hexdigest()

    def build(self) -> Path:
        """Build the layer unless it is there already, and return its folder."""
        return _build_once(self.cache / f"{self.package.name}-{self.key[:16]}", self._fill)

    def _fill(self, draft: Path) -> None:
        for file in self._sources():
            place = draft / self._place(file)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)
        if self.interpreter is not None:
            self.interpreter.compile(draft)

    def _place(self, file: Path) -> Path:
        return Path("python", self.package.name, file.relative_to(self.package))

    def _sources(self) -> list[Path]:
        return sorted(path for path in self.package.rglob("*") if path.suffix == ".py" or path.name == "py.typed")


def find_cache(environ: Mapping[str, str]) -> Path:
    """Find the folder of this user's finished builds, which all projects share."""
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hotpartition" / "layers"


def run_pip(arguments: Sequence[str]) -> None:
    """Run the pip of this interpreter.

    Raises:
        PipError: with the last line that pip wrote about the failure.
    """
    command = [sys.executable, "-m", "pip", *arguments]
    sys.stderr.write("hotpartition: downloading the packages of a layer, once; it may take minutes\n")
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # noqa: S603 - fixed
    with process:
        while True:
            try:
                _, said = process.communicate(timeout=SIGN_SECONDS)
                break
            except subprocess.TimeoutExpired:
                sys.stderr.write(f"hotpartition: still at it, {time.monotonic() - began:.0f} s\n")
    if process.returncode:
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR:")] or lines
        raise PipError(errors[-1] if errors else f"pip ended with status {process.returncode}")


def _make_readable(folder: Path) -> None:
    """Let the user that Lambda runs as read everything."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def read_digest(folder: Path) -> str:
    """Read the digest of a finished build's content, by which Lambda's layers differ."""
    return (folder / _DIGEST).read_text()


def _digest(folder: Path) -> str:
    """Sum up names and content of all files but the digest's own."""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != _DIGEST):
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        digest.update(f"{file.relative_to(folder).as_posix()}\0{content}\0".encode())
    return digest.hexdigest()


def _is_whole(folder: Path) -> bool:
    return (folder / _DIGEST).is_file() and read_digest(folder) == _digest(folder)


def _build_once(folder: Path, fill: Callable[[Path], None]) -> Path:
    """Fill a draft and put it in its place in one step, unless it is there; a failure leaves nothing behind."""
    if _is_whole(folder):
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=folder.parent))
    try:
        fill(draft)
        (draft / _DIGEST).write_text(_digest(draft))
        _make_readable(draft)
        draft.rename(folder)
    except OSError:
        # A build at the same time has put the same content there.
        if not _is_whole(folder):
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder
