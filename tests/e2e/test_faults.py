"""Parts that fail in mid-load: whatever was acknowledged is read back, once and in order, and no response is a 500.

The short form of each fault; docs/operations.md, "When a part is down", says what clients and operators see.
"""

from functools import partial

import pytest
import redis

from hotpartition_messages.message_ids import mint_message_id
from stack import (
    HOT_WCU,
    Recorder,
    assert_read_back,
    read_meanwhile,
    route_in_journal,
    route_in_redis,
    wait_for,
)
from tools.play.soak import GATEWAY_FAILURE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

REQUESTS = ("PutItem", "UpdateItem", "GetItem", "Query", "BatchGetItem")


@pytest.fixture(autouse=True)
def _end_faults(stack):
    """Whatever a test broke works again for the next one."""
    yield
    stack.set_faults()
    stack.control("/redis/continue")
    stack.control("/redis/start")


@pytest.mark.parametrize(
    "rules",
    [
        # Stored, but the writer never hears of it: it tries again, and so does the client, with the same id.
        [{"operation": o, "fault": "lose_answer", "probability": 0.3} for o in ("PutItem", "UpdateItem")],
        # Tried again or refused with 503.
        [
            *({"operation": o, "fault": "error", "probability": 0.2} for o in REQUESTS),
            *({"operation": o, "fault": "delay", "probability": 0.2, "delay_ms": 150} for o in REQUESTS),
        ],
    ],
    ids=["responses lost", "errors and delays"],
)
def test_a_dynamodb_that_fails_costs_no_message(stack, conversation, rules):
    """Under load and reads meanwhile: whatever was acknowledged is there once."""
    before, load = stack.injected(), Recorder()
    stack.set_faults(*rules)
    reads = partial(read_meanwhile, stack, conversation, load, seconds=2.5)
    stack.offer(conversation, rate=HOT_WCU, seconds=3, during=reads, load=load)
    stack.set_faults()
    assert (stack.injected() - before).keys() == {rule["fault"] for rule in rules}
    assert_read_back(stack, conversation, load)


def test_an_emptied_redis_is_filled_by_readers(stack, conversation, registry):
    """Killed, its AOF deleted, started: reads are complete at once, and they bring the route back from the journal."""
    load = stack.offer_until(lambda: route_in_journal(stack, conversation), conversation)
    registry.set("of-before", "1")
    stack.control("/redis/kill")
    stack.control("/redis/start?fresh=1")
    assert registry.get("of-before") is None
    assert_read_back(stack, conversation, load)
    wait_for(lambda: route_in_redis(stack, registry, conversation) == route_in_journal(stack, conversation))


def test_writes_go_on_while_redis_is_paused(stack, conversation):
    """Its connections stay open and nothing responds until more than a second's messages were stored."""
    load = Recorder()

    def pause():
        wait_for(lambda: load.counts["acknowledged"] >= HOT_WCU)
        stack.control("/redis/pause")
        before = load.counts["acknowledged"]
        wait_for(lambda: load.counts["acknowledged"] >= before + 1.5 * HOT_WCU)
        stack.control("/redis/continue")

    stack.offer(conversation, rate=HOT_WCU, seconds=5, during=pause, load=load)
    assert_read_back(stack, conversation, load)


def test_write_environments_killed_in_mid_request_lose_nothing(stack, conversation):
    """The gateway responds with 500 for them, as API Gateway does; clients repeat with the id that they minted."""
    killed_before, load = stack.status()["functions"]["write_message"]["killed"], Recorder()

    def kill():
        for number in range(1, 5):
            wait_for(lambda number=number: load.counts["acknowledged"] >= number * HOT_WCU / 2)
            stack.kill("write_message")

    def mint(_, now, rng):
        return mint_message_id(int(now * 1000), rng.getrandbits)

    # Slow puts, so that the environment is likely to have one under way.
    stack.set_faults({"operation": "PutItem", "fault": "delay", "probability": 0.5, "delay_ms": 60})
    stack.offer(conversation, rate=HOT_WCU, seconds=3, during=kill, load=load, mint=mint)
    stack.set_faults()
    assert stack.status()["functions"]["write_message"]["killed"] == killed_before + 4
    assert_read_back(stack, conversation, load, excused=GATEWAY_FAILURE)


def test_a_promoted_replica_that_missed_a_raise_loses_nothing(replicated_stack, conversation):
    """The raise is in the journal and died with the primary: reads are complete, and the route comes back."""
    stack, load, known = replicated_stack, Recorder(), set()
    registry = redis.Redis(port=stack.status()["redis"]["port"], decode_responses=True, socket_timeout=20)
    stack.control("/redis/cut-replica")
    stack.offer_until(lambda: route_in_redis(stack, registry, conversation), conversation, load=load)

    def lose_the_primary():
        # Seen by the primary alone.
        with redis.Redis(port=stack.status()["redis"]["replica_port"], decode_responses=True) as replica:
            replica.readonly()
            known.update(route_in_redis(stack, replica, conversation))
        stack.control("/redis/fail-over")
        # Complete at once, whatever the promoted replica knows.
        read_meanwhile(stack, conversation, load, seconds=1)

    stack.offer(conversation, rate=HOT_WCU, seconds=3, during=lose_the_primary, load=load)
    assert known == set()
    assert_read_back(stack, conversation, load)
    wait_for(lambda: route_in_redis(stack, registry, conversation) == route_in_journal(stack, conversation))
    status = stack.control("/redis/start")
    assert status["running"]
    wait_for(lambda: registry.info("replication")["connected_slaves"] == 1)
    registry.close()
