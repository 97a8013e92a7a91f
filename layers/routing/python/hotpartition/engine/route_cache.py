"""The routes as the request path knows them: a small cache in front of Redis, with the last known route behind it.

Redis may hold anything. Readers compare its routes with the journal in each request. Writers use a generation only
once the journal has shown it to this environment. Any age of a route that the journal held is safe to write with, so
what is here may be stale, and the only question is what it costs. Entries only grow: a route that was learned is never
replaced by a smaller one, not even when Redis has been emptied.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from math import log
from threading import Lock
from typing import NamedTuple, Protocol, TypeVar

from hotpartition.core.errors import (
    MalformedGenerationError,
    RegistryForeignError,
    RegistryUnavailableError,
    RetryLaterError,
)
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import JournalReading, ReadRoute, Registry, Telemetry
from hotpartition.core.route import EMPTY_ROUTE, Member, Route

TTL_JITTER = 0.2
"""Share of its TTL by which an entry's TTL varies, so that environments do not all ask at once."""
BRIEF_TTL_SECONDS = 0.25
"""TTL of a route that may change soon. A refused writer asks just before the raise and gets the old
route; with a whole TTL, all writers would use it until it ends, and the raise would help only then (decision 24)."""
EARLY_REFRESH_BETA = 1.0
"""Eagerness of early refreshes; 1 is optimal for exponentially growing odds (XFetch, section 3.2)."""
LOOKUP_PAUSE_MS = 100
"""Least time between two look-ups of one collection in the journal: an eventually consistent read lags by less."""
MAX_LOOKUP_PAUSE_MS = 60_000
"""The pause doubles up to this while Redis shows what the journal does not: invented generations cost little."""
COPIES_KNOWN_MS = 60_000
"""For how long a collection counts as read-hot after Redis stops responding: as long as in Redis itself. Each
environment's own cached pages then keep a rush from DynamoDB."""
MAX_ROUTES = 10_000
"""Routes that one execution environment keeps."""
MAX_UNCONFIRMED = 1_000
"""Collections of which such generations are remembered."""

ValueT = TypeVar("ValueT")


class _Entry(NamedTuple):
    route: Route
    fresh_until_ms: float
    copies: int = 0


class _Unconfirmed(NamedTuple):
    """Members of Redis's that the journal did not show, when it was asked, and for how long it is left alone."""

    members: frozenset[Member]
    asked_ms: int
    pause_ms: int


_NOTHING_UNCONFIRMED = _Unconfirmed(frozenset(), -MAX_LOOKUP_PAUSE_MS, LOOKUP_PAUSE_MS)


def keep_newest(entries: OrderedDict[str, ValueT], key: str, value: ValueT, most: int) -> None:
    """Put an entry, and drop the one that was put longest ago where there are more than `most`."""
    entries[key] = value
    entries.move_to_end(key)
    if len(entries) > most:
        entries.popitem(last=False)


class RouteCache:
    """Routes by collection, at most `max_entries`. Knows neither clock nor store.

    The one that was learned longest ago goes first. A route in use is learned again each time its TTL ends, so that is
    the least recently used one to within a TTL, and looking an entry up changes nothing: it may be done at any time,
    while one other thread learns.
    """

    def __init__(self, *, ttl_seconds: float, max_entries: int, random: Callable[[], float]) -> None:
        """Start empty; `random` returns uniform numbers in [0, 1).

        An entry is fresh for `ttl_seconds`, shortened at random by up to a fifth. `max_entries` counts fresh entries
        and others.
        """
        self._ttl_ms = ttl_seconds * 1000
        self._max_entries = max_entries
        self._random = random
        # Ordered by when they were learned. Not a plain dict, which gets slow when its first entry is removed often.
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def get_fresh(self, collection: str, now_ms: int) -> Route | None:
        """Return the route if it is known and fresh."""
        entry = self._entries.get(collection)
        return None if entry is None or now_ms >= entry[1] else entry[0]

    def copies_of(self, collection: str, now_ms: int) -> int:
        """Return the last known number of copies of the newest page in Redis; 0: not read-hot, or not known."""
        entry = self._entries.get(collection)
        return 0 if entry is None or now_ms >= entry.fresh_until_ms + COPIES_KNOWN_MS else entry.copies

    def peek(self, collection: str) -> Route:
        """Return the last known route, whatever its age; the empty one if none is known."""
        entry = self._entries.get(collection)
        return entry.route if entry else EMPTY_ROUTE

    def learn(
        self,
        collection: str,
        route: Route,
        now_ms: int,
        *,
        copies: int | None = None,
        cost_ms: float = 0.0,
        is_brief: bool = False,
    ) -> Route:
        """Merge a route into the entry, make it fresh, and return it. REQUIRES: one thread at a time.

        An entry's TTL ends a little early, at random, by about what its refresh costs; so environments that learned a
        route together do not ask for it again together. Source: Vattani, Chierichetti, Lowenstein, "Optimal
        Probabilistic Cache Stampede Prevention", VLDB 2015. There each request draws; here the entry does, once, since
        the requests of one environment come one after another or share one look-up.

        `copies`: in how many copies Redis holds the newest page; None: as known. `cost_ms`: how long asking for it
        took. `is_brief`: news may be about to come, so that it is fresh for less long.
        """
        known = self._entries.get(collection)
        merged = known.route.union(route) if known else route
        longest_ms = min(self._ttl_ms, BRIEF_TTL_SECONDS * 1000) if is_brief else self._ttl_ms
        ttl_ms = longest_ms * (1 - TTL_JITTER * self._random())
        early_ms = -cost_ms * EARLY_REFRESH_BETA * log(1.0 - self._random()) if cost_ms else 0.0
        if copies is None:
            copies = known.copies if known else 0
        keep_newest(self._entries, collection, _Entry(merged, now_ms + ttl_ms - early_ms, copies), self._max_entries)
        return merged


class Routes(Protocol):
    """The routes as a process knows them: from `RouteSource`, or set by code. Safe under threads."""

    def get_route(self, collection: str, now_ms: int) -> Route:
        """Return a collection's route."""

    def learn(self, collection: str, route: Route, now_ms: int) -> Route:
        """Take in a route that the journal showed, and return the known route then."""

    def refresh_after_throttle(self, collection: str, now_ms: int) -> Route:
        """Return the route anew after all choices refused: the collection may have been raised meanwhile."""


class RouteSource:
    """Where a request gets a collection's route from: the cache, else Redis, else the last one known.

    With a journal, as writers have it, no generation is returned that the journal has not shown to this environment:
    what Redis shows beyond that is looked up there, once, and remembered in the cache. Without one, as readers have it,
    the route in Redis is returned unchecked.

    It never fails: while Redis is away it returns the known route, at worst the empty route, which is right for writing
    and which readers complete from the journal. Safe for use by several threads; those that miss the same route at the
    same time share one look-up.
    """

    def __init__(
        self,
        *,
        cache: RouteCache,
        registry: Registry,
        telemetry: Telemetry,
        timer: Callable[[], float],
        journal: JournalReading | None = None,
    ) -> None:
        """Start knowing nothing; `timer` is a monotonic clock in seconds.

        `journal` confirms the registry's routes; it is also asked after a throttle while the registry is away.
        """
        self._cache = cache
        self._registry = registry
        self._telemetry = telemetry
        self._timer = timer
        self._journal = journal
        self._lock = Lock()
        self._lookups: dict[str, Future[Route | None]] = {}
        self._unconfirmed: OrderedDict[str, _Unconfirmed] = OrderedDict()

    def get_route(self, collection: str, now_ms: int) -> Route:
        """Return the route, at most a few seconds old while Redis responds."""
        # Without the lock, which guards learning: an entry is replaced as a whole.
        route = self._cache.get_fresh(collection, now_ms)
        if route is None:
            route = self._ask_registry(collection, now_ms)
        return self._cache.peek(collection) if route is None else route

    def get_for_reading(self, collection: str, now_ms: int) -> ReadRoute:
        """Return the route as `get_route` does, and whether the collection is read-hot, by one look-up at most."""
        route = self.get_route(collection, now_ms)
        return ReadRoute(route, self._cache.copies_of(collection, now_ms))

    def refresh_after_throttle(self, collection: str, now_ms: int) -> Route:
        """Ask Redis now; while it is away, the journal: a throttled write has the time, and a better place helps."""
        route = self._ask_registry(collection, now_ms, is_throttled=True)
        if route is not None:
            return route
        shown = self._ask_journal(collection)
        if shown is None:
            return self._cache.peek(collection)
        with self._lock:
            return self._cache.learn(collection, shown, now_ms, is_brief=True)

    def learn(self, collection: str, route: Route, now_ms: int) -> Route:
        """Take in a route that the journal showed elsewhere."""
        with self._lock:
            return self._cache.learn(collection, route, now_ms)

    def _ask_registry(self, collection: str, now_ms: int, *, is_throttled: bool = False) -> Route | None:
        """Ask Redis, or wait for the response of a look-up that is already under way: it is a hint, so it may be."""
        with self._lock:
            pending = self._lookups.get(collection)
            if pending is None:
                mine: Future[Route | None] = Future()
                self._lookups[collection] = mine
        if pending is not None:
            return pending.result()
        route: Route | None = None
        try:
            route = self._ask(collection, now_ms, is_throttled=is_throttled)
        finally:
            with self._lock:
                del self._lookups[collection]
            mine.set_result(route)
        return route

    def _ask(self, collection: str, now_ms: int, *, is_throttled: bool) -> Route | None:
        started = self._timer()
        try:
            told, copies = self._look_up(collection)
        except RegistryForeignError:
            return None
        except RegistryUnavailableError:
            self._telemetry.count(MetricName.REGISTRY_UNAVAILABLE)
            return None
        cost_ms = (self._timer() - started) * 1000
        route, is_complete = self._confirm(collection, told, now_ms)
        with self._lock:
            is_brief = is_throttled or not is_complete
            return self._cache.learn(collection, route, now_ms, copies=copies, cost_ms=cost_ms, is_brief=is_brief)

    def _look_up(self, collection: str) -> ReadRoute:
        """Ask Redis in one round trip; writers do not need the read-hot mark."""
        if self._journal is None:
            return self._registry.get_for_reading(collection)
        return ReadRoute(self._registry.get(collection))

    def _confirm(self, collection: str, told: Route, now_ms: int) -> tuple[Route, bool]:
        """Return the part of a route from Redis that may be used.

        Returns:
            The route; and False when the journal was asked just now and did not show all of it, or did not respond.
        """
        if self._journal is None:
            return told, True
        known = self._cache.peek(collection)
        news = told.minus(known)
        if not news:
            with self._lock:
                self._unconfirmed.pop(collection, None)
            return known, True
        before = self._unconfirmed.get(collection, _NOTHING_UNCONFIRMED)
        pause_ms = before.pause_ms if news <= before.members else LOOKUP_PAUSE_MS
        if 0 <= now_ms - before.asked_ms < pause_ms:
            return known, True
        shown = self._ask_journal(collection)
        if shown is not None:
            known = known.union(shown)
            absent = told.minus(known)
            pause_ms = min(2 * pause_ms, MAX_LOOKUP_PAUSE_MS) if absent <= before.members else LOOKUP_PAUSE_MS
            before = _Unconfirmed(absent, now_ms, pause_ms)
        with self._lock:
            keep_newest(self._unconfirmed, collection, before._replace(asked_ms=now_ms), MAX_UNCONFIRMED)
        return known, shown is not None and not before.members

    def _ask_journal(self, collection: str) -> Route | None:
        """Read the route in the journal, where `Leases` makes it a lease; None: no response, or it cannot be read."""
        if self._journal is None:
            return None
        try:
            return self._journal.get(collection, is_strong=False).route
        except RetryLaterError:
            self._telemetry.count(MetricName.JOURNAL_READ_FAILED)
        except MalformedGenerationError:
            self._telemetry.count(MetricName.JOURNAL_MALFORMED)
        return None
