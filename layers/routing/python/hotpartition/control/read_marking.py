"""Marks read-hot collections: the consumer's part that watches the read reports.

All its state can be lost. The load is rebuilt from the streams, and a mark that is not renewed ends by itself. While
Redis is away nothing is read from the streams either, so nothing is decided.
"""

from __future__ import annotations

from collections.abc import Callable

from hotpartition.control.decision_log import DecisionLog
from hotpartition.core.errors import RegistryUnavailableError
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import Registry, Telemetry
from hotpartition.core.read_heat import ReadDecision, ReadReason, decide_reads, loud_rcu
from hotpartition.core.window import ReportWindow

RENEW_MS = 15_000
"""How often a mark is renewed, which lasts a minute: a few renewals may fail."""


class ReadMarker:
    """Decides on read reports, and keeps the marks in Redis. One per run of a consumer."""

    def __init__(self, *, registry: Registry, telemetry: Telemetry, hot_at_once_rcu: float) -> None:
        self._registry = registry
        self._telemetry = telemetry
        self._hot_at_once_rcu = hot_at_once_rcu
        self.window = ReportWindow(loud_rcu(hot_at_once_rcu))
        self._log = DecisionLog(telemetry, "read decision")
        # by collection, when its mark was set
        self._marked_ms: dict[str, int] = {}

    def decide(self, now_ms_of: Callable[[str], int]) -> None:
        """Decide about all collections that may be read-hot, and mark those that are.

        `now_ms_of` returns up to when a collection's reports were read, Unix ms.
        """
        for collection in self.window.to_judge():
            now_ms = now_ms_of(collection)
            reads = self.window.as_mapping()[collection]
            decision = decide_reads(collection, reads, self._hot_at_once_rcu, now_ms=now_ms)
            if decision.reason is ReadReason.BELOW_THRESHOLD:
                continue
            try:
                self._mark(collection, now_ms)
            except RegistryUnavailableError:
                # A mark that failed is decided again in the next pass.
                self._telemetry.count(MetricName.REGISTRY_UNAVAILABLE)
                continue
            self._log.say((collection, 0), decision.reason, describe_reads(decision), now_ms=now_ms)

    def forget(self, now_ms: int) -> None:
        """Drop reports that have left the horizon."""
        self.window.forget(now_ms)
        loud = set(self.window.to_judge())
        self._marked_ms = {c: set_ms for c, set_ms in self._marked_ms.items() if c in loud}
        self._log.keep(loud)

    def _mark(self, collection: str, now_ms: int) -> None:
        set_ms = self._marked_ms.get(collection)
        if set_ms is None or now_ms - set_ms >= RENEW_MS:
            self._registry.mark_read_hot(collection)
            self._marked_ms[collection] = now_ms


def describe_reads(decision: ReadDecision) -> dict[str, object]:
    """Spell a decision about reads out as log fields."""
    return {
        "collection": decision.collection,
        "reason": str(decision.reason),
        "rcu_per_second": round(decision.rcu_per_second, 1),
        "per_slot_rcu": [round(rcu, 1) for rcu in decision.per_slot_rcu],
    }
