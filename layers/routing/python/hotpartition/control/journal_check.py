"""The check that is left without a registry: that every route of the journal can be read."""

from __future__ import annotations

from functools import partial

from hotpartition.control.ends import JournalEnds
from hotpartition.control.reconcile import (
    MAX_DIFFERENCES,
    PAGE_ITEMS,
    RETRY_BUDGET_MS,
    Agreement,
    RebuildPart,
    Verification,
)
from hotpartition.core.backoff import try_for
from hotpartition.errors import InvalidRequestError


class JournalCheck:
    """Reads all routes, a part at a time."""

    def __init__(self, ends: JournalEnds) -> None:
        self._routing_items = ends.routing_items
        self._clock = ends.clock

    def compare_all(self, cursor: str | None, *, repairs: bool, budget_ms: float) -> Verification:
        """Read a part of all routes. A malformed one is left to a person.

        Raises:
            InvalidRequestError: the cursor is not valid, or a repair was requested.
            RetryLaterError: the journal could not be read.
        """
        if repairs:
            raise InvalidRequestError.of("mend", "should be false: without a registry there is nothing to copy")
        deadline_ms = self._clock.now_ms() + budget_ms
        part = Verification(cursor=cursor)
        while True:
            page = partial(self._routing_items.page, part.cursor, PAGE_ITEMS)
            items, part.cursor = try_for(self._clock, RETRY_BUDGET_MS, page)
            malformed = [(item.collection, Agreement.MALFORMED) for item in items if item.route is None]
            part.counts[Agreement.MALFORMED] += len(malformed)
            part.counts[Agreement.EQUAL] += len(items) - len(malformed)
            part.differences += malformed
            is_over = self._clock.now_ms() >= deadline_ms or len(part.differences) >= MAX_DIFFERENCES
            if part.cursor is None or is_over:
                return part

    def rebuild(self, cursor: str | None, *, budget_ms: float) -> RebuildPart:  # noqa: ARG002  as `Reconciler` has it
        """Refuse: there is no registry."""
        raise InvalidRequestError.of("command", "should be another one: there is no registry to rebuild")
