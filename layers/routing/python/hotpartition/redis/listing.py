"""Which collections have a route in Redis, for operators. Keys: `cluster.py`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from redis.cluster import RedisCluster

from hotpartition.core.errors import InvalidRequestError
from hotpartition.redis.cluster import RedisConnection, consumer_key, route_key

SCAN_COUNT = 500
"""Keys that one SCAN looks at: a few ms, in which the node serves no other command."""


class RedisRegistryListing:
    """`RegistryListing` on a Redis cluster: SCAN over one primary after the other."""

    def __init__(self, connection: RedisConnection, table_name: str) -> None:
        self._connection = connection
        self._table_name = table_name

    def page(self, cursor: str | None) -> tuple[Sequence[str], str | None]:
        """Implement `RegistryListing.page`. A cursor is a node's name and SCAN's own cursor there."""
        node_name, position = _parse_cursor(cursor)
        # The key only names a failure; any key of the table does.
        return self._connection.call(
            consumer_key(self._table_name), lambda client: self._scan(client, node_name, position)
        )

    def _scan(self, client: RedisCluster, node_name: str, position: int) -> tuple[Sequence[str], str | None]:
        nodes = sorted(client.get_primaries(), key=lambda node: node.name)  # type: ignore[no-untyped-call]
        names = [node.name for node in nodes]
        if node_name not in names:  # the first page; or the cluster has changed, and the listing begins again
            node_name, position = names[0], 0
        place = names.index(node_name)
        before, _, after = route_key(self._table_name, "*").partition("*")
        response: Any = client.scan(
            cursor=position, match=f"{before}*{after}", count=SCAN_COUNT, target_nodes=nodes[place]
        )
        positions, keys = response
        ids = [key.removeprefix(before).removesuffix(after) for key in keys]
        if positions[node_name]:
            return ids, json.dumps([node_name, positions[node_name]])
        return ids, json.dumps([names[place + 1], 0]) if place + 1 < len(names) else None


def _parse_cursor(cursor: str | None) -> tuple[str, int]:
    """Read a place in the listing.

    Raises:
        InvalidRequestError: not a cursor returned by `page`.
    """
    if cursor is None:
        return "", 0
    with suppress(ValueError):
        match json.loads(cursor):
            case [str(node_name), int(position)] if position >= 0:
                return node_name, position
    raise InvalidRequestError.of("cursor", "should be the cursor of the last response")
