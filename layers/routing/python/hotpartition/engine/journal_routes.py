"""The routes where there is no Redis: as the journal showed them to this process. Safe under threads.

A key that was never throttled is never asked for: its items go to the base key, which is right under any route.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple

from hotpartition.core.errors import MalformedGenerationError, RetryLaterError, StoreRefusedError
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import JournalEntry, JournalReading, ReadRoute, Telemetry
from hotpartition.core.route import EMPTY_ROUTE, Route
from hotpartition.engine.route_cache import LOOKUP_PAUSE_MS, MAX_UNCONFIRMED, RouteCache, keep_newest, note_ahead

MAX_LOOKUP_PAUSE_MS = 1_000
"""The pause between look-ups doubles up to this while they show nothing new: a quiet key whose partition others heat is
throttled for hours."""
FORGET_LOOKUPS_MS = 5_000
REFRESH_SECONDS = 60.0
"""How long a route of a key that was raised is used before the journal is asked again."""


class _LookUp(NamedTuple):
    """When a collection was looked up, and how long it is left alone from then on."""

    at_ms: int
    pause_ms: int


@dataclass(eq=False, repr=False, kw_only=True)
class JournalRoutes:
    """`Routes` by the journal alone."""

    journal: JournalReading
    telemetry: Telemetry
    now_ms: Callable[[], int]
    random: Callable[[], float]
    """Returns uniform numbers in [0, 1)."""
    _cache: RouteCache = field(init=False)
    _raised_at_ms: OrderedDict[str, int] = field(default_factory=OrderedDict, init=False)
    _lookups: OrderedDict[str, _LookUp] = field(default_factory=OrderedDict, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def __post_init__(self) -> None:
        self._cache = RouteCache(ttl_seconds=REFRESH_SECONDS, random=self.random)

    def for_write(self, collection: str) -> Route:
        """Implement `Routes.for_write`: for a key that was raised, at most a minute old."""
        now_ms = self.now_ms()
        known = self._cache.get_fresh(collection, now_ms)
        if known is not None:
            return known.shown
        return self._look_up(collection, now_ms) if self._cache.peek(collection).shown else EMPTY_ROUTE

    def for_read(self, collection: str) -> ReadRoute:
        """Implement `Routes.for_read`: the last route known, whatever its age, since reads see the journal anyway."""
        return ReadRoute(self._cache.peek(collection).shown)

    def learn(
        self, collection: str, shown: JournalEntry, *, hint: Route | None = None, is_strong: bool = False
    ) -> Route:
        """Implement `Routes.learn`."""
        if hint is None or not hint.covers(shown.route):
            if shown.updated_at_ms is not None:
                with self._lock:
                    keep_newest(self._raised_at_ms, collection, shown.updated_at_ms, MAX_UNCONFIRMED)
            self._keep(collection, shown.route, self.now_ms())
        if hint is not None and is_strong:
            note_ahead(self.telemetry, collection, hint, shown)
        return shown.route

    def raised_at_ms(self, collection: str) -> int | None:
        """Return when the route last grew, Unix ms, as far as known."""
        return self._raised_at_ms.get(collection)

    def refused(self, collection: str) -> Route:
        """Ask the journal, eventually consistent: now, unless it was asked a moment ago."""
        now_ms = self.now_ms()
        with self._lock:
            last = self._lookups.get(collection)
            if last is None or not 0 <= now_ms - last.at_ms < FORGET_LOOKUPS_MS:
                last = _LookUp(now_ms, 0)
            if now_ms - last.at_ms < last.pause_ms:
                return self._cache.peek(collection).shown
            pause_ms = min(max(2 * last.pause_ms, LOOKUP_PAUSE_MS), MAX_LOOKUP_PAUSE_MS)
            keep_newest(self._lookups, collection, _LookUp(now_ms, pause_ms), MAX_UNCONFIRMED)
        return self._look_up(collection, now_ms)

    def _look_up(self, collection: str, now_ms: int) -> Route:
        known = self._cache.peek(collection).shown
        try:
            entry = self.journal.get(collection, is_strong=False)
        except (RetryLaterError, StoreRefusedError, MalformedGenerationError) as error:
            if isinstance(error, MalformedGenerationError):
                self.telemetry.count(MetricName.JOURNAL_MALFORMED)
            if not isinstance(error, RetryLaterError):
                self.telemetry.event("routing item cannot be read", collection=collection, reason=str(error))
            return self._keep(collection, known, now_ms, is_brief=True)
        self.learn(collection, entry)
        route = self._cache.peek(collection).shown
        if route != known:
            with self._lock:
                self._lookups.pop(collection, None)
        return route

    def _keep(self, collection: str, route: Route, now_ms: int, *, is_brief: bool = False) -> Route:
        """Keep a route. Empty ones are not: thousands of quiet keys would take the place of those that were raised."""
        with self._lock:
            if not route and not self._cache.peek(collection).shown:
                return EMPTY_ROUTE
            return self._cache.learn(collection, now_ms, shown=route, is_brief=is_brief).shown
