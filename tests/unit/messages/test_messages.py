"""Messages as they are stored: ids beside python-ulid, values beside boto3, sizes and units by hand; cursors.

Each stored form has a reference of its own, and to build values for it takes more lines than to compare them.
"""

import json
import re
from decimal import Decimal

import pytest
from boto3.dynamodb.types import TypeSerializer
from hypothesis import given
from hypothesis import strategies as st
from ulid import ULID

from hotpartition.core.capacity import item_size_bytes, read_units, write_units
from hotpartition.core.errors import InvalidRequestError
from hotpartition_messages import Message
from hotpartition_messages.attributes import encode_attributes
from hotpartition_messages.cursor import Cursor, build_cursor, parse_cursor
from hotpartition_messages.keys import KEY_FORM, build_key, build_sort_key, parse_sort_key
from hotpartition_messages.message_ids import (
    MAX_MESSAGE_ID,
    MIN_MESSAGE_ID,
    check_not_ahead,
    first_message_id_at,
    last_message_id_before,
    message_time_ms,
    mint_message_id,
    parse_message_id,
)
from hotpartition_messages.messages import MESSAGE_ATTRIBUTES
from support.builders import build_message, message_id

ULID_TEXT = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
NOW_MS = 1_700_000_000_000
ID = message_id(NOW_MS, 7)
times = st.integers(0, (1 << 48) - 1)
numbers = st.integers(-(10**37), 10**37) | st.floats(-1e100, 1e100).filter(lambda f: f == 0 or abs(f) > 1e-100)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(st.characters(codec="utf-8"), max_size=8) | st.text("a,:[{é"),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", min_size=1, max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)
attributes = st.dictionaries(st.text("xyz", min_size=1, max_size=3), json_values, max_size=4)


def test_key_forms_are_a_storage_contract():
    """Stored data lives under these very texts; a message is placed by its id and lies at its time."""
    assert KEY_FORM.shard_key("room:1", 12) == "room:1#12"
    assert build_sort_key(MAX_MESSAGE_ID) < "r#"
    key = build_key("room", ULID_TEXT)
    assert key == ("room", f"m#{ULID_TEXT}", 1469922850259, ULID_TEXT)
    assert (build_sort_key(ULID_TEXT), parse_sort_key(key.sort_key)) == (f"m#{ULID_TEXT}", key.hashed)


@given(st.integers(0, (1 << 128) - 1))
def test_a_ulid_is_read_as_the_reference_library_reads_it(value):
    reference = ULID.from_bytes(value.to_bytes(16))
    assert parse_message_id(str(reference).lower()) == str(reference)
    assert message_time_ms(str(reference)) == reference.milliseconds


@given(times, st.integers(0, (1 << 80) - 1))
def test_an_id_carries_its_time(time_ms, tail):
    """The first id of an instant follows the last id before it; nothing lies before the first instant."""
    minted = mint_message_id(time_ms, lambda _: tail)
    assert message_time_ms(minted) == ULID.from_str(minted).milliseconds == time_ms
    before = last_message_id_before(time_ms)
    first = ULID.from_str(first_message_id_at(time_ms)).to_uuid().int
    assert (-1 if before is None else ULID.from_str(before).to_uuid().int) == first - 1
    assert first_message_id_at(-5) == MIN_MESSAGE_ID


def test_an_id_may_lie_five_seconds_ahead_and_no_more():
    """Clients' clocks run ahead a little; an id from the far future would stay newest for ever."""
    check_not_ahead(first_message_id_at(5_000), now_ms=0)
    with pytest.raises(InvalidRequestError, match="5001 ms in the future"):
        check_not_ahead(first_message_id_at(5_001), now_ms=0)


def by_value(stored):
    """A stored value, its numbers by value: boto3 spells some of them differently."""
    match stored:
        case {"N": number}:
            return Decimal(number)
        case dict():
            return {name: by_value(inner) for name, inner in stored.items()}
        case list():
            return [by_value(inner) for inner in stored]
    return stored


@given(attributes)
def test_what_is_stored_is_read_back(attributes):
    """In the form in which boto3 would write it. What is read has that form again, as JSON: a double may be whole.

    It is measured as the whole item is, which has a byte for each separator: no body is refused for what would fit.
    """
    stored, size_bytes = encode_attributes(attributes)
    assert item_size_bytes({"attributes": stored}) == len("attributes") + size_bytes
    assert sum(json.dumps(attributes).count(separator) for separator in ",:[{") <= size_bytes
    with_decimals = json.loads(json.dumps(attributes), parse_float=Decimal, parse_int=Decimal)
    assert by_value(stored) == by_value(TypeSerializer().serialize(with_decimals))
    message = Message("c", build_message().message_id, "ann", "hello", stored)
    read = Message.from_item(json.loads(json.dumps(message.to_item("c#1"))))
    assert encode_attributes(json.loads(json.dumps(read.attributes))).stored == stored
    assert read.has_same_content(message)


def test_what_is_put_has_no_other_attributes():
    """What a change puts passes the condition of the function's role."""
    message = Message("c", ID, "ann", "hi", {"M": {"a": {"N": "1"}}}, expires_at_s=1)
    item = message.edit(body="x", stored_attributes=message.stored_attributes, edited_at="t").to_item("c")
    tombstone = message.delete(deleted_at="t").to_item("c")
    assert {*item, *tombstone} == set(MESSAGE_ATTRIBUTES)
    assert [Message.from_item(stored).to_item("c") for stored in (item, tombstone)] == [item, tombstone]


def test_equal_numbers_have_one_stored_form():
    """A replay that spells a number differently is still the same content. True is not 1, and 1 is not "1"."""
    assert [encode_attributes({"n": n}).stored for n in (100, 100.0, 1e2)] == [{"M": {"n": {"N": "100"}}}] * 3
    longest = (10**38 - 1) * 10  # 38 digits, and a zero that does not count
    assert encode_attributes({"n": longest}).stored == {"M": {"n": {"N": str(longest)}}}
    one, *others = [
        Message("c", ID, "ann", "hi", encode_attributes(each).stored)
        for each in ({"n": 1}, {"n": True}, {"n": "1"}, {})
    ]
    assert not any(one.has_same_content(each) for each in others)


def test_the_order_of_attributes_is_no_content():
    """DynamoDB keeps none: a page read again has the same entity tags, and an edited message is still known."""
    one, two = (
        Message("c", ID, "ann", "hi", encode_attributes(each).stored) for each in ({"a": 1, "b": 2}, {"b": 2, "a": 1})
    )
    assert one.etag == two.etag
    assert one.has_same_content(two.edit(body="x", stored_attributes=two.stored_attributes, edited_at="t"))


@pytest.mark.parametrize(
    ("item", "size_bytes"),
    [
        ({"pk": {"S": "abc"}}, 2 + 3),
        ({"é": {"S": "é"}}, 2 + 2),
        *(({"n": {"N": number}}, 1 + size) for number, size in (("1234", 3), ("-1234", 4), ("1200", 2))),
        ({"b": {"BOOL": True}, "z": {"NULL": True}}, 1 + 1 + 1 + 1),
        ({"l": {"L": [{"S": "ab"}, {"S": "c"}]}}, 1 + 3 + (1 + 2) + (1 + 1)),
        ({"m": {"M": {"k": {"S": "v"}}}}, 1 + 3 + 1 + (1 + 1)),
        ({"s": {"SS": ["ab", "c"]}, "x": {"B": b"abc"}, "y": {"BS": ["YWJj"]}}, 1 + 3 + 1 + 3 + 1 + 3),
    ],
)
def test_sizes_follow_the_developer_guide(item, size_bytes):
    """Worked out by hand from "DynamoDB item sizes and formats": names and UTF-8, numbers by digits, containers + 3."""
    assert item_size_bytes(item) == size_bytes


def test_units_round_up():
    """1 KiB a write unit, 4 KiB a read unit, half when eventual, at least one."""
    assert [write_units(n) for n in (0, 1, 1024, 1025, 400 * 1024)] == [1, 1, 1, 2, 400]
    assert [read_units(n, is_strong=True) for n in (0, 4096, 4097)] == [1.0, 1.0, 2.0]
    assert read_units(4097, is_strong=False) == 1.0


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("started_ms", [0, NOW_MS, 2**48 - 1])
def test_a_cursor_says_where_and_since_when(newest_first, started_ms):
    """The message after which to continue, and when the walk began; always of the same size and alphabet."""
    text = build_cursor("c", Cursor(ID, started_ms), newest_first=newest_first)
    for conversation_id, order in (("c", newest_first), ("d", None)):
        assert parse_cursor(text, conversation_id, newest_first=order) == (ID, started_ms)
    assert re.fullmatch("[A-Za-z0-9_-]{50}", text)


CURSOR = build_cursor("c", Cursor(ID, NOW_MS), newest_first=True)
LATER = build_cursor("c", Cursor(ID, NOW_MS + 1), newest_first=True)


@pytest.mark.parametrize(
    ("text", "conversation_id", "newest_first", "words"),
    [
        (CURSOR, "d", True, "another conversation"),
        (CURSOR, "c", False, "other order"),
        (CURSOR[:43] + LATER[43:], "c", True, "was changed"),
    ],
)
def test_a_foreign_cursor_is_refused(text, conversation_id, newest_first, words):
    """Another conversation's, the other order's, a changed one: each says what is wrong."""
    with pytest.raises(InvalidRequestError, match=words):
        parse_cursor(text, conversation_id, newest_first=newest_first)
