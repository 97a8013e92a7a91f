"""The report of small results: it is written, and every field of it is documented."""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from support.executors import Inline
from tools.simulation.read_rush import ReadRush
from tools.simulation.report import Plan, gather, step_counts, write_files
from tools.simulation.scale import Level
from tools.simulation.scenarios import scenario_by_name, scenario_of_messages

DOCUMENT = (Path(__file__).resolve().parents[4] / "docs/simulation-summary.md").read_text()


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
def test_a_report_is_written_and_every_field_of_its_summary_documented(tmp_path):
    """Of all strategies on a step of a second, one rush and one fleet; docs/simulation-summary.md names the fields."""
    plan = Plan(
        scenario=replace(scenario_by_name("compare"), seconds=2.0, onset=1.0, drain_seconds=3.0),
        seed=3,
        rushes=(ReadRush(name="small", description="A small one.", seconds=1.0, copies=2, scale=0.01),),
        levels=(Level(writes_per_second=1_000, rushes=1, seeds=2, run_ms=4_500),),
        cooling_seeds=1,
    )
    done = Counter()
    bars = {name: lambda name=name: done.update([name]) for name in step_counts(plan)}
    write_files(gather(plan, Inline(), bars), tmp_path)
    assert done == step_counts(plan)
    summary = json.loads((tmp_path / "summary.json").read_text())
    documented = set(re.findall(r"`([a-z0-9_]+)`", DOCUMENT))
    assert sorted(set(names_in(summary)) - documented) == []


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
