"""Closing in band: a cooled key is closed by a process that finds it cool while it renews its lease on it.

Writers of a raised key add samples of its load to its load item, in buckets as long as `close_after_seconds`: some one
per cent more writes for it. A key is cool when a whole bucket since its last raise, and what there is of the present
one, had less than half of what one key serves. A missing sample means "cool" only while samples are complete: a
process whose own could not be added closes nothing for two buckets, and one that stood still for half a bucket since it
read the journal, by DynamoDB's clock, does not close now.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from threading import Lock
from typing import Any

from hotpartition.core.backoff import Clock
from hotpartition.core.closes import WARM_SHARE
from hotpartition.core.errors import MalformedGenerationError, RetryLaterError, StoreRefusedError
from hotpartition.core.items import ItemKey
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import JournalEntry, LoadItems, Telemetry
from hotpartition.core.route_history import Cause
from hotpartition.core.times import StoreClock
from hotpartition.engine.closing import COOLED, Closer
from hotpartition.engine.route_cache import keep_newest

SAMPLES_PER_SECOND = 10
"""Of a key with as much load as one key serves."""
MAX_KEYS = 1_000
KEPT_BUCKETS = 3
NEAR_MS = 24 * 3_600_000
"""Positions further from now are not Unix ms: such keys are never closed, and not counted."""

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Counted:
    """How many WCU are left until a key's next sample, and which buckets that takes away."""

    left_wcu: float
    stale: Sequence[int] = ()
    missed_bucket: int = -1
    """The last bucket that a sample could not be added to."""


@dataclass(eq=False, repr=False, kw_only=True)
class InBandCooling:
    """Counts writes to raised keys, and closes those that have cooled. Safe under threads."""

    loads: LoadItems
    closer: Closer
    store_clock: StoreClock
    telemetry: Telemetry
    clock: Clock
    key_wcu: float
    """What one key serves, in WCU/s."""
    close_after_ms: int
    """How long a bucket lasts."""
    _counted: OrderedDict[str, _Counted] = field(default_factory=OrderedDict, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def count(self, key: ItemKey[Any], wcu: float, now_ms: int) -> None:
        """Count a write to a raised key: systematic samples with a random start. No failure reaches the write."""
        if abs(key.position - now_ms) > NEAR_MS:
            return
        collection, distance_wcu = key.collection, self.key_wcu / SAMPLES_PER_SECOND
        with self._lock:
            counted = self._counted.get(collection) or _Counted(self.clock.random() * distance_wcu)
            counted.left_wcu -= wcu
            points = ceil(-counted.left_wcu / distance_wcu) if counted.left_wcu < 0 else 0
            counted.left_wcu += points * distance_wcu
            keep_newest(self._counted, collection, counted, MAX_KEYS)
        if not points:
            return
        bucket, sample_wcu = self.store_clock.at(now_ms) // self.close_after_ms, points * distance_wcu
        try:
            kept = self.loads.add_to_bucket(collection, bucket, sample_wcu, stale=counted.stale)
            counted.stale = [old for old in kept if not bucket - KEPT_BUCKETS < old <= bucket + 1]
        except (RetryLaterError, StoreRefusedError):
            counted.missed_bucket = bucket
            self.telemetry.count(MetricName.REPORTS_DROPPED)

    def renewed(self, key: ItemKey[Any], entry: JournalEntry) -> None:
        """Close a key if it has cooled, given the strongly consistent read for its lease."""
        now_ms = entry.date_ms
        if now_ms is None or not entry.route.shard_count_at(None) or abs(key.position - now_ms) > NEAR_MS:
            return
        try:
            if self._is_cool(key.collection, entry.updated_at_ms, now_ms):
                self._close(key.collection, entry, now_ms)
        except (RetryLaterError, StoreRefusedError, MalformedGenerationError) as error:
            facts = {"collection": key.collection, "reason": str(error)}
            _logger.warning("a key that has cooled is not closed: %s: %s", key.collection, error, extra=facts)

    def _close(self, collection: str, entry: JournalEntry, judged_at_ms: int) -> None:
        planned = self.closer.plan(collection, cause=Cause(COOLED), grown_by_ms=entry.updated_at_ms)
        # Other processes may have removed the buckets that were looked at, if this one stood still.
        if planned.entry.date_ms is not None and planned.entry.date_ms - judged_at_ms < self.close_after_ms / 2:
            self.closer.confirm(self.closer.announce(planned))

    def _is_cool(self, collection: str, grown_at_ms: int | None, now_ms: int) -> bool:
        present = now_ms // self.close_after_ms
        if grown_at_ms is None or grown_at_ms >= (present - 1) * self.close_after_ms:
            return False  # no whole bucket was counted since
        counted = self._counted.get(collection)
        if counted is not None and counted.missed_bucket >= present - 1:
            return False
        buckets = self.loads.buckets(collection)
        loads = (
            buckets.get(present - 1, 0.0) / (self.close_after_ms / 1000),
            buckets.get(present, 0.0) / max((now_ms - present * self.close_after_ms) / 1000, 1.0),
        )
        return max(loads) < self.key_wcu * WARM_SHARE
