"""The operations function from command to response: all is JSON, every refusal is one of the project's, none too large.

What the responses hold is pinned by the command line's transcripts.
"""

import json

import pytest

from support.builders import World
from support.events import FakeContext, load_handler
from support.fakes import KEY_RANGE_THROTTLE
from support.fleet import START_MS

LAMBDA_LIMIT_BYTES = 6 * 1024 * 1024
NOW_MS = START_MS + 6_000


@pytest.fixture
def world():
    world = World()
    world.clock.now_ms = NOW_MS
    return world


def ask(world, event, remaining_ms=60_000):
    response = load_handler("operate").respond(event, world.operations(), world.reconciler(), remaining_ms=remaining_ms)
    json.dumps(response)
    return response


def test_a_part_ends_before_the_functions_time(world):
    """With no time left it does one page and names the next."""
    for i in range(250):
        world.raise_to(2, 1, conversation_id=f"c{i:03}")
    part = ask(world, {"command": "verify"}, remaining_ms=5_000)
    assert (part["counts"]["equal"], part["cursor"] is None) == (100, False)


RAISE = {"command": "raise", "conversation_id": "c", "shard_count": 4}


@pytest.mark.parametrize(
    "event",
    [
        *(None, [], "hot", {}, {"command": "dance"}),
        *({"command": "hot", **wrong} for wrong in ({"limit": 0}, {"limit": 1001}, {"limit": "20"}, {"surplus": 1})),
        *({"command": "routes", "cursor": cursor} for cursor in ("nobody", "x" * 2001)),
        *({"command": "route", **wrong} for wrong in ({}, {"conversation_id": "a#1"}, {"conversation_id": "\ud800"})),
        *({**RAISE, "shard_count": count} for count in (1, True)),
        *({**RAISE, "by": name} for name in ("two words", "x" * 65)),
        *({"command": "verify", **wrong} for wrong in ({"mend": "yes"}, {"cursor": "elsewhere:"})),
    ],
)
def test_a_wrong_command_is_a_response(world, event):
    error = ask(world, event)["error"]
    assert (error["kind"], bool(error["message"])) == ("invalid-request", True)
    assert error["fields"]
    assert all(field["field"] and field["message"] for field in error["fields"])
    assert world.table.routes == {}


def test_a_raise_that_changes_nothing_says_what_there_is(world):
    for shard_count, seen in ((8, (True, 8, 0)), (3, (False, 8, 8))):
        done = ask(world, {**RAISE, "shard_count": shard_count})
        assert (done["changed"], done["shard_count"], done["shard_count_before"]) == seen


def test_a_store_that_fails_is_a_response(world):
    """Redis, where there is nothing to compare with; a journal that refuses is worth repeating."""
    world.raise_to(4, 5)
    world.registry.is_down = True
    assert ask(world, {"command": "verify"})["error"]["kind"] == "registry-unavailable"
    world.table.failures = [KEY_RANGE_THROTTLE] * 10_000
    error = ask(world, RAISE)["error"]
    assert (error["kind"], "repeating" in error["message"]) == ("retry-later", True)


def test_the_largest_responses_fit(world):
    """A thousand routes with the longest ids: far below what Lambda carries."""
    for i in range(1_100):
        world.raise_to(1024, NOW_MS, conversation_id=f"{i:0256}", in_redis=False)
    world.clock.now_ms += 3_600_000
    for event in ({"command": "hot", "limit": 1000}, {"command": "routes"}, {"command": "verify"}):
        assert len(json.dumps(ask(world, event))) < LAMBDA_LIMIT_BYTES / 4


def test_commands_are_served_and_counted_and_refused_ones_logged(monkeypatch, capsys, caplog, world):
    module = load_handler("operate")
    module.metrics.clear_metrics()
    monkeypatch.setattr(module, "_jobs", lambda: (world.operations(), world.reconciler()))
    assert module.handler({"command": "hot"}, FakeContext())["routes"] == []
    assert module.handler({"command": "dance"}, FakeContext())["error"]["kind"] == "invalid-request"
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sum(line.get("Commands", [0])[0] for line in lines) == 2
    assert [record.error["kind"] for record in caplog.records] == ["invalid-request"]
