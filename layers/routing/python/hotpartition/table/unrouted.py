"""Notices items on shards that the journal does not name: it was lost, or another one is read.

Reads of a partition key ask only what its route names, so they never meet such items. Scans, and queries of indexes
that are not sharded, show stored keys.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from threading import Lock

from hotpartition.core.keys import KeyForm
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import JournalReading, Telemetry
from hotpartition.errors import HotPartitionError

LOOK_PAUSE_MS = 60_000
"""Between two looks at the journal, so that scans cost what they cost without shards, but for a read unit a minute."""

_logger = logging.getLogger(__name__)


class UnroutedItems:
    """Compares stored keys that a process meets with the journal, one partition key a minute. Safe under threads."""

    def __init__(self, journal: JournalReading, form: KeyForm, telemetry: Telemetry, now_ms: Callable[[], int]) -> None:
        self._journal = journal
        self._form = form
        self._telemetry = telemetry
        self._now_ms = now_ms
        self._lock = Lock()
        self._known: dict[str, int] = {}
        """Of each partition key that was looked up: from which shard on nothing need be looked up again."""
        self._next_look_ms = 0

    def meet(self, partition_keys: Iterable[str]) -> None:
        """Take in the keys of stored items; a warning is logged once for each of which items lie on unknown shards."""
        met: dict[str, int] = {}
        for key in partition_keys:
            collection, shard = self._form.parse(key)
            if shard is not None and shard >= max(self._known.get(collection, 0), met.get(collection, 0)):
                met[collection] = shard + 1
        if not met or not self._may_look():
            return
        collection, least = next(iter(met.items()))
        try:
            count = self._journal.get(collection, is_strong=True).route.max_shard_count
        except HotPartitionError:
            return  # whoever reads that key hears of it
        self._known[collection] = max(least, count)
        if count < least:
            self._telemetry.count(MetricName.ITEMS_UNROUTED)
            _logger.warning(
                "items lie on shards that the journal does not name: reads miss them. Rebuild the journal",
                extra={"collection": collection, "shard": least - 1, "shards_named": count},
            )

    def _may_look(self) -> bool:
        with self._lock:
            now_ms = self._now_ms()
            if now_ms < self._next_look_ms:
                return False
            self._next_look_ms = now_ms + LOOK_PAUSE_MS
            return True
