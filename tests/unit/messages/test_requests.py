"""Requests: what is taken, what is refused with which fields, and how little work a refusal takes.

The sentences are in `transcripts/problems.txt`. The wrong values are written out here: many are such as Python's own
parsers, or a looser check, would take.
"""

import base64
import json
import re
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotpartition.core.capacity import ITEM_LIMIT_BYTES
from hotpartition.core.errors import InvalidRequestError, ItemTooLargeError
from hotpartition.core.times import format_time
from hotpartition.dynamodb.table import LOAD_PREFIX
from hotpartition_messages import requests
from hotpartition_messages.attributes import encode_attributes
from hotpartition_messages.cursor import Cursor, build_cursor
from hotpartition_messages.errors import NotTheSenderError
from hotpartition_messages.read_requests import parse_message_read, parse_page_read
from hotpartition_messages.requests import MAX_BODY_CHARACTERS, MAX_PROBLEMS, parse_json, parse_time_ms
from hotpartition_messages.write_requests import parse_delete, parse_write
from support.builders import message_id
from support.events import delete_event, edit_event, message_event, page_event, post_event

from .api import Api

NOW_MS = 1_700_000_000_000
ID = message_id(NOW_MS)
CURSOR = build_cursor("c", Cursor(ID, NOW_MS), newest_first=True)
BAD_IDS = [f"{LOAD_PREFIX}0", "a#1", "#", "", "x" * 257, "é", "a b", "a/b", "a%2F", "a\x00", ".", "..", "a\n", "\ud800"]
BAD_MESSAGE_IDS = [
    *("", "garbage", "a#b", "0" * 25, "0" * 27, "8" + "0" * 25, "U" * 26, "\u017f" * 26, "\ud800"),
    str(uuid.UUID(int=0, version=4)),
    "017f22e2-79b0-7cc3-18c4-dc0c0c07398f",  # of another variant
    "01ARZ3NDEKT\u017fV4RRFFQ69G5FAV",  # a letter that only upper() makes an S
    "01ARZ3NDEKTSV4RRFFQ69G5FAI",  # not a letter of Crockford's alphabet
]
BAD_PARAMETERS = {
    "limit": ("0", "201", "-1", "", "x", "1.5", "1,2", "9" * 5000, "1_0", " 5", "5 ", "05", "+5", "1.0", "٣"),
    "order": ("", "up", "NEWEST"),
    "consistency": ("", "weak", "true"),
    # RFC 3339 with an offset, not all of ISO 8601.
    "after": ("", "x", "2026-01-01", "2026-01-01T00:00:00", "1700000000000", "2026-W47-6T00:00Z", "20261121T000000Z"),
    "before": ("", "2026-13-01T00:00:00Z", "2026-02-30T00:00:00Z", "2026-11-21 00:00:00Z", "\u0662026-11-21T00:00:00Z"),
    "cursor": ("", "x", "A" * 50, "é" * 50, "\ud800" * 50, CURSOR + "=", CURSOR[1:] + "!", "x" + CURSOR[1:]),
}
BAD_NUMBERS = ["NaN", "Infinity", "-Infinity", "1e999", "1e126", "1e-131", "9" * 39, "-" + "9" * 39]
BAD_TAGS = ["", "1-abc", '"', "'x'", '"a" "b"', '"a",', '"a\x7f"', "\ud800"]
BAD_BODIES = [None, "", "{", "not json", "[]", "null", "5", '"text"', "[" * 100_000, "\ufeff{}"]
BAD_FIELDS = {
    "sender": ("", "x" * 257, "\ud800", None, ["ann"]),
    "expires_at": (5, "tomorrow", "2026-01-01T00:00:00", True, "0001-01-01T00:00:00Z"),
    "attributes": (None, [], {"\ud800": 1}, {"": 1}),
    "body": (None, 5, "\ud800"),
}


def post_with(**fields):
    return post_event("c", {"sender": "ann", "body": "hi"} | fields)


def post_x(text):
    """A write whose only attribute is spelled so."""
    return post_event("c", '{"sender":"a","body":"b","attributes":{"x":' + text + "}}")


def post_nested(levels):
    lists = levels - 1  # the first level is `attributes` itself
    return post_x("[" * lists + "]" * lists)


def about(conversation_id, message_id):
    """A request of each kind that names a message."""
    edit = edit_event(conversation_id, message_id, {"body": "x"})
    return message_event(conversation_id, message_id), edit, delete_event(conversation_id, message_id)


TAKEN = [
    post_with(),
    post_with(message_id=None, expires_at="9999-12-31T23:59:59.9Z"),
    post_event("c", r'{"sender":"a","body":"\u0000"}', content_type="text/plain; charset=utf-16"),
    post_x("[1e100,-0.0,123456789012345678901234567890]"),
    page_event("c", limit=200, consistency="strong"),
    page_event("c", cursor=CURSOR),
    *about("c", ID),
    edit_event("c", ID, {"body": "x"}, if_match='W/"1", "2"'),
]
REFUSED = [
    *((event, ["conversation_id"]) for wrong in BAD_IDS for event in (*about(wrong, ID), page_event(wrong))),
    *((post_event(wrong, {"sender": "a", "body": "b"}), ["conversation_id"]) for wrong in BAD_IDS),
    *((event, ["message_id"]) for wrong in BAD_MESSAGE_IDS for event in about("c", wrong)),
    *((post_with(message_id=wrong), ["message_id"]) for wrong in BAD_MESSAGE_IDS),
    *((post_event("c", body), ["body"]) for body in BAD_BODIES),
    *((edit_event("c", ID, body), ["body"]) for body in (*BAD_BODIES, {}, {"body": None})),
    *((post_event("c", body, is_base64=True), ["body"]) for body in ("/////w==", "e30=*")),
    *((post_with(**{name: value}), [name]) for name, values in BAD_FIELDS.items() for value in values),
    *((page_event("c", **{name: text}), [name]) for name, texts in BAD_PARAMETERS.items() for text in texts),
    *((post_x(f"[1,{number}]"), ["attributes.x[1]"]) for number in BAD_NUMBERS),
    *((delete_event("c", ID, if_match=tag), ["If-Match"]) for tag in BAD_TAGS),
    *((post_nested(levels), ["attributes"]) for levels in (31, 500)),
    *(({**event, "pathParameters": None}, ["conversation_id"]) for event in (post_with(), page_event("c"))),
    *(({**event, "pathParameters": None}, ["conversation_id", "message_id"]) for event in about("c", ID)),
    (post_with(attributes={"x": ["\ud800"]}), ["attributes.x[0]"]),
    (post_with(**{"\ud800": 1}), ["body"]),
    (post_x("9" * 5000), ["body"]),
    (edit_event("c", ID, {"attributes": {"a": float("nan")}}), ["attributes.a"]),
    (post_event("c", {}), ["sender", "body"]),
    (page_event("c", cursor=CURSOR, order="oldest", limit=0), ["limit", "cursor"]),
    (page_event("d", cursor=CURSOR, limit=0), ["limit", "cursor"]),
    (page_event("a#1", cursor="x"), ["conversation_id", "cursor"]),
    (page_event("c", cursor="x", order="up"), ["order", "cursor"]),
    (page_event("c", cursor=CURSOR, order="up"), ["order"]),
]


@pytest.fixture(scope="module")
def api():
    """One for all: a request that is refused changes nothing."""
    return Api()


@pytest.mark.parametrize(("event", "fields"), REFUSED)
def test_all_wrong_fields_are_named_at_once(api, event, fields):
    """One round trip: checks of values and of shapes, of path, query and body. DynamoDB is not asked."""
    response = api.call(event)
    assert (response.status, [problem["field"] for problem in response.body["errors"]]) == (400, fields)
    assert api.world.table.calls == []


def test_the_first_wrong_fields_are_named_and_the_others_counted():
    """Known ones before unknown ones; none of those that are only counted is validated."""
    fields = {f"field{index}": 1 for index in range(60_000)}
    with pytest.raises(InvalidRequestError, match=r"; and 59983 more$") as caught:
        parse_write(post_event("a#1", {**fields, "sender": 5}))
    named = [problem.field for problem in caught.value.problems]
    assert (len(named), named[:4]) == (MAX_PROBLEMS, ["conversation_id", "sender", "body", "field0"])


@pytest.mark.parametrize("conversation_id", ["a", "x" * 256, "...", "a.b:c@d-e_f"])
def test_allowed_ids_stay_unchanged(conversation_id):
    """All 67 characters, up to 256 of them; every form of a message id is one id."""
    assert parse_page_read(page_event(conversation_id))[0].conversation_id == conversation_id
    canonical = message_id(NOW_MS, 0x70008000000000000005)
    for form in (canonical.lower(), "018bcfe5-6800-7000-8000-000000000005", "018BCFE5-6800-7000-8000-000000000005"):
        assert parse_write(post_with(message_id=form)).message_id == canonical
        assert parse_message_read(message_event(conversation_id, form)).path.message_id == canonical


@pytest.mark.parametrize("number", ["0", "-0.0", "1e125", "1e-130", "9" * 38, "1" + "0" * 125, "0.1", "5e-1"])
def test_numbers_that_dynamodb_holds(number):
    """With their value, if not in their spelling; and nesting up to its limit."""
    stored = parse_write(post_x(number)).attributes.stored["M"]["x"]["N"]
    assert type(json.loads(number))(stored) == json.loads(number)
    assert parse_write(post_nested(30))


@pytest.mark.parametrize(
    ("tags", "wanted"),
    [(None, None), ("*", None), ('"1", "2"', {'"1"', '"2"'}), ('W/"1"', set()), ('W/"1", "2"', {'"2"'})],
)
def test_tags_that_a_change_may_match(tags, wanted):
    """`*` matches every state, and a weak tag none."""
    assert parse_delete(delete_event("c", ID, if_match=tags)).if_match == wanted


def by_token(**claims):
    """What API Gateway passes on of a token that it has verified."""
    return {"jwt": {"claims": claims, "scopes": None}}


ANN = by_token(sub="ann", aud="chat")
NO_CLAIM = [
    *(None, {}, {"jwt": None}, by_token(), by_token(sub=""), by_token(sub="x" * 257), by_token(name="ann")),
    *({"lambda": {"sub": 5}}, {"lambda": None}, {"iam": {"userArn": "arn"}}),
]


def test_a_sender_is_the_callers():
    """A token's claim, or what a Lambda authorizer passed on; never what the body says where the claim is missing."""

    def write(authorizer, **named):
        return parse_write(post_event("c", {"body": "hi", **named}, authorizer=authorizer), sender_claim="sub")

    for authorizer in (ANN, {"lambda": {"sub": "ann"}}):
        assert write(authorizer).sender == write(authorizer, sender="ann").sender == "ann"
    others = [(ANN, name) for name in ("bob", "", None, ["ann"])]
    for authorizer, name in (*others, *((each, "ann") for each in NO_CLAIM)):
        with pytest.raises(NotTheSenderError):
            write(authorizer, sender=name)


@pytest.mark.parametrize(
    "content_type", [None, "text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-8"]
)
def test_a_body_is_json_whatever_its_type_says(content_type):
    """Curl's default Content-Type, none, or a wrong one; in base64 where the gateway takes the type for binary."""
    text = json.dumps({"sender": "ann", "body": "é"}, ensure_ascii=False)
    for body, is_base64 in ((text, False), (base64.b64encode(text.encode()).decode(), True)):
        assert parse_write(post_event("c", body, content_type=content_type, is_base64=is_base64)).body == "é"


LONG = " " * MAX_BODY_CHARACTERS + "{}"


@pytest.mark.parametrize(
    ("event", "status"),
    [
        *(({**post_with(), "headers": {"content-encoding": name}}, 415) for name in ("br", "GZIP", "identity, gzip")),
        (post_event("c", LONG), 413),
        (post_event("c", base64.b64encode(LONG.encode()).decode(), is_base64=True), 413),
        *((post_x("[" + ",".join([each] * 410_000) + "]"), 413) for each in ("1", "[]", '""')),
        (post_x("[" + ",".join(['{"":{}}'] * 220_000) + "]"), 413),
    ],
    ids=range(9),
)
def test_what_cannot_become_an_item_is_not_parsed(monkeypatch, api, event, status):
    """Its encoding, its length or its separators are enough to know: more values than an item has bytes."""
    texts = []
    monkeypatch.setattr(requests, "parse_json", lambda text: texts.append(text) or parse_json(text))
    assert (api.call(event).status, texts) == (status, [])


def test_the_largest_messages_are_taken_however_they_are_written():
    """A text of escapes, and one that is made of separators: each character of either is a byte in storage."""
    length = (ITEM_LIMIT_BYTES - 500) // 4
    escaped = '{"sender":"a","body":"' + r"\u0001" * (4 * length) + '"}'
    assert parse_write(post_event("c", escaped)).body == "\x01" * (4 * length)
    separators = {**post_with(body=",:[{" * length), "headers": {"Content-Encoding": "identity"}}
    assert parse_write(separators).body == ",:[{" * length


def test_encoding_ends_where_the_item_is_full():
    """The values behind are not looked at; nor is a long name above them copied for each of those before."""
    values = iter([10**37 + 1] * 400_000)

    class Counted(list):
        def __iter__(self):
            return values

    class Name(str):
        __slots__ = ()
        __format__ = None

    with pytest.raises(ItemTooLargeError):
        encode_attributes({Name("n"): Counted()})
    assert len(list(values)) > 400_000 - ITEM_LIMIT_BYTES // 20


@given(st.integers(0, 253_402_300_799_999), st.text())
def test_a_time_is_read_back_and_nothing_else_escapes(time_ms, text):
    """A client that hands `sent_at` back means the same instant; whatever else it writes is a ValueError.

    Times are shown in UTC with milliseconds, and one from beyond the calendar as its end.
    """
    assert parse_time_ms(format_time(time_ms)) == time_ms
    assert re.fullmatch(r".{19}\.\d{3}Z", format_time(time_ms))
    assert format_time((1 << 48) - 1) == "9999-12-31T23:59:59.999Z"
    for parse in (parse_time_ms, parse_json):
        try:
            parse(text)
        except ValueError:
            continue


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2023-11-14t22:13:20z", 1_700_000_000_000),
        ("1970-01-01T00:00:01.5+00:00", 1_500),
        ("1970-01-01T01:00:00.0001+01:00", 0),
        *(("1970-01-01T00:00:00.0014z", 1), ("1970-01-01T00:00:00.0019999999Z", 1)),
        ("1969-12-31T23:59:59.9995Z", -1),
    ],
)
def test_a_time_is_the_millisecond_that_it_lies_in(text, expected_ms):
    """So `after` 1.4 ms includes the id of 1 ms, and `before` does not."""
    assert parse_time_ms(text) == expected_ms
