"""Page cursors: what they say, how long they are, and which are refused."""

import base64
import hashlib
import re

import pytest

from hotpartition_messages.cursor import CURSOR_PATTERN, build_cursor, parse_cursor
from hotpartition_messages.errors import InvalidCursorError
from support.builders import message_id

NOW_MS = 1_700_000_000_000
ID = message_id(NOW_MS, 7)


def old_cursor(conversation_id, identifier, order):
    """Build a cursor of the format before this one."""
    check = hashlib.blake2b(f"{conversation_id}#{order}#{identifier}".encode(), digest_size=5).digest()
    return base64.urlsafe_b64encode(identifier.encode() + check).rstrip(b"=").decode()


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("started_ms", [0, NOW_MS, 2**48 - 1])
def test_a_cursor_says_where_and_since_when(newest_first, started_ms):
    """The message after which to continue, and when the walk began; always of the same size."""
    cursor = build_cursor("c", ID, newest_first=newest_first, walk_started_ms=started_ms)
    assert parse_cursor(cursor, "c", newest_first=newest_first) == (ID, started_ms)
    assert len(cursor) == 50


def test_cursors_of_the_format_before_stay_valid():
    """A walk that began before an update goes on; when it began is not known."""
    cursor = old_cursor("c", ID, "oldest")
    assert len(cursor) == 42
    assert parse_cursor(cursor, "c", newest_first=False) == (ID, None)
    with pytest.raises(InvalidCursorError):
        parse_cursor(cursor, "d", newest_first=False)


def test_a_changed_beginning_is_refused():
    """The check value covers it."""
    cursor = build_cursor("c", ID, newest_first=True, walk_started_ms=NOW_MS)
    other = build_cursor("c", ID, newest_first=True, walk_started_ms=NOW_MS + 1)
    with pytest.raises(InvalidCursorError):
        parse_cursor(cursor[:43] + other[43:], "c", newest_first=True)


def test_the_pattern_admits_both():
    """What the API's document says of a cursor."""
    for cursor in (old_cursor("c", ID, "newest"), build_cursor("c", ID, newest_first=True, walk_started_ms=1)):
        assert re.fullmatch(CURSOR_PATTERN, cursor)
    assert not re.fullmatch(CURSOR_PATTERN, "a" * 46)
