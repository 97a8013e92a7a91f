"""Message ids: ULIDs, whose first 48 bits are the message's time.

A client may send a ULID or a UUIDv7: both are 128 bits that start with the Unix time in ms, so both have one
canonical form here, the 26-character upper-case ULID. Sources: github.com/ulid/spec; RFC 9562, section 5.7.

Order and idempotency hang on this one id: the sort key is made of it, and its time decides the placement.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from hotpartition.core.errors import InvalidRequestError

MAX_FUTURE_MS = 5_000
"""How far ahead of the server's clock a message id may lie, in ms."""

MAX_MINTED_AHEAD_MS = 1_000
"""How far ahead of the gateway's clock an id may lie that is made here, in ms: less than what all processes take."""

MAX_TIME_MS = (1 << 48) - 1
MESSAGE_ID_RULE = "a ULID (26 characters) or a UUIDv7"

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32
_TO_PYTHON = str.maketrans(_ALPHABET, "0123456789ABCDEFGHIJKLMNOPQRSTUV")  # the digits of `int(text, 32)`
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE)
_RANDOM_BITS = 80

MIN_MESSAGE_ID = "0" * 26
MAX_MESSAGE_ID = "7" + "Z" * 25


def mint_message_id(now_ms: int, random_bits: Callable[[int], int]) -> str:
    """Make a new message id for this instant, Unix ms; `random_bits` returns that number of bits as an integer."""
    return _encode((now_ms << _RANDOM_BITS) | random_bits(_RANDOM_BITS))


def parse_message_id(text: str) -> str:
    """Bring a client's message id to its canonical form.

    Raises:
        InvalidRequestError: it is neither a ULID nor a UUIDv7.
    """
    upper = text.upper()
    # isascii: upper() maps some other characters, like the long s, onto ASCII ones.
    if text.isascii() and _ULID.fullmatch(upper):
        return upper
    if _UUID7.fullmatch(text):
        return _encode(int(text.replace("-", ""), 16))
    raise InvalidRequestError.of("message_id", f"should be {MESSAGE_ID_RULE}")


def check_not_ahead(message_id: str, now_ms: int) -> None:
    """Refuse an id whose time lies more than 5 s ahead.

    Raises:
        InvalidRequestError: saying how far ahead it lies.
    """
    ahead_ms = message_time_ms(message_id) - now_ms
    if ahead_ms > MAX_FUTURE_MS:
        message = f"lies {ahead_ms} ms in the future; at most {MAX_FUTURE_MS} ms are allowed"
        raise InvalidRequestError.of("message_id", message)


def message_time_ms(message_id: str) -> int:
    """Return the message's time, Unix ms. REQUIRES: a canonical id."""
    return _decode(message_id[:10])


def first_message_id_at(time_ms: int) -> str:
    """Return the smallest id of an instant; everything older sorts before it. Out-of-range times are clamped."""
    return _encode(min(max(time_ms, 0), MAX_TIME_MS) << _RANDOM_BITS)


def last_message_id_before(time_ms: int) -> str | None:
    """Return the largest id that is older than an instant, or None if no id is."""
    value = _decode(first_message_id_at(time_ms)) - 1
    return _encode(value) if value >= 0 else None


def _decode(message_id: str) -> int:
    return int(message_id.translate(_TO_PYTHON), 32)


def _encode(value: int) -> str:
    return "".join([_ALPHABET[value >> shift & 31] for shift in range(125, -1, -5)])
