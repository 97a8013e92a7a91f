"""A conversation gets hot: detected, spread, and read back whole, also with Redis killed in the middle."""

import time
import uuid

import pytest

from stack import WRITE_LIMIT_WCU, assert_read_back, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
def conversation():
    return f"hot:{uuid.uuid4().hex}"


def shard_buckets(stack, conversation):
    """What DynamoDB saw at the shards."""
    return [b for b in stack.timeline() if b["key"].startswith(f"{conversation}#")]


def throttled_since(stack, conversation, at_ms):
    """What DynamoDB refused at the shards."""
    return [b for b in shard_buckets(stack, conversation) if b["throttled_writes"] and b["at_ms"] > at_ms]


def shard_count(stack, conversation):
    """The largest N that DynamoDB was seen to be used with."""
    return len({b["key"] for b in shard_buckets(stack, conversation)})


def test_a_hot_conversation_is_spread_and_read_back_whole(stack, conversation):
    """Three times what a partition takes: shards within seconds, throttles end, nothing is lost or doubled."""
    started_ms = time.time() * 1000
    seconds = 8
    load = stack.offer(conversation, rate=3 * WRITE_LIMIT_WCU, seconds=seconds)
    buckets = shard_buckets(stack, conversation)
    assert len({b["key"] for b in buckets}) >= 4
    assert min(b["at_ms"] for b in buckets) - started_ms <= 5_000
    is_calm = not throttled_since(stack, conversation, started_ms + 6_000)
    while not is_calm and seconds < 20:
        # A machine that pauses sends at once what had waited, which is more than the rate: it is offered for longer.
        began_ms = time.time() * 1000
        stack.offer(conversation, rate=3 * WRITE_LIMIT_WCU, seconds=4, first=1_000 * seconds, load=load)
        seconds += 4
        is_calm = not throttled_since(stack, conversation, began_ms)
    assert is_calm
    assert_read_back(stack, conversation, load)
    assert len(load.acknowledged) == seconds * 3 * WRITE_LIMIT_WCU


def test_redis_killed_in_mid_load_loses_nothing(stack, conversation):
    """Writes go on and reads stay complete while it is dead; restarted from its AOF, the registry serves again."""
    load = stack.offer(conversation, rate=3 * WRITE_LIMIT_WCU, seconds=5)
    assert shard_count(stack, conversation) >= 4
    time.sleep(1.2)  # AOF everysec: let the route reach the disk

    def kill_and_restart():
        time.sleep(1)
        stack.control("/redis/kill")
        assert stack.status()["redis"]["running"] is False
        stack.read_into(load, conversation, order="newest")
        time.sleep(3)
        stack.control("/redis/start")

    stack.offer(conversation, rate=3 * WRITE_LIMIT_WCU, seconds=7, during=kill_and_restart, first=10_000, load=load)
    assert_read_back(stack, conversation, load)
    assert wait_for(lambda: stack.status()["redis"]["running"], seconds=5)

    # The registry serves again: a cold environment needs no second round, so no query is repeated for want of a route.
    time.sleep(1.0)
    stack.offer(conversation, rate=2 * WRITE_LIMIT_WCU, seconds=2, first=20_000, load=load)
    base = [b for b in stack.timeline() if b["key"] == conversation and b["at_ms"] > time.time() * 1000 - 1_500]
    assert sum(b["writes"] + b["throttled_writes"] for b in base) == 0
    assert_read_back(stack, conversation, load)
