"""The environment without Redis and consumer: writers find what is hot, and all else is as with them."""

import asyncio

import pytest

from stack import (
    HOT_WCU,
    SETTINGS,
    SLOWLY,
    WRITE_LIMIT_WCU,
    assert_read_back,
    route_in_journal,
    running_stack,
    undisturbed,
)
from tools.local.synthesis import synthesize
from tools.play.stack import environment_options

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def lite_stack(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lite")
    settings = {name: SETTINGS[name] for name in ("hot_at_once_wcu", "target_shard_wcu")}
    assembly = asyncio.run(synthesize(folder / "assembly", environment="lite", settings=settings, options=SLOWLY))
    environments = environment_options("min", {"write_message": 4, "read_messages": 2})
    with running_stack(assembly, folder, *environments) as running:
        yield running


def test_the_check_after_a_deployment_passes(lite_stack, check):
    """Write, read, edit, delete, a raise by hand; what the consumer would have is left out."""
    steps = check(lite_stack)
    assert {"edit the message", "delete the message", "raise by hand", "read all shards"} <= steps.keys()
    assert not {"start consume_reports", "find the consumer"} & steps.keys()


def test_a_rush_is_spread(lite_stack):
    """Raised in the journal by a writer, on shards from then on, and every message is read once, in order."""
    load = lite_stack.offer_until(lambda: route_in_journal(lite_stack, "rush"), "rush")
    load = lite_stack.offer("rush", rate=HOT_WCU, seconds=3, load=load)
    item = lite_stack.routing_item("rush")
    assert item["reason"]["S"].startswith("raised rate=")
    assert lite_stack.shard_buckets("rush")
    assert_read_back(lite_stack, "rush", load)


@undisturbed
def test_a_quiet_conversation_costs_what_dynamodb_alone_would(lite_stack, conversation):
    """One write unit a message at its base key; no route is looked up, no load is counted."""
    for _ in range(WRITE_LIMIT_WCU // 2):
        assert lite_stack.write(conversation, {"sender": "ann", "body": "hi"}).status == 201
    assert lite_stack.used(conversation, "write_wcu", "reads") == {"write_wcu": WRITE_LIMIT_WCU // 2, "reads": 0}
