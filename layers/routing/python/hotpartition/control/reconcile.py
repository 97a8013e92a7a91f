"""Reconcile the registry with the journal: compare all routes, repair differences, or fill the registry anew.

For operators. Thousands of routes take longer than one request may, so each method does a part: it ends when its time
is used up and returns the cursor that the next part begins with. A repair only adds, so nothing can be lost by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

from hotpartition.control.ends import ControlEnds, JournalEnds
from hotpartition.control.registry_fill import RebuildPart, fill_page
from hotpartition.core.errors import (
    InvalidCollectionError,
    InvalidRequestError,
    RegistryForeignError,
    RegistryUnavailableError,
)
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import RegistryListing, RoutingItem, report_unreadable
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


class Reconciler:
    """Compares, repairs and fills, a part at a time."""

    def __init__(self, ends: ControlEnds, listing: RegistryListing) -> None:
        self._ends = ends
        self._registry = ends.registry
        self._listing = listing
        self._telemetry = ends.telemetry
        self._clock = ends.clock
        self._raiser = ends.build_raiser()

    def compare_all(self, cursor: str | None, *, repairs: bool, budget_ms: float) -> Verification:
        """Compare a part of all routes: first those of the journal, then those that only the registry has.

        `cursor` is that of the last part; None begins. With `repairs`, each gets the routes that only the other has; a
        malformed route is left to a person. The part ends after `budget_ms`.

        Raises:
            InvalidRequestError: the cursor is not valid.
            RegistryUnavailableError: Redis did not respond.
            RetryLaterError: the journal could not be read.
        """
        deadline_ms = self._clock.now_ms() + budget_ms
        part = Verification()
        phase, _, place = (cursor or "journal:").partition(":")
        if phase not in {"journal", "registry"}:
            raise InvalidRequestError.of("cursor", "should be the cursor of the last response")
        while True:
            if phase == "journal":
                following = self._check_journal_page(part, place or None, repairs=repairs)
                phase, place = ("journal", following) if following is not None else ("registry", "")
            else:
                following = self._check_registry_page(part, place or None, repairs=repairs)
                if following is None:
                    return part
                place = following
            if self._clock.now_ms() >= deadline_ms or len(part.differences) >= MAX_DIFFERENCES:
                part.cursor = f"{phase}:{place}"
                return part

    def rebuild(self, cursor: str | None, *, budget_ms: float) -> RebuildPart:
        """Put every route of the journal into the registry, a part at a time, and at the end state that it is whole.

        Raises:
            InvalidRequestError: the cursor is not valid.
            RegistryUnavailableError: Redis did not respond; routes put there already stay.
            RetryLaterError: the journal could not be read.
        """
        deadline_ms = self._clock.now_ms() + budget_ms
        part = RebuildPart(cursor=cursor)
        while True:
            page = self._ends.retry(partial(fill_page, self._ends, part.cursor, PAGE_ITEMS))
            part.routes += page.routes
            part.malformed += page.malformed
            part.cursor = page.cursor
            is_over = self._clock.now_ms() >= deadline_ms or len(part.malformed) >= MAX_DIFFERENCES
            if page.cursor is None or is_over:
                return part

    def _check_journal_page(self, part: Verification, cursor: str | None, *, repairs: bool) -> str | None:
        items, following = self._ends.retry(lambda: self._ends.routing_items.page(cursor, PAGE_ITEMS))
        differing = [
            item.collection
            for item in items
            if compare(item, self._get_registry(item.collection)) is not Agreement.EQUAL
        ]
        part.counts[Agreement.EQUAL] += len(items) - len(differing)
        # The index may lag behind, so differences from it are checked against the item itself.
        self._note_states(part, self._settled_states(differing), repairs=repairs)
        return following

    def _check_registry_page(self, part: Verification, cursor: str | None, *, repairs: bool) -> str | None:
        """Look for routes of which the journal knows nothing; all others were compared already."""
        collections, following = self._listing.page(cursor)
        known = {c for c in collections if self._is_collection(c)}
        unknown_to_journal = sorted(c for c in known if self._read(c) is None)
        self._note_states(part, self._settled_states(unknown_to_journal), repairs=repairs)
        return following

    def _settled_states(self, collections: Sequence[str]) -> list[RouteState]:
        """Compare routes, and those again after a moment that a raise may be under way for."""
        states = [self._read_both(collection) for collection in collections]
        if not any(_may_be_on_its_way(state) for state in states):
            return states
        self._clock.sleep(SETTLE_SECONDS)
        return [self._read_both(s.collection) if _may_be_on_its_way(s) else s for s in states]

    def _get_registry(self, collection: str) -> Route:
        """Read the registry's route: empty, where foreign data is in its place, which an operator has to remove."""
        try:
            return self._registry.get(collection)
        except RegistryForeignError:
            return EMPTY_ROUTE

    def _read_both(self, collection: str) -> RouteState:
        registry = self._get_registry(collection)
        item = self._read(collection)
        return RouteState(collection, item, registry, compare(item, registry), self._clock.now_ms())

    def _note_states(self, part: Verification, states: Sequence[RouteState], *, repairs: bool) -> None:
        for state in states:
            part.counts[state.agreement] += 1
            if state.agreement is Agreement.EQUAL:
                continue
            part.differences.append((state.collection, state.agreement))
            if state.agreement is Agreement.MALFORMED:
                report_unreadable(self._telemetry, state.collection)
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
            self._telemetry.event("the registry has closes of its own", collection=state.collection, closes=closes)
            if not ahead and registry.covers(known):
                return False
        if ahead:
            raised = self._raiser.raise_route(state.collection, ahead, cause=Cause(AHEAD_OF_JOURNAL))
            known, is_in_registry = raised.entry.route, raised.is_in_registry
            self._telemetry.count(MetricName.REGISTRY_AHEAD_OF_JOURNAL)
        else:
            is_in_registry = self._raiser.publish(state.collection, known)
            self._telemetry.count(MetricName.REGISTRY_BEHIND_JOURNAL)
        if not is_in_registry:
            raise RegistryUnavailableError("Redis did not take the route; repeating the command is safe")
        self._telemetry.event(
            "route mended by hand",
            collection=state.collection,
            agreement=str(state.agreement),
            generations=sorted(known.encode()),
        )
        return not foreign

    def _is_collection(self, text: str) -> bool:
        try:
            self._ends.form.check(text)
        except InvalidCollectionError:
            return False
        return True

    def _read(self, collection: str) -> RoutingItem | None:
        return self._ends.retry(lambda: self._ends.routing_items.read(collection))


class JournalCheck:
    """The check that is left without a registry, a part at a time: that every route of the journal can be read."""

    def __init__(self, ends: JournalEnds) -> None:
        self._ends = ends

    def compare_all(self, cursor: str | None, *, repairs: bool, budget_ms: float) -> Verification:
        """Read a part of all routes. A malformed one is left to a person.

        Raises:
            InvalidRequestError: the cursor is not valid, or a repair was requested.
            RetryLaterError: the journal could not be read.
        """
        if repairs:
            raise InvalidRequestError.of("mend", "should be false: without a registry there is nothing to copy")
        deadline_ms = self._ends.clock.now_ms() + budget_ms
        part = Verification(cursor=cursor)
        while True:
            items, part.cursor = self._ends.retry(partial(self._ends.routing_items.page, part.cursor, PAGE_ITEMS))
            malformed = [(item.collection, Agreement.MALFORMED) for item in items if item.route is None]
            part.counts[Agreement.MALFORMED] += len(malformed)
            part.counts[Agreement.EQUAL] += len(items) - len(malformed)
            part.differences += malformed
            is_over = self._ends.clock.now_ms() >= deadline_ms or len(part.differences) >= MAX_DIFFERENCES
            if part.cursor is None or is_over:
                return part

    def rebuild(self, cursor: str | None, *, budget_ms: float) -> RebuildPart:  # noqa: ARG002  as `Reconciler` has it
        """Refuse: there is no registry."""
        raise InvalidRequestError.of("command", "should be another one: there is no registry to rebuild")


def _may_be_on_its_way(state: RouteState) -> bool:
    """Say whether the journal's route grew so lately that Redis may be about to learn of it."""
    updated_ms = state.item.updated_at_ms if state.item else None
    is_missing = state.agreement is Agreement.MISSING_IN_REGISTRY
    return is_missing and updated_ms is not None and state.at_ms - updated_ms < RECENT_MS


def compare(item: RoutingItem | None, registry: Route | None) -> Agreement:
    """Compare a route in the journal (None: there is none) with the registry's (None: Redis did not respond)."""
    if item is not None and item.route is None:
        return Agreement.MALFORMED
    if registry is None:
        return Agreement.UNKNOWN
    journal = item.route if item is not None and item.route is not None else EMPTY_ROUTE
    if not journal.covers(registry):
        return Agreement.AHEAD_OF_JOURNAL
    return Agreement.EQUAL if registry.covers(journal) else Agreement.MISSING_IN_REGISTRY
