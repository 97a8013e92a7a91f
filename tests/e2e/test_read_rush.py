"""A rush of readers in which whoever reads the page for all is killed: the short form of `make read-trials`."""

import asyncio
import random
import time
import uuid
from contextlib import suppress

import pytest

from hotpartition.redis.cluster import read_hot_key
from tools.play.read import LEARNT_SECONDS, Crowd, Run, judge, kill_holders, summarize
from tools.play.rig import open_rig
from tools.play.watch import ControlError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

KILLS = 2
"""Killed holders are asked for; up to three kills try."""
FIRST = 20


@pytest.fixture
def run(stack):
    """Some holders killed in a rush on a conversation that somebody has marked read-hot."""
    run = Run()
    asyncio.run(_kill_in_a_rush(stack, run, f"rush-{uuid.uuid4().hex[:12]}"))
    return run


async def _kill_in_a_rush(stack, run, conversation):
    async with open_rig(stack.api_url, stack.control_url, connections=8) as rig:
        control = rig.control
        raised = {"command": "raise", "conversation_id": conversation, "shard_count": 3}
        for _ in range(3):  # its first environment starts slowly beside others' load
            with suppress(ControlError):
                await control.post("/functions/operate/invoke", raised)
                break
        else:
            pytest.fail("three times the conversation could not be raised")
        rig.redis.set(read_hot_key(rig.status["dynamodb"]["table"], conversation), 2, px=600_000)
        run.began, run.found = time.time() - LEARNT_SECONDS, time.time() - LEARNT_SECONDS
        crowd = Crowd(rig, conversation, random.Random(1))
        run.recorder, run.asked = crowd.recorder, crowd.reading.asked
        for _ in range(FIRST):
            await crowd.write()
        rush = asyncio.create_task(crowd.go_on())
        try:
            await kill_holders(rig, run, conversation, KILLS, random.Random(1))
        finally:
            rush.cancel()
            await control.post("/dynamodb/faults", [])
        await crowd.end()


def test_no_request_fails_for_a_holder_that_dies(run):
    """But its own, which succeeds when it is repeated; and nothing served is older than the bound, or wrong."""
    assert judge(run, 0) == []
    summary = summarize(run)
    assert summary["served"] > 0
    assert summary["history"]["stale"] == 0
    if not run.holders_killed:
        pytest.skip("not judged: every kill came too late for this machine")
