from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hotpartition_cdk.bundle import SourceBundle
from hotpartition_cdk.bytecode import Interpreter, find_interpreter
from hotpartition_cdk.configuration import TESTED_PYTHON
from infra.bundle import ROOT
from infra.environments import DEV, PROD

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def sources(tmp_path):
    """A layer with two modules."""
    folder = tmp_path / "layer"
    package = folder / "python" / "pkg"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('NAMES = {"a", "b", "c"}\n\n\ndef fail():\n    raise ValueError("no")\n')
    (package / "broken.py").write_text("def (\n")
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "old.cpython-39.pyc").write_bytes(b"old")
    return folder


@pytest.fixture
def build(sources, tmp_path):
    here = find_interpreter(HERE, {})

    def run(name, interpreter=here):
        return SourceBundle(package=sources / "python" / "pkg", cache=tmp_path / name, interpreter=interpreter)

    return run


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_the_path_and_pyenv_are_searched(tmp_path):
    """A shim that leads nowhere, another version and a preview are passed over for the one that is right."""
    script(tmp_path / "shims/python3.99", "exit 127")
    script(tmp_path / "other/python3.99", "echo 3 98 final aa")
    script(tmp_path / "preview/python3.99", "echo 3 99 candidate bb")
    script(tmp_path / "pyenv/versions/3.99.1/bin/python3.99", "echo 3 99 final cc")
    environ = {
        "PATH": os.pathsep.join(str(tmp_path / name) for name in ("shims", "other", "preview")),
        "PYENV_ROOT": str(tmp_path / "pyenv"),
    }
    found = find_interpreter("3.99", environ)
    assert found == Interpreter(str(tmp_path / "pyenv/versions/3.99.1/bin/python3.99"), "cc")
    assert find_interpreter("3.99", os.environ) is None


def test_modules_are_compiled_and_the_same_each_time(build):
    """Two builds have the same bytes; sources stay, old bytecode and what cannot be compiled do not hinder."""
    folders = [build(name).build() for name in ("first", "second")]
    files = [{str(p.relative_to(f)): p.read_bytes() for p in f.rglob("*") if p.is_file()} for f in folders]
    tag = sys.implementation.cache_tag
    assert files[0] == files[1]
    assert set(files[0]) == {
        "content.sha256",
        "python/pkg/__init__.py",
        "python/pkg/broken.py",
        f"python/pkg/__pycache__/__init__.{tag}.pyc",
    }


def test_bytecode_is_taken_without_a_look_at_the_source(build):
    """Unchecked and by hash: a time stamp that the upload changes does not matter, and tracebacks name /opt."""
    folder = build("cache").build()
    (compiled,) = folder.rglob("*.pyc")
    flags = int.from_bytes(compiled.read_bytes()[4:8], "little")
    assert flags == 0b01
    assert b"/opt/python/pkg/__init__.py" in compiled.read_bytes()
    (folder / "python/pkg/__init__.py").write_text("NAMES = 'changed'")
    command = [sys.executable, "-B", "-c", "import pkg; print(sorted(pkg.NAMES))"]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(folder / "python")}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "['a', 'b', 'c']\n"


def test_the_layer_s_name_follows_what_goes_in(build, sources):
    """Sources and the form of the bytecode name the layer; the machine's folders do not."""
    before = build("first").key
    assert build("second").key == before
    assert build("first", None).key != before
    (sources / "python/pkg/__init__.py").write_text("NAMES = {}\n")
    assert build("first").key != before


def test_the_suite_is_tried_on_the_functions_python():
    """The Makefile names the version that is deployed by default."""
    makefile = (ROOT / "Makefile").read_text()
    assert f"FUNCTIONS_PYTHON := {TESTED_PYTHON}\n" in makefile
    assert {DEV.target.python_version, PROD.target.python_version} == {TESTED_PYTHON}
