"""Another team's application, with the wheel installed and nothing else of this checkout: its tests, and its rush."""

import shutil
import subprocess
import sys
from dataclasses import fields

import pytest

from stack import ROOT, show
from tools.play.installed import APP, install
from tools.play.verdict import HISTORY_FIGURES, Summary

PACKAGED = ("hotpartition_cdk", "hotpartition_cli", "layers")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy: building leaves files beside the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in PACKAGED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("LICENSE", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    command = [sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "--quiet"]
    subprocess.run(command, cwd=folder, check=True)
    (file,) = folder.glob("*.whl")
    return file


def test_its_own_tests_pass(wheel, tmp_path):
    """What is stored is read again with each pattern; the app is synthesized, and cdk-nag finds nothing."""
    environment = install(wheel, tmp_path / "packages")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:schemathesis", "-p", "no:pydynox"]
    done = subprocess.run(command, cwd=APP, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4_000:]


def test_its_rush_is_raised_and_read_back_completely(wheel, tmp_path):
    """Verdict `pass`, in a short form: raised, nothing lost or doubled, every kind of read complete."""
    options = ["--wheel", str(wheel), "--duration", "12", "--out", str(tmp_path)]
    command = [sys.executable, "-m", "tools.play", "example", *options]
    said, summary = show(command, tmp_path)
    assert summary.keys() == {field.name for field in fields(Summary)} | {
        *HISTORY_FIGURES,
        *("verdict", "not_judged", "machine_kept_up", "machine"),
    }
    assert (summary["verdict"], summary["missing"], summary["duplicated"]) == ("pass", 0, 0)
    assert "readings of one device complete" in said
