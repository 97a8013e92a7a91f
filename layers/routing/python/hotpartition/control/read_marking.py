"""Marks read-hot collections: the consumer's part that watches the read reports.

All its state can be lost. The load is rebuilt from the streams, earlier decisions are in Redis, and a mark
that is not renewed ends by itself. While Redis is away nothing is read from the streams either, so nothing is decided.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hotpartition.core.errors import RegistryForeignError, RegistryUnavailableError
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import Registry, Telemetry
from hotpartition.core.read_heat import ReadDecision, ReadReason, ReadThresholds, ReadWindow, decide_reads

RENEW_MS = 15_000
"""How often a mark is renewed, which lasts a minute: a few renewals may fail."""
REPEAT_LOG_MS = 60_000
"""How often a decision that lasts is logged."""


@dataclass(slots=True)
class _Mark:
    """One collection's mark as known here: the number of copies, when it was set, and the last log line."""

    copies: int
    set_at_ms: int | None = None
    logged: tuple[ReadReason, int, int] | None = None


class ReadMarker:
    """Decides on read reports, and keeps the marks in Redis. One per run of a consumer."""

    def __init__(self, *, registry: Registry, telemetry: Telemetry, thresholds: ReadThresholds) -> None:
        self._registry = registry
        self._telemetry = telemetry
        self._thresholds = thresholds
        self.window = ReadWindow(thresholds)
        self._marks: dict[str, _Mark] = {}

    def decide(self, now_ms_of: Callable[[str], int]) -> None:
        """Decide about all collections that may be read-hot, and mark those that are.

        `now_ms_of` returns up to when a collection's reports were read, Unix ms.
        """
        was_hot = (collection for collection, mark in self._marks.items() if mark.copies)
        for collection in dict.fromkeys((*self.window.to_judge(), *was_hot)):
            try:
                self._decide_one(collection, now_ms_of(collection))
            except RegistryUnavailableError:
                # A mark that failed is decided again in the next pass.
                self._telemetry.count(MetricName.REGISTRY_UNAVAILABLE)

    def forget(self, now_ms: int) -> None:
        """Drop reports that have left the horizon."""
        self.window.forget(now_ms)
        loud = set(self.window.to_judge())
        self._marks = {c: mark for c, mark in self._marks.items() if mark.copies or c in loud}

    def _decide_one(self, collection: str, now_ms: int) -> None:
        mark = self._marks.get(collection)
        if mark is None:
            mark = _Mark(self._ask(collection))
        decision = decide_reads(collection, self.window.get(collection), mark.copies, self._thresholds, now_ms=now_ms)
        is_due = mark.set_at_ms is None or now_ms - mark.set_at_ms >= RENEW_MS
        if decision.copies and (is_due or decision.copies != mark.copies):
            self._registry.mark_read_hot(collection, decision.copies)
            mark.set_at_ms = now_ms
        mark.copies = decision.copies
        self._marks[collection] = mark
        self._log(decision, mark, now_ms)

    def _ask(self, collection: str) -> int:
        """Ask for an earlier consumer's decision, once: copies never become fewer while it is hot."""
        try:
            return self._registry.get_for_reading(collection).copies
        except RegistryForeignError:
            return 0  # counted and logged there; a mark takes the place of foreign data

    def _log(self, decision: ReadDecision, mark: _Mark, now_ms: int) -> None:
        """Log and count each decision but `below-threshold`: when it changes, and once a minute while it lasts."""
        if decision.reason is ReadReason.BELOW_THRESHOLD:
            return
        said = decision.reason, decision.copies, now_ms // REPEAT_LOG_MS
        if mark.logged == said:
            return
        mark.logged = said
        self._telemetry.count(MetricName(f"Decision-{decision.reason}"))
        self._telemetry.event("read decision", **describe_reads(decision))


def describe_reads(decision: ReadDecision) -> dict[str, object]:
    """Spell a decision about reads out as log fields."""
    return {
        "collection": decision.collection,
        "reason": str(decision.reason),
        "copies": decision.copies,
        "trigger": decision.trigger and str(decision.trigger),
        "rcu_per_second": round(decision.rcu_per_second, 1),
        "pages_per_second": round(decision.pages_per_second, 1),
        "per_slot_rcu": [round(rcu, 1) for rcu in decision.per_slot_rcu],
    }
