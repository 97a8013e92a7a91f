"""Chooses where new items go, and remembers which places refused a moment ago."""

from __future__ import annotations

from threading import Lock

from hotpartition.core.backoff import Clock
from hotpartition.core.refusals import RecentRefusals
from hotpartition.core.route import Placement
from hotpartition.table.places import ItemKey
from hotpartition.table.sharding import Sharding


class Placer:
    """Places new items. Safe under threads."""

    def __init__(self, sharding: Sharding, clock: Clock) -> None:
        self._sharding = sharding
        self._clock = clock
        self._refusals = RecentRefusals()
        self._lock = Lock()

    def place(self, key: ItemKey) -> list[Placement]:
        """List where a new item may go, first choice first; what refused a moment ago comes last.

        Raises:
            InvalidRequestError: nothing tells what its shard is chosen by.
        """
        if key.hashed is None:
            key = key._replace(hashed=self._sharding.hashing.of_nothing())
        placements = self._sharding.places_for_new(key.collection).for_new(key)
        with self._lock:
            return self._refusals.order(placements, self._clock.now_ms())

    def first(self, key: ItemKey) -> Placement:
        """Return the first choice of a new item, whatever it did a moment ago.

        Raises:
            InvalidRequestError: nothing tells what its shard is chosen by.
        """
        if key.hashed is None:
            key = key._replace(hashed=self._sharding.hashing.of_nothing())
        return self._sharding.places_for_new(key.collection).for_new(key)[0]

    def refused(self, partition_key: str) -> None:
        """Remember that a place refused."""
        with self._lock:
            self._refusals.add(partition_key, self._clock.now_ms())
