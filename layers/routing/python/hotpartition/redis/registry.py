"""The registry in Redis: routes as sets that only grow under SADD, and read-hot marks. Keys: `cluster.py`.

Anything may lie in Redis. A value that cannot be read is left out, counted and logged: the registry is a hint.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hotpartition.core.errors import MalformedGenerationError, RegistryForeignError
from hotpartition.core.freshness import COPIES
from hotpartition.core.ports import ReadRoute
from hotpartition.core.route import Member, Route, decode_member
from hotpartition.redis.cluster import Command, RedisAdapter, closing_key, raises_key, read_hot_key, route_key, warm_key

MAX_ROUTE_MEMBERS = 256
"""Members of a route that are read at most. Each raise adds one, and N doubles or so with each: a dozen are many."""
READ_HOT_TTL_MS = 60_000
"""For how long a collection is taken for read-hot after the consumer last said so."""
MAX_MARK_LENGTH = 4
"""How much of a mark is read."""
MAX_CURSOR_LENGTH = 4_096
HOUR_MS = 3_600_000
NAMED_BYTES = 100
"""How much of a foreign member a log line shows."""


class RedisRegistry(RedisAdapter):
    """`Registry` on a Redis cluster."""

    def get(self, collection: str) -> Route:
        """Implement `Registry.get`.

        Raises:
            RegistryForeignError: the key is of another type, or holds far more than a route does.
        """
        key = route_key(self._table_name, collection)
        (response,) = self._run(key, _scan(key), collection=collection)
        return self._read(collection, key, response)

    def get_for_reading(self, collection: str) -> ReadRoute:
        """Implement `Registry.get_for_reading`.

        Raises:
            RegistryForeignError: as `get`; also when the mark is of another type.
        """
        key, mark_key = route_key(self._table_name, collection), read_hot_key(self._table_name, collection)
        mark_read = ("GETRANGE", mark_key, 0, MAX_MARK_LENGTH)
        response, mark = self._run(key, _scan(key), mark_read, collection=collection)
        return ReadRoute(self._read(collection, key, response), self._read_mark(collection, mark_key, mark))

    def mark_read_hot(self, collection: str) -> None:
        """Implement `Registry.mark_read_hot`."""
        key = read_hot_key(self._table_name, collection)
        self._run(key, ("SET", key, COPIES, "PX", READ_HOT_TTL_MS))

    def add(self, collection: str, members: Iterable[Member]) -> None:
        """Implement `Registry.add`."""
        texts = sorted(member.encode() for member in members)
        if not texts:
            return
        key = route_key(self._table_name, collection)
        self._run(key, ("SADD", key, *texts), collection=collection)

    def mark_warm(self, collection: str, keep_ms: int) -> None:
        """Implement `Registry.mark_warm`."""
        key = warm_key(self._table_name, collection)
        self._run(key, ("SET", key, "1", "PX", keep_ms))

    def is_warm(self, collection: str) -> bool:
        """Implement `Registry.is_warm`."""
        key = warm_key(self._table_name, collection)
        return self._run(key, ("EXISTS", key)) == [1]

    def closing_cursor(self) -> str | None:
        """Implement `Registry.closing_cursor`."""
        key = closing_key(self._table_name)
        (cursor,) = self._run(key, ("GETRANGE", key, 0, MAX_CURSOR_LENGTH))
        return cursor or None

    def keep_closing_cursor(self, cursor: str) -> None:
        """Implement `Registry.keep_closing_cursor`."""
        key = closing_key(self._table_name)
        self._run(key, ("SET", key, cursor))

    def count_raise(self) -> int:
        """Implement `Registry.count_raise`: an hour begins with the first raise after the last one ended."""
        key = raises_key(self._table_name)
        # NX: a key that has no TTL gets one, whatever became of the command that should have set it.
        commands = ("INCR", key), ("PEXPIRE", key, HOUR_MS, "NX")
        counted, _ = self._run(key, *commands)
        return int(counted)

    def _read(self, collection: str, key: str, response: Any) -> Route:
        position, members = response
        if position:
            reason = f"{key} has more than {MAX_ROUTE_MEMBERS} members"
            self._report(reason, collection=collection)
            raise RegistryForeignError(reason)
        known, foreign = _parse(members)
        if foreign:
            reason = f"{len(foreign)} members are no generations: {foreign[0][:NAMED_BYTES]!r} ..."
            self._report(reason, collection=collection)
        return Route.of(known)

    def _read_mark(self, collection: str, key: str, mark: str) -> int:
        """Return how many copies there are: 0 without a mark, and for foreign data."""
        if not mark:
            return 0
        if mark == str(COPIES):
            return COPIES
        self._report(f"{key} does not hold {COPIES}: {mark!r}", collection=collection)
        return 0


def _scan(key: str) -> Command:
    """Read a route whole in one round trip, unless it is larger than that; SMEMBERS would, whatever its size."""
    return "SSCAN", key, 0, "COUNT", MAX_ROUTE_MEMBERS


def _parse(members: Iterable[str]) -> tuple[Sequence[Member], Sequence[str]]:
    """Parse a route's members; return those that can be read, and the others."""
    known, foreign = [], []
    for member in members:
        try:
            known.append(decode_member(member))
        except MalformedGenerationError:
            foreign.append(member)
    return known, foreign
