"""Leases: they let a writer place an item on a shard although routes may be closed.

An item of time t may lie on a shard only if the writer's last strongly consistent read of the journal happened at a
time v with t - v < D. v is DynamoDB's: the `Date` of the response. So when a close is confirmed, each writer of items
behind it has seen the announcement (`core/closes.py`). The rule is about the item's own time: a frozen process, a late
put or a wrong local clock changes nothing. In any doubt the item goes to the base key, which every read asks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple

from hotpartition.core.closes import CloseTimes, is_leased
from hotpartition.core.errors import MalformedGenerationError, RetryLaterError, StoreRefusedError
from hotpartition.core.items import ItemKey
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import JournalEntry, JournalReading, Telemetry
from hotpartition.core.route import EMPTY_ROUTE, Route
from hotpartition.engine.route_cache import LOOKUP_PAUSE_MS, MAX_ROUTES, keep_newest

EARLY_MS = 2_000
"""An item further than this ahead of what a new lease would cover by the process's own clock asks for none. Bounds what
a clock that is wrong by many minutes costs; it decides nothing else."""
LOCKS = 16
SLOW_READS = 10
"""A read that gave no lease is repeated this many times as long after its end as it took."""

Learn = Callable[[str, JournalEntry], object]
"""Takes in what the journal showed."""


class _Lease(NamedTuple):
    """The journal's route, and when it was read: by DynamoDB's clock, and by the process's."""

    route: Route
    date_ms: int
    read_at_ms: int


@dataclass(eq=False, repr=False, kw_only=True)
class Leases:
    """The leases of one process. Safe under threads."""

    journal: JournalReading
    """Read strongly consistent once a lease and collection."""
    telemetry: Telemetry
    times: CloseTimes
    now_ms: Callable[[], int]
    on_renewed: Callable[[ItemKey[Any], JournalEntry], None] = lambda *_: None
    """Gets an item, and the strongly consistent read that is its lease; raises nothing."""
    _held: OrderedDict[str, _Lease] = field(default_factory=OrderedDict, init=False)
    _pauses: dict[str, tuple[int, int]] = field(default_factory=dict, init=False)
    """From when until when the journal is not read again for a collection."""
    _latest_date_ms: int = field(default=0, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)
    _renewing: tuple[Lock, ...] = field(default_factory=lambda: tuple(Lock() for _ in range(LOCKS)), init=False)

    def route_for(self, key: ItemKey[Any], route: Route, learn: Learn, confirmed: JournalEntry | None = None) -> Route:
        """Return the route that an item is to be placed by: announced closes are obeyed.

        Nothing is asked for an item that belongs on the base key anyway.

        Args:
            key: which item; one without a position may sort behind any close, and belongs there.
            route: the collection's route as the journal has shown it.
            learn: takes in the route that the journal shows now.
            confirmed: the result of a strongly consistent read just now, for a write that creates an item only where it
                is missing. All such writes must choose the same place: this read is their lease.

        Raises:
            RetryLaterError: `confirmed` is not a lease, so the others may choose another place.
        """
        route = route.as_announced if key.position else EMPTY_ROUTE
        if not route.shard_count_at(key.position):
            return route
        lease = self._find(key)
        if lease is None:
            lease = self._look(key, learn) if confirmed is None else self._take(key, confirmed)
        if lease is None:
            if confirmed is not None and not self._is_far_ahead(key, confirmed):
                raise RetryLaterError("without a Date in a response, nothing decides where to create the item")
            return EMPTY_ROUTE
        return route.union(lease.route).as_announced

    def get(self, collection: str, *, is_strong: bool) -> JournalEntry:
        """Implement `JournalReading.get`: read strongly consistent in any case, so that the read is a lease as well.

        What confirms a raise is followed by a write that needs one.
        """
        del is_strong
        entry = self.journal.get(collection, is_strong=True)
        self._keep(collection, entry.route, entry.date_ms, self.now_ms())
        return entry

    def _find(self, key: ItemKey[Any]) -> _Lease | None:
        lease = self._held.get(key.collection)
        return lease if lease and is_leased(key.position, lease.date_ms, self.times.lease_ms) else None

    def _is_far_ahead(self, key: ItemKey[Any], entry: JournalEntry) -> bool:
        """Say whether no other process can have a lease for an item either, until a margin from now."""
        if entry.date_ms is None or key.collection not in self._held:
            return False
        return not is_leased(key.position, entry.date_ms, self.times.lease_ms + self.times.margin_ms)

    def _look(self, key: ItemKey[Any], learn: Learn) -> _Lease | None:
        """Read the journal, unless that cannot help; None: there is no lease for this item now."""
        renewing = self._renewing[hash(key.collection) % LOCKS]
        # One thread asks for the collection; the others do not wait for it.
        if not renewing.acquire(blocking=False):
            return self._find(key)
        try:
            return self._find(key) or self._renew(key, learn)
        finally:
            renewing.release()

    def _renew(self, key: ItemKey[Any], learn: Learn) -> _Lease | None:
        began_ms = self.now_ms()
        if not self._may_help(key, began_ms):
            return None
        if len(self._pauses) >= MAX_ROUTES:
            self._pauses.clear()
        try:
            entry = self.journal.get(key.collection, is_strong=True)
        except (RetryLaterError, StoreRefusedError):
            return None
        except MalformedGenerationError:
            self.telemetry.count(MetricName.JOURNAL_MALFORMED)
            return None
        finally:
            ended_ms = self.now_ms()
            pause_ms = max(LOOKUP_PAUSE_MS, SLOW_READS * (ended_ms - began_ms))
            self._pauses[key.collection] = ended_ms, ended_ms + pause_ms
        learn(key.collection, entry)
        return self._take(key, entry)

    def _take(self, key: ItemKey[Any], entry: JournalEntry) -> _Lease | None:
        """Take a lease from a strongly consistent read."""
        self._keep(key.collection, entry.route, entry.date_ms, self.now_ms())
        lease = self._find(key)
        if lease is not None:
            self.on_renewed(key, entry)
        return lease

    def _may_help(self, key: ItemKey[Any], now_ms: int) -> bool:
        """Say whether a read may give a lease: by the process's clock, which may be wrong."""
        began_ms, ends_ms = self._pauses.get(key.collection, (now_ms, now_ms))
        if began_ms <= now_ms < ends_ms:
            return False
        known = self._held.get(key.collection)
        if known is None or now_ms < known.read_at_ms:
            return True
        expected_ms = known.date_ms + now_ms - known.read_at_ms
        return is_leased(key.position, expected_ms + EARLY_MS, self.times.lease_ms)

    def _keep(self, collection: str, route: Route, date_ms: int | None, now_ms: int) -> None:
        """Keep a lease, if the response's `Date` is one to trust."""
        if date_ms is None:
            return
        with self._lock:
            is_back = date_ms < self._latest_date_ms - self.times.margin_ms
            self._latest_date_ms = date_ms if is_back else max(date_ms, self._latest_date_ms)
            if is_back:
                # One of both clocks is wrong by more than the margin: whatever was read by either is in doubt.
                self._held.clear()
                return
            keep_newest(self._held, collection, _Lease(route, date_ms, now_ms), MAX_ROUTES)
