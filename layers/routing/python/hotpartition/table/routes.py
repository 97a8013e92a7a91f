"""The routes of a table with fixed numbers of shards: the same for every partition key, and told by the code."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from threading import Lock
from typing import Any

from hotpartition.core.route import Generation, Route
from hotpartition.table.schema import SHARDS
from hotpartition.table.shards import Fixed

_logger = logging.getLogger(__name__)


class FixedRoutes:
    """Routes that the code tells. Safe under threads.

    Items on shards say under which N they were written. One that was written under a larger N than the code knows
    (an instance of an older version, or a number that was lowered) says that others lie where nobody looks: from then
    on it is looked there too, and a warning is logged, once for each N.
    """

    def __init__(self, shards: Fixed) -> None:
        self.choices = shards.choices
        self._written = shards.written
        self._route = shards.route
        self._lock = Lock()

    def get(self, collection: str) -> Route:
        """Return under which generations a collection's items may have been written."""
        del collection
        return self._route

    def get_for_new(self, collection: str) -> Route:
        """Return under which generations a collection's new items are written."""
        del collection
        return self._written

    def meet(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Learn from stored items."""
        most = max((int(item.get(SHARDS, 0)) for item in items), default=0)
        if most <= self._route.max_shard_count:
            return
        with self._lock:
            known = self._route.max_shard_count
            if most > known:
                self._route = self._route.union(Route(frozenset({Generation(0, most)})))
                _logger.warning(
                    "items were written under more shards than fixed() names: name all numbers that were ever used",
                    extra={"written_under": most, "known": known},
                )
