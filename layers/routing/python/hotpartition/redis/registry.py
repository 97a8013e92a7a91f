"""The registry in Redis: routes as sets that only grow under SADD. Keys: `cluster.py`.

Anything may lie in Redis. What cannot be read is left out, counted and logged: the registry is a hint.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hotpartition.core.metrics import MetricName
from hotpartition.core.route import Generation, Route
from hotpartition.errors import MalformedGenerationError, RegistryForeignError
from hotpartition.ports import Telemetry
from hotpartition.redis.cluster import RedisConnection, route_key, sentinel_keys

MAX_ROUTE_MEMBERS = 256
"""Members of a route that are read at most. Each raise adds one, and N doubles or so with each: a dozen are many."""
NAMED_BYTES = 100
"""How much of a foreign member a log line shows."""


class RedisRegistry:
    """`Registry` on a Redis cluster."""

    def __init__(self, connection: RedisConnection, table_name: str, telemetry: Telemetry | None = None) -> None:
        """Use a connection; `telemetry` is told of what is none of ours."""
        self._connection = connection
        self._table_name = table_name
        self._telemetry = telemetry

    def get(self, collection: str) -> Route:
        """See `Registry.get`.

        Raises:
            RegistryForeignError: the key is of another type, or holds far more than a route does.
        """
        key = route_key(self._table_name, collection)
        try:
            # Whole in one round trip, unless it is larger than that; SMEMBERS would read it whatever its size.
            response: Any = self._connection.call(key, lambda client: client.sscan(key, count=MAX_ROUTE_MEMBERS))
        except RegistryForeignError as error:
            self._tell(collection, str(error))
            raise
        position, members = response
        if position:
            reason = f"{key} has more than {MAX_ROUTE_MEMBERS} members"
            self._tell(collection, reason)
            raise RegistryForeignError(reason)
        generations, foreign = _read(members)
        if foreign:
            self._tell(collection, f"{len(foreign)} members are no generations: {foreign[0][:NAMED_BYTES]!r} ...")
        return Route(frozenset(generations))

    def add(self, collection: str, generations: Iterable[Generation]) -> None:
        """See `Registry.add`."""
        members = sorted(generation.encode() for generation in generations)
        if not members:
            return
        key = route_key(self._table_name, collection)
        try:
            self._connection.call(key, lambda client: client.sadd(key, *members))
        except RegistryForeignError as error:
            self._tell(collection, str(error))
            raise

    def is_whole(self) -> bool:
        """See `Registry.is_whole`."""
        keys = sentinel_keys(self._table_name)
        return all(self._connection.call(key, lambda client: client.exists(key)) for key in keys)  # noqa: B023 - called here

    def mark_whole(self) -> None:
        """See `Registry.mark_whole`."""
        for key in sentinel_keys(self._table_name):
            self._connection.call(key, lambda client: client.set(key, "1"))  # noqa: B023 - called here

    def _tell(self, collection: str, reason: str) -> None:
        if self._telemetry is not None:
            self._telemetry.count(MetricName.REGISTRY_MALFORMED)
            self._telemetry.event("foreign data in redis skipped", conversation_id=collection, reason=reason)


def _read(members: Iterable[str]) -> tuple[Sequence[Generation], Sequence[str]]:
    """Parse a route's members; return the generations, and what is none."""
    generations, foreign = [], []
    for member in members:
        try:
            generations.append(Generation.decode(member))
        except MalformedGenerationError:
            foreign.append(member)
    return generations, foreign
