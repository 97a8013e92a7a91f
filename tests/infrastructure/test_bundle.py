from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from packaging.markers import Marker

from hotpartition_cdk.bundle import LOCK, DependencyBundle, PipError, read_digest
from hotpartition_cdk.bytecode import Interpreter
from hotpartition_cdk.configuration import LayerTarget
from hotpartition_cdk.errors import ConfigurationError
from infra.environments import DEV

TARGET = LayerTarget(
    python_version="3.13", architecture="arm64", wheel_platforms=("manylinux_2_28_aarch64", "manylinux2014_aarch64")
)
INSTALLED = (
    "bin/jp.py",
    "pkg/__init__.py",
    "pkg/__pycache__/__init__.cpython-311.pyc",
    "pkg/tests/test_it.py",
    "pkg-1.0.dist-info/METADATA",
    "pkg-1.0.dist-info/RECORD",
    "pkg-1.0.dist-info/INSTALLER",
)


@dataclass
class FakePip:
    """Installs one package, or fails after half of it."""

    text: str = "text"
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
            raise PipError("ERROR: no connection")


@pytest.fixture
def bundle(tmp_path):
    lock = tmp_path / "requirements.txt"
    lock.write_text("pkg==1.0 --hash=sha256:00\n")
    return DependencyBundle(lock=lock, target=TARGET, cache=tmp_path / "build")


def content(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_keeps_what_functions_need(bundle):
    """The layer holds packages and their metadata, readable for everyone; scripts, tests and bytecode are dropped."""
    folder = bundle.build(FakePip())
    assert content(folder) == ["content.sha256", "python/pkg-1.0.dist-info/METADATA", "python/pkg/__init__.py"]
    assert {path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()} == {0o644}
    assert {path.stat().st_mode & 0o777 for path in (folder, *folder.rglob("*")) if path.is_dir()} == {0o755}


def test_asks_for_the_targets_wheels(bundle):
    """Pip installs checked wheels of the functions' platform, whatever this machine is, or the host's for the host."""
    pip = FakePip()
    bundle.build(pip)
    (arguments,) = pip.calls
    assert {"--require-hashes", "--only-binary=:all:", "--no-deps", "--no-compile"} <= set(arguments)
    platforms = [argument for argument in arguments if argument.startswith("--platform")]
    assert platforms == ["--platform=manylinux_2_28_aarch64", "--platform=manylinux2014_aarch64"]
    assert arguments[arguments.index("--python-version") + 1] == "3.13"
    here = replace(bundle, target=TARGET.model_copy(update={"wheel_platforms": ()})).pip_arguments(Path("x"), LOCK)
    assert not any(argument.startswith("--platform") for argument in here)


@pytest.mark.parametrize("harm", [lambda file: file.write_text("other"), lambda file: file.unlink()])
def test_what_was_damaged_is_built_again(bundle, harm):
    """A finished build is used again, without pip, unless a file of it was changed or lost."""
    folder = bundle.build(FakePip())
    whole = read_digest(folder)
    harm(folder / "python" / "pkg" / "__init__.py")
    pip = FakePip()
    assert read_digest(bundle.build(pip)) == whole
    assert len(pip.calls) == 1
    assert bundle.build(pip) == folder
    assert len(pip.calls) == 1


def test_the_digest_follows_the_content(bundle, tmp_path):
    """Not the inputs alone: the same lock that fills a layer otherwise is another asset."""
    elsewhere = replace(bundle, cache=tmp_path / "elsewhere")
    assert elsewhere.key == bundle.key
    assert read_digest(elsewhere.build(FakePip("other"))) != read_digest(bundle.build(FakePip()))


def test_failure_leaves_nothing(bundle):
    """A failed download leaves no half layer."""
    with pytest.raises(ConfigurationError, match=r"could not be built from requirements.txt: ERROR: no connection"):
        bundle.build(FakePip(fails=True))
    assert list(bundle.cache.iterdir()) == []
    assert content(bundle.build(FakePip())) != []


def test_two_at_once_agree(bundle):
    """The second build finds the layer of the first, and leaves no draft."""

    def slow_pip(arguments):
        bundle.build(FakePip())
        FakePip()(arguments)

    assert bundle.build(slow_pip) == bundle.folder
    assert [path.name for path in bundle.cache.iterdir()] == [bundle.folder.name]
    # The CDK would take the part after a dot for the asset's file type.
    assert "." not in bundle.folder.name


def test_key_follows_what_the_layer_is_built_from(bundle, tmp_path):
    """The Python, the processor, the platform, the form of bytecode, and the lock, wherever it lies."""
    changes = ({"python_version": "3.14"}, {"architecture": "x86_64"}, {"wheel_platforms": ("manylinux2014_aarch64",)})
    before = bundle.key
    others = [replace(bundle, target=TARGET.model_copy(update=change)) for change in changes]
    others += [replace(bundle, interpreter=Interpreter("python", magic)) for magic in ("00", "01")]
    same, other = tmp_path / "same.txt", tmp_path / "other.txt"
    same.write_bytes(bundle.lock.read_bytes())
    other.write_text("pkg==1.1 --hash=sha256:11\n")
    assert replace(bundle, lock=same, cache=tmp_path).key == before
    assert len({before, *(each.key for each in [*others, replace(bundle, lock=other)])}) == 7


def test_lock_has_no_condition_that_only_the_target_meets():
    """Conditions in the lock are judged by the Python that runs pip; that is safe while none asks for the target's.

    Such a package would be missing in a layer that is built on another Python.
    """
    lock = LOCK.read_text()
    conditions = re.findall(r"^\S+==\S+ ; (.+?) \\$", lock, flags=re.MULTILINE)
    version = DEV.target.python_version
    needed = [
        c for c in conditions if Marker(c).evaluate({"python_version": version, "python_full_version": f"{version}.0"})
    ]
    assert needed == []
