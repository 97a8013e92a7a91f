"""Builds what the layers hold, for the functions' Python and architecture, without Docker.

The dependency layer: what the functions use of the locked packages. The routing and messages layers: our own code. All
with bytecode where an interpreter of the functions' version is at hand. What is built stays in `build/layers/`, in a
folder named by everything that it depends on. A folder that is there is complete, so a second synthesis needs neither
network nor pip. `python -m infra.bundle` fills it in advance.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.bytecode import Interpreter, find_interpreter
from infra.config import load_environment
from infra.environments import ENVIRONMENT_NAMES, LayerTarget
from infra.errors import ConfigurationError
from infra.pruning import PRUNING, prune, source_only_pattern

ROOT = Path(__file__).resolve().parent.parent

_CACHE = ROOT / "build" / "layers"

BUNDLER_VERSION = 3
"""Raise this when the same lock file shall give other content."""

_DROPPED_FOLDERS = frozenset({"__pycache__", "tests"})

_DROPPED_RECORDS = frozenset({"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"})
"""What pip notes for itself: useless where nothing is uninstalled. METADATA stays, for importlib.metadata."""

PipRunner = Callable[[Sequence[str]], None]
"""Runs pip with these arguments; raises `PipError`."""


class PipError(Exception):
    """pip failed; the message is what it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencyBundle:
    """One build of the dependency layer.

    Attributes:
        lock: The requirements file, with versions and hashes.
        target: What the packages are for.
        cache: Folder that holds finished builds.
        interpreter: Compiles the packages; None leaves their bytecode out.
    """

    lock: Path
    target: LayerTarget
    cache: Path
    interpreter: Interpreter | None = None

    @property
    def key(self) -> str:
        """Name the content: a hash over all it depends on, the same on every machine."""
        facts = {
            "bundler": BUNDLER_VERSION,
            "pruning": PRUNING,
            **self.target.model_dump(),
            "bytecode": _magic(self.interpreter),
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode() + b"\0" + self.lock.read_bytes()).hexdigest()

    @property
    def folder(self) -> Path:
        """Where the finished build is: an asset root that contains `python/`."""
        # No dots in the name: the CDK would take what follows one for a file's extension.
        python = self.target.python_version.replace(".", "")
        return self.cache / f"dependencies-{self.target.architecture}-python{python}-{self.key[:16]}"

    def build(self, run_pip: PipRunner) -> Path:
        """Build the layer unless it is there already, and return its folder.

        Raises:
            ConfigurationError: when pip fails; nothing is left behind then.
        """
        folder = self.folder
        if folder.is_dir():
            return folder
        self.cache.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=self.cache))
        try:
            run_pip(self.pip_arguments(draft / "python"))
            prune(draft / "python")
            _clean(draft)
            if self.interpreter is not None:
                self.interpreter.compile(draft, without=source_only_pattern())
                _clean(draft, dropped=frozenset())
            _publish(draft, folder)
        except PipError as error:
            raise ConfigurationError(
                f"the dependency layer for Python {self.target.python_version} on {self.target.architecture} could not"
                f" be built from {self.lock.name}: {error}; run `make build` where the package index can be reached"
            ) from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return folder

    def pip_arguments(self, folder: Path) -> list[str]:
        """Build pip's command line.

        `--no-deps`: the lock is complete, and pip would judge the packages' own conditions by the Python it runs on.
        """
        arguments = ["install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-compile", "--no-deps"]
        arguments += ["--only-binary=:all:", "--require-hashes"]
        if self.target.wheel_platforms:
            arguments += [f"--platform={tag}" for tag in self.target.wheel_platforms]
            arguments += ["--implementation", "cp", "--python-version", self.target.python_version]
        return [*arguments, "--target", str(folder), "--requirement", str(self.lock)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceBundle:
    """One build of a layer of our own code: the sources as they are, and their bytecode.

    Attributes:
        folder: The layer's sources, which contain `python/`.
        cache: Folder that holds finished builds.
        interpreter: Compiles them; None leaves the bytecode out.
    """

    folder: Path
    cache: Path
    interpreter: Interpreter | None

    @property
    def key(self) -> str:
        """Name the content, the same on every machine."""
        digest = hashlib.sha256(f"{BUNDLER_VERSION} {_magic(self.interpreter)}".encode())
        for file in self._sources():
            digest.update(f"\0{file.relative_to(self.folder)}\0".encode() + file.read_bytes())
        return digest.hexdigest()

    def build(self) -> Path:
        """Build the layer unless it is there already, and return its folder."""
        built = self.cache / f"{self.folder.name}-{self.key[:16]}"
        if built.is_dir():
            return built
        self.cache.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=self.cache))
        try:
            for file in self._sources():
                place = draft / file.relative_to(self.folder)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, place)
            if self.interpreter is not None:
                self.interpreter.compile(draft)
            _clean(draft, dropped=frozenset())
            _publish(draft, built)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return built

    def _sources(self) -> list[Path]:
        return sorted(path for path in self.folder.rglob("*") if path.suffix == ".py" or path.name == "py.typed")


def build_bundle(target: LayerTarget, interpreter: Interpreter | None = None) -> DependencyBundle:
    """Describe the project's own dependency layer for a target."""
    lock = ROOT / "layers" / "dependencies" / "requirements.txt"
    return DependencyBundle(lock=lock, target=target, cache=_CACHE, interpreter=interpreter)


def build_sources(layer: str, interpreter: Interpreter | None) -> SourceBundle:
    """Describe a layer of the project's own code: `routing` (the library) or `messages` (the API)."""
    return SourceBundle(folder=ROOT / "layers" / layer, cache=_CACHE, interpreter=interpreter)


def run_pip(arguments: Sequence[str]) -> None:
    """Run the pip of this interpreter.

    Raises:
        PipError: with the last line that pip wrote about the failure.
    """
    command = [sys.executable, "-m", "pip", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own arguments
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR:")] or lines
        raise PipError(errors[-1] if errors else f"pip ended with status {done.returncode}")


def main(arguments: Sequence[str]) -> str | None:
    """Build the dependency layers of the named environments; return what went wrong, if anything."""
    parser = argparse.ArgumentParser(prog="python -m infra.bundle", description=main.__doc__)
    names = f"{', '.join(ENVIRONMENT_NAMES)} or one of your own"
    parser.add_argument("--environment", action="append", metavar="NAME", help=f"{names}; may be repeated")
    chosen: list[str] = parser.parse_args(arguments).environment or ["local"]
    try:
        for name in chosen:
            target = load_environment(name, ROOT).target
            interpreter = find_interpreter(target.python_version, os.environ)
            folder = build_bundle(target, interpreter).build(run_pip)
            print(f"{name}: {folder.relative_to(ROOT)}{_say_bytecode(target, interpreter)}")  # noqa: T201 - for people
    except ConfigurationError as error:
        return str(error)
    return None


def _magic(interpreter: Interpreter | None) -> str | None:
    return None if interpreter is None else interpreter.magic


def _say_bytecode(target: LayerTarget, interpreter: Interpreter | None) -> str:
    if interpreter is None:
        version = target.python_version
        return (
            f", without bytecode: no Python {version} was found here, so cold starts compile it. Put python{version} on"
            f" the PATH (`uv python install {version}` and `pyenv install {version}` do) and run this again"
        )
    return f", with bytecode of Python {target.python_version}"


def _clean(folder: Path, dropped: frozenset[str] = _DROPPED_FOLDERS) -> None:
    """Drop what a layer never uses, and make the rest readable for the user that Lambda runs as."""
    shutil.rmtree(folder / "python" / "bin", ignore_errors=True)  # scripts that start with this machine's Python
    for parent, folders, files in os.walk(folder):
        place = Path(parent)
        for name in dropped.intersection(folders):
            shutil.rmtree(place / name)
            folders.remove(name)
        for name in files:
            if place.suffix == ".dist-info" and name in _DROPPED_RECORDS:
                (place / name).unlink()
            else:
                (place / name).chmod(0o644)
        place.chmod(0o755)


def _publish(draft: Path, folder: Path) -> None:
    """Put the finished build in its place in one step; whoever comes second finds the same content there."""
    try:
        draft.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
