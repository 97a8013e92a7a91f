"""The stored form of messages: as boto3 would write it, sized as DynamoDB charges it, equal for equal content."""

import json
from datetime import datetime, timedelta
from decimal import Decimal

from boto3.dynamodb.types import TypeSerializer
from hypothesis import given
from hypothesis import strategies as st

from hotpartition.core.capacity import item_size_bytes, read_units, write_units
from hotpartition.core.timestamps import format_time
from hotpartition_messages import Message
from hotpartition_messages.attributes import encode_attributes
from support.builders import build_message

numbers = st.integers(-(10**37), 10**37) | st.floats(-1e100, 1e100).filter(lambda f: f == 0 or abs(f) > 1e-100)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", min_size=1, max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)
attributes = st.dictionaries(st.text("xyz", min_size=1, max_size=3), json_values, max_size=4)


def same(sent, read):
    """Equal as JSON: a double may come back as the whole number of the same double."""
    match sent:
        case float():
            return isinstance(read, int | float) and float(read) == sent
        case list():
            return isinstance(read, list) and len(sent) == len(read) and all(map(same, sent, read))
        case dict():
            return isinstance(read, dict) and sent.keys() == read.keys() and all(same(sent[k], read[k]) for k in sent)
        case _:
            return type(sent) is type(read) and sent == read


@given(attributes)
def test_what_is_stored_is_read_back(attributes):
    message = Message("c", build_message().message_id, "ann", "hello", encode_attributes(attributes).stored)
    read = Message.from_item(json.loads(json.dumps(message.to_item("c#1"))))
    assert same(attributes, read.attributes)
    assert read.has_same_content(message)


@given(attributes)
def test_the_form_is_that_of_boto3(attributes):
    """Our encoder and boto3's agree on the type of every value."""
    ours = encode_attributes(attributes).stored
    with_decimals = json.loads(json.dumps(attributes), parse_float=Decimal, parse_int=Decimal)

    def comparable(value):
        ((kind, content),) = value.items()
        match kind:
            case "N":
                return kind, Decimal(content)
            case "L":
                return kind, [comparable(v) for v in content]
            case "M":
                return kind, {k: comparable(v) for k, v in content.items()}
            case _:
                return kind, content

    assert comparable(ours) == comparable(TypeSerializer().serialize(with_decimals))


def test_equal_numbers_have_one_stored_form():
    """A replay that spells a number differently is still the same content."""
    forms = [encode_attributes({"n": n}).stored for n in (100, 100.0, 1e2)]
    assert forms == [{"M": {"n": {"N": "100"}}}] * 3


def test_sizes_follow_the_developer_guide():
    """Worked out by hand from "DynamoDB item sizes and formats": names and UTF-8, numbers by digits, containers + 3."""
    assert item_size_bytes({"pk": {"S": "abc"}}) == 2 + 3
    assert item_size_bytes({"é": {"S": "é"}}) == 2 + 2
    assert item_size_bytes({"n": {"N": "1234"}}) == 1 + 3
    assert item_size_bytes({"n": {"N": "-1234"}}) == 1 + 4
    assert item_size_bytes({"n": {"N": "1200"}}) == 1 + 2
    assert item_size_bytes({"b": {"BOOL": True}, "z": {"NULL": True}}) == 1 + 1 + 1 + 1
    assert item_size_bytes({"l": {"L": [{"S": "ab"}, {"S": "c"}]}}) == 1 + 3 + (1 + 2) + (1 + 1)
    assert item_size_bytes({"m": {"M": {"k": {"S": "v"}}}}) == 1 + 3 + 1 + (1 + 1)
    assert (
        item_size_bytes({"s": {"SS": ["ab", "c"]}, "x": {"B": b"abc"}, "y": {"BS": ["YWJj"]}}) == 1 + 3 + 1 + 3 + 1 + 3
    )


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), st.text("abc", min_size=1, max_size=3))
def test_a_text_is_as_large_as_its_utf_8(text, name):
    """Names and values, whether they are ASCII or not."""
    assert item_size_bytes({name: {"S": text}, "ä": {"S": ""}}) == len(name) + len(text.encode()) + 2


@given(st.integers(0, 253_402_300_799_999))
def test_a_time_is_shown_as_the_calendar_has_it(time_ms):
    moment = datetime(1970, 1, 1) + timedelta(milliseconds=time_ms)  # noqa: DTZ001 - in UTC, without saying so
    assert format_time(time_ms) == moment.isoformat(timespec="milliseconds") + "Z"


def test_units_round_up():
    """1 KiB a write unit, 4 KiB a read unit, half when eventual, at least one."""
    assert [write_units(n) for n in (0, 1, 1024, 1025, 400 * 1024)] == [1, 1, 1, 2, 400]
    assert [read_units(n, is_strong=True) for n in (0, 4096, 4097)] == [1.0, 1.0, 2.0]
    assert read_units(4097, is_strong=False) == 1.0


def test_times_are_rfc_3339():
    """UTC, with milliseconds; an id from beyond the calendar is shown as its end."""
    assert format_time(1_700_000_000_007) == "2023-11-14T22:13:20.007Z"
    assert format_time((1 << 48) - 1) == "9999-12-31T23:59:59.999Z"
