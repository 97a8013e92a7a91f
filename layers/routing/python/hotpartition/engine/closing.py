"""Closing a route, so that N comes down again: announced first, then confirmed. All closes go this way.

Both steps are additions to the journal (`core/closes.py` says why nothing is lost). A close that is interrupted between
them, or that was announced too late, stays void: writers go to the base key from its time on, and readers go on asking
all shards. Then it may be announced anew, for a later time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from hotpartition.core.closes import CloseTimes, Refusal, may_confirm, plan_close
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import Journal, JournalEntry, Telemetry
from hotpartition.core.route import Close
from hotpartition.core.route_history import Cause
from hotpartition.engine.raising import Raiser

COOLED = "cooled"
"""Reason of a close that no person asked for."""


class CloseStep(StrEnum):
    """How far a close came."""

    REFUSED = "refused"
    PLANNED = "planned"
    ANNOUNCED = "announced"
    CONFIRMED = "confirmed"
    VOID = "void"
    """Announced too late, or without a `Date`: it is never confirmed."""


@dataclass(frozen=True, slots=True)
class Closing:
    """A close under way, and the routing item as last seen. If refused, `refusal` is set and `close` is None."""

    collection: str
    step: CloseStep
    entry: JournalEntry
    cause: Cause
    close: Close | None = None
    refusal: Refusal | None = None


@dataclass(eq=False, repr=False, kw_only=True)
class Closer:
    """Closes routes, step by step: a close that is left at any of them does no harm.

    Each method raises `RetryLaterError` and `MalformedGenerationError` as a raise does.
    """

    journal: Journal
    raiser: Raiser
    telemetry: Telemetry
    times: CloseTimes
    has_positions: bool = True
    """Whether positions are times. By others nothing is closed."""

    def plan(self, collection: str, *, cause: Cause, grown_by_ms: int | None = None) -> Closing:
        """Decide whether and from when on a collection would be closed, strongly consistent; nothing is changed.

        It is not closed if its route has grown after `grown_by_ms`, Unix ms: the decision did not know of it.
        """
        entry = self.raiser.persist(lambda: self.journal.get(collection, is_strong=True))
        planned = plan_close(entry.route, entry.date_ms, self.times) if self.has_positions else Refusal.NO_POSITIONS
        if grown_by_ms is not None and isinstance(planned, Close) and (entry.updated_at_ms or 0) > grown_by_ms:
            planned = Refusal.GREW
        if isinstance(planned, Refusal):
            return Closing(collection, CloseStep.REFUSED, entry, cause, refusal=planned)
        return Closing(collection, CloseStep.PLANNED, entry, cause, planned)

    def announce(self, closing: Closing) -> Closing:
        """Add the planned announcement, unless the route has grown since; a refused close is left unchanged."""
        close, seen = closing.close, closing.entry
        if closing.step is not CloseStep.PLANNED or close is None:
            return closing
        entry = self.raiser.persist(
            lambda: self.journal.add_close(
                closing.collection, close, cause=closing.cause, now_ms=seen.date_ms or 0, seen=seen
            )
        )
        if entry is None:
            return replace(closing, step=CloseStep.REFUSED, close=None, refusal=Refusal.GREW)
        if may_confirm(close, entry.date_ms, self.times):
            return replace(closing, step=CloseStep.ANNOUNCED, entry=entry)
        self.raiser.publish(closing.collection, entry.route)
        return replace(closing, step=CloseStep.VOID, entry=entry)

    def confirm(self, closing: Closing) -> Closing:
        """Confirm a close announced early enough, however long ago, and put the route into the registry."""
        close = closing.close
        if closing.step is not CloseStep.ANNOUNCED or close is None:
            return closing
        confirmed = replace(close, is_confirmed=True)
        entry = self.raiser.persist(
            lambda: self.journal.add_close(
                closing.collection, confirmed, cause=closing.cause, now_ms=closing.entry.date_ms or 0
            )
        )
        assert entry is not None  # noqa: S101  it has no condition
        self.telemetry.count(MetricName.CLOSES)
        self.telemetry.event(
            "closed", collection=closing.collection, reason=closing.cause.encode(), close=confirmed.encode()
        )
        self.raiser.publish(closing.collection, entry.route)
        return replace(closing, step=CloseStep.CONFIRMED, entry=entry, close=confirmed)
