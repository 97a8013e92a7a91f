"""`hotpartition` against the running stack; and what a raise before a rush is good for."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hotpartition.core.route import stable_hash
from hotpartition_cli.main import run
from hotpartition_cli.rush import MESSAGE_WCU
from hotpartition_messages.message_ids import mint_message_id
from stack import WRITE_LIMIT_WCU, Recorder, assert_read_back, wait_for

MOST_ATTEMPTS = 10

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def tool(stack, capsys):
    """Runs a command until it succeeds, and returns its JSON: on a busy machine, Redis may respond too late."""

    def tool(*arguments):
        changed = False  # by an attempt that failed as well, perhaps
        for _ in range(MOST_ATTEMPTS):
            status = run([*arguments, "--json"], {"HOTPARTITION_URL": stack.control_url})
            document = json.loads(capsys.readouterr().out)
            changed |= document.get("changed", True)
            if status == 0:
                return {**document, "changed": changed}
        raise AssertionError(document)

    return tool


def mint_in_turn(offer, now, rng):
    """Mint ids that take ten shards in turn: they share the load evenly, however late a busy machine offers it."""
    while True:
        message_id = mint_message_id(int(now * 1000), rng.getrandbits)
        if stable_hash(message_id) % 10 == int(offer.body.split()[-1]) % 10:
            return message_id


def test_a_conversation_raised_before_its_rush_is_not_throttled_in_it(stack, tool, conversation):
    """Three times what a key takes, from the first message on: no write is refused, and everything reads back."""
    # Writers know it as one that was never raised.
    load = stack.offer(conversation, rate=1, seconds=1)
    done = tool("raise", conversation, "--n", "10", "--by", "ann")
    assert (done["changed"], done["shard_count"], done["in_registry"]) == (True, 10, True)
    assert any("queries 10 shard keys" in warning for warning in done["warnings"])
    time.sleep(2.1)  # what the tool says: so long a route is cached

    # Less than ten shards take at once, on a machine that pauses.
    stack.offer(conversation, rate=3 * WRITE_LIMIT_WCU, seconds=1.7, mint=mint_in_turn, load=load)
    rows = [row for row in stack.timeline() if row.key.partition("#")[0] == conversation]
    assert sum(row.throttled_writes for row in rows) == 0
    assert load.counts["acknowledged"] == load.counts["offered"]
    assert {row.key for row in rows if row.writes} >= {f"{conversation}#{i}" for i in range(10)}
    assert_read_back(stack, conversation, load)

    # What the rush looked like to an operator, and why the route is what it is.
    hot = tool("hot", "--limit", "1000")
    (row,) = [row for row in hot["routes"] if row["conversation_id"] == conversation]
    assert row["shard_count"] == 10
    assert row["throttled_share"] == 0
    wait_for(lambda: tool("hot").get("consumer_started_at"))  # the next consumer's start, at the latest
    route = tool("route", conversation)
    assert (route["agreement"], len(route["generations"])) == ("equal", 1)
    (decision,) = route["generations"][0]["raises"]
    assert (decision["reason"], decision["by"]) == ("by-hand", "ann")


def test_a_rush_makes_a_conversation_hot(stack, conversation):
    """The command that `make up` names, as it is installed: every message is counted, and it is raised meanwhile."""
    wcu = 20 * WRITE_LIMIT_WCU
    tool = Path(sys.executable).with_name("hotpartition")
    environ = {**os.environ, "HOTPARTITION_URL": stack.control_url}
    command = [tool, "rush", conversation, "--wcu", str(wcu), "--seconds", "4", "--json"]
    # From elsewhere, so that it is what was installed that runs.
    stored = 0
    for _ in range(5):  # a machine that stands still makes no rush, or no response comes in time
        done = subprocess.run(command, cwd="/", env=environ, capture_output=True, text=True, check=True)
        made = json.loads(done.stdout)
        stored += made["stored"]
        assert made["stored"] + made["throttled"] + made["failed"] == round(wcu * 4 / MESSAGE_WCU)
        seen = Recorder()
        assert stack.read_into(seen, conversation, order="newest")
        assert len(seen.reads[0].messages) >= stored
        if made["shard_count"] > 1 and not made["failed"]:
            break
    assert made["failed"] == 0
    assert made["shard_count"] > 1
