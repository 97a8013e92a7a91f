"""The routes where there is Redis: its word is a hint, which writes use once the journal has confirmed it.

for_write: memory, else Redis, else the last one known; what Redis shows beyond the journal is looked up there once
for_read:  the same, unconfirmed: the read compares it with the journal, and Redis is repaired where it knows less
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple

from hotpartition.core.errors import (
    MalformedGenerationError,
    RegistryForeignError,
    RegistryUnavailableError,
    RetryLaterError,
)
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import Background, JournalEntry, JournalReading, ReadRoute, Registry, Telemetry
from hotpartition.core.route import EMPTY_ROUTE, Member, Route
from hotpartition.engine.route_cache import (
    COPIES_KNOWN_MS,
    LOOKUP_PAUSE_MS,
    MAX_ROUTES,
    MAX_UNCONFIRMED,
    Known,
    RouteCache,
    keep_newest,
    note_ahead,
)

MAX_LOOKUP_PAUSE_MS = 60_000
"""The pause doubles up to this while Redis shows what the journal does not: invented generations cost little."""


class _Unconfirmed(NamedTuple):
    """Members of Redis's that the journal did not show, when it was asked, and for how long it is left alone."""

    members: frozenset[Member]
    asked_ms: int
    pause_ms: int


_NOTHING_UNCONFIRMED = _Unconfirmed(frozenset(), -MAX_LOOKUP_PAUSE_MS, LOOKUP_PAUSE_MS)


@dataclass(eq=False, repr=False, kw_only=True)
class RegistryRoutes:
    """`Routes` by Redis and the journal.

    While Redis is away they are the last ones known: at worst the empty route, which is right for writing, and which
    reads complete from the journal. Threads that miss the same route at the same time share one look-up.
    """

    registry: Registry
    journal: JournalReading | None
    """Confirms routes for writing, where `Leases` make its reads leases; None: nothing is written by them."""
    telemetry: Telemetry
    now_ms: Callable[[], int]
    random: Callable[[], float]
    """Returns uniform numbers in [0, 1)."""
    ttl_seconds: float
    asks_copies: bool = True
    """Whether Redis is asked for the read-hot mark as well."""
    repairs: Registry | None = None
    """Takes the repairs of Redis, in the `background`; None: it is not repaired."""
    background: Background | None = None
    _cache: RouteCache = field(init=False)
    _lock: Lock = field(default_factory=Lock, init=False)
    _lookups: dict[str, Future[Known | None]] = field(default_factory=dict, init=False)
    _unchecked: OrderedDict[str, Route] = field(default_factory=OrderedDict, init=False)
    """What Redis showed since a route was last confirmed."""
    _unconfirmed: OrderedDict[str, _Unconfirmed] = field(default_factory=OrderedDict, init=False)

    def __post_init__(self) -> None:
        self._cache = RouteCache(ttl_seconds=self.ttl_seconds, random=self.random)

    def for_write(self, collection: str) -> Route:
        """Implement `Routes.for_write`: at most a few seconds old while Redis responds."""
        now_ms = self.now_ms()
        # Without the lock, which guards learning: an entry is replaced as a whole.
        known = self._cache.get_fresh(collection, now_ms)
        if known is None:
            known = self._ask_registry(collection, now_ms, is_writing=True) or self._cache.peek(collection)
        return self._confirm(collection, now_ms) if collection in self._unchecked else known.shown

    def for_read(self, collection: str) -> ReadRoute:
        """Implement `Routes.for_read`, by one look-up at most."""
        now_ms = self.now_ms()
        known = self._cache.get_fresh(collection, now_ms)
        if known is None:
            known = self._ask_registry(collection, now_ms) or self._cache.peek(collection)
        return ReadRoute(known.hinted, known.copies if now_ms < known.fresh_until_ms + COPIES_KNOWN_MS else 0)

    def learn(
        self, collection: str, shown: JournalEntry, *, hint: Route | None = None, is_strong: bool = False
    ) -> Route:
        """Implement `Routes.learn`; Redis is repaired where its hint lacked something."""
        is_behind = hint is not None and not hint.covers(shown.route)
        is_news = self.journal is not None and not self._cache.peek(collection).shown.covers(shown.route)
        if hint is None or is_behind or is_news:
            with self._lock:
                self._cache.learn(collection, self.now_ms(), shown=shown.route)
        if is_behind:
            self._repair(collection, shown.route)
        if hint is not None and is_strong:
            note_ahead(self.telemetry, collection, hint, shown)
        return shown.route

    def refused(self, collection: str) -> Route:
        """Ask Redis now; while it is away, the journal: a throttled write has the time, and a better place helps."""
        now_ms = self.now_ms()
        known = self._ask_registry(collection, now_ms, is_writing=True, is_brief=True)
        if known is not None:
            return self._confirm(collection, now_ms, is_brief=True) if collection in self._unchecked else known.shown
        shown = self._ask_journal(collection)
        if shown is None:
            return self._cache.peek(collection).shown
        with self._lock:
            return self._cache.learn(collection, now_ms, shown=shown, is_brief=True).shown

    def _ask_registry(
        self, collection: str, now_ms: int, *, is_writing: bool = False, is_brief: bool = False
    ) -> Known | None:
        """Ask Redis, or wait for the response of a look-up that is already under way: it is a hint, so it may be."""
        with self._lock:
            pending = self._lookups.get(collection)
            if pending is None:
                mine: Future[Known | None] = Future()
                self._lookups[collection] = mine
        if pending is not None:
            return pending.result()
        known: Known | None = None
        try:
            known = self._ask(collection, now_ms, is_brief=is_brief)
            if known is not None and is_writing:
                self._confirm(collection, now_ms, is_brief=is_brief)
                known = self._cache.peek(collection)
        finally:
            with self._lock:
                del self._lookups[collection]
            mine.set_result(known)
        return known

    def _ask(self, collection: str, now_ms: int, *, is_brief: bool) -> Known | None:
        try:
            # In one round trip.
            if self.asks_copies:
                hinted, copies = self.registry.get_for_reading(collection)
            else:
                hinted, copies = self.registry.get(collection), 0
        except RegistryForeignError:
            return None
        except RegistryUnavailableError:
            self.telemetry.count(MetricName.REGISTRY_UNAVAILABLE)
            return None
        with self._lock:
            if self.journal is not None:
                keep_newest(self._unchecked, collection, hinted, MAX_ROUTES)
            return self._cache.learn(collection, now_ms, hinted=hinted, copies=copies, is_brief=is_brief)

    def _confirm(self, collection: str, now_ms: int, *, is_brief: bool = False) -> Route:
        """Look up in the journal what Redis shows beyond it, and return what may be used.

        Not if that was done a moment ago. What the journal did not show just now may come soon: the route is fresh for
        less long then.
        """
        with self._lock:
            hinted = self._unchecked.pop(collection, EMPTY_ROUTE)
            known = self._cache.peek(collection).shown
            news = hinted.minus(known)
            if not news:
                self._unconfirmed.pop(collection, None)
                return known
            before = self._unconfirmed.get(collection, _NOTHING_UNCONFIRMED)
        pause_ms = before.pause_ms if news <= before.members else LOOKUP_PAUSE_MS
        if 0 <= now_ms - before.asked_ms < pause_ms:
            return known
        shown = self._ask_journal(collection)
        if shown is not None:
            absent = hinted.minus(known.union(shown))
            pause_ms = min(2 * pause_ms, MAX_LOOKUP_PAUSE_MS) if absent <= before.members else LOOKUP_PAUSE_MS
            before = _Unconfirmed(absent, now_ms, pause_ms)
        is_brief = is_brief or shown is None or bool(before.members)
        with self._lock:
            keep_newest(self._unconfirmed, collection, before._replace(asked_ms=now_ms), MAX_UNCONFIRMED)
            return self._cache.learn(collection, now_ms, shown=shown or EMPTY_ROUTE, is_brief=is_brief).shown

    def _ask_journal(self, collection: str) -> Route | None:
        """Read the route in the journal, where `Leases` makes it a lease; None: no response, or it cannot be read."""
        if self.journal is None:
            return None
        try:
            return self.journal.get(collection, is_strong=False).route
        except RetryLaterError:
            return None
        except MalformedGenerationError:
            self.telemetry.count(MetricName.JOURNAL_MALFORMED)
            return None

    def _repair(self, collection: str, route: Route) -> None:
        self.telemetry.count(MetricName.REGISTRY_BEHIND_JOURNAL)
        repairs, background = self.repairs, self.background
        if repairs is None or background is None:
            return

        def add() -> None:
            # Not counted: this runs beside the request, whose thread alone may touch the metrics.
            with suppress(RegistryUnavailableError):
                repairs.add(collection, route.members)

        background.submit(add)
