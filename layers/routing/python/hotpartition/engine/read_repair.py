"""Read repair: the journal overrules a route from Redis, and Redis is repaired where it knows less."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from hotpartition.core.errors import RegistryUnavailableError
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import Background, JournalEntry, Registry, Telemetry
from hotpartition.core.route import Route
from hotpartition.engine.route_cache import Routes

MAX_NAMED = 20
"""Generations that one log line names."""


class ReadRepair:
    """The routes that reads begin with, each compared with the journal beside it. Safe under threads."""

    is_folding = False
    """Whether items may be moved to their base key, which is asked last then (`control/folding.py`)."""

    def __init__(
        self,
        *,
        registry: Registry | None,
        routes: Routes,
        background: Background | None,
        telemetry: Telemetry,
        now_ms: Callable[[], int],
    ) -> None:
        """Start with nothing read; without `registry` and `background` nothing is repaired."""
        self._registry = registry
        self._routes = routes
        self._background = background
        self.telemetry = telemetry
        self._now_ms = now_ms

    def get(self, collection: str) -> Route:
        """Return the route in Redis, or the last route known."""
        return self._routes.get_route(collection, self._now_ms())

    def compare(self, collection: str, hint: Route, entry: JournalEntry, *, is_strong: bool) -> Route:
        """Compare Redis's word with the journal's, repair Redis where it knows less, and return the journal's.

        `hint` is the route that `get` returned before the journal was read.
        """
        if not hint.covers(entry.route):
            self._routes.learn(collection, entry.route, self._now_ms())
            self._repair(collection, entry.route)
        # Redis was asked first and raises go to the journal first, so a strong read has all that a raise put there.
        if is_strong and not entry.route.covers(hint):
            self.telemetry.count(MetricName.REGISTRY_AHEAD_OF_JOURNAL)
            self.telemetry.event(
                "registry is ahead of the journal",
                collection=collection,
                generations=sorted(member.encode() for member in hint.minus(entry.route))[:MAX_NAMED],
            )
        return entry.route

    def _repair(self, collection: str, route: Route) -> None:
        self.telemetry.count(MetricName.REGISTRY_BEHIND_JOURNAL)
        registry, background = self._registry, self._background
        if registry is None or background is None:
            return

        def add() -> None:
            # Not counted: this runs beside the request, whose thread alone may touch the metrics.
            with suppress(RegistryUnavailableError):
                registry.add(collection, route.members)

        background.submit(add)
