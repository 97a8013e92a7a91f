"""The routes as a process knows them: the `Routes` of three kinds, and the memory behind two of them.

Redis may hold anything. Reads compare its routes with the journal in each request. Writes use a generation only once
the journal has shown it to this process. Any age of a route that the journal held is safe to write with, so what is
here may be stale, and the only question is what it costs. Entries only grow: a route that was learned is never replaced
by a smaller one, not even when Redis has been emptied.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import JournalEntry, ReadRoute, Telemetry
from hotpartition.core.route import EMPTY_ROUTE, Route

TTL_JITTER = 0.2
"""Share of its TTL by which an entry's TTL varies, so that environments do not all ask at once."""
BRIEF_TTL_SECONDS = 0.25
"""TTL of a route that may change soon. A refused writer asks just before the raise and gets the old
route; with a whole TTL, all writers would use it until it ends, and the raise would help only then (decision 24)."""
LOOKUP_PAUSE_MS = 100
"""Least time between two look-ups of one collection in the journal: an eventually consistent read lags by less."""
COPIES_KNOWN_MS = 60_000
"""For how long a collection counts as read-hot after Redis stops responding: as long as in Redis itself. Each
environment's own cached pages then keep a rush from DynamoDB."""
MAX_ROUTES = 10_000
"""Routes that one execution environment keeps."""
MAX_UNCONFIRMED = 1_000
"""Collections of which look-ups in the journal are remembered."""
MAX_NAMED = 20
"""Generations that one log line names."""

ValueT = TypeVar("ValueT")


class Routes(Protocol):
    """The routes of a table as one process knows them. Safe under threads. They never fail: at worst they are old.

    Three kinds: `RegistryRoutes` (Redis, confirmed by the journal), `JournalRoutes`, and those that code sets.
    """

    def for_write(self, collection: str) -> Route:
        """Return the route that items are placed by: no more than the journal has shown to this process."""

    def for_read(self, collection: str) -> ReadRoute:
        """Return the route that a read begins by, a hint, and whether the collection is read-hot."""

    def learn(
        self, collection: str, shown: JournalEntry, *, hint: Route | None = None, is_strong: bool = False
    ) -> Route:
        """Take in what the journal showed, and return its route.

        `hint`: the route that the read began by, before it read the journal; the two are compared. `is_strong`: the
        journal was read strongly consistent.
        """

    def refused(self, collection: str) -> Route:
        """Return the route for writing anew after all choices refused: it may have been raised meanwhile."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a collection's route."""

    hinted: Route = EMPTY_ROUTE
    """What Redis or the journal showed: reads begin by it."""
    shown: Route = EMPTY_ROUTE
    """What the journal showed: items are placed by it."""
    fresh_until_ms: float = 0.0
    copies: int = 0
    """In how many copies Redis holds the newest page; 0: the collection is not read-hot, or that is not known."""


NOTHING_KNOWN = Known()


def keep_newest(entries: OrderedDict[str, ValueT], key: str, value: ValueT, most: int) -> None:
    """Put an entry, and drop the one that was put longest ago where there are more than `most`."""
    entries[key] = value
    entries.move_to_end(key)
    if len(entries) > most:
        entries.popitem(last=False)


class RouteCache:
    """What is known by collection, at most `max_entries`. Knows neither clock nor store.

    The one that was learned longest ago goes first. A route in use is learned again each time its TTL ends, so that is
    the least recently used one to within a TTL, and looking an entry up changes nothing: it may be done at any time,
    while one other thread learns.
    """

    def __init__(self, *, ttl_seconds: float, random: Callable[[], float], max_entries: int = MAX_ROUTES) -> None:
        """Start empty; `random` returns uniform numbers in [0, 1).

        An entry is fresh for `ttl_seconds`, shortened at random by up to a fifth. `max_entries` counts fresh entries
        and others.
        """
        self._ttl_ms = ttl_seconds * 1000
        self._max_entries = max_entries
        self._random = random
        # Ordered by when they were learned. Not a plain dict, which gets slow when its first entry is removed often.
        self._entries: OrderedDict[str, Known] = OrderedDict()

    def get_fresh(self, collection: str, now_ms: int) -> Known | None:
        """Return what is known and fresh."""
        known = self._entries.get(collection)
        return None if known is None or now_ms >= known.fresh_until_ms else known

    def peek(self, collection: str) -> Known:
        """Return what was last known, whatever its age."""
        return self._entries.get(collection, NOTHING_KNOWN)

    def learn(
        self,
        collection: str,
        now_ms: int,
        *,
        hinted: Route = EMPTY_ROUTE,
        shown: Route = EMPTY_ROUTE,
        copies: int | None = None,
        is_brief: bool = False,
    ) -> Known:
        """Merge routes into the entry, make it fresh, and return it. REQUIRES: one thread at a time.

        `copies`: in how many copies Redis holds the newest page; None: as known. `is_brief`: news may be about to come,
        so that it is fresh for less long.
        """
        known = self._entries.get(collection, NOTHING_KNOWN)
        longest_ms = min(self._ttl_ms, BRIEF_TTL_SECONDS * 1000) if is_brief else self._ttl_ms
        merged = Known(
            known.hinted.union(hinted).union(shown),
            known.shown.union(shown),
            now_ms + longest_ms * (1 - TTL_JITTER * self._random()),
            known.copies if copies is None else copies,
        )
        keep_newest(self._entries, collection, merged, self._max_entries)
        return merged


def note_ahead(telemetry: Telemetry, collection: str, hint: Route, entry: JournalEntry) -> None:
    """Report a hint that shows more than a strongly consistent read of the journal after it.

    Redis is asked first and raises go to the journal first, so such a read has all that a raise put there.
    """
    if entry.route.covers(hint):
        return
    telemetry.count(MetricName.REGISTRY_AHEAD_OF_JOURNAL)
    telemetry.event(
        "registry is ahead of the journal",
        collection=collection,
        generations=sorted(member.encode() for member in hint.minus(entry.route))[:MAX_NAMED],
    )
