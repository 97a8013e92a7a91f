"""What both HTTP functions share: events in, and times."""

from __future__ import annotations

import json

import pytest

from hotpartition.errors import CredentialsError
from hotpartition_messages import Message
from hotpartition_messages.api import (
    count_fitting,
    page_text,
    remaining_ms,
    serve,
)
from support.events import COLLECTION, FakeContext, http_event, page_event


def test_an_event_is_served_by_the_route_that_the_gateway_matched():
    """Whatever its path is, in whatever stage; and it is left as it is: Lambda's event is not ours to change."""
    event = http_event("GET", COLLECTION, {"conversation_id": "a#/%"}, stage="v1")
    before = json.dumps(event)
    found = serve({f"GET {COLLECTION}": lambda event, _: {"found": event["pathParameters"]}}, event, FakeContext())
    assert found == {"found": {"conversation_id": "a#/%"}}
    assert json.dumps(event) == before


def test_an_error_that_is_no_clients_business_stays_one():
    """The gateway answers with its own 500, and the function's error is counted and logged."""

    def fail(event, remaining_ms):
        raise CredentialsError

    with pytest.raises(CredentialsError):
        serve({f"GET {COLLECTION}": fail}, page_event("c"), FakeContext())


def test_an_answer_is_out_before_the_timeout():
    """The last three seconds belong to an attempt that just began, and the answer; there is never less than no time."""
    assert remaining_ms(FakeContext(remaining_ms=5000)) == 2000
    assert remaining_ms(FakeContext(remaining_ms=100)) == 0


def filled(body, count=200):
    return [Message("c", "0" * 26, "ann", body) for _ in range(count)]


@pytest.mark.parametrize("character", ["a", "é", "✓", "😀", '"', "\\", "\n", "\x01"])
def test_a_page_never_passes_the_functions_answer(character):
    """Whatever the messages are made of: the answer, escaped as Lambda escapes it, stays below 6 MB."""
    for length in (100, 1_799, 1_800, 20_000, 400_000 // len(character.encode())):
        messages = filled(character * length)
        fitting = messages[: max(1, count_fitting(messages))]
        answer = {"body": page_text(fitting, next_cursor="c" * 42, settled_until="2026-11-21T09:30:00.000Z")}
        assert len(json.dumps(answer)) < 6_000_000


def test_usual_pages_are_not_cut():
    """200 messages of 1,800 characters, of whatever alphabet."""
    assert count_fitting(filled("😀" * 1_799)) == 200
