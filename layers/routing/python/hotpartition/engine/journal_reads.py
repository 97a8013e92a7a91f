"""The routes that reads begin with where there is no Redis: those that the journal showed to this process."""

from __future__ import annotations

from collections.abc import Callable

from hotpartition.core.ports import Telemetry
from hotpartition.core.route import Route
from hotpartition.engine.journal_routes import JournalRoutes
from hotpartition.engine.read_repair import ReadRepair


class JournalReads(ReadRepair):
    """`ReadRepair` with nothing to repair. Safe under threads."""

    def __init__(self, routes: JournalRoutes, telemetry: Telemetry, now_ms: Callable[[], int]) -> None:
        super().__init__(registry=None, routes=routes, background=None, telemetry=telemetry, now_ms=now_ms)
        self._known = routes

    def get(self, collection: str) -> Route:
        """Return the last route known: reads see the journal anyway."""
        return self._known.peek(collection)

    def _repair(self, collection: str, route: Route) -> None:
        """Do nothing."""
