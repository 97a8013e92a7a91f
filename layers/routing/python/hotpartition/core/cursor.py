"""Page cursors: opaque to clients, small and constant in size, bound to one conversation and order.

A cursor is the message id that the last page ended with, and a check value over it, the conversation and the order. So
it stays valid across raises, page sizes and consistency, and one that was issued for something else is refused. It
is no secret and no permission: the check value catches mistakes, not attackers.
"""

from __future__ import annotations

import base64
import binascii
import hashlib

from hotpartition.core.message_ids import parse_message_id
from hotpartition.errors import InvalidCursorError, InvalidMessageIdError, Problem

_CHECK_BYTES = 5
_CURSOR_LENGTH = 42  # (26 + 5 bytes) in base64, without padding
CURSOR_PATTERN = rf"^[A-Za-z0-9_-]{{{_CURSOR_LENGTH}}}$"


def build_cursor(conversation_id: str, message_id: str, *, newest_first: bool) -> str:
    """Build the cursor that continues after a message."""
    raw = message_id.encode() + _check(conversation_id, message_id, newest_first=newest_first)
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def parse_cursor(cursor: str, conversation_id: str, *, newest_first: bool) -> str:
    """Return the message id after which to continue.

    Raises:
        InvalidCursorError: it was not issued by this API, or for another conversation or order.
    """
    message_id, check = _split(cursor)
    if check == _check(conversation_id, message_id, newest_first=newest_first):
        return message_id
    if check == _check(conversation_id, message_id, newest_first=not newest_first):
        raise _refusal("belongs to the other order; repeat the request with the order it was issued for")
    raise _refusal("belongs to another conversation, or was changed")


def _split(cursor: str) -> tuple[str, bytes]:
    if len(cursor) != _CURSOR_LENGTH or not cursor.isascii():
        raise _refusal("was not issued by this API; pass `next_cursor` of the last page as it is")
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return parse_message_id(raw[:-_CHECK_BYTES].decode("ascii")), raw[-_CHECK_BYTES:]
    except (binascii.Error, UnicodeDecodeError, InvalidMessageIdError) as error:
        raise _refusal("was not issued by this API; pass `next_cursor` of the last page as it is") from error


def _check(conversation_id: str, message_id: str, *, newest_first: bool) -> bytes:
    order = "newest" if newest_first else "oldest"
    return hashlib.blake2b(f"{conversation_id}#{order}#{message_id}".encode(), digest_size=_CHECK_BYTES).digest()


def _refusal(message: str) -> InvalidCursorError:
    return InvalidCursorError((Problem("cursor", message),))
