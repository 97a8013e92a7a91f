"""Page cursors: opaque to clients, small and constant in size, bound to one conversation and order.

A cursor is the message id that the last page ended with, the time at which the walk over the pages began, and a check
value over both, the conversation and the order. So it stays valid across raises, page sizes and consistency, and one
that was issued for something else is refused. It is no secret and no permission: the check value catches mistakes, not
attackers.

Cursors of the format before this one have no beginning of the walk. They are still read.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import NamedTuple

from hotpartition_messages.errors import InvalidCursorError, InvalidMessageIdError
from hotpartition_messages.message_ids import parse_message_id

_ID_BYTES = 26
_TIME_BYTES = 6
_CHECK_BYTES = 5
_LENGTH = 50  # (26 + 6 + 5 bytes) in base64, without padding
_OLD_LENGTH = 42  # (26 + 5 bytes)
CURSOR_PATTERN = rf"^([A-Za-z0-9_-]{{{_OLD_LENGTH}}}|[A-Za-z0-9_-]{{{_LENGTH}}})$"


class Position(NamedTuple):
    """Where a page begins: after a message; and when the walk's first page was asked for, Unix ms, if that is known."""

    message_id: str
    walk_started_ms: int | None


def build_cursor(conversation_id: str, message_id: str, *, newest_first: bool, walk_started_ms: int) -> str:
    """Build the cursor that continues after a message."""
    position = message_id.encode() + walk_started_ms.to_bytes(_TIME_BYTES)
    raw = position + _check(conversation_id, position, newest_first=newest_first)
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def parse_cursor(cursor: str, conversation_id: str, *, newest_first: bool) -> Position:
    """Return where to continue.

    Raises:
        InvalidCursorError: it was not issued by this API, or for another conversation or order.
    """
    position, check = split_cursor(cursor)
    if check == _check(conversation_id, position, newest_first=newest_first):
        return _read_position(position)
    if check == _check(conversation_id, position, newest_first=not newest_first):
        raise _refusal("belongs to the other order; repeat the request with the order it was issued for")
    raise _refusal("belongs to another conversation, or was changed")


def split_cursor(cursor: str) -> tuple[bytes, bytes]:
    """Return a cursor's position and its check value, whatever it was issued for.

    Raises:
        InvalidCursorError: it is no cursor.
    """
    if len(cursor) not in {_OLD_LENGTH, _LENGTH} or not cursor.isascii():
        raise _refusal("was not issued by this API; pass `next_cursor` of the last page as it is")
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        parse_message_id(raw[:_ID_BYTES].decode("ascii"))
    except (binascii.Error, UnicodeDecodeError, InvalidMessageIdError) as error:
        raise _refusal("was not issued by this API; pass `next_cursor` of the last page as it is") from error
    return raw[:-_CHECK_BYTES], raw[-_CHECK_BYTES:]


def _read_position(position: bytes) -> Position:
    message_id = parse_message_id(position[:_ID_BYTES].decode("ascii"))
    time = position[_ID_BYTES:]
    return Position(message_id, int.from_bytes(time) if time else None)


def _check(conversation_id: str, position: bytes, *, newest_first: bool) -> bytes:
    order = "newest" if newest_first else "oldest"
    # A conversation id from outside may hold what no encoding takes; none of ours does.
    text = f"{conversation_id}#{order}#".encode(errors="replace") + position
    return hashlib.blake2b(text, digest_size=_CHECK_BYTES).digest()


def _refusal(message: str) -> InvalidCursorError:
    return InvalidCursorError.of("cursor", message)
