"""The registry in Redis: routes as sets that only grow under SADD. Keys: `redis_cluster.py`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hotpartition.core.route import Generation, Route
from hotpartition.errors import MalformedGenerationError
from hotpartition.redis.cluster import RedisConnection, route_key, sentinel_keys


class RedisRegistry:
    """`Registry` on a Redis cluster."""

    def __init__(self, connection: RedisConnection, table_name: str) -> None:
        self._connection = connection
        self._table_name = table_name

    def get(self, conversation_id: str) -> Route:
        """See `Registry.get`."""
        key = route_key(self._table_name, conversation_id)
        members: Any = self._connection.call(key, lambda client: client.smembers(key))
        return Route(frozenset(_readable(members)))

    def add(self, conversation_id: str, generations: Iterable[Generation]) -> None:
        """See `Registry.add`."""
        members = sorted(generation.encode() for generation in generations)
        if members:
            key = route_key(self._table_name, conversation_id)
            self._connection.call(key, lambda client: client.sadd(key, *members))

    def is_whole(self) -> bool:
        """See `Registry.is_whole`."""
        keys = sentinel_keys(self._table_name)
        return all(self._connection.call(key, lambda client: client.exists(key)) for key in keys)  # noqa: B023 - called here

    def mark_whole(self) -> None:
        """See `Registry.mark_whole`."""
        for key in sentinel_keys(self._table_name):
            self._connection.call(key, lambda client: client.set(key, "1"))  # noqa: B023 - called here


def _readable(members: Iterable[str]) -> Iterable[Generation]:
    """Yield what can be read: the registry is a hint, and readers verify it against the journal."""
    for member in members:
        try:
            yield Generation.decode(member)
        except MalformedGenerationError:
            continue
