"""Reading collections: from every key that can hold their items, with the route compared with the journal.

Redis is a hint. In the same round as the items, and with the same consistency, the journal is read, and the union of
both decides which keys are needed; keys that the hint did not know are queried in a second round. So a wrong, stale,
empty or unreachable Redis costs time, never an item (docs/architecture.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Generic

from hotpartition.core.backoff import Budget, Clock
from hotpartition.core.capacity import read_units
from hotpartition.core.errors import MalformedGenerationError, RetryLaterError
from hotpartition.core.items import ItemKey, KeyT
from hotpartition.core.keys import KeyForm
from hotpartition.core.merge import (
    ItemSizes,
    ItemT,
    KeyQuery,
    Page,
    PageMerge,
    PageRange,
    Plan,
    PositionOf,
    QueryResponse,
)
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import Copy, Got, ItemStore, JournalEntry, Telemetry, report_unreadable
from hotpartition.core.route import MAX_CHOICES, Route, next_candidates
from hotpartition.engine.load_counting import ReportedPages
from hotpartition.engine.route_cache import Routes

NOTHING_CONFIRMED = JournalEntry()


@dataclass(frozen=True, slots=True)
class Located(Generic[ItemT]):
    """The stored copies of one item, nearly always one or none, and the route that says where others could lie.

    `confirmed` is the journal's route, if it was read strongly consistent: a new item may be placed by it.
    """

    copies: tuple[Copy[ItemT], ...]
    route: Route
    confirmed: JournalEntry = NOTHING_CONFIRMED


@dataclass(slots=True)
class _Reading(Generic[KeyT, ItemT]):
    """A plan under way, and the RCU that it took so far."""

    plan: Plan[KeyT, ItemT]
    collection: str
    budget: Budget
    is_strong: bool
    units: float = 0.0


@dataclass(slots=True)
class _Search(Generic[KeyT, ItemT]):
    """One item that is looked for."""

    key: ItemKey[KeyT]
    hint: Route
    route: Route
    confirmed: JournalEntry = NOTHING_CONFIRMED
    asked: set[str] = field(default_factory=set)
    copies: list[Copy[ItemT]] = field(default_factory=list)


@dataclass(eq=False, repr=False, kw_only=True)
class Gatherer(Generic[KeyT, ItemT]):
    """Reads pages and single items of collections. Safe under threads if its store is."""

    store: ItemStore[KeyT, ItemT]
    routes: Routes
    telemetry: Telemetry
    clock: Clock
    budget_ms: float
    form: KeyForm
    position_of: PositionOf[KeyT] = lambda _: None
    choices: int = MAX_CHOICES
    has_journal: bool = True
    """False: no routing items say where items lie, and `routes` learn it from the items."""
    is_folding: bool = False
    """Whether items are being moved to the base key, which is read last then."""
    budget_from_refusal: bool = False
    """Whether the budget counts from the first refusal, not from the call."""
    counting: ReportedPages | None = None
    """Gets each page and its cost; None: they are not counted. Single items never are: no cache of pages helps them."""
    sizes: ItemSizes = field(default_factory=ItemSizes)
    """Learn from what is read."""

    def gather(
        self,
        page_range: PageRange[KeyT],
        *,
        is_strong: bool,
        remaining_ms: float = float("inf"),
        is_shown: Callable[[ItemT], bool] | None = None,
        hint: Route | None = None,
    ) -> Page[KeyT, ItemT]:
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
        merge = self._plan_page(page_range, is_shown)
        units = self.run(merge, page_range.collection, is_strong=is_strong, remaining_ms=remaining_ms, hint=hint)
        return replace(merge.page(), units=units)

    def run(
        self,
        plan: Plan[KeyT, ItemT],
        collection: str,
        *,
        is_strong: bool,
        remaining_ms: float = float("inf"),
        hint: Route | None = None,
    ) -> float:
        """Run the queries of a plan, round by round, until it has none left: as `gather`, with the same errors.

        Returns:
            The RCU that it took.
        """
        reading = _Reading(plan, collection, self._begin(remaining_ms), is_strong)
        try:
            with self._naming_unreadable_routes(collection):
                self._run(reading, hint, wants_journal=self.has_journal)
        finally:
            if self.counting is not None and reading.units:
                self.counting.count(collection, reading.units)
        return reading.units

    def locate(
        self, key: ItemKey[KeyT], *, is_strong: bool, everywhere: bool = False, remaining_ms: float = float("inf")
    ) -> Located[ItemT]:
        """Find the copies of one item, as `locate_all`."""
        (found,) = self.locate_all([key], is_strong=is_strong, everywhere=everywhere, remaining_ms=remaining_ms)
        return found

    def locate_all(
        self,
        keys: Sequence[ItemKey[KeyT]],
        *,
        is_strong: bool,
        everywhere: bool = False,
        remaining_ms: float = float("inf"),
    ) -> list[Located[ItemT]]:
        """Find the copies of items: at their first choices, and at the others if nothing was found there.

        Args:
            keys: which items. REQUIRES: each once.
            is_strong: whether the read is strongly consistent, the journal's included.
            everywhere: asks all choices at once, found or not, to learn of every copy.
            remaining_ms: time the caller has left; the budget never passes it.

        Raises:
            RetryLaterError: they could not be looked up within the budget.
            MalformedGenerationError: a routing item cannot be read.
        """
        budget = self._begin(remaining_ms)
        searches: list[_Search[KeyT, ItemT]] = []
        for key in keys:
            hint = self.routes.for_read(key.collection).route
            searches.append(_Search(key, hint, hint))
        journals_of = sorted({key.collection for key in keys}) if self.has_journal else []
        while places := self._next_places(searches, everywhere=everywhere):
            got = self._get(list(places), budget, is_strong=is_strong, journals_of=journals_of)
            for copy in got.copies:
                places[copy.partition_key, copy.item.sort_key].copies.append(copy)
            for search in searches:
                self._learn(search, got, is_strong=is_strong)
            journals_of = []
        self._look_at_base_again(searches, budget, is_strong=is_strong)
        return [Located(tuple(search.copies), search.route, search.confirmed) for search in searches]

    def confirm(self, collection: str) -> Route:
        """Return a collection's route as reads must use it, strongly consistent, without reading any item."""
        hint = self.routes.for_read(collection).route
        if not self.has_journal:
            return hint
        got = self._get([], self._begin(float("inf")), is_strong=True, journals_of=[collection])
        return hint.checked_by(self.routes.learn(collection, got.journals[collection], hint=hint, is_strong=True))

    def _begin(self, remaining_ms: float) -> Budget:
        return Budget(self.clock, min(self.budget_ms, remaining_ms), from_refusal=self.budget_from_refusal)

    def _plan_page(
        self, page_range: PageRange[KeyT], is_shown: Callable[[ItemT], bool] | None
    ) -> PageMerge[KeyT, ItemT]:
        present = self.clock.now_ms()
        size = self.sizes.mean_bytes
        return PageMerge(page_range, self.form, self.position_of, is_shown=is_shown, present=present, item_bytes=size)

    @contextmanager
    def _naming_unreadable_routes(self, collection: str) -> Iterator[None]:
        """Name the collection whose routing item must be repaired; the read fails, since it could be incomplete."""
        try:
            yield
        except MalformedGenerationError as error:
            report_unreadable(self.telemetry, error.collection or collection, reason=str(error))
            raise

    def _run(self, reading: _Reading[KeyT, ItemT], hint: Route | None, *, wants_journal: bool) -> None:
        plan, collection = reading.plan, reading.collection
        if hint is None:
            hint = self.routes.for_read(collection).route
        route = hint
        is_base_last = True
        while True:
            queries = plan.next_queries(route)
            if not queries and not wants_journal:
                if not self.is_folding or is_base_last:
                    return
                # An item moved to the base key after its response, and before a shard's, is on neither of them.
                plan.forget(collection)
                is_base_last = True
                continue
            is_base_last &= all(query.partition_key == collection for query in queries)
            entry = self._run_round(reading, queries, with_journal=wants_journal)
            if entry is not None:
                route = route.checked_by(self.routes.learn(collection, entry, hint=hint, is_strong=reading.is_strong))
                wants_journal = False
            elif not self.has_journal:
                route = route.union(self.routes.for_read(collection).route)

    def _run_round(
        self, reading: _Reading[KeyT, ItemT], queries: list[KeyQuery[KeyT]], *, with_journal: bool
    ) -> JournalEntry | None:
        """Run one round of queries, and those that fail again within the budget.

        Raises:
            RetryLaterError: one still failed when the budget was spent.
        """
        is_strong = reading.is_strong
        journal: JournalEntry | None = None
        while True:
            wants_journal = with_journal and journal is None
            fetched = self.store.fetch(
                queries, is_strong=is_strong, journal_of=reading.collection if wants_journal else None
            )
            reading.units += fetched.units
            if fetched.item_bytes:
                self.sizes.learn(fetched.item_bytes)
            if fetched.hedged:
                self.telemetry.count(MetricName.QUERIES_HEDGED, fetched.hedged)
            failures: list[RetryLaterError] = []
            failed: list[KeyQuery[KeyT]] = []
            for query, response in zip(queries, fetched.responses, strict=True):
                if isinstance(response, QueryResponse):
                    reading.plan.add(query, response)
                else:
                    failures.append(response)
                    failed.append(query)
            if isinstance(fetched.journal, RetryLaterError):
                failures.append(fetched.journal)
            elif fetched.journal is not None:
                journal = fetched.journal
            if not failures:
                return journal
            self.telemetry.count(MetricName.READS_RETRIED, len(failures))
            if not reading.budget.wait():
                # Refused reads count as offered, with the least that each query takes.
                reading.units += len(failures) * read_units(0, is_strong=is_strong)
                raise failures[0]
            queries = failed

    def _next_places(
        self, searches: Sequence[_Search[KeyT, ItemT]], *, everywhere: bool
    ) -> dict[tuple[str, KeyT], _Search[KeyT, ItemT]]:
        """List the places to read next, with the search that each belongs to, and take them for asked."""
        places: dict[tuple[str, KeyT], _Search[KeyT, ItemT]] = {}
        for search in searches:
            keys = next_candidates(
                search.route,
                search.key,
                self.form,
                asked=search.asked,
                is_found=bool(search.copies),
                everywhere=everywhere,
                choices=self.choices,
            )
            search.asked.update(keys)
            places |= {(partition_key, search.key.sort_key): search for partition_key in keys}
        return places

    def _look_at_base_again(self, searches: Sequence[_Search[KeyT, ItemT]], budget: Budget, *, is_strong: bool) -> None:
        """Read the base key last, while items are moved there: they may have come there after the first look."""
        if not self.is_folding:
            return
        folding = [search for search in searches if len(search.asked) > 1]
        places = {(search.key.collection, search.key.sort_key): search for search in folding}
        if not places:
            return
        got = self._get(list(places), budget, is_strong=is_strong, journals_of=[])
        for search in folding:
            search.copies = [copy for copy in search.copies if copy.partition_key != search.key.collection]
        for copy in got.copies:
            places[copy.partition_key, copy.item.sort_key].copies.append(copy)

    def _learn(self, search: _Search[KeyT, ItemT], got: Got[ItemT], *, is_strong: bool) -> None:
        collection = search.key.collection
        entry = got.journals.get(collection)
        if entry is not None:
            shown = self.routes.learn(collection, entry, hint=search.hint, is_strong=is_strong)
            search.route = search.route.checked_by(shown)
            search.confirmed = entry if is_strong else NOTHING_CONFIRMED
        elif not self.has_journal:
            search.route = search.route.union(self.routes.for_read(collection).route)

    def _get(
        self, places: Sequence[tuple[str, KeyT]], budget: Budget, *, is_strong: bool, journals_of: Sequence[str]
    ) -> Got[ItemT]:
        while True:
            try:
                with self._naming_unreadable_routes(journals_of[0] if journals_of else ""):
                    return self.store.get(places, is_strong=is_strong, journals_of=journals_of)
            except RetryLaterError:
                self.telemetry.count(MetricName.READS_RETRIED)
                if not budget.wait():
                    raise
