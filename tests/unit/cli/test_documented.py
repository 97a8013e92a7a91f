"""docs/command-line.md names every field that `--json` prints, and no other; and every command."""

import json
import re
from pathlib import Path

import pytest

from hotpartition_cli.api import Api
from hotpartition_cli.arguments import parse_arguments
from hotpartition_cli.callers import read_response
from hotpartition_cli.errors import FailedError
from hotpartition_cli.main import run
from hotpartition_cli.stacks import OUTPUTS
from support.builders import World
from support.fleet import START_MS, Fleet
from support.handlers import load_handler

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = (ROOT / "docs" / "command-line.md").read_text()
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
COMMANDS = ("hot", "watch", "route", "raise", "verify", "rebuild-registry", "plan", "check")


def documented(command):
    """The fields of a command's section, as paths."""
    (section,) = [
        s for s in re.split(r"^## ", DOCUMENT, flags=re.MULTILINE)[1:] if command in s.splitlines()[0].split(", ")
    ]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def paths(value, place=""):
    """The fields of a response, as the document writes them."""
    if isinstance(value, list):
        return {place}.union(*(paths(element, f"{place}[]") - {f"{place}[]"} for element in value))
    if not isinstance(value, dict) or place == "counts":  # whose names are values
        return {place}
    inside = (paths(inner, f"{place}.{name}".removeprefix(".")) for name, inner in value.items())
    return {place}.union(*inside) - {""}


@pytest.fixture
def world():
    """A world in which no list of any response is empty."""
    world = World()
    world.clock.now_ms = START_MS + 6_000
    for arrival in Fleet().offer(lambda _: 500, 6_000):
        world.reports.send(arrival.report)
    world.operations().raise_by_hand("c", 8, by="ann")
    world.raise_to(4, 5, conversation_id="missing", in_redis=False)
    return world


ARGUMENTS = {
    "hot": [],
    "watch": ["--once"],
    "route": ["c"],
    "raise": ["c", "--n", "8"],
    "verify": [],
    "rebuild-registry": [],
    "plan": ["--rate", "5000", "--item-bytes", "1024", "--reads", "range"],
    "check": ["--wait", "0"],
}


class NoStack:
    """A stack of which nothing answers."""

    name = "none"
    functions = tuple(OUTPUTS)
    api = Api("http://127.0.0.1:1")
    log_delay_seconds = 0.0

    def invoke(self, function, event):
        raise FailedError("nobody", kind="unreachable")

    def read_log(self, function, since_ms):
        return []


@pytest.mark.parametrize("command", COMMANDS)
def test_the_document_has_the_fields_that_are_printed(world, capsys, command):
    """A field that is added, renamed or dropped has to be said."""

    def call(event):
        response = load_handler("operate").respond(event, world.operations(), world.reconciler(), remaining_ms=60_000)
        return read_response(json.dumps(response).encode(), is_error=False)

    environ = {"HOTPARTITION_URL": "http://127.0.0.1:1"}
    arguments = [command, *ARGUMENTS[command], "--json"]
    run(arguments, environ, connect=lambda _: call, connect_stack=lambda *_: NoStack(), sleep=lambda _: None)
    printed = paths(json.loads(capsys.readouterr().out))
    if command == "plan":
        # `after` is what `before` is.
        printed = {path for path in printed if not path.startswith("after.")} | {"before", "after"}
    assert printed == documented(command)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_operations_page_shows_every_command(command):
    """With an example."""
    assert f"hotpartition {command}" in OPERATIONS


def test_the_pages_commands_can_be_typed():
    """Each one parses."""
    lines = re.findall(r"^\$ hotpartition (.+?)(?:\s+#.*)?$", OPERATIONS, re.MULTILINE)
    assert len(lines) >= len(COMMANDS)
    for line in lines:
        parse_arguments(line.split(), {"HOTPARTITION_URL": "http://u"})


def test_the_pages_plan_is_what_the_tool_prints(capsys):
    """Its figures are this version's."""
    run(["plan", "--rate", "2000", "--item-bytes", "1024", "--page", "50"], {})
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in printed if line and line not in OPERATIONS] == []
