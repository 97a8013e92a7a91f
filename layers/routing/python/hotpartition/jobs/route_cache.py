"""The routes as the request path knows them: a small cache in front of Redis, with the last known route behind it.

Any age of a route is safe to write with, and readers verify against the journal; so what is here may be stale, and the
only question is what it costs. Entries only grow: a route that was learned is never replaced by a smaller one, not even
when Redis has been emptied.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from math import log
from threading import Lock
from typing import NamedTuple

from hotpartition.core.metrics import MetricName
from hotpartition.core.route import EMPTY_ROUTE, Route
from hotpartition.errors import MalformedGenerationError, RegistryUnavailableError, RetryLaterError
from hotpartition.ports import Journal, Registry, Telemetry

LIFE_JITTER = 0.2
"""Share of its life by which an entry's life varies, so that environments do not all ask at once."""
THROTTLED_LIFE_SECONDS = 0.25
"""Life of what is learned after a throttle. A refused writer asks just before the raise and is told the old route; with
a whole life that would be what all of them use until it ends, so that relief came a whole life later (decision 24)."""
EARLY_REFRESH_BETA = 1.0
"""Eagerness of early refreshes; 1 is optimal for exponentially growing odds (XFetch, section 3.2)."""


class _Entry(NamedTuple):
    route: Route
    fresh_until_ms: float


class RouteCache:
    """Routes by conversation id, at most so many. Knows neither clock nor store.

    The one that was learned longest ago goes first. A route in use is learned again each time its life ends, so that is
    the least recently used one to within a life, and looking an entry up changes nothing: it may be done at any time,
    while one other thread learns.
    """

    def __init__(self, *, life_seconds: float, max_entries: int, random: Callable[[], float]) -> None:
        """Start empty.

        Args:
            life_seconds: how long an entry is fresh; each entry's life is shortened at random by up to a fifth.
            max_entries: how many are kept, fresh or not.
            random: returns uniform numbers in [0, 1).
        """
        self._life_ms = life_seconds * 1000
        self._max_entries = max_entries
        self._random = random
        # Ordered by when they were learned. Not a plain dict, which gets slow when its first entry is removed often.
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def get_fresh(self, conversation_id: str, now_ms: int) -> Route | None:
        """Return the route if it is known and fresh."""
        entry = self._entries.get(conversation_id)
        return None if entry is None or now_ms >= entry[1] else entry[0]

    def peek(self, conversation_id: str) -> Route:
        """Return the last known route, whatever its age; the empty one if none is known."""
        entry = self._entries.get(conversation_id)
        return entry.route if entry else EMPTY_ROUTE

    def learn(
        self, conversation_id: str, route: Route, now_ms: int, *, cost_ms: float = 0.0, is_throttled: bool = False
    ) -> Route:
        """Merge what was learned into the entry, and make it fresh. REQUIRES: one thread at a time.

        An entry's life ends a little early, at random, by about what its refresh costs; so environments that learned a
        route together do not ask for it again together. Source: Vattani, Chierichetti, Lowenstein, "Optimal
        Probabilistic Cache Stampede Prevention", VLDB 2015. There each request draws; here the entry does, once, since
        the requests of one environment come one after another or share one question.

        Args:
            conversation_id: whose route it is.
            route: what was learned.
            now_ms: Unix time.
            cost_ms: what asking for it took.
            is_throttled: whether a throttled write asked: a raise may be about to come, so it is fresh for less long.

        Returns:
            The merged route.
        """
        known = self._entries.get(conversation_id)
        merged = known.route.union(route) if known else route
        longest_ms = min(self._life_ms, THROTTLED_LIFE_SECONDS * 1000) if is_throttled else self._life_ms
        life_ms = longest_ms * (1 - LIFE_JITTER * self._random())
        early_ms = -cost_ms * EARLY_REFRESH_BETA * log(1.0 - self._random()) if cost_ms else 0.0
        self._entries[conversation_id] = _Entry(merged, now_ms + life_ms - early_ms)
        self._entries.move_to_end(conversation_id)
        if len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)
        return merged


class RouteSource:
    """Where a request gets a conversation's route from: the cache, else Redis, else the last one known.

    It never fails: while Redis is away it returns what is known, at worst the empty route, which is right for writing
    and which readers complete from the journal. Safe for use by several threads; those that miss the same route at the
    same time share one question.
    """

    def __init__(
        self,
        *,
        cache: RouteCache,
        registry: Registry,
        telemetry: Telemetry,
        timer: Callable[[], float],
        journal: Journal | None = None,
    ) -> None:
        """Put the source together.

        Args:
            cache: the environment's own routes.
            registry: the fleet's routes.
            telemetry: told when the registry is away.
            timer: a monotonic clock in seconds, for what a question costs.
            journal: asked after a throttle while the registry is away; only writers need it.
        """
        self._cache = cache
        self._registry = registry
        self._telemetry = telemetry
        self._timer = timer
        self._journal = journal
        self._lock = Lock()
        self._questions: dict[str, Future[Route | None]] = {}

    def get_route(self, conversation_id: str, now_ms: int) -> Route:
        """Return the route, at most a few seconds old while Redis answers."""
        # Without the lock, which guards learning: an entry is replaced as a whole.
        route = self._cache.get_fresh(conversation_id, now_ms)
        return self.refresh(conversation_id, now_ms) if route is None else route

    def refresh(self, conversation_id: str, now_ms: int) -> Route:
        """Ask Redis now, fresh or not."""
        route = self._ask_registry(conversation_id, now_ms)
        return self._known(conversation_id) if route is None else route

    def refresh_after_throttle(self, conversation_id: str, now_ms: int) -> Route:
        """Ask Redis now; while it is away, the journal: a throttled write has the time, and a better place helps."""
        route = self._ask_registry(conversation_id, now_ms, is_throttled=True)
        if route is not None:
            return route
        if self._journal is None:
            return self._known(conversation_id)
        try:
            entry = self._journal.get(conversation_id, is_strong=False)
        except RetryLaterError:
            return self._known(conversation_id)
        except MalformedGenerationError:
            self._telemetry.count(MetricName.JOURNAL_MALFORMED)
            return self._known(conversation_id)
        with self._lock:
            return self._cache.learn(conversation_id, entry.route, now_ms, is_throttled=True)

    def learn(self, conversation_id: str, route: Route, now_ms: int) -> Route:
        """Take in a route that was learned elsewhere (from the journal)."""
        with self._lock:
            return self._cache.learn(conversation_id, route, now_ms)

    def _known(self, conversation_id: str) -> Route:
        with self._lock:
            return self._cache.peek(conversation_id)

    def _ask_registry(self, conversation_id: str, now_ms: int, *, is_throttled: bool = False) -> Route | None:
        """Ask Redis, or wait for the answer to a question that is already under way: it is a hint, so it may be."""
        with self._lock:
            pending = self._questions.get(conversation_id)
            if pending is None:
                mine: Future[Route | None] = Future()
                self._questions[conversation_id] = mine
        if pending is not None:
            return pending.result()
        answer: Route | None = None
        try:
            answer = self._ask(conversation_id, now_ms, is_throttled=is_throttled)
        finally:
            with self._lock:
                del self._questions[conversation_id]
            mine.set_result(answer)
        return answer

    def _ask(self, conversation_id: str, now_ms: int, *, is_throttled: bool) -> Route | None:
        started = self._timer()
        try:
            route = self._registry.get(conversation_id)
        except RegistryUnavailableError:
            self._telemetry.count(MetricName.REGISTRY_UNAVAILABLE)
            return None
        cost_ms = (self._timer() - started) * 1000
        with self._lock:
            return self._cache.learn(conversation_id, route, now_ms, cost_ms=cost_ms, is_throttled=is_throttled)
