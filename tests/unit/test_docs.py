"""Documents stay honest: what the code has, the README names."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from hotpartition.core.detector import Reason
from hotpartition.runtime.settings import (
    ConsumerSettings,
    OperateSettings,
    ReaderSettings,
    WriterSettings,
    variable_name,
)

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
SOURCES = [*(ROOT / "layers").rglob("*.py"), *(ROOT / "lambdas").rglob("*.py")]


@pytest.mark.parametrize("settings", [WriterSettings, ReaderSettings, ConsumerSettings, OperateSettings])
def test_every_setting_is_in_the_readme(settings):
    """With its default."""
    rows = {line.split("|")[1].strip(" `"): line for line in README.splitlines() if line.startswith("| `")}
    for declared in fields(settings):
        row = rows[variable_name(declared.name).removeprefix("HOTPARTITION_").lower()]
        if declared.default is not declared.default_factory:
            default = str(declared.default).lower() if isinstance(declared.default, bool) else f"{declared.default}"
            assert f"| {default} |" in row.replace(",", ""), row


def metric_names():
    """All names that are counted anywhere in the functions."""
    pattern = re.compile(r'(?:count\(\s*|name=)f?"([A-Z][A-Za-z-]+)')
    found = {name for source in SOURCES for name in pattern.findall(source.read_text())}
    replayed = re.compile(r'"(Messages[A-Z]\w+)"')
    return found | {name for source in SOURCES for name in replayed.findall(source.read_text())}


def test_every_metric_is_in_the_readme():
    """Under the name that CloudWatch shows."""
    names = metric_names()
    assert len(names) > 15
    assert [name for name in sorted(names) if f"`{name}" not in README] == []


def test_every_reason_is_in_the_readme():
    """Somebody who asks why a conversation was (not) raised finds the word."""
    assert [reason for reason in Reason if f"`{reason}`" not in README] == []


def test_every_make_target_that_is_named_exists():
    """No command in the documents leads nowhere."""
    makefile = (ROOT / "Makefile").read_text()
    named = set(re.findall(r"make ([a-z-]+)", README))
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    assert named <= targets
