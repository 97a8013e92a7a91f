"""Verifying a route that Redis told: the journal has the last word, and Redis is repaired where it knows less."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from hotpartition.core.metrics import MetricName
from hotpartition.core.route import Route
from hotpartition.engine.route_cache import KnownRoutes
from hotpartition.errors import MalformedGenerationError, RegistryUnavailableError
from hotpartition.ports import Background, JournalEntry, Registry, Telemetry

MAX_NAMED = 20
"""Generations that one log line names."""


class RouteVerifier:
    """Compares what a read began with and what the journal showed beside it. Safe under threads."""

    def __init__(
        self, *, registry: Registry | None, routes: KnownRoutes, background: Background, telemetry: Telemetry
    ) -> None:
        """Start with nothing verified.

        Args:
            registry: repaired where it knows less than the journal; None: left as it is.
            routes: learns what the journal showed.
            background: repairs beside the request.
            telemetry: told of what differs.
        """
        self._registry = registry
        self._routes = routes
        self._background = background
        self._telemetry = telemetry

    def verify(self, collection: str, hint: Route, entry: JournalEntry, now_ms: int, *, is_strong: bool) -> Route:
        """Compare Redis's word with the journal's, repair Redis where it knows less, and return the journal's.

        Args:
            collection: whose route it is.
            hint: what Redis told before the journal was read.
            entry: what the journal showed.
            now_ms: Unix time.
            is_strong: whether the journal was read strongly consistent.
        """
        if not hint.covers(entry.route):
            self._routes.learn(collection, entry.route, now_ms)
            self._repair(collection, entry.route)
        # Redis was asked first and raises go to the journal first, so a strong read has all that a raise put there.
        if is_strong and not entry.route.covers(hint):
            self._telemetry.count(MetricName.REGISTRY_AHEAD_OF_JOURNAL)
            self._telemetry.event(
                "registry is ahead of the journal",
                conversation_id=collection,
                generations=sorted(g.encode() for g in hint.minus(entry.route))[:MAX_NAMED],
            )
        return entry.route

    def name_unreadable(self, collection: str, error: MalformedGenerationError) -> None:
        """Tell an operator whose routing item must be repaired."""
        self._telemetry.count(MetricName.JOURNAL_MALFORMED)
        self._telemetry.event("routing item cannot be read", conversation_id=collection, reason=str(error))

    def _repair(self, collection: str, route: Route) -> None:
        self._telemetry.count(MetricName.REGISTRY_BEHIND_JOURNAL)
        registry = self._registry
        if registry is None:
            return

        def add() -> None:
            # Not counted: this runs beside the request, whose thread alone may touch the metrics.
            with suppress(RegistryUnavailableError):
                registry.add(collection, route.generations)

        self._background.submit(add)


class VerifiedRoutes:
    """The routes that reads begin with, as Redis has them, each verified against the journal. Safe under threads."""

    def __init__(self, routes: KnownRoutes, verifier: RouteVerifier, now_ms: Callable[[], int]) -> None:
        self._reading = routes
        self._verifier = verifier
        self._now_ms = now_ms

    def get(self, collection: str) -> Route:
        """Return what Redis tells, or the last route known."""
        return self._reading.get_route(collection, self._now_ms())

    def verify(self, collection: str, hint: Route, entry: JournalEntry, *, is_strong: bool) -> Route:
        """Take in what the journal says beside a hint of `get`, and return it."""
        return self._verifier.verify(collection, hint, entry, self._now_ms(), is_strong=is_strong)

    def name_unreadable(self, collection: str, error: MalformedGenerationError) -> None:
        """Be told that a routing item cannot be read: an operator has to repair it."""
        self._verifier.name_unreadable(collection, error)
