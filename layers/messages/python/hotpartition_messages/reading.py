"""Reads messages through the engine's gatherer: pages with their cursors, and single messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from hotpartition.core.merge import Page, PageRange, choose_copy, cut_page, narrow_newest
from hotpartition.core.times import format_time
from hotpartition.engine.gatherer import Gatherer
from hotpartition.engine.load_counting import ReportedPages
from hotpartition_messages.cursor import Cursor
from hotpartition_messages.errors import MessageGoneError, MessageNotFoundError
from hotpartition_messages.keys import build_key, build_sort_key, parse_sort_key
from hotpartition_messages.message_ids import MAX_TIME_MS, first_message_id_at, last_message_id_before, message_time_ms
from hotpartition_messages.messages import Message

if TYPE_CHECKING:
    from hotpartition.engine.read_cache import ReadCache  # not every function caches pages

MAX_LIMIT = 200
DEFAULT_LIMIT = 50
CACHED_LIMITS = (DEFAULT_LIMIT, MAX_LIMIT)
"""Newest pages are cached with these: one of fewer messages is a part of the next larger one."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Which page is wanted. Messages lie at or after `after_ms` and before `before_ms` (Unix ms; None: no bound).

    REQUIRES: an allowed conversation id and limit; a cursor of this conversation and order.
    """

    conversation_id: str
    newest_first: bool = True
    limit: int = DEFAULT_LIMIT
    after_ms: int | None = None
    before_ms: int | None = None
    cursor: Cursor | None = None
    is_strong: bool = False

    @property
    def is_newest(self) -> bool:
        """Whether it is the newest page, without bounds and eventually consistent: the one that may be cached."""
        bounds = self.after_ms, self.before_ms, self.cursor
        return self.newest_first and not self.is_strong and bounds == (None, None, None)


@dataclass(frozen=True, slots=True)
class PageResult:
    """One page: its messages, the cursor of the next one if there is any, and how far the past is settled.

    `settled_until`, RFC 3339: a client that polls oldest-first continues with `after` = this, and ignores ids it has
    seen. Messages with older times are not expected any more, though a client may still send some. It counts from the
    beginning of the walk: no page after a cursor looks behind it again.

    A newest page has an entity tag, by what it shows; `age_ms` is how old it is if it was cached.
    """

    messages: tuple[Message, ...]
    next_cursor: Cursor | None
    settled_until: str
    etag: str | None = None
    age_ms: int | None = None


@dataclass(eq=False, repr=False)
class MessageReader:
    """Reads messages. One per execution environment."""

    gatherer: Gatherer[str, Message]
    _: KW_ONLY
    now_ms: Callable[[], int]
    settle_ms: float
    """How far behind the present no message is expected to come any more."""
    cache: ReadCache[Page[str, Message]] | None = None
    """Has the newest pages of read-hot conversations; None: they are read as all others."""
    counting: ReportedPages | None = None
    """Counts each page that the cache served."""

    def read_page(
        self,
        request: PageRequest,
        *,
        remaining_ms: float = float("inf"),
        fits: Callable[[Sequence[Message]], int] = len,
    ) -> PageResult:
        """Read one page: complete, or an error.

        `fits` returns how many of the messages the response can carry; the page ends there, at one message at least.

        Raises:
            RetryLaterError: a key could not be read within the budget.
        """
        started_ms = self.now_ms()
        page_range = build_range(request)
        if page_range is None:
            return self._result(request, Page((), has_more=False), started_ms)
        gather = partial(self._gather, is_strong=request.is_strong, remaining_ms=remaining_ms, fits=fits)
        if self.cache is not None and request.is_newest:
            known = self.gatherer.routes.for_read(request.conversation_id)
            gather = partial(gather, hint=known.route)
            if known.copies:
                return self._read_cached(self.cache, request, partial(gather, page_range), remaining_ms)
        return self._result(request, gather(page_range, request.limit, started_ms), started_ms)

    def read_message(
        self, conversation_id: str, message_id: str, *, is_strong: bool = False, remaining_ms: float = float("inf")
    ) -> Message:
        """Read one message. REQUIRES: an allowed conversation id, a canonical message id.

        Raises:
            MessageNotFoundError: it is not stored, or has expired.
            MessageGoneError: it was deleted.
            RetryLaterError: it could not be looked up within the budget.
        """
        key = build_key(conversation_id, message_id)
        copies = self.gatherer.locate(key, is_strong=is_strong, remaining_ms=remaining_ms).copies
        if not copies:
            raise MessageNotFoundError(conversation_id, message_id)
        message = choose_copy([copy.item for copy in copies])
        if message.deleted_at is not None:
            raise MessageGoneError(conversation_id, message_id)
        if not message.is_shown_at(self.now_ms()):
            raise MessageNotFoundError(conversation_id, message_id)
        return message

    def _gather(
        self,
        page_range: PageRange[str],
        limit: int,
        at_ms: int,
        *,
        fits: Callable[[Sequence[Message]], int],
        **reading: Any,
    ) -> Page[str, Message]:
        """Gather a page of what is shown at a time; it ends where the response is full."""
        page = self.gatherer.gather(
            replace(page_range, limit=limit), is_shown=lambda message: message.is_shown_at(at_ms), **reading
        )
        return cut_page(page, fits(page.items))

    def _read_cached(
        self,
        cache: ReadCache[Page[str, Message]],
        request: PageRequest,
        gather: Callable[[int, int], Page[str, Message]],
        remaining_ms: float,
    ) -> PageResult:
        """Serve a newest page as a read a moment ago gave it, without what has expired since."""
        limit = next(each for each in CACHED_LIMITS if each >= request.limit)

        def fill() -> tuple[Page[str, Message], float]:
            page = gather(limit, self.now_ms())
            return page, page.units

        cached = cache.get((request.conversation_id, f"newest-{limit}"), fill, remaining_ms=remaining_ms)
        if self.counting is not None and not cached.is_loaded:
            self.counting.count(request.conversation_id, cached.units)
        now_ms = self.now_ms()
        page = narrow_newest(cached.value, request.limit, lambda message: message.is_shown_at(now_ms))
        return self._result(request, page, now_ms - cached.age_ms, None if cached.is_loaded else cached.age_ms)

    def _result(
        self, request: PageRequest, page: Page[str, Message], started_ms: int, age_ms: int | None = None
    ) -> PageResult:
        last = parse_sort_key(page.last) if page.last else None
        # Messages behind the cursor were read since the walk began, and no later page of it looks there again.
        walk_started_ms = min(started_ms, request.cursor.walk_started_ms) if request.cursor else started_ms
        next_cursor = Cursor(last, walk_started_ms) if page.has_more and last else None
        settled_ms = max(0, int(walk_started_ms - self.settle_ms))
        if next_cursor and last and not request.newest_first:
            settled_ms = min(settled_ms, message_time_ms(last))
        etag = _etag_of(page) if request.is_newest else None
        return PageResult(page.items, next_cursor, format_time(settled_ms), etag, age_ms)


def _etag_of(page: Page[str, Message]) -> str:
    """Build the entity tag of a page; it changes with the messages shown and their versions.

    It is weak: cursor and `settled_until` count from when a page was read. Those of an older one serve as well.
    """
    ids = "".join([message.message_id for message in page.items])
    edits = [(index, message.version) for index, message in enumerate(page.items) if message.version > 1]
    return f'W/"{blake2b(f"{ids}{edits}{page.has_more}".encode(), digest_size=12).hexdigest()}"'


def build_range(request: PageRequest) -> PageRange[str] | None:
    """Turn a request into bounds on sort keys; None when no message can lie between them."""
    first = first_message_id_at(request.after_ms) if request.after_ms is not None else None
    last = last_message_id_before(request.before_ms) if request.before_ms is not None else None
    is_empty = request.before_ms is not None and last is None
    is_empty |= request.after_ms is not None and request.after_ms > MAX_TIME_MS
    is_empty |= first is not None and last is not None and first > last
    after = None
    if request.cursor is not None:
        after = request.cursor.message_id
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
