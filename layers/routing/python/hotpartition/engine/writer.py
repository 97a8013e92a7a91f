"""The write job: place an item by the route as known, count the write, make it once.

    route (cache, Redis, or the last known) ──> choices ──> one attempt at one key ──> acknowledged
                                                  │ counted as offered (`load_counting.py`)

A write that the first choice refuses goes to the next one at once; when all refused, it waits, takes the route again
and begins anew. A stale route is harmless (docs/architecture.md), so nothing here locks or checks versions. The caller
provides the request: `put` makes one attempt at one partition key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from hotpartition.core.backoff import Budget, Clock
from hotpartition.core.capacity import write_units
from hotpartition.core.errors import RetryLaterError, StoreUnavailableError, ThrottledError
from hotpartition.core.items import ItemKey, KeyT
from hotpartition.core.keys import KeyForm
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import JournalEntry, Telemetry
from hotpartition.core.refusals import RecentRefusals
from hotpartition.core.route import EMPTY_ROUTE, MAX_CHOICES, Placement, Route, choose_placement, choose_placements
from hotpartition.engine.leases import Leases
from hotpartition.engine.load_counting import Offer, WriteCounting
from hotpartition.engine.route_cache import Routes

FoundT = TypeVar("FoundT")
"""The item that a write may find in its place."""

Put = Callable[[str], FoundT | None]
"""Makes one attempt at a partition key: None when it was made; else the item that is there already, unchanged.

It raises `ThrottledError`, or `StoreUnavailableError` when its outcome is unknown.
"""
Find = Callable[[Sequence[str]], FoundT | None]
"""Looks for the item under partition keys; None: none of them has it. It raises as `Put` does."""


@dataclass(slots=True)
class _Write(Generic[FoundT]):
    """One write under way: where it may go, and where it has not been refused yet."""

    key: ItemKey[str]
    put: Put[FoundT]
    find: Find[FoundT]
    may_be_stored: bool
    """Whether an earlier attempt may have stored it, at any of its choices."""
    choices: int
    is_timed: bool
    confirmed: JournalEntry | None
    route: Route = EMPTY_ROUTE
    usable: Route = EMPTY_ROUTE
    """The part of `route` that it may be placed by."""
    placements: tuple[Placement, ...] = ()
    """Its first choice; all of them, once the others matter."""
    untried: list[Placement] = field(default_factory=list)


@dataclass(eq=False, repr=False, kw_only=True)
class Writer:
    """Places writes of items, and counts all writes. One per execution environment, or one per process."""

    routes: Routes
    counting: WriteCounting
    telemetry: Telemetry
    clock: Clock
    budget_ms: float
    form: KeyForm
    choices: int = MAX_CHOICES
    leases: Leases | None = None
    """Say which routes items may be placed by; None: nothing is closed."""
    _refusals: RecentRefusals = field(default_factory=RecentRefusals, init=False)

    def write(
        self,
        key: ItemKey[str],
        *,
        put: Put[FoundT],
        find: Find[FoundT],
        size_bytes: int,
        may_be_stored: bool,
        remaining_ms: float = float("inf"),
        choices: int | None = None,
        confirmed: JournalEntry | None = None,
        factor: int = 1,
        draw: Callable[[], str] | None = None,
        is_timed: bool = True,
    ) -> FoundT | None:
        """Store an item, or find the one that is stored in its place already.

        Args:
            key: which item.
            put: makes one attempt.
            find: looks for the item at all its choices, before it is put anywhere but at its first one.
            size_bytes: of the item at its base key, as DynamoDB counts.
            may_be_stored: False when the caller knows that it was never tried before; then `find` is only used once an
                attempt's outcome is unknown.
            remaining_ms: time the caller has left; the budget never passes it.
            choices: how many shards may take it, if not as many as the table's items have.
            confirmed: for a write on condition that there is no item: what a strongly consistent read of the journal
                has just shown. All such writes must choose the same place, by this as well.
            factor: how many times its units the write costs: 2 in a transaction.
            draw: draws another `hashed` once all choices refused; only for items that are never looked up.
            is_timed: whether reads obey closes; False: they ask all shards that there ever were.

        Returns:
            None when it was stored by this call; else the item that is stored under this key, unchanged.

        Raises:
            RetryLaterError: DynamoDB refused for the whole budget; `sort_key` is the item's. Or the place where all
                conditional writes of it meet is not known.
        """
        now_ms = self.clock.now_ms()
        write = _Write(key, put, find, may_be_stored, choices or self.choices, is_timed, confirmed)
        self._begin(write, self.routes.for_write(key.collection))
        placement = write.placements[0]
        offer = Offer(key, factor * self._units(key, size_bytes, placement), placement.shard_count)
        report = self.counting.offered(offer, now_ms)
        # What counting takes, for instance a raise, is not the write's.
        spent_ms = self.clock.now_ms() - now_ms
        budget = Budget(self.clock, min(self.budget_ms, remaining_ms - spent_ms))
        while True:
            try:
                return self._try_choices(write)
            except RetryLaterError as error:
                is_refused_everywhere = not write.untried
                if is_refused_everywhere:
                    self.telemetry.count(MetricName.WRITES_REFUSED_EVERYWHERE)
                    at_ms, offer = self.clock.now_ms(), offer._replace(shard_count=write.placements[0].shard_count)
                    report = self.counting.refused(offer, at_ms, report, error)
                    route = self.routes.for_write(key.collection)
                    if not write.route.covers(route):
                        # This very write has raised it: there is a better place now.
                        self._begin(write, route)
                        continue
                if not budget.wait():
                    if is_refused_everywhere:
                        self.routes.refused(key.collection)
                    error.sort_key = key.sort_key
                    raise
                if is_refused_everywhere:
                    if draw is not None:
                        write.key = key._replace(hashed=draw())
                    # The collection may have been raised meanwhile: this very item may have a better place now.
                    route = self.routes.refused(key.collection)
                    self._begin(write, route)

    def place(self, key: ItemKey[KeyT], *, size_bytes: int, is_repeated: bool = False) -> Placement:
        """Count a write, and choose the partition key to try first for it: for writes that go into one batch.

        Args:
            key: which item.
            size_bytes: of the item at its base key, as DynamoDB counts.
            is_repeated: whether a batch before left it unprocessed, so that it was counted.
        """
        now_ms = self.clock.now_ms()
        route = self._find_usable(key, self.routes.for_write(key.collection))
        placement = choose_placement(route, key, self.form)
        if self._refusals.has(placement.partition_key, now_ms):
            placements = choose_placements(route, key, self.form, choices=self.choices)
            placement = self._refusals.order(placements, now_ms)[0]
        if not is_repeated:
            offer = Offer(key, self._units(key, size_bytes, placement), placement.shard_count)
            self.counting.offered(offer, now_ms)
        return placement

    def meet(self, key: ItemKey[str], confirmed: JournalEntry) -> Placement:
        """Choose the partition key where all conditional writes of an item meet; `confirmed` as of `write`.

        Raises:
            RetryLaterError: nothing says where.
        """
        route = self.routes.for_write(key.collection).union(confirmed.route)
        return choose_placement(self._find_usable(key, route, confirmed), key, self.form)

    def refused(self, partition_key: str) -> None:
        """Take in that a partition key left a write of a batch unprocessed, or refused a change of an item."""
        now_ms = self.clock.now_ms()
        self._refusals.add(partition_key, now_ms)
        self.counting.alarm(self.form.parse(partition_key)[0], now_ms)

    def count(self, key: ItemKey[KeyT], wcu: float) -> None:
        """Count a write that can only go where its item lies: an update or a delete."""
        self.counting.offered(Offer(key, wcu), self.clock.now_ms())

    def _begin(self, write: _Write[FoundT], route: Route) -> None:
        """Begin anew under a route."""
        if write.confirmed is not None:
            route = route.union(write.confirmed.route)
        write.usable = self._find_usable(write.key, route, write.confirmed) if write.is_timed else route.as_announced
        first = choose_placement(write.usable, write.key, self.form)
        write.route, write.placements, write.untried = route, (first,), [first]

    def _find_usable(self, key: ItemKey[KeyT], route: Route, confirmed: JournalEntry | None = None) -> Route:
        """Return the route that an item may be placed by. Announced closes always count, even without leases."""
        if self.leases is None:
            return route.as_announced
        return self.leases.route_for(key, route, self.routes.learn, confirmed)

    def _try_choices(self, write: _Write[FoundT]) -> FoundT | None:
        """Put the item where it was not refused yet, one choice after another without waiting.

        Raises:
            RetryLaterError: all refused (`untried` is empty then); or it is to be tried at the same place again.
        """
        while True:
            placement = write.untried[0]
            try:
                if write.may_be_stored and placement != write.placements[0]:
                    found = self._find(write)
                    if found is not None:
                        return found
                existing = write.put(placement.partition_key)
            except ThrottledError as error:
                self.telemetry.count(MetricName.WRITES_THROTTLED)
                if not error.may_be_key_range:
                    raise
                del write.untried[0]
                if len(write.placements) == 1:
                    # The other choices take two more hashes: they are worked out for those few that need them.
                    every = choose_placements(write.usable, write.key, self.form, choices=write.choices)
                    write.placements, write.untried = (placement, *every[1:]), list(every[1:])
                if not write.untried:
                    raise
            except StoreUnavailableError:
                # It may have been stored: a repetition here finds out, another place would not.
                write.may_be_stored = True
                raise
            else:
                self.counting.served(write.key.collection)
                return existing

    def _find(self, write: _Write[FoundT]) -> FoundT | None:
        """Look for the item at all its choices, once before the first put that is not at the first of them.

        Raises:
            StoreUnavailableError: it could not be looked for.
        """
        try:
            found = write.find([p.partition_key for p in write.placements])
        except ThrottledError as error:  # which is not a refusal of the put
            raise StoreUnavailableError("the other choices could not be looked at") from error
        write.may_be_stored = False
        return found

    def _units(self, key: ItemKey[KeyT], size_bytes: int, placement: Placement) -> int:
        suffix_bytes = len(placement.partition_key) - len(key.collection)
        return write_units(size_bytes + suffix_bytes)
