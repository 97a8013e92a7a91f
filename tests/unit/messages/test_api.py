"""What both HTTP functions share: events in, and times."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotpartition.core.timestamps import format_time
from hotpartition_messages import Message
from hotpartition_messages.api import (
    count_fitting,
    normalize_event,
    parse_json,
    parse_time_ms,
    remaining_ms,
    render_message,
)
from support.events import COLLECTION, FakeContext, http_event, message_event, page_event, post_event


class TestNormalizeEvent:
    @pytest.mark.parametrize(
        ("conversation_id", "encoded"),
        [("a.b:c@d-e_f", "a.b:c@d-e_f"), ("a#1", "a%231"), ("a/b", "a%2Fb"), ("", "%"), ("é", "%C3%A9"), ("%", "%25")],
    )
    def test_the_path_is_rebuilt_from_decoded_parameters(self, conversation_id, encoded):
        """Whatever the id holds, it stays one segment, and nothing of it is lost."""
        event = normalize_event(page_event(conversation_id))
        assert event["rawPath"] == event["requestContext"]["http"]["path"] == f"/conversations/{encoded}/messages"

    def test_a_stage_stays_in_front(self):
        """A stage with a name of its own is part of the path, as the gateway has it."""
        event = normalize_event(http_event("GET", COLLECTION, {"conversation_id": "c"}, stage="v1"))
        assert event["rawPath"] == "/v1/conversations/c/messages"

    def test_a_body_is_json_whatever_its_type_says(self):
        """Curl's default Content-Type, none, or a wrong one: the body decides."""
        for content_type in (
            None,
            "text/plain",
            "application/x-www-form-urlencoded",
            "application/json; charset=utf-8",
        ):
            event = post_event("c", {"body": "é"}, content_type=content_type)
            assert normalize_event(event)["headers"]["content-type"] == "application/json"

    @pytest.mark.parametrize(
        ("body", "text"),
        [(base64.b64encode('{"é": 1}'.encode()).decode(), '{"é": 1}'), ("***", "not UTF-8"), ("/////w==", "not UTF-8")],
    )
    def test_a_body_in_base64_becomes_text(self, body, text):
        """The gateway encodes bodies of types that it takes for binary."""
        event = normalize_event(post_event("c", body, is_base64=True))
        assert (event["body"], event["isBase64Encoded"]) == (text, False)

    def test_the_event_itself_is_left_alone(self):
        """Lambda's event is not ours to change."""
        event = message_event("c", "x")
        before = json.dumps(event)
        normalize_event(event)
        assert json.dumps(event) == before


class TestParse:
    @pytest.mark.parametrize("text", ["{", "", "[" * 100_000, "9" * 5000, "nul"])
    def test_no_json_is_one_kind_of_error(self, text):
        """Too deep and too long are refused like everything that is no JSON."""
        with pytest.raises(json.JSONDecodeError):
            parse_json(text)

    @pytest.mark.parametrize(
        ("text", "time_ms"),
        [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01T01:00:00.5+01:00", 500),
            ("1969-12-31T23:59:59.999Z", -1),
            ("2023-11-14T22:13:20.000Z", 1_700_000_000_000),
            ("2023-11-14t22:13:20z", 1_700_000_000_000),
        ],
    )
    def test_times_are_rfc_3339(self, text, time_ms):
        """A time names its offset; the result is Unix time in ms."""
        assert parse_time_ms(text) == time_ms

    @pytest.mark.parametrize(
        "text",
        ["", "now", "1700000000000", "2026-01-01", "2026-01-01T00:00:00", "2026-02-30T00:00:00Z", "2026-01-01 00:00Z"],
    )
    def test_other_times_are_refused(self, text):
        """What is left out is not guessed."""
        with pytest.raises(ValueError, match="RFC 3339"):
            parse_time_ms(text)

    @given(st.integers(0, 253_402_300_799_999))
    def test_a_time_of_ours_is_read_back(self, time_ms):
        """A client that hands `sent_at` or `settled_until` back means the same instant."""
        assert parse_time_ms(format_time(time_ms)) == time_ms

    @given(st.text())
    def test_nothing_else_escapes(self, text):
        """Whatever a client writes is a time or a ValueError."""
        for parse in (parse_time_ms, parse_json):
            try:
                parse(text)
            except ValueError:
                continue


def test_an_answer_is_out_before_the_timeout():
    """The last three seconds belong to an attempt that just began, and the answer; there is never less than no time."""
    assert remaining_ms(FakeContext(remaining_ms=5000)) == 2000
    assert remaining_ms(FakeContext(remaining_ms=100)) == 0


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01T00:00:01.5+00:00", 1_500),
        ("1970-01-01T01:00:00.0001+01:00", 1),
        ("1970-01-01T00:00:00.0014z", 2),
        ("1969-12-31T23:59:59.9995Z", 0),
    ],
)
def test_a_bound_is_rounded_up_to_whole_milliseconds(text, expected_ms):
    """Ids have whole ms: what is at or after 0.1 ms begins with 1, and what is before it ends with 0."""
    assert parse_time_ms(text) == expected_ms


@pytest.mark.parametrize(
    "text",
    [
        *("2026-W47-6T00:00Z", "2026-11-21", "20261121T000000Z", "2026-11-21T00:00:00", "2026-11-21 00:00:00Z"),
        *("9999-99-99T00:00:00Z", "\u0662026-11-21T00:00:00Z", "tomorrow", ""),
    ],
)
def test_other_times_are_refused(text):
    """RFC 3339 with an offset, not all of ISO 8601."""
    with pytest.raises(ValueError, match="RFC 3339"):
        parse_time_ms(text)


def filled(body, count=200):
    return [Message("c", "0" * 26, "ann", body) for _ in range(count)]


@pytest.mark.parametrize("character", ["a", "é", "✓", "😀", '"', "\\", "\n", "\x01"])
def test_a_page_never_passes_the_functions_answer(character):
    """Whatever the messages are made of: the answer, escaped as Lambda escapes it, stays below 6 MB."""
    for length in (100, 1_799, 1_800, 20_000, 400_000 // len(character.encode())):
        messages = filled(character * length)
        fitting = messages[: max(1, count_fitting(messages))]
        answer = {"body": json.dumps({"messages": [render_message(m) for m in fitting]}, ensure_ascii=False)}
        assert len(json.dumps(answer)) < 6_000_000


def test_usual_pages_are_not_cut():
    """200 messages of 1,800 characters, of whatever alphabet."""
    assert count_fitting(filled("😀" * 1_799)) == 200
