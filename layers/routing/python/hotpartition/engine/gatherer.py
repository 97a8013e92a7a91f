"""Reading a collection: from every key that can hold its items, merged, with the route verified against the journal.

Redis is a hint. In the same round as the items, and with the same consistency, the journal is read, and the union of
both decides which keys are needed; what the hint did not know is queried in a second round. So a wrong, stale,
empty or unreachable Redis costs time, never an item (docs/architecture.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Generic

from hotpartition.core.backoff import Budget, Clock
from hotpartition.core.capacity import read_units
from hotpartition.core.items import ItemKey
from hotpartition.core.keys import KeyForm
from hotpartition.core.merge import ItemT, KeyQuery, Page, PageMerge, PageRange, PositionOf
from hotpartition.core.metrics import MetricName
from hotpartition.core.route import MAX_CHOICES, Route, next_candidates
from hotpartition.engine.read_counting import ReadCounting
from hotpartition.engine.route_cache import KnownRoutes
from hotpartition.engine.verifying import RouteVerifier, VerifiedRoutes
from hotpartition.errors import MalformedGenerationError, RetryLaterError
from hotpartition.ports import Background, Copy, ItemStore, JournalEntry, QueryResponse, Registry, Telemetry


@dataclass(frozen=True, slots=True)
class Located(Generic[ItemT]):
    """The stored copies of one item, nearly always one or none, and the route that says where others could lie."""

    copies: tuple[Copy[ItemT], ...]
    route: Route


@dataclass(slots=True)
class _Reading(Generic[ItemT]):
    """One page under way, and the RCU that it took so far."""

    merge: PageMerge[ItemT]
    budget: Budget
    is_strong: bool
    hint: Route | None
    units: float = 0.0


class Gatherer(Generic[ItemT]):
    """Reads pages and single items of collections. One per execution environment, or one per process."""

    def __init__(
        self,
        *,
        store: ItemStore[ItemT],
        registry: Registry | None,
        routes: KnownRoutes,
        background: Background,
        telemetry: Telemetry,
        clock: Clock,
        budget_ms: float,
        form: KeyForm,
        position_of: PositionOf,
        choices: int = MAX_CHOICES,
        counting: ReadCounting | None = None,
    ) -> None:
        """Start with nothing read.

        Args:
            store: the items.
            registry: repaired where it knows less than the journal; None: left as it is.
            routes: the collections' routes as Redis has them.
            background: repairs beside the request.
            telemetry: told of what is wrong.
            clock: time and chance.
            budget_ms: how long a read goes on trying.
            form: how partition keys are built.
            position_of: the position of a sort key, or of a bound.
            choices: how many shards may hold an item under one N.
            counting: told of each page and what it took; None: pages are not counted. Single items never are, since no
                cache of pages would help them.
        """
        self._store = store
        self._counting = counting
        verifier = RouteVerifier(registry=registry, routes=routes, background=background, telemetry=telemetry)
        self.routes = VerifiedRoutes(routes, verifier, clock.now_ms)
        self._telemetry = telemetry
        self._clock = clock
        self._budget_ms = budget_ms
        self._form = form
        self._position_of = position_of
        self._choices = choices

    def gather(
        self,
        page_range: PageRange,
        *,
        is_strong: bool,
        remaining_ms: float = float("inf"),
        is_shown: Callable[[ItemT], bool] | None = None,
        hint: Route | None = None,
    ) -> Page[ItemT]:
        """Read one page: complete, or an error.

        Args:
            page_range: which page.
            is_strong: whether the read is strongly consistent, the journal's included.
            remaining_ms: time the caller has left; the budget never passes it.
            is_shown: says whether an item belongs on a page; None: all do.
            hint: the collection's route as Redis has it, if that was asked already.

        Raises:
            RetryLaterError: a key could not be read within the budget.
            MalformedGenerationError: the routing item cannot be read.
        """
        merge = PageMerge(page_range, self._form, self._position_of, is_shown=is_shown)
        reading = _Reading(merge, Budget(self._clock, min(self._budget_ms, remaining_ms)), is_strong, hint)
        try:
            with self._naming_unreadable_routes(page_range.collection):
                page = self._gather(reading)
        finally:
            if self._counting is not None and reading.units:
                self._counting.count(page_range.collection, reading.units)
        if page.divergent:
            self._telemetry.count(MetricName.DIVERGENT_COPIES, page.divergent)
        return page

    def locate(
        self, key: ItemKey, *, is_strong: bool, everywhere: bool = False, remaining_ms: float = float("inf")
    ) -> Located[ItemT]:
        """Find the copies of one item: at its first choices, and at the others if nothing was found there.

        Args:
            key: which item.
            is_strong: whether the read is strongly consistent, the journal's included.
            everywhere: asks all choices at once, found or not: for who must know of every copy.
            remaining_ms: time the caller has left; the budget never passes it.

        Raises:
            RetryLaterError: it could not be looked up within the budget.
            MalformedGenerationError: the routing item cannot be read.
        """
        budget = Budget(self._clock, min(self._budget_ms, remaining_ms))
        route = hint = self.routes.get(key.collection)
        asked: set[str] = set()
        copies: list[Copy[ItemT]] = []
        journal_of: str | None = key.collection
        while keys := next_candidates(
            route,
            key,
            self._form,
            asked=asked,
            is_found=bool(copies),
            everywhere=everywhere,
            choices=self._choices,
        ):
            with self._naming_unreadable_routes(key.collection):
                found, entry = self._get(keys, key.sort_key, budget, is_strong=is_strong, journal_of=journal_of)
            asked.update(keys)
            copies.extend(found)
            if entry is not None:
                route = route.union(self._verify(key.collection, hint, entry, is_strong=is_strong))
                journal_of = None
        return Located(tuple(copies), route)

    @contextmanager
    def _naming_unreadable_routes(self, collection: str) -> Iterator[None]:
        """Tell an operator whose routing item must be repaired; the read fails, since it could be incomplete."""
        try:
            yield
        except MalformedGenerationError as error:
            self.routes.name_unreadable(collection, error)
            raise

    def _gather(self, reading: _Reading[ItemT]) -> Page[ItemT]:
        merge = reading.merge
        collection = merge.range.collection
        hint = reading.hint
        if hint is None:
            hint = self.routes.get(collection)
        route = hint
        is_verified = False
        while (queries := merge.next_queries(route)) or not is_verified:
            entry = self._run_round(reading, queries, with_journal=not is_verified)
            if entry is not None:
                route = route.union(self._verify(collection, hint, entry, is_strong=reading.is_strong))
                is_verified = True
        return replace(merge.page(), units=reading.units)

    def _run_round(
        self, reading: _Reading[ItemT], queries: list[KeyQuery], *, with_journal: bool
    ) -> JournalEntry | None:
        """Run one round of queries, and those that fail again within the budget.

        Raises:
            RetryLaterError: one still failed when the budget was spent.
        """
        merge, is_strong = reading.merge, reading.is_strong
        journal: JournalEntry | None = None
        while True:
            wants_journal = with_journal and journal is None
            fetched = self._store.fetch(
                queries, is_strong=is_strong, journal_of=merge.range.collection if wants_journal else None
            )
            reading.units += fetched.units
            if fetched.hedged:
                self._telemetry.count(MetricName.QUERIES_HEDGED, fetched.hedged)
            failures: list[RetryLaterError] = []
            failed: list[KeyQuery] = []
            for query, response in zip(queries, fetched.responses, strict=True):
                if isinstance(response, QueryResponse):
                    merge.add(query, response.items, is_exhausted=response.is_exhausted, reached=response.reached)
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
            if not reading.budget.wait():
                # What was refused counts as offered, at least what each query takes.
                reading.units += len(failures) * read_units(0, is_strong=is_strong)
                raise failures[0]
            queries = failed

    def _get(
        self, keys: Sequence[str], sort_key: str, budget: Budget, *, is_strong: bool, journal_of: str | None
    ) -> tuple[tuple[Copy[ItemT], ...], JournalEntry | None]:
        while True:
            try:
                return self._store.get(keys, sort_key, is_strong=is_strong, journal_of=journal_of)
            except RetryLaterError:
                self._telemetry.count(MetricName.READS_RETRIED)
                if not budget.wait():
                    raise

    def _verify(self, collection: str, hint: Route, entry: JournalEntry, *, is_strong: bool) -> Route:
        return self.routes.verify(collection, hint, entry, is_strong=is_strong)
