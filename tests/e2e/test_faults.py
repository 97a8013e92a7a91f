"""Parts that fail in mid-load: whatever was acknowledged is read back, once and in order, and no response is a 500.

The short form of each fault; docs/operations.md, "When a part is down", says what clients and operators see.
"""

import random
import time
import uuid
from itertools import count
from statistics import median

import pytest
import redis
from ulid import ULID

from stack import (
    SENDER,
    WRITE_LIMIT_WCU,
    Load,
    assert_read_back,
    read_meanwhile,
    route_in_journal,
    route_in_redis,
    wait_for,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

RATE = 2 * WRITE_LIMIT_WCU
"""Writes a second that make a conversation hot."""
REQUESTS = ("PutItem", "UpdateItem", "GetItem", "Query", "BatchGetItem")
EXTRA_MS = 60
"""What a write may take longer at the median while Redis is dead."""
LIMITS_OF_OTHERS = ("ProvisionedThroughputExceeded", "AccountLimitExceeded", "MaxOnDemandThroughputExceeded")
"""What salting does not cure."""


@pytest.fixture
def conversation():
    return f"fault:{uuid.uuid4().hex}"


@pytest.fixture(autouse=True)
def _end_faults(stack):
    """Whatever a test broke works again for the next one."""
    yield
    stack.set_faults()
    stack.control("/redis/continue")
    stack.control("/redis/start")


@pytest.fixture
def registry(stack):
    """The Redis itself."""
    client = redis.Redis(port=stack.status()["redis"]["port"], decode_responses=True, socket_timeout=2)
    yield client
    client.close()


def offer_and_read(stack, conversation, *, rate, seconds):
    """Offer a load, and read it while it comes."""
    load = Load()
    stack.offer(
        conversation,
        rate=rate,
        seconds=seconds,
        during=lambda: read_meanwhile(stack, conversation, load, seconds=seconds - 0.5),
        load=load,
    )
    return load


def test_puts_whose_response_is_lost_are_not_doubled(stack, conversation):
    """Stored, but the writer never hears of it: it tries again, and so does the client, with the same id."""
    before = stack.injected()
    stack.set_faults(
        {"operation": "PutItem", "fault": "lose_answer", "probability": 0.3},
        {"operation": "UpdateItem", "fault": "lose_answer", "probability": 0.3},
    )
    load = offer_and_read(stack, conversation, rate=RATE, seconds=3)
    stack.set_faults()
    assert (stack.injected() - before)["lose_answer"] >= 20
    assert_read_back(stack, conversation, load)


def test_a_dynamodb_that_fails_and_is_slow_costs_no_message(stack, conversation):
    """A fifth of its responses are errors and a fifth are late: requests are tried again or refused with 503."""
    before = stack.injected()
    stack.set_faults(
        *({"operation": o, "fault": "error", "probability": 0.2} for o in REQUESTS),
        *({"operation": o, "fault": "delay", "probability": 0.2, "delay_ms": 150} for o in REQUESTS),
    )
    load = offer_and_read(stack, conversation, rate=RATE, seconds=3)
    stack.set_faults()
    injected = stack.injected() - before
    assert injected["error"] >= 20
    assert injected["delay"] >= 20
    assert_read_back(stack, conversation, load)


def test_throttles_that_salting_does_not_cure_raise_nothing(stack, conversation):
    """Limits of the account, the table and the index: tried again, never met with shards."""
    before = stack.injected()
    limits = [f"{target}%s{limit}" for target in ("Table", "Index") for limit in LIMITS_OF_OTHERS]
    stack.set_faults(
        *({"operation": "PutItem", "fault": "throttle", "probability": 0.06, "reason": r % "Write"} for r in limits),
        *({"operation": "Query", "fault": "throttle", "probability": 0.06, "reason": r % "Read"} for r in limits),
    )
    # Half of what a partition takes: not hot by itself.
    load = offer_and_read(stack, conversation, rate=WRITE_LIMIT_WCU / 2, seconds=4)
    stack.set_faults()
    assert (stack.injected() - before)["throttle"] >= 10
    assert_read_back(stack, conversation, load)
    assert route_in_journal(stack, conversation) == set()
    assert not [b for b in stack.timeline() if b["key"].startswith(f"{conversation}#")]


def test_a_raise_gets_through_a_throttled_journal(stack, conversation):
    """The routing item shares the hot partition: its update is repeated until it is stored."""
    stack.set_faults(
        {
            "operation": "UpdateItem",
            "fault": "throttle",
            "probability": 0.7,
            "reason": "TableWriteKeyRangeThroughputExceeded",
        }
    )
    load = offer_and_read(stack, conversation, rate=RATE, seconds=4)
    assert wait_for(lambda: route_in_journal(stack, conversation), seconds=5)
    stack.set_faults()
    assert [b for b in stack.timeline() if b["key"].startswith(f"{conversation}#")]
    assert_read_back(stack, conversation, load)


def test_an_emptied_redis_is_filled_again(stack, conversation, registry):
    """Killed, its AOF deleted, started: reads are complete at once, and the routes come back from the journal."""
    other = f"{conversation}:unread"
    loads = []
    load = stack.offer(
        conversation,
        rate=RATE,
        seconds=3,
        during=lambda: loads.append(stack.offer(other, rate=RATE, seconds=3)),
    )
    assert wait_for(lambda: route_in_journal(stack, conversation) and route_in_journal(stack, other), seconds=5)
    registry.set("of-before", "1")
    stack.control("/redis/kill")
    stack.control("/redis/start?fresh=1")
    assert registry.get("of-before") is None
    assert_read_back(stack, conversation, load)
    # This one is not read meanwhile, so that no reader mends its route.
    route = route_in_journal(stack, other)
    assert wait_for(lambda: route_in_redis(stack, registry, other) == route, seconds=15)
    assert route_in_redis(stack, registry, conversation) == route_in_journal(stack, conversation)
    assert_read_back(stack, other, loads[0])


def test_writes_go_on_while_redis_is_paused(stack, conversation):
    """Its connections stay open and nothing responds, for 3 s."""
    load = Load()
    acknowledged_while_paused = 0

    def pause():
        nonlocal acknowledged_while_paused
        time.sleep(2)
        stack.control("/redis/pause")
        before = len(load.acknowledged)
        time.sleep(3)
        acknowledged_while_paused = len(load.acknowledged) - before
        stack.control("/redis/continue")

    stack.offer(conversation, rate=RATE, seconds=5.5, during=pause, load=load)
    assert acknowledged_while_paused >= 3 * RATE / 2
    assert_read_back(stack, conversation, load)


def test_write_environments_killed_in_mid_request_lose_nothing(stack, conversation):
    """The gateway responds with 500 for them, as API Gateway does; clients repeat with the id that they minted."""
    killed_before = stack.status()["functions"]["write_message"]["killed"]

    def kill():
        for _ in range(4):
            time.sleep(0.5)
            stack.control("/functions/write_message/kill")

    # Slow puts, so that the environment is likely to have one under way.
    stack.set_faults({"operation": "PutItem", "fault": "delay", "probability": 0.5, "delay_ms": 60})
    load = stack.offer(conversation, rate=RATE, seconds=3, during=kill, mint_id=lambda: str(ULID()))
    stack.set_faults()
    assert stack.status()["functions"]["write_message"]["killed"] == killed_before + 4
    assert_read_back(stack, conversation, load, statuses=(200, 201, 500, 503))


def test_a_consumer_killed_between_journal_and_registry_is_made_up_for(stack, conversation, registry):
    """The raise is in the journal alone: reads are complete, and the next consumer tells Redis."""
    was_apart = False

    def kill_in_raise():
        nonlocal was_apart
        # The consumer still waits for the response of its update when it dies.
        assert wait_for(lambda: route_in_journal(stack, conversation), seconds=10), "nothing was raised"
        while stack.status()["functions"]["consume_reports"]["busy"]:  # two, when the schedule has just fired
            stack.control("/functions/consume_reports/kill")
        stack.set_faults()
        was_apart = not route_in_redis(stack, registry, conversation)
        stack.invoke_and_leave("consume_reports")

    stack.set_faults({"operation": "UpdateItem", "fault": "late_answer", "delay_ms": 1_000})
    load = stack.offer(conversation, rate=RATE, seconds=5, during=kill_in_raise)
    assert was_apart
    assert_read_back(stack, conversation, load)
    route = route_in_journal(stack, conversation)
    assert wait_for(lambda: route_in_redis(stack, registry, conversation) == route, seconds=10)
    assert [b for b in stack.timeline() if b["key"].startswith(f"{conversation}#")]


def test_the_control_api_refuses_what_it_cannot_break(stack):
    """Wrong rules change nothing, and a running Redis keeps its file."""
    wrong = stack.request("PUT", f"{stack.control_url}/dynamodb/faults", [{"operation": "PutItem", "fault": "gremlin"}])
    assert (wrong.status, wrong.body.keys()) == (400, {"message"})
    assert stack.request("PUT", f"{stack.control_url}/dynamodb/faults", b"{").status == 400
    assert stack.request("GET", f"{stack.control_url}/dynamodb/faults").body["rules"] == []
    assert stack.request("POST", f"{stack.control_url}/redis/start?fresh=1").status == 409


def test_a_run_without_a_replica_says_so(stack):
    """409, and Redis goes on."""
    for order in ("cut-replica", "fail-over"):
        response = stack.request("POST", f"{stack.control_url}/redis/{order}")
        assert (response.status, response.body) == (409, {"message": "no replica runs"})
    assert stack.status()["redis"]["running"]


def test_writes_hardly_wait_for_a_dead_redis(stack, conversation, capsys):
    """At the median of writes that have to ask for a route, up and dead in turn; reads stay complete."""
    number = count()
    milliseconds: dict[str, list[float]] = {"up": [], "dead": []}
    loads = {}

    def measure(state):
        for _ in range(60):
            fresh = f"{conversation}:{next(number)}"
            started = time.perf_counter()
            response = stack.write(fresh, {"sender": SENDER, "body": state})
            milliseconds[state].append((time.perf_counter() - started) * 1000)
            assert response.status == 201
            loads[fresh] = Load()
            loads[fresh].take(response, state)

    try:
        for _ in range(3):
            measure("up")
            stack.control("/redis/kill")
            measure("dead")
            for fresh in random.sample(sorted(loads), 5):
                assert_read_back(stack, fresh, loads[fresh])
            stack.control("/redis/start")
    finally:
        stack.control("/redis/start")
    up, dead = median(milliseconds["up"]), median(milliseconds["dead"])
    with capsys.disabled():
        print(  # noqa: T201 - the figures are what the test is for
            f"\nwrites at the median: {up:.1f} ms with Redis, {dead:.1f} ms with Redis dead"
        )
    assert dead <= up + EXTRA_MS
