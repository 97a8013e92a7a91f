"""Reads messages through the engine's gatherer: pages with their cursors, and single messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hotpartition.core.merge import Page, PageRange, choose_copy
from hotpartition.core.timestamps import format_time
from hotpartition.errors import InvalidRequestError
from hotpartition.jobs.gatherer import Gatherer
from hotpartition_messages.cursor import build_cursor, parse_cursor
from hotpartition_messages.errors import MessageGoneError, MessageNotFoundError
from hotpartition_messages.keys import build_key, build_sort_key, parse_conversation_id, parse_sort_key
from hotpartition_messages.message_ids import (
    MAX_TIME_MS,
    first_message_id_at,
    last_message_id_before,
    message_time_ms,
    parse_message_id,
)
from hotpartition_messages.messages import Message

MAX_LIMIT = 200
DEFAULT_LIMIT = 50


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Which page is wanted. Messages lie at or after `after_ms` and before `before_ms` (Unix ms; None: no bound)."""

    conversation_id: str
    newest_first: bool = True
    limit: int = DEFAULT_LIMIT
    after_ms: int | None = None
    before_ms: int | None = None
    cursor: str | None = None
    is_strong: bool = False


@dataclass(frozen=True, slots=True)
class PageResult:
    """One page: its messages, the cursor of the next one if there is any, and how far the past is settled.

    `settled_until`, RFC 3339: a client that polls oldest-first continues with `after` = this, and ignores ids it has
    seen. Messages with older times are not expected any more, though a client may still send some. It counts from the
    beginning of the walk: no page after a cursor looks behind it again.
    """

    messages: tuple[Message, ...]
    next_cursor: str | None
    settled_until: str


class MessageReader:
    """Reads messages. One per execution environment."""

    def __init__(self, gatherer: Gatherer[Message], *, now_ms: Callable[[], int], settle_ms: float) -> None:
        """Start with nothing read.

        Args:
            gatherer: reads and merges the items.
            now_ms: Unix time in ms.
            settle_ms: how far behind the present no message is expected to come any more.
        """
        self._gatherer = gatherer
        self._now_ms = now_ms
        self._settle_ms = settle_ms

    def read_page(
        self,
        request: PageRequest,
        *,
        remaining_ms: float = float("inf"),
        fits: Callable[[Sequence[Message]], int] = len,
    ) -> PageResult:
        """Read one page: complete, or an error.

        Args:
            request: which page.
            remaining_ms: time the function has left; the budget never passes it.
            fits: says how many of the messages the response can carry; the page ends there, at one message at least.

        Raises:
            InvalidRequestError: the conversation id, limit or cursor is wrong.
            RetryLaterError: a key could not be read within the budget.
        """
        started_ms = self._now_ms()
        page_range = build_range(request)
        if page_range is None:
            return self._result(request, Page((), has_more=False, divergent=0), started_ms)
        page = self._gatherer.gather(
            page_range,
            is_strong=request.is_strong,
            remaining_ms=remaining_ms,
            is_shown=lambda message: message.is_shown_at(started_ms),
        )
        if page.items and (count := max(1, fits(page.items))) < len(page.items):
            page = replace(page, items=page.items[:count], has_more=True, last=page.items[count - 1].sort_key)
        return self._result(request, page, started_ms)

    def read_message(
        self, conversation_id: str, message_id: str, *, is_strong: bool = False, remaining_ms: float = float("inf")
    ) -> Message:
        """Read one message by its id.

        Raises:
            InvalidRequestError: an id is malformed.
            MessageNotFoundError: it is not stored, or has expired.
            MessageGoneError: it was deleted.
            RetryLaterError: it could not be looked up within the budget.
        """
        parse_conversation_id(conversation_id)
        message_id = parse_message_id(message_id)
        key = build_key(conversation_id, message_id)
        copies = self._gatherer.locate(key, is_strong=is_strong, remaining_ms=remaining_ms).copies
        if not copies:
            raise MessageNotFoundError(conversation_id, message_id)
        message = choose_copy([copy.item for copy in copies])
        if message.deleted_at is not None:
            raise MessageGoneError(conversation_id, message_id)
        if not message.is_shown_at(self._now_ms()):
            raise MessageNotFoundError(conversation_id, message_id)
        return message

    def _result(self, request: PageRequest, page: Page[Message], started_ms: int) -> PageResult:
        last = parse_sort_key(page.last) if page.last else None
        # What lies behind the cursor was read since the walk began, and no page of it looks there again.
        walk_started_ms = _walk_start(request, started_ms)
        next_cursor = None
        if page.has_more and last:
            next_cursor = build_cursor(
                request.conversation_id, last, newest_first=request.newest_first, walk_started_ms=walk_started_ms
            )
        settled_ms = max(0, int(walk_started_ms - self._settle_ms))
        if next_cursor and last and not request.newest_first:
            settled_ms = min(settled_ms, message_time_ms(last))
        return PageResult(page.items, next_cursor, format_time(settled_ms))


def _walk_start(request: PageRequest, started_ms: int) -> int:
    """Tell when the walk over the pages began, Unix ms, at a page that began at `started_ms`."""
    if request.cursor is None:
        return started_ms
    position = parse_cursor(request.cursor, request.conversation_id, newest_first=request.newest_first)
    return started_ms if position.walk_started_ms is None else min(started_ms, position.walk_started_ms)


def build_range(request: PageRequest) -> PageRange | None:
    """Turn a request into bounds on sort keys; None when no message can lie between them.

    Raises:
        InvalidRequestError: naming what is wrong.
    """
    parse_conversation_id(request.conversation_id)
    if not 1 <= request.limit <= MAX_LIMIT:
        raise InvalidRequestError.of("limit", f"should be a whole number from 1 to {MAX_LIMIT}")
    first = first_message_id_at(request.after_ms) if request.after_ms is not None else None
    last = last_message_id_before(request.before_ms) if request.before_ms is not None else None
    is_empty = request.before_ms is not None and last is None
    is_empty |= request.after_ms is not None and request.after_ms > MAX_TIME_MS
    is_empty |= first is not None and last is not None and first > last
    after = None
    if request.cursor is not None:
        after = parse_cursor(request.cursor, request.conversation_id, newest_first=request.newest_first).message_id
        begin, end = (last, first) if request.newest_first else (first, last)
        if begin is not None and _precedes(after, begin, newest_first=request.newest_first):
            after = None  # the page begins behind it anyway
        elif end is not None and not _precedes(after, end, newest_first=request.newest_first):
            is_empty = True
    if is_empty:
        return None
    first, last, after = (text and build_sort_key(text) for text in (first, last, after))
    return PageRange(request.conversation_id, request.newest_first, request.limit, first, last, after)


def _precedes(message_id: str, other: str, *, newest_first: bool) -> bool:
    """Say whether a message comes before another, in the page's order."""
    return message_id > other if newest_first else message_id < other
