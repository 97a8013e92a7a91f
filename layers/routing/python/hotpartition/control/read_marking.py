"""Finds and marks read-hot collections: the consumer's part that watches the read reports.

It judges offered load: the RCU of pages, cached or not. So a cache that works does not cool the pages that it serves. A
collection is read-hot when one second of the last five exceeds `hot_at_once_rcu`. The mark that follows lasts a minute,
so nothing flaps. It may be wrong at no cost but a page's staleness or its units.

All its state can be lost. The load is rebuilt from the streams, and a mark that is not renewed ends by itself. While
Redis is away nothing is read from the streams either, so nothing is decided.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

from hotpartition.control.decision_log import DecisionLog
from hotpartition.control.ends import ControlEnds
from hotpartition.core.errors import RegistryUnavailableError
from hotpartition.core.metrics import MetricName
from hotpartition.core.sampler import slot_of
from hotpartition.core.window import SLOTS_PER_SECOND, SUSTAINED_SLOTS, CollectionReports, ReportWindow

READ_HOT = "read-hot"
"""The reason of a mark."""
RENEW_MS = 15_000
"""How often a mark is renewed, which lasts a minute: a few renewals may fail."""


def find_heat(reads: CollectionReports, limit_rcu: float, *, now_ms: int) -> tuple[float, tuple[float, ...]] | None:
    """Find the load of the hottest second of the last five, if it is more than the limit.

    Returns:
        It, in RCU/s, and the RCU of their slots, oldest first; None: the collection is not read-hot.
    """
    last = slot_of(now_ms)
    rcu = reads.units(last - SUSTAINED_SLOTS - SLOTS_PER_SECOND + 2, last)
    totals = list(accumulate(rcu, initial=0.0))
    second = max(end - begin for begin, end in zip(totals, totals[SLOTS_PER_SECOND:], strict=False))
    return (second, rcu[-SUSTAINED_SLOTS:]) if second > limit_rcu else None


class ReadMarker:
    """Judges read reports, and keeps the marks in Redis. One per run of a consumer."""

    def __init__(self, ends: ControlEnds, hot_at_once_rcu: float) -> None:
        self._ends = ends
        self._hot_at_once_rcu = hot_at_once_rcu
        self.window = ReportWindow(hot_at_once_rcu / SLOTS_PER_SECOND)
        self._log = DecisionLog(ends.telemetry, "read decision")
        # by collection, when its mark was set
        self._marked_ms: dict[str, int] = {}

    def decide(self, now_ms_of: Callable[[str], int]) -> None:
        """Decide about all collections that may be read-hot, and mark those that are.

        `now_ms_of` returns up to when a collection's reports were read, Unix ms.
        """
        for collection in self.window.to_judge():
            now_ms = now_ms_of(collection)
            heat = find_heat(self.window.as_mapping()[collection], self._hot_at_once_rcu, now_ms=now_ms)
            if heat is None:
                continue
            try:
                self._mark(collection, now_ms)
            except RegistryUnavailableError:
                # A mark that failed is decided again in the next pass.
                self._ends.telemetry.count(MetricName.REGISTRY_UNAVAILABLE)
                continue
            rcu_per_second, per_slot_rcu = heat
            facts = {
                "collection": collection,
                "reason": READ_HOT,
                "rcu_per_second": round(rcu_per_second, 1),
                "per_slot_rcu": [round(rcu, 1) for rcu in per_slot_rcu],
            }
            self._log.say((collection, 0), READ_HOT, facts, now_ms=now_ms)

    def forget(self, now_ms: int) -> None:
        """Drop reports that have left the horizon."""
        self.window.forget(now_ms)
        loud = set(self.window.to_judge())
        self._marked_ms = {c: set_ms for c, set_ms in self._marked_ms.items() if c in loud}
        self._log.keep(loud)

    def _mark(self, collection: str, now_ms: int) -> None:
        set_ms = self._marked_ms.get(collection)
        if set_ms is None or now_ms - set_ms >= RENEW_MS:
            self._ends.registry.mark_read_hot(collection)
            self._marked_ms[collection] = now_ms
