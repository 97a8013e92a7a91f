"""Filling the registry from the journal, a page at a time, for operators."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from hotpartition.control.ends import ControlEnds
from hotpartition.core.errors import RegistryForeignError
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import report_unreadable


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
