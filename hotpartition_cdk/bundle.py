"""Builds the content of the layers with uv, for the functions' Python and architecture, without Docker.

The dependency layer: the locked packages. The layers of sources: the library, and code built on it. All with bytecode
where an interpreter of the functions' version is at hand. A built layer stays in a cache, in a folder named by
everything that it depends on, with a digest of its content. An unchanged folder is used again, so a second synthesis
needs neither network nor uv; one that was changed since is built again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from uv import find_uv_bin

import hotpartition
from hotpartition_cdk.configuration import LayerTarget
from hotpartition_cdk.errors import ConfigurationError

LOCK = Path(__file__).resolve().parent / "dependencies" / "requirements.txt"
"""The packages that the construct's functions use, with versions and hashes."""

CLIENT_PACKAGES = frozenset({"redis"})
"""The ones that an adaptive `ShardedTable` needs in a function of the user's. Without boto3: Lambda's own has all its
services, and a layer would come before it."""

LIBRARY = Path(hotpartition.__file__).resolve().parent
"""The library's own code, wherever it is installed."""

LAYER_ROOT = "/opt"
"""Where Lambda puts a layer's content; tracebacks name files there, on whatever machine they were compiled."""

BUNDLER_VERSION = 5
"""Raise this when the same lock file shall give other content."""

_DIGEST = "content.sha256"
"""File in a finished build that names its content."""

_OF_THE_MACHINE = (
    ".lock",
    "bin",
    "**/__pycache__",
    *(f"*.dist-info/{name}" for name in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json")),
)
"""Files for the installing machine only. METADATA stays, for importlib.metadata."""

_PROBE = (
    "import importlib.util, sys;print(sys.version_info.releaselevel, importlib.util.MAGIC_NUMBER.hex(), sys.executable)"
)

Runner = Callable[[Sequence[str]], str]
"""Runs uv with these arguments and returns what it prints; raises `UvError`."""


class UvError(Exception):
    """uv failed; the message is uv's."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python that compiles for a version. `magic` names the form of its bytecode."""

    path: str
    magic: str

    def compile(self, folder: Path) -> None:
        """Compile a layer's modules.

        Unchecked: a layer's files never change, so nothing needs to compare them at import. A hash instead of a time,
        and no hash randomization: the same sources give the same bytes. Modules that this Python cannot read stay
        uncompiled.
        """
        arguments = ["-I", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
        arguments += ["-s", str(folder), "-p", LAYER_ROOT, str(folder)]
        subprocess.run(  # noqa: S603 - fixed arguments
            [self.path, *arguments], check=False, capture_output=True, env={"PYTHONHASHSEED": "0"}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """One build of a layer, with bytecode where there is an interpreter for it."""

    cache: Path
    interpreter: Interpreter | None = None

    def _build(self, folder: Path, fill: Callable[[Path], None]) -> Path:
        """Fill a draft and put it in its place in one step, unless it is there; a failure leaves nothing behind."""
        if _is_whole(folder):
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        self.cache.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=self.cache))
        try:
            fill(draft)
            if self.interpreter is not None:
                self.interpreter.compile(draft)
            (draft / _DIGEST).write_text(_digest(draft))
            # The user that Lambda runs as reads everything.
            for path in (draft, *draft.rglob("*")):
                path.chmod(0o755 if path.is_dir() else 0o644)
            draft.rename(folder)
        except OSError:
            # A build at the same time has put the same content there.
            if not _is_whole(folder):
                raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return folder


@dataclass(frozen=True, slots=True, kw_only=True)
class DependencyBundle(Bundle):
    """One build of the dependency layer; `only` names the packages of the lock that are wanted, None all."""

    lock: Path
    target: LayerTarget
    only: frozenset[str] | None = None

    @property
    def key(self) -> str:
        """Name the content: a hash over all it depends on, the same on every machine."""
        bytecode = self.interpreter and self.interpreter.magic
        facts = {"bundler": BUNDLER_VERSION, **self.target.model_dump(), "bytecode": bytecode}
        return hashlib.sha256(f"{json.dumps(facts, sort_keys=True)}\0{self._read_lock()}".encode()).hexdigest()

    @property
    def folder(self) -> Path:
        """Where the finished build is: an asset root that contains `python/`."""
        # No dots in the name: the CDK would take the rest after one for a file's extension.
        python = self.target.python_version.replace(".", "")
        return self.cache / f"dependencies-{self.target.architecture}-python{python}-{self.key[:16]}"

    def build(self, run: Runner) -> Path:
        """Build the layer unless it is there already, and return its folder.

        Raises:
            ConfigurationError: when uv fails; nothing is left behind then.
        """
        try:
            return self._build(self.folder, partial(self._fill, run=run))
        except UvError as error:
            raise ConfigurationError(
                f"the dependency layer for Python {self.target.python_version} on {self.target.architecture} could not"
                f" be built from {self.lock.name}: {error}; synthesize once where the package index can be reached"
            ) from error

    def uv_arguments(self, folder: Path, lock: Path) -> list[str]:
        """Build uv's command line. `--no-deps`: the lock is complete."""
        arguments = ["pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes"]
        # Links into uv's cache would be changed with it.
        arguments += ["--link-mode", "copy", "--python", sys.executable, "--python-version", self.target.python_version]
        if self.target.platform:
            arguments += ["--python-platform", self.target.platform]
        return [*arguments, "--target", str(folder), "--requirement", str(lock)]

    def _fill(self, draft: Path, *, run: Runner) -> None:
        wanted, packages = draft / self.lock.name, draft / "python"
        wanted.write_text(self._read_lock())
        run(self.uv_arguments(packages, wanted))
        wanted.unlink()
        # With UV_COMPILE_BYTECODE there is a `__pycache__` in `bin` as well, which goes with it.
        for path in [path for pattern in _OF_THE_MACHINE for path in packages.glob(pattern)]:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def _read_lock(self) -> str:
        """Read the lock, or those entries of it that are wanted: `name==version` and hashes in indented lines."""
        text = self.lock.read_text()
        if self.only is None:
            return text
        entries = re.findall(r"^\S+==.*(?:\n[ \t]+.*)*\n?", text, flags=re.MULTILINE)
        return "".join(entry for entry in entries if entry.partition("==")[0] in self.only)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceBundle(Bundle):
    """One build of a layer of a package of sources."""

    package: Path

    @property
    def key(self) -> str:
        """Name the content, the same on every machine."""
        digest = hashlib.sha256(f"{BUNDLER_VERSION} {self.interpreter and self.interpreter.magic}".encode())
        for file, place in self._list():
            digest.update(f"\0{place}\0".encode() + file.read_bytes())
        return digest.hexdigest()

    def build(self) -> Path:
        """Build the layer unless it is there already, and return its folder."""
        return self._build(self.cache / f"{self.package.name}-{self.key[:16]}", self._fill)

    def _fill(self, draft: Path) -> None:
        for file, place in self._list():
            (draft / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, draft / place)

    def _list(self) -> list[tuple[Path, Path]]:
        """List the sources, each with its place in the layer."""
        files = sorted(path for path in self.package.rglob("*") if path.suffix == ".py" or path.name == "py.typed")
        return [(file, Path("python", self.package.name, file.relative_to(self.package))) for file in files]


def find_cache(environ: Mapping[str, str]) -> Path:
    """Find the folder of this user's finished builds, which all projects share."""
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hotpartition" / "layers"


@cache
def find_interpreter(version: str, *, may_fetch: bool = False) -> Interpreter | None:
    """Find a released Python of a minor version such as `3.14`; uv may fetch one, where that is wanted."""
    fetching = () if may_fetch else ("--no-python-downloads",)
    command = ("run", "--quiet", "--no-project", *fetching, "--python", version, "python", "-I", "-S", "-c", _PROBE)
    try:
        level, magic, path = run_uv(command).split(maxsplit=2)
    except UvError:
        return None
    return Interpreter(path.strip(), magic) if level == "final" else None


def run_uv(arguments: Sequence[str]) -> str:
    """Run uv, and return what it prints.

    Raises:
        UvError: with the last line that uv wrote about the failure.
    """
    done = subprocess.run(  # noqa: S603 - fixed
        [find_uv_bin(), *arguments], check=False, capture_output=True, text=True, env=_environment()
    )
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise UvError(lines[-1] if lines else f"uv ended with status {done.returncode}")
    return done.stdout


def _environment() -> dict[str, str]:
    """Put the Pythons of pyenv before its shims, at which uv stops where the shim of another version is chosen."""
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    folders = [str(path) for path in sorted(versions.glob("3.*/bin"), reverse=True)]
    return {**os.environ, "PATH": os.pathsep.join([*folders, os.environ.get("PATH", "")])}


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
