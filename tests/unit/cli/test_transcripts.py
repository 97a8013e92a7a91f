"""Transcripts of the command line, each pinned whole: `$ command`, then its output, errors (`!`) and exit status.

A line `% step` changes the world first, by one of `STEPS`. `UPDATE_GOLDEN=1` writes the files: read them as a diff.
Commands with `--table` run over moto, at a time that stands still. The documents name every command, option and field
that `--json` prints.

Its steps make it long: what a transcript only names has to be put into a world or a table by code.
"""

import json
import re
import shlex
import time
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from hotpartition.control import hot_keys
from hotpartition.control.hot_keys import LoadItemHeat
from hotpartition.core.errors import StoreRefusedError
from hotpartition.core.fleet_load import Cell
from hotpartition.core.ports import JournalEntry
from hotpartition.dynamodb import calls
from hotpartition.dynamodb.table import JournalPlace
from hotpartition_cli import outcomes
from hotpartition_cli.main import connect as connect_really
from hotpartition_cli.main import hotpartition, run
from support.builders import World, route_of
from support.fleet import START_MS, send_load
from support.golden import assert_golden
from support.tables import BESIDE

HERE = Path(__file__).parent / "transcripts"
DOCS = Path(__file__).resolve().parents[3] / "docs"
FIELDS = (DOCS / "command-line.md").read_text()
PAGES = FIELDS + "".join((DOCS / f"{page}.md").read_text() for page in ("operations", "runbook"))
URL = {"HOTPARTITION_URL": "http://127.0.0.1:1"}
APART = JournalPlace("routes", "collection", sort_key="")
NOW_MS = START_MS + 6_000
OPTIONS = {
    name: [option for each in command.params for option in each.opts if option.startswith("--")]
    for name, command in hotpartition.commands.items()
}


def set_away(world, *, is_away=True):
    world.registry.is_down = world.reports.is_down = is_away


def raise_many(world):
    for number in range(30):
        world.raise_to(2, number, conversation_id=f"c{number:02}", in_redis=False)
        world.table.routes[f"c{number:02}"] = JournalEntry(route_of((2, number)), 1)


def break_route(world):
    world.table.spoil_route("broken", "many", "8@5")


def pass_minutes(world, minutes):
    world.clock.now_ms += 60_000 * minutes


def raise_in(world, place, *keys, seconds_ago=9):
    """Add routes to a journal in DynamoDB, each raised a ms after the one before."""
    for number, key in enumerate(keys):
        now_ms = NOW_MS - 1000 * seconds_ago + number
        world.raise_key(place, key, 0 if seconds_ago < 60 else now_ms, 4, now_ms)


def offer_in(world, place, key, wcu, *, throttled=0.0):
    """Store the same load in each slot that is kept, in the one that is not over, and in one that is too old.

    It lies in two of the key's load items, half in each.
    """
    slots = range(NOW_MS // 250 - 17, NOW_MS // 250 + 1)
    cells = {Cell(slot, 4, False).name: {"N": f"{wcu / 8}"} for slot in slots}
    cells |= {Cell(slot, 4, True).name: {"N": f"{throttled / 8}"} for slot in slots}
    for load_place in (0, 2):
        world.client.put_item(TableName=place.table_name, Item={**place.load_key_of(key, load_place), **cells})


def break_in(world, place):
    raise_in(world, place, "broken")
    item = {**place.key_of("broken"), "generations": {"SS": ["many"]}}
    world.client.put_item(TableName=place.table_name, Item=item)


def count_in_shards(world):
    cell = {"PK": {"S": "likes#_1"}, "SK": {"S": "c#"}, "counted": {"N": "3"}}
    world.client.put_item(TableName="readings", Item=cell)


def refuse_right(world):
    """Refuse as the library does, whose error has the SDK's as its cause."""
    refused = StoreRefusedError("AccessDeniedException")
    refused.__cause__ = ClientError({"Error": {"Code": "AccessDeniedException"}}, "UpdateItem")

    def refuse(*_, **__):
        raise refused

    world.patch.setattr(LoadItemHeat, "list_hot", refuse)


STEPS = {
    "a consumer starts": lambda world: world.reports.announce(world.clock.now_ms),
    "a rush, throttled": lambda world: send_load(world, "rush", 2_000, is_throttled=True),
    "a rush on [red]x[/red]": lambda world: send_load(world, "[red]x[/red]", 500, seed=2),
    "old was raised": lambda world: world.raise_to(4, START_MS - 60_000, conversation_id="old"),
    "old was raised anew": lambda world: world.raise_to(8, world.clock.now_ms, conversation_id="old"),
    "thirty raises that Redis does not know": raise_many,
    "[red]x[/red] was raised": lambda world: world.raise_to(2, 5, conversation_id="[red]x[/red]", in_redis=False),
    "Redis forgets": lambda world: world.registry.routes.clear(),
    "Redis knows more of old": lambda world: world.registry.add("old", route_of((16, START_MS)).members),
    "a routing item is broken": break_route,
    "Redis is away": set_away,
    "Redis is back": lambda world: set_away(world, is_away=False),
    "a stream is away": lambda world: setattr(world.reports, "away", {0}),
    "a minute later": lambda world: pass_minutes(world, 1),
    "twenty minutes later": lambda world: pass_minutes(world, 20),
    "a response holds one row": lambda world: world.patch.setattr(outcomes, "MAX_ROWS", 1),
    "a response holds a thousand rows": lambda world: world.patch.setattr(outcomes, "MAX_ROWS", 1_000),
    "only the keys raised last are looked at": lambda world: world.patch.setattr(hot_keys, "LEAST_LOOKED_AT", 2),
    "likes of readings is a counter": count_in_shards,
    "a right is missing": refuse_right,
}
STEPS_OF_A_TABLE = {
    "three keys were raised": lambda world, place: raise_in(world, place, "busy", "rush", "quiet"),
    "busy has a load": lambda world, place: offer_in(world, place, "busy", 100),
    "rush is throttled": lambda world, place: offer_in(world, place, "rush", 3_000, throttled=750),
    "dev was raised a minute ago": lambda world, place: raise_in(world, place, "dev", seconds_ago=60),
    "a routing item is broken": break_in,
}
PLACES = {"readings": BESIDE, "counted": APART}


@pytest.fixture
def world(client, raise_key, monkeypatch):
    """One in memory, and tables on moto; for those time stands still, for DynamoDB's as well."""
    world = World()
    world.clock.now_ms = NOW_MS
    world.client, world.raise_key, world.patch = client, raise_key, monkeypatch
    monkeypatch.setenv("LOGNAME", "ann müller")
    monkeypatch.setattr(time, "time_ns", lambda: NOW_MS * 1_000_000)
    monkeypatch.setattr(calls, "read_date", lambda _: NOW_MS)
    return world


def play(text, world, connect, capsys, tmp_path):
    """Run a transcript's commands; return it with what they print now."""
    (tmp_path / "item.json").write_text(
        '{"sender": "ann", "body": "hi", "conversation_id": "c", "attributes": {"n": 1}}'
    )
    (tmp_path / "item-deep.json").write_text("[" * 100_000)
    (tmp_path / "item-long.json").write_text(f'"{"x" * 2_500_000}"')
    lines = []
    for line in text.splitlines():
        if line.startswith("#"):
            lines += ["", line]
        elif line.startswith("% "):
            step, _, table = line.removeprefix("% ").partition(" in ")
            STEPS_OF_A_TABLE[step](world, PLACES[table]) if table else STEPS[step](world)
            lines += ["", line]
        elif line.startswith("$ "):
            environ, (_, *arguments) = read_command(line.removeprefix("$ "))
            arguments = [argument.replace("@item", f"@{tmp_path}/item") for argument in arguments]
            own = connect_really if "--table" in arguments else connect
            with world.patch.context() as patch:
                for name, value in environ.items():
                    patch.setenv(name, value)
                status = run(arguments, environ, connect=own, sleep=lambda _: None)
            captured = capsys.readouterr()
            said = captured.err.replace(str(tmp_path), "…")
            lines += ["", line, *re.sub(r"(?m) +$", "", captured.out).strip("\n").splitlines()]
            lines += [f"! {error}" for error in said.splitlines()]
            lines += [f"[exit status {int(status)}]"] if status else []
    # Comments and steps stand right above what they are about.
    return re.sub(r"(?m)^([#%] .*)\n\n(?=[%$])", r"\1\n", "\n".join(lines)).lstrip() + "\n"


def read_command(line):
    """Split a command; variables in front of it are its environment."""
    words = shlex.split(line)
    variables = [word for word in words if re.match(r"HOTPARTITION_\w+=", word)]
    nothing_said = {} if "--table" in words else URL
    environ = dict(word.split("=", 1) for word in variables) if variables else nothing_said
    return environ, [word for word in words if word not in variables]


@pytest.mark.parametrize("name", sorted(file.stem for file in HERE.glob("*.txt")))
def test_a_transcript(name, world, connect, capsys, tmp_path):
    """Text and JSON, status and errors, as they were reviewed."""
    file = HERE / f"{name}.txt"
    assert_golden(file, play(file.read_text(), world, connect, capsys, tmp_path))


def test_a_journal_apart_changes_nothing_that_is_said(world, connect, capsys, tmp_path):
    """Nor do numbers as sort keys: what is said of `readings` is said of `counted`, up to the mistakes."""
    text = (HERE / "tables.txt").read_text().partition("\n# Mistakes")[0]
    for here, there in (("--table readings", "--table counted --journal-table routes"), (" readings", " counted")):
        text = text.replace(here, there)
    assert play(text, world, connect, capsys, tmp_path) == text


def rows_of(command):
    """The rows of the table of options whose first cell names the command."""
    rows = [line.split(" | ", 1) for line in FIELDS.split("\n## ")[0].splitlines() if line.startswith("| ")]
    return "\n".join(row[1] for row in rows if re.search(rf"`{command}( ID)?`", row[0]))


@pytest.mark.parametrize("command", sorted(OPTIONS))
def test_a_command_and_its_options_are_named(command):
    """In the rows of the command itself, so that a new one is not forgotten."""
    assert f"hotpartition {command}" in PAGES
    assert [option for option in OPTIONS[command] if f"`{option}`" not in rows_of(command) and option != "--json"] == []


def names_in(value):
    """The fields of a response, at whatever depth; those of counts are values."""
    if isinstance(value, list):
        return set().union(*map(names_in, value))
    if not isinstance(value, dict):
        return set()
    return set(value).union(*(names_in(inner) for name, inner in value.items() if not name.endswith("counts")))


def test_every_field_that_is_printed_is_named():
    """In the command's own section, or in that of errors."""
    sections = {
        command: section
        for section in re.split(r"^## ", FIELDS, flags=re.MULTILINE)[1:]
        for command in section.splitlines()[0].split(", ")
    }
    printed = "\n".join(file.read_text() for file in HERE.glob("*.txt"))
    documents = re.findall(r"^\$ .*?hotpartition (\S+).*--json.*\n(\{.*\})$", printed, re.MULTILINE)
    assert {"hot", "route", "raise", "close", "verify", "plan", "watch"} <= {command for command, _ in documents}
    for command, text in documents:
        document = json.loads(text)
        section = sections["Errors" if "error" in document else command]
        documented = {word for name in re.findall(r"`([^`]+)`", section) for word in re.findall(r"\w+", name)}
        assert names_in(document) - documented == set(), command
