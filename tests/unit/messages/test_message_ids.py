"""Message ids: ULIDs, and UUIDv7s that become such."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ulid import ULID

from hotpartition.core.errors import InvalidRequestError
from hotpartition_messages.message_ids import (
    MIN_MESSAGE_ID,
    check_not_ahead,
    first_message_id_at,
    last_message_id_before,
    message_time_ms,
    mint_message_id,
    parse_message_id,
)

id_values = st.integers(0, (1 << 128) - 1)
times = st.integers(0, (1 << 48) - 1)


@given(id_values)
def test_a_ulid_is_read_as_the_reference_library_reads_it(value):
    """Our codec agrees with python-ulid on text, time and order."""
    reference = ULID.from_bytes(value.to_bytes(16))
    assert parse_message_id(str(reference).lower()) == str(reference)
    assert message_time_ms(str(reference)) == reference.milliseconds


@given(times, st.integers(0, (1 << 80) - 1))
def test_a_minted_id_carries_its_time(time_ms, tail):
    """The id's first 48 bits are the message's time."""
    minted = mint_message_id(time_ms, lambda _: tail)
    assert message_time_ms(minted) == time_ms
    assert ULID.from_str(minted).milliseconds == time_ms


def test_a_uuid7_becomes_the_ulid_of_the_same_bits():
    """The example of RFC 9562, appendix A.6, in either case."""
    text = "017F22E2-79B0-7CC3-98C4-DC0C0C07398F"
    expected = str(ULID.from_bytes(bytes.fromhex(text.replace("-", ""))))
    assert parse_message_id(text) == parse_message_id(text.lower()) == expected
    assert message_time_ms(expected) == 1645557742000


def test_an_id_may_lie_five_seconds_ahead_and_no_more():
    """Clients' clocks run ahead a little; an id from the far future would stay newest for ever."""
    check_not_ahead(first_message_id_at(5_000), now_ms=0)
    with pytest.raises(InvalidRequestError, match="5001 ms in the future"):
        check_not_ahead(first_message_id_at(5_001), now_ms=0)


@given(times)
def test_bounds_of_an_instant(time_ms):
    """The first id of an instant follows the last id before it; nothing lies before the first instant."""
    before = last_message_id_before(time_ms)
    first = ULID.from_str(first_message_id_at(time_ms)).to_uuid().int
    assert (-1 if before is None else ULID.from_str(before).to_uuid().int) == first - 1
    assert first_message_id_at(-5) == MIN_MESSAGE_ID
