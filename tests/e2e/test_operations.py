"""`hotpartition`, as it is installed, against the running stack; and what a raise before a rush is good for."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis

from hotpartition_cli.rush import MESSAGE_WCU
from stack import SETTINGS, WRITE_LIMIT_WCU, assert_read_back, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TOOL = Path(sys.executable).with_name("hotpartition")


@pytest.fixture
def tool(stack):
    """Runs the console script: exit status, and its response as JSON (or its text)."""

    def tool(*arguments, as_json=True):
        assert TOOL.exists(), "make setup installs it"
        command = [str(TOOL), *arguments, *(["--json"] if as_json else [])]
        environ = {**os.environ, "HOTPARTITION_URL": stack.control_url}
        # From elsewhere, so that it is what was installed that runs.
        done = subprocess.run(command, cwd="/", env=environ, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr
        return done.returncode, json.loads(done.stdout) if as_json else done.stdout

    return tool


@pytest.fixture
def registry(stack):
    client = redis.Redis(port=stack.status()["redis"]["port"], decode_responses=True, socket_timeout=2)
    yield client
    client.close()


def route_key(stack, conversation):
    return f"hp:{stack.status()['dynamodb']['table']}:route:{{{conversation}}}"


def test_a_conversation_raised_before_its_rush_is_not_throttled_in_it(stack, tool, conversation):
    """Three times what a key takes, from the first message on: no write is refused, and everything reads back."""
    stack.write(conversation, {"sender": "ann", "body": "before"})  # writers know it as one that was never raised
    status, done = tool("raise", conversation, "--n", "10", "--by", "ann")
    assert (status, done["changed"], done["shard_count"], done["in_registry"]) == (0, True, 10, True)
    assert any("queries 10 shard keys" in warning for warning in done["warnings"])
    time.sleep(2.1)  # what the tool says: so long a route is cached

    # Fewer than ten shards take at once, on a machine that pauses.
    load = stack.offer(conversation, rate=3 * WRITE_LIMIT_WCU, seconds=1.7)
    keys = [b for b in stack.timeline() if b["key"].partition("#")[0] == conversation]
    assert sum(b["throttled_writes"] for b in keys) == 0
    assert (load.counts.throttled, load.counts.acknowledged) == (0, load.counts.offered)
    assert {b["key"] for b in keys if b["writes"]} >= {f"{conversation}#{i}" for i in range(10)}
    assert "before" in [m["body"] for m in stack.read_all(conversation, consistency="strong", limit=200)]

    # What the rush looked like to an operator, and why the route is what it is.
    _, hot = tool("hot", "--limit", "1000")
    (row,) = [row for row in hot["routes"] if row["conversation_id"] == conversation]
    assert row["shard_count"] == 10
    assert row["throttled_share"] == 0
    assert hot["consumer_started_at"] is not None
    status, route = tool("route", conversation)
    assert (status, route["agreement"], len(route["generations"])) == (0, "equal", 1)
    (decision,) = route["generations"][0]["raises"]
    assert (decision["reason"], decision["by"]) == ("by-hand", "ann")


def test_decisions_of_the_detection_are_shown(stack, tool, conversation):
    """A conversation that the consumer raised says by what load."""
    load = stack.offer_until(lambda: stack.routing_item(conversation), conversation, rate=3 * WRITE_LIMIT_WCU)
    assert_read_back(stack, conversation, load)
    status, route = tool("route", conversation)
    assert status == 0
    decisions = [decision for generation in route["generations"] for decision in generation["raises"]]
    assert len(decisions) == len(route["generations"]) >= 1
    assert decisions[0]["reason"] == "raised"
    assert decisions[0]["rate_wcu_per_second"] >= SETTINGS["hot_sustained_wcu"]
    status, text = tool("route", conversation, as_json=False)
    assert (status, "raised at" in text, "equal" in text) == (0, True, True)


def test_differences_are_found_and_repaired(stack, tool, registry, conversation):
    """A route that Redis lost, one that only Redis has: named, mended, gone."""
    tool("raise", conversation, "--n", "4")
    lost = f"{conversation}:lost"
    registry.sadd(route_key(stack, lost), "2@1700000000000")

    def without_route(*arguments):
        # The consumer fills the registry once in a while, and may do so just now.
        registry.delete(route_key(stack, conversation))
        return tool(*arguments)

    def find_differences():
        status, found = without_route("verify")
        differences = {d["conversation_id"]: d["agreement"] for d in found["differences"]}
        assert status == 1
        assert differences[lost] == "ahead-of-journal"
        return differences.get(conversation) == "missing-in-registry"

    assert wait_for(find_differences)
    assert wait_for(lambda: without_route("route", conversation)[0] == 1)
    status, _ = tool("verify", "--mend")
    assert status == 0
    assert registry.smembers(route_key(stack, conversation)) == set(
        stack.routing_item(conversation)["generations"]["SS"]
    )
    assert stack.routing_item(lost)["generations"]["SS"] == ["2@1700000000000"]
    assert tool("verify")[0] == 0


def test_a_rush_makes_a_conversation_hot(stack, tool, conversation):
    """The command that `make up` names: every message is counted, and the conversation is raised while it runs."""
    status, made = tool("rush", conversation, "--wcu", str(20 * WRITE_LIMIT_WCU), "--seconds", "4")
    assert status == 0
    assert made["stored"] + made["throttled"] + made["failed"] == round(20 * WRITE_LIMIT_WCU * 4 / MESSAGE_WCU)
    assert made["failed"] == 0
    assert made["shard_count"] > 1
    assert len(stack.read_all(conversation, consistency="strong", limit=200)) >= made["stored"]
