"""What both HTTP functions share: pages that fit, and times."""

import json

import pytest

from hotpartition_messages import Message
from hotpartition_messages.api import (
    count_fitting,
    page_text,
    remaining_ms,
)
from support.events import FakeContext


def test_a_response_is_out_before_the_timeout():
    """The last three seconds belong to an attempt that just began and to the response; time is never below 0."""
    assert remaining_ms(FakeContext(remaining_ms=5000)) == 2000
    assert remaining_ms(FakeContext(remaining_ms=100)) == 0


def filled(body):
    return [Message("c", "0" * 26, "ann", body) for _ in range(200)]


@pytest.mark.parametrize("character", ["a", "é", "✓", "😀", '"', "\\", "\n", "\x01"])
def test_a_page_never_passes_the_functions_response(character):
    """Whatever the messages are made of: the response, escaped as Lambda escapes it, stays below 6 MB."""
    for length in (100, 1_799, 1_800, 20_000, 400_000 // len(character.encode())):
        messages = filled(character * length)
        fitting = messages[: max(1, count_fitting(messages))]
        response = {"body": page_text(fitting, next_cursor="c" * 50, settled_until="2026-11-21T09:30:00.000Z")}
        assert len(json.dumps(response)) < 6_000_000


def test_usual_pages_are_not_cut():
    """200 messages of 1,800 characters, of whatever alphabet."""
    assert count_fitting(filled("😀" * 1_799)) == 200
