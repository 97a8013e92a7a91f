"""Reconcile the registry with the journal: compare all routes of the journal, and repair differences.

For operators. Thousands of routes take longer than one request may, so one call does a part: it ends when its time is
used up and returns the cursor that the next part begins with. A repair only adds, so nothing can be lost by it. A route
that only Redis has is found by the next read of its key (`RegistryAheadOfJournal`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

from hotpartition.control.ends import JournalEnds
from hotpartition.core.errors import InvalidRequestError, RegistryForeignError, RegistryUnavailableError
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import RoutingItem, report_unreadable
from hotpartition.core.route import EMPTY_ROUTE, Route
from hotpartition.core.route_history import AHEAD_OF_JOURNAL, Cause

PAGE_ITEMS = 100
MAX_DIFFERENCES = 2_000
"""Differences named in one part, at some 300 bytes each."""
RECENT_MS = 5_000
SETTLE_SECONDS = 0.5
"""A route that grew a moment ago may be on its way to Redis: it is compared again after this pause."""


class Agreement(StrEnum):
    """How a route in the registry compares with the journal's."""

    EQUAL = "equal"
    MISSING_IN_REGISTRY = "missing-in-registry"
    AHEAD_OF_JOURNAL = "ahead-of-journal"  # the registry knows a generation that the journal does not
    MALFORMED = "malformed"  # the journal's cannot be read
    UNKNOWN = "registry-unavailable"


@dataclass(frozen=True, slots=True)
class RouteState:
    """One collection's route in both places. `item` None: never raised; `registry` None: Redis did not respond."""

    collection: str
    item: RoutingItem | None
    registry: Route | None
    agreement: Agreement
    at_ms: int


@dataclass(slots=True)
class Verification:
    """Counts of one part of a comparison, and the differences; `cursor` None: it was the last part."""

    counts: dict[Agreement, int] = field(
        default_factory=lambda: dict.fromkeys((a for a in Agreement if a is not Agreement.UNKNOWN), 0)
    )
    differences: list[tuple[str, Agreement]] = field(default_factory=list)
    mended: int = 0
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Compares and repairs: one route, or all, a part at a time."""

    ends: JournalEnds

    def show(self, collection: str) -> RouteState:
        """Compare one collection's route in both places, and show the causes of its raises.

        Without a registry nothing contradicts the journal: it is `EQUAL` unless it is malformed.

        Raises:
            InvalidRequestError: the collection is malformed.
            RetryLaterError: the journal could not be read.
        """
        self.ends.form.check(collection)
        try:
            # Before the journal: read later, the registry could look as if it were ahead.
            registry = None if self.ends.registry is None else self.ends.registry.get(collection)
        except RegistryUnavailableError:
            registry = None
        return self._compare(collection, self._read(collection), registry)

    def compare_all(self, cursor: str | None, *, repairs: bool, budget_ms: float) -> Verification:
        """Compare a part of all routes of the journal; without a registry, look whether each can be read.

        `cursor` is that of the last part; None begins. With `repairs`, each of both places gets the generations that
        only the other has; a malformed route is left to a person. The part ends after `budget_ms`.

        Raises:
            InvalidRequestError: the cursor is not valid, or a repair was requested without a registry.
            RegistryUnavailableError: Redis did not respond.
            RetryLaterError: the journal could not be read.
        """
        if repairs and self.ends.registry is None:
            raise InvalidRequestError.of("mend", "should be false: without a registry there is nothing to copy")
        deadline_ms = self.ends.clock.now_ms() + budget_ms
        part = Verification(cursor=cursor)
        while True:
            items, part.cursor = self.ends.retry(partial(self.ends.routing_items.page, part.cursor, PAGE_ITEMS))
            self._check_items(part, items, repairs=repairs)
            is_over = self.ends.clock.now_ms() >= deadline_ms or len(part.differences) >= MAX_DIFFERENCES
            if part.cursor is None or is_over:
                return part

    def _check_items(self, part: Verification, items: Sequence[RoutingItem], *, repairs: bool) -> None:
        states = [self._compare(item.collection, item, self._find_in_registry(item.collection)) for item in items]
        differing = [state.collection for state in states if state.agreement is not Agreement.EQUAL]
        part.counts[Agreement.EQUAL] += len(items) - len(differing)
        # The index may lag behind, so differences from it are checked against the item itself.
        self._note_states(part, self._settled_states(differing), repairs=repairs)

    def _settled_states(self, collections: Sequence[str]) -> list[RouteState]:
        """Compare routes, and those again after a moment that a raise may be under way for."""
        states = [self._read_both(collection) for collection in collections]
        if not any(_may_be_on_its_way(state) for state in states):
            return states
        self.ends.clock.sleep(SETTLE_SECONDS)
        return [self._read_both(s.collection) if _may_be_on_its_way(s) else s for s in states]

    def _read_both(self, collection: str) -> RouteState:
        registry = self._find_in_registry(collection)
        return self._compare(collection, self._read(collection), registry)

    def _read(self, collection: str) -> RoutingItem | None:
        return self.ends.retry(partial(self.ends.routing_items.read, collection))

    def _compare(self, collection: str, item: RoutingItem | None, registry: Route | None) -> RouteState:
        route = EMPTY_ROUTE if item is None else item.route
        # Without a registry, the journal is compared with itself.
        agreement = compare(route, route if self.ends.registry is None else registry)
        return RouteState(collection, item, registry, agreement, self.ends.clock.now_ms())

    def _find_in_registry(self, collection: str) -> Route | None:
        """Read the registry's route: empty, where foreign data is in its place, which an operator has to remove."""
        try:
            return None if self.ends.registry is None else self.ends.registry.get(collection)
        except RegistryForeignError:
            return EMPTY_ROUTE

    def _note_states(self, part: Verification, states: Sequence[RouteState], *, repairs: bool) -> None:
        for state in states:
            part.counts[state.agreement] += 1
            if state.agreement is Agreement.EQUAL:
                continue
            part.differences.append((state.collection, state.agreement))
            if state.agreement is Agreement.MALFORMED:
                report_unreadable(self.ends.telemetry, state.collection)
            elif repairs:
                part.mended += self._repair(state)

    def _repair(self, state: RouteState) -> bool:
        """Add to each place the members that only the other has: nothing is taken away from either.

        Returns:
            Whether both are equal now. A close that only the registry has stays there, for a person to remove: whether
            it was announced in time is not known, so it never gets into the journal.
        """
        known = state.item.route if state.item and state.item.route else EMPTY_ROUTE
        registry = state.registry or EMPTY_ROUTE
        ahead, foreign = registry.generations - known.generations, registry.closes - known.closes
        if foreign:
            closes = sorted(close.encode() for close in foreign)
            self.ends.telemetry.event("the registry has closes of its own", collection=state.collection, closes=closes)
            if not ahead and registry.covers(known):
                return False
        if ahead:
            raised = self.ends.raiser.raise_route(state.collection, ahead, cause=Cause(AHEAD_OF_JOURNAL))
            known, is_in_registry = raised.entry.route, raised.is_in_registry
            self.ends.telemetry.count(MetricName.REGISTRY_AHEAD_OF_JOURNAL)
        else:
            is_in_registry = self.ends.raiser.publish(state.collection, known)
            self.ends.telemetry.count(MetricName.REGISTRY_BEHIND_JOURNAL)
        if not is_in_registry:
            raise RegistryUnavailableError("Redis did not take the route; repeating the command is safe")
        self.ends.telemetry.event(
            "route mended by hand",
            collection=state.collection,
            agreement=str(state.agreement),
            generations=sorted(known.encode()),
        )
        return not foreign


def _may_be_on_its_way(state: RouteState) -> bool:
    """Say whether the journal's route grew so lately that Redis may be about to learn of it."""
    updated_ms = state.item.updated_at_ms if state.item else None
    is_missing = state.agreement is Agreement.MISSING_IN_REGISTRY
    return is_missing and updated_ms is not None and state.at_ms - updated_ms < RECENT_MS


def compare(journal: Route | None, registry: Route | None) -> Agreement:
    """Compare a route in the journal (None: it cannot be read) with the registry's (None: Redis did not respond)."""
    if journal is None:
        return Agreement.MALFORMED
    if registry is None:
        return Agreement.UNKNOWN
    if not journal.covers(registry):
        return Agreement.AHEAD_OF_JOURNAL
    return Agreement.EQUAL if registry.covers(journal) else Agreement.MISSING_IN_REGISTRY
