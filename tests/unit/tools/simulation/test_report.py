"""The report of small results: every section is there, every field is documented, nothing is loaded."""

import json
import re
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path

import pytest

from tools.simulation.read_rush import ReadRush
from tools.simulation.report import Plan, gather, read_plan, since_onset, step_counts, write_files
from tools.simulation.results import Distribution
from tools.simulation.scale import Level
from tools.simulation.scenarios import scenario_by_name, scenario_of_messages

DOCUMENT = (Path(__file__).resolve().parents[4] / "docs/simulation-summary.md").read_text()


class Inline(Executor):
    """Runs what it is given, at once."""

    def submit(self, work, /, *args, **kwargs):
        future = Future()
        future.set_result(work(*args, **kwargs))
        return future


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The files of a report, by name: all strategies on a step of a second, one rush, one fleet."""
    plan = Plan(
        scenario=replace(scenario_by_name("compare"), seconds=2.0, onset=1.0, drain_seconds=3.0),
        seed=3,
        rushes=(ReadRush(name="small", description="A small one.", seconds=1.0, copies=2, scale=0.01),),
        levels=(Level(writes_per_second=1_000, rushes=1, seeds=2, run_ms=4_500),),
        cooling_seeds=1,
    )
    done = dict.fromkeys(step_counts(plan), 0)

    def count(name):
        done[name] += 1

    contents = gather(plan, Inline(), {name: lambda name=name: count(name) for name in done})
    assert done == step_counts(plan)
    paths = write_files(contents, tmp_path_factory.mktemp("report"))
    return {path.name: path.read_text(encoding="utf-8") for path in paths}


@pytest.mark.slow
def test_the_report_holds_every_section_and_picture(written):
    """Each entry of the contents leads to a section; nothing is loaded but what the page holds."""
    page = written["report.html"]
    sections = re.findall(r'<section id="(\w+)">', page)
    assert sections == re.findall(r'<li><a href="#(\w+)">', page)
    assert {"answers", "comparison", "readrush", "scale", "limits"} <= set(sections)
    pictures = {name for name in written if name.endswith(".svg")}
    assert page.count("<figure>") == len(pictures) == 4
    assert not re.search(r"<script|@import|src=", page)


def names_in(value):
    """List the names of all fields of a JSON value."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from names_in(inner)
    elif isinstance(value, list):
        for inner in value[:1]:
            yield from names_in(inner)


@pytest.mark.slow
def test_every_field_of_the_summary_is_documented(written):
    """docs/simulation-summary.md names each."""
    documented = set(re.findall(r"`([a-z0-9_]+)`", DOCUMENT))
    assert sorted(set(names_in(json.loads(written["summary.json"]))) - documented) == []


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([0.0, 0.0], "at once"),
        ([0.5, 0.75, 1.0], "0.75 s (0.5 to 1)"),
        ([1.0, 1.5, None], "1.5 s (1 to never)"),
        ([1.0, None, None], "never (1 to never)"),
        ([None, None], "never"),
    ],
)
def test_what_happens_at_once_is_not_said_never_to_happen(values, words):
    """Both would be a dash, or a zero, in a table of numbers."""
    assert since_onset(Distribution.of(values)) == words


def test_command_line_names_what_is_wrong(capsys, tmp_path):
    """A scenario that does not exist, both inputs at once, a file that is not there."""
    for arguments in (["--scenario", "nonsense"], ["--messages", str(tmp_path / "none")], ["--seeds", "0"]):
        with pytest.raises(SystemExit):
            read_plan(arguments)
        assert arguments[1] in capsys.readouterr().err
    plan, _ = read_plan(["--scenario", "ramp", "--seed", "9"])
    assert (plan.scenario.name, plan.seeds, plan.command) == ("ramp", 1, "make simulate SCENARIO=ramp SEED=9")


def test_messages_become_a_scenario(tmp_path):
    """The largest conversation is the one that gets hot; a file without messages is refused."""
    path = tmp_path / "messages.jsonl"
    message = {"time": "2026-01-01T10:00:00Z", "sender": "ann", "text": "hello"}
    rooms = ["a", "b", "b", "b", "c"]
    path.write_text("".join(json.dumps({"conversation_id": room, **message}) + "\n" for room in rooms))
    scenario = scenario_of_messages(path)
    assert (scenario.hot_conversation, scenario.onset, scenario.heat_ends) == ("b", 0.0, 30.0)
    assert "5 messages of messages.jsonl, 3 of them" in scenario.description
    path.write_text("")
    with pytest.raises(ValueError, match="holds no messages"):
        scenario_of_messages(path)
