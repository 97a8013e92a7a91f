"""The operations function from command to response: all is JSON, every refusal one of ours, none too large."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotpartition.core.errors import MalformedGenerationError
from hotpartition.core.route import Generation
from hotpartition.core.route_history import Cause
from support.builders import World
from support.events import FakeContext
from support.fakes import KEY_RANGE_THROTTLE
from support.fleet import START_MS, Fleet
from support.handlers import load_handler

LAMBDA_LIMIT_BYTES = 6 * 1024 * 1024
NOW_MS = START_MS + 6_000
"""2023-11-14T22:13:26Z."""


@pytest.fixture
def world():
    world = World()
    world.clock.now_ms = NOW_MS
    return world


def ask(world, event, remaining_ms=60_000):
    response = load_handler("operate").respond(event, world.operations(), world.reconciler(), remaining_ms=remaining_ms)
    json.dumps(response)
    return response


def test_hot(world):
    """Rows in their documented form."""
    for arrival in Fleet(environments=1, sampling_distance_wcu=1).offer(lambda _: 100, 6_000):
        world.reports.send(arrival.report)
    world.raise_to(4, NOW_MS - 90_000)
    world.reports.announce(NOW_MS - 1_000)
    assert ask(world, {"command": "hot"}) == {
        "at": "2023-11-14T22:13:26.000Z",
        "routes": [
            {
                "conversation_id": "c",
                "wcu_per_second": 100.0,
                "throttled_share": 0.0,
                "shard_count": 4,
                "capacity_wcu_per_second": 3200.0,
                "newest_since": "2023-11-14T22:11:56.000Z",
                "closed_at": None,
                "raised_at": None,
                "is_malformed": False,
                "rcu_per_second": 0.0,
            }
        ],
        "active": 1,
        "is_complete": True,
        "streams": 2,
        "streams_unavailable": 0,
        "consumer_started_at": "2023-11-14T22:13:25.000Z",
        "consumers_started_at": ["2023-11-14T22:13:25.000Z"],
    }


def test_route(world):
    """Generations with where they are known and the decisions that made them, those that are not recorded included."""
    world.journal.add("c", [Generation(NOW_MS, 4)], cause=Cause("raised", 1_900), now_ms=NOW_MS)
    world.registry.add("c", [Generation(NOW_MS, 4), Generation(NOW_MS + 1_000, 8)])
    assert ask(world, {"command": "route", "conversation_id": "c"}) == {
        "conversation_id": "c",
        "agreement": "ahead-of-journal",
        "at": "2023-11-14T22:13:26.000Z",
        "shard_count": 4,
        "generations": [
            {
                "shard_count": 4,
                "since": "2023-11-14T22:13:26.000Z",
                "in_journal": True,
                "in_registry": True,
                "raises": [
                    {
                        "decided_at": "2023-11-14T22:13:26.000Z",
                        "reason": "raised",
                        "rate_wcu_per_second": 1900,
                        "by": None,
                    }
                ],
            },
            {
                "shard_count": 8,
                "since": "2023-11-14T22:13:27.000Z",
                "in_journal": False,
                "in_registry": True,
                "raises": [],
            },
        ],
        "closes": [],
        "updated_at": "2023-11-14T22:13:26.000Z",
        "reason": "raised rate=1900",
        "malformed_members": [],
    }


def test_raise(world):
    """What it changed, and then that there was nothing left to change."""
    command = {"command": "raise", "conversation_id": "c", "shard_count": 8, "by": "ann", "since_ms": NOW_MS}
    response = ask(world, command)
    generations = [{"shard_count": 8, "since": "2023-11-14T22:13:26.000Z"}]
    assert response.pop("warnings")
    assert response == {
        "conversation_id": "c",
        "changed": True,
        "shard_count": 8,
        "shard_count_before": 0,
        "since": "2023-11-14T22:13:26.000Z",
        "in_registry": True,
        "generations": generations,
    }
    again = ask(world, {**command, "shard_count": 3})
    assert (again["changed"], again["shard_count"], again["shard_count_before"]) == (False, 8, 8)
    assert again["generations"] == generations


def test_a_part_ends_before_the_functions_time(world):
    """With no time left it does one page and names the next."""
    for i in range(250):
        world.raise_to(2, 1, conversation_id=f"c{i:03}")
    part = ask(world, {"command": "verify"}, remaining_ms=5_000)
    assert (part["counts"]["equal"], part["cursor"]) == (100, "c099")


@pytest.mark.parametrize(
    "event",
    [
        None,
        [],
        "hot",
        {},
        {"command": "dance"},
        {"command": "hot", "limit": 0},
        {"command": "hot", "limit": 1001},
        {"command": "hot", "limit": "20"},
        {"command": "hot", "surplus": 1},
        {"command": "routes", "cursor": "nobody"},
        {"command": "routes", "cursor": "x" * 2001},
        {"command": "route"},
        {"command": "route", "conversation_id": "a#1"},
        {"command": "route", "conversation_id": "\ud800"},
        {"command": "raise", "conversation_id": "c", "shard_count": 1},
        {"command": "raise", "conversation_id": "c", "shard_count": True},
        {"command": "raise", "conversation_id": "c", "shard_count": 4, "by": "two words"},
        {"command": "raise", "conversation_id": "c", "shard_count": 4, "by": "x" * 65},
        {"command": "verify", "mend": "yes"},
        {"command": "verify", "cursor": "elsewhere:"},
    ],
)
def test_a_wrong_command_is_a_response(world, event):
    error = ask(world, event)["error"]
    assert error["kind"] == "invalid-request"
    assert error["message"]
    assert error["fields"]
    assert all(field["field"] and field["message"] for field in error["fields"])
    assert world.table.routes == {}


@pytest.mark.parametrize(
    ("failure", "kind", "word"),
    [(KEY_RANGE_THROTTLE, "retry-later", "repeating"), (MalformedGenerationError("many"), "malformed-route", "")],
)
def test_a_journal_that_fails_is_a_response(world, failure, kind, word):
    """One that refuses is worth repeating."""
    world.table.failures = [failure] * 10_000
    error = ask(world, {"command": "raise", "conversation_id": "c", "shard_count": 4})["error"]
    assert (error["kind"], word in error["message"]) == (kind, True)


def test_an_absent_redis_is_a_response(world):
    """Where there is nothing to compare with."""
    world.raise_to(4, 5)
    world.registry.is_down = True
    assert ask(world, {"command": "verify"})["error"]["kind"] == "registry-unavailable"


def test_the_largest_responses_fit(world):
    """Thousands of routes with the longest ids: far below what Lambda carries."""
    for i in range(3_000):
        world.raise_to(1024, NOW_MS, conversation_id=f"{i:0256}", in_redis=False)
    world.clock.now_ms += 3_600_000
    for event in (
        {"command": "hot", "limit": 1000},
        {"command": "routes"},
        {"command": "verify"},
    ):
        assert len(json.dumps(ask(world, event))) < LAMBDA_LIMIT_BYTES / 4


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
commands = st.fixed_dictionaries(
    {"command": st.sampled_from(["hot", "routes", "route", "raise", "verify", "x"])},
    optional={
        name: json_values | st.sampled_from(["c", 4, True, NOW_MS])
        for name in ("limit", "cursor", "conversation_id", "shard_count", "since_ms", "by", "mend")
    },
)


@given(commands | json_values)
def test_whatever_arrives_gets_a_response(event):
    world = World()
    world.clock.now_ms = NOW_MS
    response = ask(world, event)
    if "error" in response:
        assert response["error"]["kind"] == "invalid-request"


class TestHandler:
    def test_commands_are_served_and_counted(self, monkeypatch, capsys, world):
        """With one line of metrics each, and one more when it is refused."""
        module = load_handler("operate")
        module.metrics.clear_metrics()
        monkeypatch.setattr(module, "_jobs", lambda: (world.operations(), world.reconciler()))
        assert module.handler({"command": "hot"}, FakeContext())["routes"] == []
        assert module.handler({"command": "dance"}, FakeContext())["error"]["kind"] == "invalid-request"
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if '"_aws"' in line]
        assert sum(line.get("Commands", [0])[0] for line in lines) == 2
        assert sum(line.get("CommandsRefused", [0])[0] for line in lines) == 1
