"""The documents name every command, option and field that `--json` prints."""

import argparse
import json
import re
from pathlib import Path

import pytest

from hotpartition_cli.arguments import _build_parser
from hotpartition_cli.main import run
from support.builders import World
from support.fleet import START_MS, Fleet
from unit.cli.test_check import Scripted

DOCS = Path(__file__).resolve().parents[3] / "docs"
FIELDS = (DOCS / "command-line.md").read_text()
PAGES = FIELDS + (DOCS / "operations.md").read_text()

(_COMMANDS,) = [action for action in _build_parser()._actions if isinstance(action, argparse._SubParsersAction)]
OPTIONS = {command: parser._option_string_actions for command, parser in _COMMANDS.choices.items()}

ARGUMENTS = {
    "hot": [],
    "watch": ["--once"],
    "route": ["c"],
    "raise": ["c", "--n", "8"],
    "close": ["c", "--dry-run"],
    "verify": [],
    "plan": ["--rate", "5000", "--item-bytes", "1024"],
    "check": ["--wait", "0"],
}
"""Each command's; `rush` needs an API that serves it."""


def section_of(command):
    sections = re.split(r"^## ", FIELDS, flags=re.MULTILINE)[1:]
    (section,) = [section for section in sections if command in section.splitlines()[0].split(", ")]
    return section


def names_in(value):
    """The fields of a response, at whatever depth; those of `counts` are values."""
    if isinstance(value, list):
        return set().union(*map(names_in, value))
    if not isinstance(value, dict):
        return set()
    return set(value).union(*(names_in(inner) for name, inner in value.items() if name != "counts"))


@pytest.fixture
def world():
    """A world in which no list of any response is empty."""
    world = World()
    world.clock.now_ms = START_MS + 6_000
    for arrival in Fleet().offer(lambda _: 500, 6_000):
        world.reports.send(arrival.report)
    world.operations().raise_by_hand("c", 8, by="ann")
    world.operations(is_closing=True).close_by_hand("c")
    world.raise_to(4, 5, conversation_id="missing", in_redis=False)
    return world


@pytest.mark.parametrize("command", sorted(OPTIONS))
def test_a_command_and_its_options_are_named(command):
    """So that a new one is not forgotten."""
    assert f"hotpartition {command}" in PAGES
    assert [option for option in OPTIONS[command] if option not in {"-h", "--help"} and option not in PAGES] == []


@pytest.mark.parametrize("command", ARGUMENTS)
def test_every_field_that_is_printed_is_named(connect, capsys, command):
    """In the command's own section."""
    environ = {"HOTPARTITION_URL": "http://127.0.0.1:1"}
    arguments = [command, *ARGUMENTS[command], "--json"]
    run(arguments, environ, connect=connect, connect_stack=lambda *_: Scripted(), sleep=lambda _: None)
    documented = {word for name in re.findall(r"`([^`]+)`", section_of(command)) for word in re.findall(r"\w+", name)}
    assert names_in(json.loads(capsys.readouterr().out)) - documented == set()
