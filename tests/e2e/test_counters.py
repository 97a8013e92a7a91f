"""Counters through gateway, runtime client, functions, Redis and DynamoDB."""

import uuid

import pytest

from stack import undisturbed

pytestmark = pytest.mark.slow


@pytest.fixture
def counter():
    """A counter of the test's own."""
    return f"likes:{uuid.uuid4().hex}"


@undisturbed
def test_what_is_added_is_read(stack, counter):
    """Up and down, with a token once; nothing before."""
    assert stack.count(counter) == 0
    assert stack.add(counter, {}).body == {"counter_id": counter, "amount": 1}
    for _ in range(3):
        assert stack.add(counter, {"amount": 44, "token": "ann"}).status == 200
    assert stack.add(counter, {"amount": -3}).status == 200
    assert stack.count(counter) == stack.count(counter, consistency="eventual") == 42
    conflict = stack.add(counter, {"amount": 45, "token": "ann"})
    assert (conflict.status, conflict.content_type) == (409, "application/problem+json")
    assert stack.count(counter) == 42


def test_lost_responses_count_once(stack, counter):
    """The function, or libcurl below it, repeats the request; DynamoDB knows its token."""
    stack.set_faults({"operation": "TransactWriteItems", "fault": "lose_answer", "probability": 0.5})
    try:
        for number in range(20):
            for _ in range(60):
                status = stack.add(counter, {"amount": 1, "token": str(number)}).status
                if status == 200:
                    break
                assert status == 503
    finally:
        stack.set_faults()
    assert stack.injected()["lose_answer"] > 0
    assert stack.count(counter) == 20


@undisturbed
def test_an_unknown_outcome_says_so(stack, counter):
    """504: DynamoDB failed, before or after it counted."""
    stack.set_faults({"operation": "UpdateItem", "fault": "error"})
    try:
        unknown = stack.add(counter, {})
    finally:
        stack.set_faults()
    assert (unknown.status, unknown.body["type"]) == (504, "urn:hotpartition:outcome-unknown")
    assert "retry-after" not in unknown.headers


@undisturbed
def test_a_quiet_counter_costs_what_dynamodb_alone_would(stack, counter):
    """One write unit an addition, two with a token, one read for the sum; nothing but the base key."""
    for body in ({}, {}, {"token": "ann"}):
        assert stack.add(counter, body).status == 200
    assert stack.count(counter) == 3
    used = stack.used(f"counter/{counter}", "writes", "write_wcu", "reads")
    assert used == {"writes": 3, "write_wcu": 4.0, "reads": 1}
