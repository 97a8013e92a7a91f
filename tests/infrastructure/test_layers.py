"""The layers: what is in them, the same bytes each time, and their names.

That functions serve from them, and from nothing else of this program, is shown by every local run: `tests/e2e`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from packaging.markers import Marker

from hotpartition_cdk.bundle import (
    CLIENT_PACKAGES,
    LOCK,
    DependencyBundle,
    Interpreter,
    SourceBundle,
    UvError,
    find_interpreter,
    read_digest,
)
from hotpartition_cdk.configuration import TESTED_PYTHON, LayerTarget
from hotpartition_cdk.errors import ConfigurationError
from infra.bundle import ROOT, main
from infra.environments import DEV, PROD

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
COMPILED = f"python/pkg/__pycache__/__init__.{sys.implementation.cache_tag}.pyc"
TARGET = LayerTarget(python_version="3.13", architecture="arm64", platform="aarch64-manylinux_2_28")
INSTALLED = (
    "bin/jp.py",
    "pkg/__init__.py",
    "bin/__pycache__/jp.cpython-39.pyc",
    "pkg/__pycache__/__init__.cpython-39.pyc",
    ".lock",
    "pkg-1.0.dist-info/METADATA",
    "pkg-1.0.dist-info/RECORD",
    "pkg-1.0.dist-info/INSTALLER",
)


@dataclass
class FakeUv:
    """Installs one package, or fails after half of it."""

    text: str = "text = 1\n"
    fails: bool = False
    calls: list[list[str]] = field(default_factory=list)

    def __call__(self, arguments):
        self.calls.append(list(arguments))
        target = Path(arguments[arguments.index("--target") + 1])
        for name in INSTALLED[: 2 if self.fails else None]:
            file = target / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self.text)
            file.chmod(0o600)
        if self.fails:
            raise UvError("no connection")


@pytest.fixture
def bundle(tmp_path):
    lock = tmp_path / "requirements.txt"
    lock.write_text("pkg==1.0 --hash=sha256:00\nother==2.0 \\\n    --hash=sha256:22\n")
    return DependencyBundle(lock=lock, target=TARGET, cache=tmp_path / "build")


def read_files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_keeps_what_functions_need(bundle):
    """Packages and their metadata, readable for everyone, of checked wheels for the functions' platform; bytecode.

    Where the platform is that of the host itself, uv gets no platform.
    """
    uv = FakeUv()
    folder = bundle.build(uv)
    files = ["content.sha256", "python/pkg-1.0.dist-info/METADATA", "python/pkg/__init__.py"]
    assert sorted(read_files(folder)) == files
    modes = {(path.is_dir(), path.stat().st_mode & 0o777) for path in (folder, *folder.rglob("*"))}
    assert modes == {(False, 0o644), (True, 0o755)}
    (arguments,) = uv.calls
    assert {"--require-hashes", "--only-binary", "--no-deps"} <= set(arguments)
    asked = {name: arguments[arguments.index(name) + 1] for name in ("--python-platform", "--python-version")}
    assert asked == {"--python-platform": "aarch64-manylinux_2_28", "--python-version": "3.13"}
    here = replace(bundle, target=TARGET.model_copy(update={"platform": ""})).uv_arguments(Path("x"), LOCK)
    assert "--python-platform" not in here
    assert sorted(read_files(replace(bundle, interpreter=find_interpreter(HERE)).build(uv))) == [*files, COMPILED]


def test_what_was_damaged_is_built_again(bundle):
    """A finished build is used again, without uv, unless a file of it was changed or lost."""
    folder, uv = bundle.build(FakeUv()), FakeUv()
    whole, module = read_digest(folder), folder / "python" / "pkg" / "__init__.py"
    for harm in (lambda: module.write_text("other"), module.unlink):
        harm()
        uv.calls.clear()
        assert [read_digest(bundle.build(uv)), bundle.build(uv)] == [whole, folder]
        assert len(uv.calls) == 1


def test_failure_leaves_nothing_and_two_at_once_agree(bundle):
    """No half layer of a failed download. A second build finds the layer of the first, and leaves no draft."""
    with pytest.raises(ConfigurationError, match=r"could not be built from requirements.txt: no connection"):
        bundle.build(FakeUv(fails=True))
    assert list(bundle.cache.iterdir()) == []

    def slow_uv(arguments):
        bundle.build(FakeUv())
        FakeUv()(arguments)

    assert bundle.build(slow_uv) == bundle.folder
    assert [path.name for path in bundle.cache.iterdir()] == [bundle.folder.name]
    # The CDK would take the part after a dot for the asset's file type.
    assert "." not in bundle.folder.name


def test_key_follows_what_the_layer_is_built_from(bundle, tmp_path):
    """The Python, the processor, the platform, the form of bytecode, and those entries of the lock that are wanted.

    Wherever the lock lies. The digest follows the content: the same lock that fills a layer otherwise is another asset.
    """
    changes = ({"python_version": "3.14"}, {"architecture": "x86_64"}, {"platform": "aarch64-manylinux2014"})
    others = [replace(bundle, target=TARGET.model_copy(update=change)) for change in changes]
    others += [replace(bundle, interpreter=Interpreter("python", magic)) for magic in ("00", "01")]
    others += [replace(bundle, only=frozenset({name})) for name in ("pkg", "other")]
    same, other = tmp_path / "same.txt", tmp_path / "other.txt"
    same.write_bytes(bundle.lock.read_bytes())
    other.write_text("pkg==1.1 --hash=sha256:11\n")
    elsewhere = replace(bundle, lock=same, cache=tmp_path / "elsewhere")
    assert elsewhere.key == bundle.key
    assert read_digest(elsewhere.build(FakeUv("other"))) != read_digest(bundle.build(FakeUv()))
    assert len({bundle.key, *(each.key for each in [*others, replace(bundle, lock=other)])}) == 9


def test_the_lock_serves_every_target_and_has_what_an_adaptive_table_needs():
    """No condition that only the target meets: the Python that runs uv judges it, and would leave the package out."""
    entries = re.findall(r"^(\S+)==\S+(?: ; (.+?))? \\$", LOCK.read_text(), flags=re.MULTILINE)
    facts = {"python_version": TESTED_PYTHON, "python_full_version": f"{TESTED_PYTHON}.0"}
    assert [condition for _, condition in entries if condition and Marker(condition).evaluate(facts)] == []
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    needed = {re.match(r"[\w-]+", requirement)[0] for requirement in extras["adaptive"]}
    assert {name for name, _ in entries} >= needed == CLIENT_PACKAGES


def test_the_command_builds_the_environment_that_it_names():
    """Or says that there is no such one. All are for the Python on which the Makefile tries the functions."""
    assert "nowhere" in main(["--environment", "nowhere"])
    assert {DEV.target.python_version, PROD.target.python_version} == {TESTED_PYTHON}
    assert f"FUNCTIONS_PYTHON := {TESTED_PYTHON}\n" in (ROOT / "Makefile").read_text()


@pytest.fixture
def build(tmp_path):
    """Describes builds of a package of two modules, one of which cannot be compiled."""
    package = tmp_path / "pkg"
    (package / "__pycache__").mkdir(parents=True)
    (package / "__init__.py").write_text('NAMES = {"a", "b", "c"}\n\n\ndef fail():\n    raise ValueError("no")\n')
    (package / "broken.py").write_text("def (\n")
    (package / "__pycache__" / "old.cpython-39.pyc").write_bytes(b"old")
    here = find_interpreter(HERE)

    def describe(name, interpreter=here):
        return SourceBundle(package=package, cache=tmp_path / name, interpreter=interpreter)

    return describe


def test_modules_are_compiled_and_the_same_each_time(build):
    """Two builds have the same bytes; sources stay, old bytecode and what cannot be compiled do not hinder.

    Bytecode is taken unchecked: a time stamp that the upload changes does not matter. Tracebacks name /opt.
    """
    folders = [build(name).build() for name in ("first", "second")]
    files, again = map(read_files, folders)
    assert files == again
    assert set(files) == {"content.sha256", "python/pkg/__init__.py", "python/pkg/broken.py", COMPILED}
    assert int.from_bytes(files[COMPILED][4:8], "little") == 0b01
    assert b"/opt/python/pkg/__init__.py" in files[COMPILED]
    (folders[0] / "python/pkg/__init__.py").write_text("NAMES = 'changed'")
    code = "import pkg; print(sorted(pkg.NAMES))"
    command, environ = [sys.executable, "-B", "-S", "-c", code], {"PYTHONPATH": str(folders[0] / "python")}
    assert subprocess.check_output(command, env=environ, text=True).strip() == "['a', 'b', 'c']"


def test_the_layer_s_name_follows_what_goes_in(build):
    """Sources and the form of the bytecode name the layer; the machine's folders do not.

    A Python that is not there is neither fetched nor replaced by another one.
    """
    before = build("first").key
    assert build("second").key == before
    assert build("first", find_interpreter("3.99")).key == build("first", None).key != before
    (build("first").package / "__init__.py").write_text("NAMES = {}\n")
    assert build("first").key != before
