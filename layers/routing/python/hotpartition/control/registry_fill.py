"""Filling the registry from the journal, a page at a time: for the consumer after a loss, and for operators."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from hotpartition.control.ends import ControlEnds
from hotpartition.core.errors import RegistryForeignError, RegistryUnavailableError, RetryLaterError
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import report_unreadable

REBUILD_SLICE = 200
"""Routes put into Redis in one pass of a rebuild: at a ms each, no pass takes long enough to delay a raise much."""


@dataclass(slots=True)
class RebuildPart:
    """How many routes one part put into the registry, and which could not be read; no cursor: it was the last."""

    routes: int = 0
    malformed: list[str] = field(default_factory=list)
    cursor: str | None = None


def fill_page(ends: ControlEnds, cursor: str | None, limit: int) -> RebuildPart:
    """Put the next routes into the registry, and remove nothing; after the last page, state that it is whole.

    The mark comes last, so a fill that ended half-way is begun again.

    Raises:
        InvalidRequestError: not a cursor that this returned.
        RegistryUnavailableError: Redis did not respond.
        RetryLaterError: the journal could not be read.
    """
    items, following = ends.routing_items.page(cursor, limit)
    page = RebuildPart(cursor=following)
    for item in items:
        if item.route is None:
            report_unreadable(ends.telemetry, item.collection)
            page.malformed.append(item.collection)
        else:
            with suppress(RegistryForeignError):  # an operator has to remove the foreign value
                ends.registry.add(item.collection, item.route.members)
            page.routes += 1
    if following is None:
        ends.registry.mark_whole()
        ends.telemetry.count(MetricName.REGISTRY_REBUILT)
        ends.telemetry.event("registry rebuilt from the journal")
    return page


class RegistryRebuild:
    """A registry that is being filled anew, a page in each pass, so that reports are read meanwhile."""

    def __init__(self, ends: ControlEnds) -> None:
        self._ends = ends
        self._telemetry = ends.telemetry
        self._is_under_way = False
        self._cursor: str | None = None
        self.routes = 0

    def check(self) -> bool:
        """Begin if Redis lost something and no rebuild is under way; say whether one is now."""
        if self._is_under_way:
            return True
        try:
            self._is_under_way, self._cursor = not self._ends.registry.is_whole(), None
        except RegistryUnavailableError:
            self._telemetry.count(MetricName.REGISTRY_UNAVAILABLE)
        return self._is_under_way

    def work(self) -> None:
        """Put the next routes into Redis; an error ends this rebuild, and the next check begins another."""
        if not self._is_under_way:
            return
        self._is_under_way = False
        try:
            page = fill_page(self._ends, self._cursor, REBUILD_SLICE)
        except RegistryUnavailableError:
            self._telemetry.count(MetricName.REGISTRY_UNAVAILABLE)
        except RetryLaterError as error:
            self._telemetry.event("registry could not be rebuilt, will be tried again", reason=str(error))
        else:
            self.routes += page.routes
            self._is_under_way, self._cursor = page.cursor is not None, page.cursor
