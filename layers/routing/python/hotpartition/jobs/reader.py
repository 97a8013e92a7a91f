"""The read job: gather a conversation's messages from every key that can hold them, and merge them.

Redis is a hint. In the same round as the messages, and with the same consistency, the journal is read, and the union of
both decides which keys are needed; what the hint did not know is queried in a second round. So a wrong, stale,
empty or unreachable Redis costs time, never a message (docs/architecture.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Generic

from hotpartition.core.backoff import Budget, Clock
from hotpartition.core.cursor import build_cursor, parse_cursor
from hotpartition.core.keys import parse_conversation_id
from hotpartition.core.merge import ItemT, KeyQuery, Page, PageMerge, PageRange, choose_copy
from hotpartition.core.message_ids import (
    MAX_TIME_MS,
    first_message_id_at,
    last_message_id_before,
    message_time_ms,
    parse_message_id,
    shift_message_id,
)
from hotpartition.core.metrics import MetricName
from hotpartition.core.route import Route, next_candidates
from hotpartition.core.timestamps import format_time
from hotpartition.errors import (
    InvalidRequestError,
    MalformedGenerationError,
    MessageNotFoundError,
    RegistryUnavailableError,
    RetryLaterError,
)
from hotpartition.jobs.route_cache import RouteSource
from hotpartition.ports import Background, JournalEntry, MessageStore, QueryResponse, Registry, Telemetry

MAX_LIMIT = 200
DEFAULT_LIMIT = 50
MAX_NAMED = 20
"""Generations that one log line names."""


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
class PageResult(Generic[ItemT]):
    """One page: its messages, the cursor of the next one if there is any, and how far the past is settled.

    `settled_until`, RFC 3339: a client that polls oldest-first continues with `after` = this, and ignores ids it has
    seen. Messages with older times are not expected any more, though a client may still send some. It counts from the
    beginning of the walk: no page after a cursor looks behind it again.
    """

    messages: tuple[ItemT, ...]
    next_cursor: str | None
    settled_until: str


class Reader(Generic[ItemT]):
    """Reads messages. One per execution environment."""

    def __init__(
        self,
        *,
        store: MessageStore[ItemT],
        registry: Registry,
        routes: RouteSource,
        background: Background,
        telemetry: Telemetry,
        clock: Clock,
        budget_ms: float,
        settle_ms: float,
    ) -> None:
        self._store = store
        self._registry = registry
        self._routes = routes
        self._background = background
        self._telemetry = telemetry
        self._clock = clock
        self._budget_ms = budget_ms
        self._settle_ms = settle_ms

    def read_page(
        self,
        request: PageRequest,
        *,
        remaining_ms: float = float("inf"),
        fits: Callable[[Sequence[ItemT]], int] = len,
    ) -> PageResult[ItemT]:
        """Read one page: complete, or an error.

        Args:
            request: which page.
            remaining_ms: time the function has left; the budget never passes it.
            fits: says how many of the messages the response can carry; the page ends there, at one message at least.

        Raises:
            InvalidRequestError: the conversation id, limit or cursor is wrong.
            RetryLaterError: a key could not be read within the budget.
        """
        started_ms = self._clock.now_ms()
        page_range = build_range(request)
        if page_range is None:
            return self._result(request, Page((), has_more=False, divergent=0), started_ms)
        budget = Budget(self._clock, min(self._budget_ms, remaining_ms))
        with self._naming_unreadable_routes(request.conversation_id):
            page = self._gather(page_range, budget, is_strong=request.is_strong)
        if page.messages and (count := max(1, fits(page.messages))) < len(page.messages):
            page = replace(page, messages=page.messages[:count], has_more=True)
        if page.divergent:
            self._telemetry.count(MetricName.DIVERGENT_COPIES, page.divergent)
        return self._result(request, page, started_ms)

    def read_message(
        self, conversation_id: str, message_id: str, *, is_strong: bool = False, remaining_ms: float = float("inf")
    ) -> ItemT:
        """Read one message by its id.

        Raises:
            InvalidRequestError: an id is malformed.
            MessageNotFoundError: it is not stored.
            RetryLaterError: it could not be looked up within the budget.
        """
        parse_conversation_id(conversation_id)
        message_id = parse_message_id(message_id)
        budget = Budget(self._clock, min(self._budget_ms, remaining_ms))
        route = hint = self._routes.get_route(conversation_id, self._clock.now_ms())
        asked: set[str] = set()
        copies: list[ItemT] = []
        journal_of: str | None = conversation_id
        while keys := next_candidates(route, conversation_id, message_id, asked=asked, is_found=bool(copies)):
            with self._naming_unreadable_routes(conversation_id):
                found, entry = self._get(keys, message_id, budget, is_strong=is_strong, journal_of=journal_of)
            asked.update(keys)
            copies.extend(found)
            if entry is not None:
                route = route.union(self._verify(conversation_id, hint, entry, is_strong=is_strong))
                journal_of = None
        if not copies:
            raise MessageNotFoundError(conversation_id, message_id)
        return choose_copy(copies)

    @contextmanager
    def _naming_unreadable_routes(self, conversation_id: str) -> Iterator[None]:
        """Tell an operator whose routing item must be repaired; the read fails, since it could be incomplete."""
        try:
            yield
        except MalformedGenerationError as error:
            self._telemetry.count(MetricName.JOURNAL_MALFORMED)
            self._telemetry.event("routing item cannot be read", conversation_id=conversation_id, reason=str(error))
            raise

    def _gather(self, page_range: PageRange, budget: Budget, *, is_strong: bool) -> Page[ItemT]:
        conversation_id = page_range.collection
        route = hint = self._routes.get_route(conversation_id, self._clock.now_ms())
        merge: PageMerge[ItemT] = PageMerge(page_range)
        is_verified = False
        while (queries := merge.next_queries(route)) or not is_verified:
            entry = self._run_round(merge, queries, budget, is_strong=is_strong, with_journal=not is_verified)
            if entry is not None:
                route = route.union(self._verify(conversation_id, hint, entry, is_strong=is_strong))
                is_verified = True
        return merge.page()

    def _run_round(
        self, merge: PageMerge[ItemT], queries: list[KeyQuery], budget: Budget, *, is_strong: bool, with_journal: bool
    ) -> JournalEntry | None:
        """Run one round of queries, and those that fail again within the budget.

        Raises:
            RetryLaterError: one still failed when the budget was spent.
        """
        journal: JournalEntry | None = None
        while True:
            wants_journal = with_journal and journal is None
            fetched = self._store.fetch(
                queries, is_strong=is_strong, journal_of=merge.range.collection if wants_journal else None
            )
            if fetched.hedged:
                self._telemetry.count(MetricName.QUERIES_HEDGED, fetched.hedged)
            failures: list[RetryLaterError] = []
            failed: list[KeyQuery] = []
            for query, response in zip(queries, fetched.responses, strict=True):
                if isinstance(response, QueryResponse):
                    merge.add(query, response.messages, is_exhausted=response.is_exhausted)
                else:
                    failures.append(response)
                    failed.append(query)
            if isinstance(fetched.journal, RetryLaterError):
                failures.append(fetched.journal)
            elif fetched.journal is not None:
                journal = fetched.journal
            if not failures:
                return journal
            self._telemetry.count(MetricName.READS_RETRIED, len(failures))
            if not budget.wait():
                raise failures[0]
            queries = failed

    def _get(
        self, keys: Sequence[str], message_id: str, budget: Budget, *, is_strong: bool, journal_of: str | None
    ) -> tuple[tuple[ItemT, ...], JournalEntry | None]:
        while True:
            try:
                return self._store.get(keys, message_id, is_strong=is_strong, journal_of=journal_of)
            except RetryLaterError:
                self._telemetry.count(MetricName.READS_RETRIED)
                if not budget.wait():
                    raise

    def _verify(self, conversation_id: str, hint: Route, entry: JournalEntry, *, is_strong: bool) -> Route:
        """Compare Redis's word with the journal's, repair Redis where it knows less, and return the journal's."""
        if not hint.covers(entry.route):
            self._routes.learn(conversation_id, entry.route, self._clock.now_ms())
            self._repair_registry(conversation_id, entry.route)
        # Redis was asked first and raises go to the journal first, so a strong read has all that a raise put there.
        if is_strong and not entry.route.covers(hint):
            self._telemetry.count(MetricName.REGISTRY_AHEAD_OF_JOURNAL)
            self._telemetry.event(
                "registry is ahead of the journal",
                conversation_id=conversation_id,
                generations=sorted(g.encode() for g in hint.minus(entry.route))[:MAX_NAMED],
            )
        return entry.route

    def _repair_registry(self, conversation_id: str, route: Route) -> None:
        self._telemetry.count(MetricName.REGISTRY_BEHIND_JOURNAL)

        def add() -> None:
            # Not counted: this runs beside the request, whose thread alone may touch the metrics.
            with suppress(RegistryUnavailableError):
                self._registry.add(conversation_id, route.generations)

        self._background.submit(add)

    def _result(self, request: PageRequest, page: Page[ItemT], started_ms: int) -> PageResult[ItemT]:
        last = page.messages[-1].message_id if page.messages else None
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
        return PageResult(page.messages, next_cursor, format_time(settled_ms))


def _walk_start(request: PageRequest, started_ms: int) -> int:
    """Tell when the walk over the pages began, Unix ms, at a page that began at `started_ms`."""
    if request.cursor is None:
        return started_ms
    position = parse_cursor(request.cursor, request.conversation_id, newest_first=request.newest_first)
    return started_ms if position.walk_started_ms is None else min(started_ms, position.walk_started_ms)


def build_range(request: PageRequest) -> PageRange | None:
    """Turn a request into bounds on message ids; None when no id can lie between them.

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
    if request.cursor is not None:
        position = parse_cursor(request.cursor, request.conversation_id, newest_first=request.newest_first)
        following = shift_message_id(position.message_id, -1 if request.newest_first else 1)
        is_empty |= following is None
        if request.newest_first:
            last = min(filter(None, (last, following)), default=None)
        else:
            first = max(filter(None, (first, following)), default=None)
    if is_empty or (first is not None and last is not None and first > last):
        return None
    return PageRange(request.conversation_id, request.newest_first, request.limit, first, last)
