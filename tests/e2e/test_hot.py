"""A conversation gets hot: detected, spread, and read back whole, also with Redis killed in the middle."""

import pytest

from stack import WRITE_LIMIT_WCU, Recorder, assert_read_back, route_in_journal, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

RATE = 3 * WRITE_LIMIT_WCU


def shard_count(stack, conversation):
    """The largest N that DynamoDB was seen to be used with."""
    return len({bucket["key"] for bucket in stack.shard_buckets(conversation)})


def test_a_hot_conversation_is_spread_and_read_back_whole(stack, conversation):
    """Three times what a partition takes: shards, an end of the throttles, nothing lost or doubled."""

    def throttled():
        return sum(bucket["throttled_writes"] for bucket in stack.timeline() if bucket["key"].startswith(conversation))

    def is_calm():
        nonlocal before
        seen, before = before, throttled()
        return before == seen

    load, before = Recorder(), 0
    stack.offer_until(lambda: shard_count(stack, conversation) >= 4, conversation, rate=RATE, load=load)
    # A machine that pauses sends at once what had waited, which is more than the rate: it is offered until it did not.
    stack.offer_until(is_calm, conversation, rate=RATE, load=load)
    assert_read_back(stack, conversation, load)
    assert load.counts.acknowledged == load.counts.offered


def test_redis_killed_in_mid_load_loses_nothing(stack, conversation):
    """Writes go on and reads stay complete while it is dead; restarted from its AOF, the registry serves again."""
    load = stack.offer_until(lambda: shard_count(stack, conversation) >= 4, conversation, rate=RATE)

    def stored_after(count):
        before = len(load.acknowledged)
        wait_for(lambda: len(load.acknowledged) >= before + count)

    def kill_and_restart():
        stored_after(RATE)
        stack.control("/redis/kill")
        assert stack.status()["redis"]["running"] is False
        stack.read_into(load, conversation, order="newest")
        stored_after(RATE)
        stack.control("/redis/start")

    stack.offer(conversation, rate=RATE, seconds=6, during=kill_and_restart, load=load)
    assert_read_back(stack, conversation, load)
    assert stack.status()["redis"]["running"]

    # The registry serves again: a cold environment needs no second round, so no query is repeated for want of a route.
    def base_is_left_alone():
        nonlocal before
        seen = before
        own = [bucket for bucket in stack.timeline() if bucket["key"] == conversation]
        before = sum(bucket["writes"] + bucket["throttled_writes"] for bucket in own)
        return before == seen

    before = -1
    stack.offer_until(base_is_left_alone, conversation, rate=RATE, load=load)
    assert route_in_journal(stack, conversation)
    assert_read_back(stack, conversation, load)
