"""Page cursors: what they say, how long they are, and which are refused."""

import re

import pytest

from hotpartition.core.errors import InvalidRequestError
from hotpartition_messages.cursor import Cursor, build_cursor, parse_cursor
from support.builders import message_id

NOW_MS = 1_700_000_000_000
ID = message_id(NOW_MS, 7)


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("started_ms", [0, NOW_MS, 2**48 - 1])
def test_a_cursor_says_where_and_since_when(newest_first, started_ms):
    """The message after which to continue, and when the walk began; always of the same size and alphabet."""
    text = build_cursor("c", Cursor(ID, started_ms), newest_first=newest_first)
    assert parse_cursor(text, "c", newest_first=newest_first) == (ID, started_ms)
    assert parse_cursor(text, "d", newest_first=None) == (ID, started_ms)
    assert re.fullmatch("[A-Za-z0-9_-]{50}", text)
    assert len(text) == 50


def test_a_foreign_cursor_is_refused():
    """Another conversation's, the other order's, a changed one: each says what is wrong."""
    text = build_cursor("c", Cursor(ID, NOW_MS), newest_first=True)
    later = build_cursor("c", Cursor(ID, NOW_MS + 1), newest_first=True)
    for foreign, conversation_id, newest_first, words in [
        (text, "d", True, "another conversation"),
        (text, "c", False, "other order"),
        ("x" + text[1:], "c", True, "not issued|was changed"),
        (text[:43] + later[43:], "c", True, "was changed"),
        *((wrong, "c", True, "not issued") for wrong in ("hello", "", "A" * 50, "é" * 50, text + "=", text[:-1] + "!")),
    ]:
        with pytest.raises(InvalidRequestError, match=words):
            parse_cursor(foreign, conversation_id, newest_first=newest_first)
