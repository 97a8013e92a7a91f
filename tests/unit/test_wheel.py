"""What others install: all that they need is in the wheel, and nothing of what only this project needs.

Packages and data are written out, since a list from the build would lack whatever the build leaves out.
"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from setuptools import Distribution

from hotpartition_cli.__main__ import NEEDS, main
from hotpartition_cli.errors import Status

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "hotpartition": ROOT / "layers/routing/python",
    "hotpartition_cdk": ROOT,
    "hotpartition_cli": ROOT,
    "hotpartition_messages": ROOT / "layers/messages/python",  # the command line plans and checks with it
}
DATA = {
    "hotpartition/py.typed",
    "hotpartition_cdk/py.typed",
    "hotpartition_cdk/dependencies/requirements.txt",
    "hotpartition_cli/heat.html",
}


@pytest.fixture
def packed(monkeypatch, tmp_path):
    """The files that setuptools would put into it."""
    monkeypatch.chdir(ROOT)
    distribution = Distribution({"script_name": "pyproject.toml"})
    distribution.parse_config_files()
    command = distribution.get_command_obj("build_py")
    command.build_lib = str(tmp_path)
    command.ensure_finalized()
    return {str(Path(name).relative_to(tmp_path)) for name in command.get_outputs(include_bytecode=False)}


def test_the_wheel_holds_four_packages_and_what_the_layers_are_made_of(packed):
    """Every module of them, the functions' handlers, and the lock of their packages."""
    modules = {str(path.relative_to(root)) for name, root in PACKAGES.items() for path in (root / name).rglob("*.py")}
    handlers = {f"hotpartition_cdk/handlers/{name}/handler.py" for name in ("consume_reports", "operate")}
    assert packed == modules | handlers | DATA


def test_the_library_needs_boto3_alone():
    """What else there is comes by extras, whose packages the checkout locks, too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == ["boto3"]
    assert set(project["optional-dependencies"]) == {"adaptive", "cdk", "cli", "curl"}


def test_the_command_says_what_it_lacks(monkeypatch, capsys):
    """Where the library was installed without its extra."""
    monkeypatch.delitem(sys.modules, "hotpartition_cli.main", raising=False)
    monkeypatch.setitem(sys.modules, "click", None)
    assert main() == Status.FAILED
    assert capsys.readouterr().err == f"hotpartition: click is not installed; pip install {NEEDS}\n"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert NEEDS.split() == [re.match(r"[\w-]+", requirement)[0] for requirement in extras["cli"]]


def test_the_command_may_be_interrupted_at_its_imports(monkeypatch):
    """They take a second."""

    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "hotpartition_cli.main", SimpleNamespace(main=interrupt))
    assert main() == Status.INTERRUPTED


def test_the_command_needs_no_more_than_its_extra_brings():
    """Neither what functions have beside it, nor the extra of adaptive tables; boto3 not before it asks AWS."""
    others = dict.fromkeys(("aws_cdk", "aws_lambda_powertools", "boto3", "pycurl", "redis"))
    code = f"import sys; sys.modules.update({others}); from hotpartition_cli import check, main, plan, rush"
    path = os.pathsep.join(map(str, dict.fromkeys(PACKAGES.values())))
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
