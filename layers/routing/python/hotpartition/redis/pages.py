"""Cached pages in Redis, and the leases to read them. Keys: `cluster.py`.

Both are fields with a TTL (HSETEX, since Redis 8.0 and Valkey 9.0), not strings: who may only HSETEX and HGET cannot
write over a route, a mark or a stream, since those are of other types. SET would replace whatever lies under a key.
"""

from __future__ import annotations

from typing import Any

from redis.commands.core import HashDataPersistOptions

from hotpartition.core.metrics import MetricName
from hotpartition.errors import MalformedPageError, RegistryForeignError, RegistryUnavailableError
from hotpartition.ports import StoredPage, Telemetry
from hotpartition.redis.cluster import RedisConnection, lease_key, page_key

FORMAT = "1"
_PAGE, _HOLDER = "page", "holder"


class RedisPageStore:
    """`PageStore` on a Redis cluster."""

    def __init__(self, connection: RedisConnection, table_name: str, telemetry: Telemetry) -> None:
        """Use a connection; `telemetry` is told of what is none of ours."""
        self._connection = connection
        self._table_name = table_name
        self._telemetry = telemetry

    def get(self, collection: str, variant: str, copy: int) -> StoredPage | None:
        """Implement `PageStore.get`.

        Raises:
            RegistryForeignError: the key is of another type: an operator has to remove it.
        """
        key = page_key(self._table_name, collection, variant, copy)
        try:
            text: Any = self._connection.call(key, lambda client: client.hget(key, _PAGE))
        except RegistryForeignError as error:
            self._telemetry.count(MetricName.REGISTRY_MALFORMED)
            self._telemetry.event("foreign data in redis skipped", conversation_id=collection, reason=str(error))
            raise
        return None if text is None else _parse(text)

    def put(self, collection: str, variant: str, page: StoredPage, *, copies: int, keep_ms: int) -> None:
        """Implement `PageStore.put`."""
        text = f"{FORMAT} {page.read_at_ms} {page.cost_ms} {page.units} {page.payload}"
        failure: RegistryUnavailableError | None = None
        for copy in range(copies):
            key = page_key(self._table_name, collection, variant, copy)
            try:
                self._connection.call(key, lambda client: client.hsetex(key, _PAGE, text, px=keep_ms))  # noqa: B023 - called here
            except RegistryUnavailableError as error:
                failure = error
        if failure is not None:
            raise failure

    def take_lease(self, collection: str, variant: str, lease_ms: int) -> bool:
        """Implement `PageStore.take_lease`."""
        key = lease_key(self._table_name, collection, variant)
        is_taken = self._connection.call(
            key,
            lambda client: client.hsetex(
                key, _HOLDER, "1", px=lease_ms, data_persist_option=HashDataPersistOptions.FNX
            ),
        )
        return bool(is_taken)


def _parse(text: str) -> StoredPage:
    try:
        version, read_at_ms, cost_ms, units, payload = text.split(" ", 4)
        page = StoredPage(payload, int(read_at_ms), int(cost_ms), float(units))
    except ValueError as error:
        raise MalformedPageError("no cached page of ours") from error
    if version != FORMAT:
        raise MalformedPageError(f"a cached page of format {version[:10]!r}")
    return page
