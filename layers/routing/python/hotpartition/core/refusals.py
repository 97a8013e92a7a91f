"""Remembers which keys refused a write of a batch a moment ago: a batch has no other way to a next choice."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock

from hotpartition.core.route import Placement

REFUSED_FOR_MS = 1_000
"""How long a refusal is remembered: a partition's budget is one of a second."""
MAX_REFUSED_KEYS = 1_024


class RecentRefusals:
    """The keys that refused of late, the oldest forgotten first. Safe under threads."""

    def __init__(self, *, ttl_ms: int = REFUSED_FOR_MS, max_keys: int = MAX_REFUSED_KEYS) -> None:
        self._ttl_ms = ttl_ms
        self._max_keys = max_keys
        self._refused_at_ms: OrderedDict[str, int] = OrderedDict()
        self._lock = Lock()

    def add(self, partition_key: str, now_ms: int) -> None:
        """Remember that a key refused."""
        with self._lock:
            self._refused_at_ms[partition_key] = now_ms
            self._refused_at_ms.move_to_end(partition_key)
            if len(self._refused_at_ms) > self._max_keys:
                self._refused_at_ms.popitem(last=False)

    def has(self, partition_key: str, now_ms: int) -> bool:
        """Say whether a key refused of late."""
        refused_at_ms = self._refused_at_ms.get(partition_key)
        return refused_at_ms is not None and refused_at_ms > now_ms - self._ttl_ms

    def order(self, placements: Iterable[Placement], now_ms: int) -> list[Placement]:
        """Put those that refused of late last, and keep the order otherwise."""
        if not self._refused_at_ms:
            return list(placements)
        since_ms = now_ms - self._ttl_ms
        return sorted(placements, key=lambda p: self._refused_at_ms.get(p.partition_key, since_ms) > since_ms)
