"""The other client of DynamoDB: everything works with boto3 as well, where the setting asks for it."""

from __future__ import annotations

import uuid

import pytest

from stack import HOT_WCU, Recorder, assert_read_back, read_meanwhile, route_in_journal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

REQUESTS = ("PutItem", "UpdateItem", "GetItem", "Query", "BatchGetItem")


def test_a_rush_under_faults_is_raised_and_read_back(guarded_stack):
    """Responses are lost, errors come, and a conversation gets hot meanwhile: nothing is lost or doubled."""
    conversation, load = f"sdk:{uuid.uuid4().hex}", Recorder()
    guarded_stack.set_faults(
        {"operation": "PutItem", "fault": "lose_answer", "probability": 0.1},
        *({"operation": operation, "fault": "error", "probability": 0.1} for operation in REQUESTS),
    )
    try:
        guarded_stack.offer(
            conversation,
            rate=HOT_WCU,
            seconds=3,
            during=lambda: read_meanwhile(guarded_stack, conversation, load, seconds=3),
            load=load,
        )
        guarded_stack.offer_until(lambda: route_in_journal(guarded_stack, conversation), conversation, load=load)
    finally:
        guarded_stack.set_faults()
    assert_read_back(guarded_stack, conversation, load)
    assert guarded_stack.read_one(conversation, load.acknowledged[0].message_id).status == 200
