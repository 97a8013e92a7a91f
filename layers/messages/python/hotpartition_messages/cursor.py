"""Page cursors: opaque to clients, small and constant in size, bound to one conversation and order.

Its text holds the message id that the last page ended with, the time at which the walk over the pages began, and a
check value over both, the conversation and the order. So it stays valid across raises, page sizes and consistency, and
one that was issued for something else is refused. It is not a secret, nor a permission: the check value catches errors,
not attackers.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import NamedTuple

from hotpartition.core.errors import InvalidRequestError
from hotpartition_messages.message_ids import parse_message_id

_ID_BYTES = 26
_TIME_BYTES = 6
_CHECK_BYTES = 5
_LENGTH = 50  # (26 + 6 + 5 bytes) in base64, without padding
_PADDING = "=="


class Cursor(NamedTuple):
    """Where a page begins: after a message. And when the walk's first page was asked for, Unix ms."""

    message_id: str
    walk_started_ms: int


def build_cursor(conversation_id: str, cursor: Cursor | None, *, newest_first: bool) -> str | None:
    """Build the text of a cursor; None where there is no next page."""
    if cursor is None:
        return None
    position = cursor.message_id.encode() + cursor.walk_started_ms.to_bytes(_TIME_BYTES)
    raw = position + _check(conversation_id, position, newest_first=newest_first)
    return base64.urlsafe_b64encode(raw).decode().removesuffix(_PADDING)


def parse_cursor(text: str, conversation_id: str, *, newest_first: bool | None) -> Cursor:
    """Return where to continue.

    `newest_first` is the page's order; None: it is not known, and any will do.

    Raises:
        InvalidRequestError: it was not issued by this API, or for another conversation or order.
    """
    if len(text) != _LENGTH or not text.isascii():
        raise _refusal("was not issued by this API; pass `next_cursor` of the last page as it is")
    try:
        raw = base64.b64decode(text + _PADDING, altchars=b"-_", validate=True)
        cursor = Cursor(parse_message_id(raw[:_ID_BYTES].decode("ascii")), int.from_bytes(raw[_ID_BYTES:-_CHECK_BYTES]))
    except (binascii.Error, UnicodeDecodeError, InvalidRequestError) as error:
        raise _refusal("was not issued by this API; pass `next_cursor` of the last page as it is") from error
    position, check = raw[:-_CHECK_BYTES], raw[-_CHECK_BYTES:]
    if newest_first is None or check == _check(conversation_id, position, newest_first=newest_first):
        return cursor
    if check == _check(conversation_id, position, newest_first=not newest_first):
        raise _refusal("belongs to the other order; repeat the request with the order it was issued for")
    raise _refusal("belongs to another conversation, or was changed")


def _check(conversation_id: str, position: bytes, *, newest_first: bool) -> bytes:
    order = "newest" if newest_first else "oldest"
    # A conversation id of a request may hold text that no encoding takes; a stored one never does.
    text = f"{conversation_id}#{order}#".encode(errors="replace") + position
    return hashlib.blake2b(text, digest_size=_CHECK_BYTES).digest()


def _refusal(message: str) -> InvalidRequestError:
    return InvalidRequestError.of("cursor", message)
