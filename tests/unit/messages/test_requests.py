"""Requests: what is taken, what is refused, and how little work a refusal takes."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotpartition.core.capacity import ITEM_LIMIT_BYTES, item_size_bytes
from hotpartition.core.timestamps import format_time
from hotpartition.errors import InvalidRequestError, ItemTooLargeError
from hotpartition_messages import requests
from hotpartition_messages.attributes import encode_attributes
from hotpartition_messages.read_requests import parse_page_read
from hotpartition_messages.requests import (
    MAX_BODY_CHARACTERS,
    MAX_PROBLEMS,
    BodyTooLargeError,
    ContentEncodingError,
    parse_json,
    parse_time_ms,
)
from hotpartition_messages.write_requests import parse_write
from support.events import page_event, post_event

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**37), 10**37)
    | st.floats(-1e9, 1e9, width=32)
    | st.text("a,:[{é", max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("ab,:", min_size=1, max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)
json_objects = st.dictionaries(st.text("xyz", min_size=1, max_size=3), json_values, max_size=4)


class TestBody:
    @pytest.mark.parametrize(
        "content_type", [None, "text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-8"]
    )
    def test_a_body_is_json_whatever_its_type_says(self, content_type):
        """Curl's default Content-Type, none, or a wrong one: the body decides."""
        event = post_event("c", {"sender": "ann", "body": "é"}, content_type=content_type)
        assert parse_write(event).body == "é"

    def test_a_body_in_base64_is_its_text(self):
        """The gateway encodes bodies of types that it takes for binary."""
        body = base64.b64encode('{"sender": "ann", "body": "é"}'.encode()).decode()
        assert parse_write(post_event("c", body, is_base64=True)).body == "é"

    @pytest.mark.parametrize("body", ["***", "/////w=="])
    def test_a_body_that_is_no_base64_or_utf_8_is_no_json(self, body):
        """And is refused as such."""
        with pytest.raises(InvalidRequestError, match="should be a JSON object"):
            parse_write(post_event("c", body, is_base64=True))


class TestSizeBeforeWork:
    """No request that is refused for its size costs the work that an accepted one does."""

    @pytest.fixture
    def parsed(self, monkeypatch):
        """The texts that were parsed."""
        texts: list[str] = []
        monkeypatch.setattr(requests, "parse_json", lambda text: texts.append(text) or parse_json(text))
        return texts

    @pytest.mark.parametrize("is_base64", [False, True])
    def test_a_body_longer_than_any_messages_is_not_parsed(self, parsed, is_base64):
        """Its length is enough to know."""
        body = " " * MAX_BODY_CHARACTERS + "{}"
        event = post_event("c", base64.b64encode(body.encode()).decode() if is_base64 else body, is_base64=is_base64)
        with pytest.raises(BodyTooLargeError):
            parse_write(event)
        assert parsed == []

    @pytest.mark.parametrize("element", ["1", "[]", '""', '{"":{}}'])
    def test_a_body_of_more_values_than_an_item_has_bytes_is_not_parsed(self, parsed, element):
        """Whatever they are."""
        elements = ",".join([element] * (410_000 if len(element) < 5 else 220_000))
        with pytest.raises(ItemTooLargeError, match="at least"):
            parse_write(post_event("c", f'{{"sender":"a","body":"b","attributes":{{"x":[{elements}]}}}}'))
        assert parsed == []

    def test_the_largest_messages_are_taken_however_they_are_written(self):
        """A text of escapes, and one that is made of separators: each character of either is a byte in storage."""
        length = (ITEM_LIMIT_BYTES - 500) // 4
        escaped = '{"sender":"a","body":"' + r"\u0001" * (4 * length) + '"}'
        assert parse_write(post_event("c", escaped)).body == "\x01" * (4 * length)
        assert parse_write(post_event("c", {"sender": "a", "body": ",:[{" * length})).body == ",:[{" * length

    @given(json_objects)
    def test_an_item_has_a_byte_for_each_separator(self, content):
        """So that a body is never refused for what would fit."""
        separators = sum(json.dumps(content).count(separator) for separator in ",:[{")
        assert separators <= encode_attributes(content).size_bytes

    @given(json_objects)
    def test_attributes_are_measured_as_they_are_encoded(self, content):
        """The same figure as that of the whole item, without looking at it again."""
        encoded = encode_attributes(content)
        assert item_size_bytes({"attributes": encoded.stored}) == len("attributes") + encoded.size_bytes

    def test_encoding_ends_where_the_item_is_full(self):
        """The values behind are not looked at."""
        seen = []

        class Counted(list):
            def __iter__(self):
                for value in super().__iter__():
                    seen.append(value)
                    yield value

        with pytest.raises(ItemTooLargeError):
            encode_attributes({"x": Counted([10**37 + 1] * 400_000)})
        assert len(seen) < ITEM_LIMIT_BYTES // 20

    def test_a_path_is_put_together_only_for_what_is_refused(self):
        """A long name above many values is not copied for each of them."""
        copies = []

        class Name(str):
            __slots__ = ()

            def __format__(self, spec):
                copies.append(self)
                return super().__format__(spec)

        encode_attributes({Name("n"): [1] * 1000})
        assert copies == []
        with pytest.raises(InvalidRequestError, match=r"attributes\.n\[1000\]"):
            encode_attributes({Name("n"): [*[1] * 1000, float("nan")]})
        assert len(copies) == 1


class TestProblems:
    def test_the_first_wrong_fields_are_named_and_the_others_counted(self):
        """Known ones before unknown ones; none of those that are only counted is validated."""
        fields = {f"field{index}": 1 for index in range(60_000)}
        with pytest.raises(InvalidRequestError, match=r"; and 59983 more$") as caught:
            parse_write(post_event("a#1", {**fields, "sender": 5}))
        assert len(caught.value.problems) == MAX_PROBLEMS
        named = [problem.field for problem in caught.value.problems]
        assert named[:4] == ["conversation_id", "sender", "body", "field0"]


@pytest.mark.parametrize("limit", ["1_0", " 5", "5 ", "+5", "1.0", "٣", ""])
def test_a_limit_is_written_in_digits(limit):
    """Not as Python would read it."""
    with pytest.raises(InvalidRequestError, match="limit: should be a whole number"):
        parse_page_read(page_event("c", limit=limit))


@pytest.mark.parametrize("encoding", ["gzip", "br", "GZIP", "identity, gzip"])
def test_an_encoded_body_is_refused_as_such(encoding):
    """Not as broken JSON: the response says what to change."""
    event = post_event("c", {"sender": "a", "body": "b"})
    with pytest.raises(ContentEncodingError):
        parse_write({**event, "headers": {"Content-Encoding": encoding}})
    assert parse_write({**event, "headers": {"Content-Encoding": "identity"}}).body == "b"


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


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01T00:00:01.5+00:00", 1_500),
        ("1970-01-01T01:00:00.0001+01:00", 0),
        ("1970-01-01T00:00:00.0014z", 1),
        ("1970-01-01T00:00:00.0019999999Z", 1),
        ("1969-12-31T23:59:59.9995Z", -1),
    ],
)
def test_a_time_is_the_millisecond_that_it_lies_in(text, expected_ms):
    """A message of 1.4 ms has an id of 1 ms: `after` 1.4 ms includes it, and `before` 1.4 ms does not."""
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
