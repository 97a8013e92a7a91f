"""Cached pages in Redis, and the leases to read them. Keys: `cluster.py`.

Both are fields with a TTL (HSETEX, since Redis 8.0 and Valkey 9.0), not strings: who may only HSETEX and HGET cannot
write over a route, a mark or a stream, since those are of other types. SET would replace whatever lies under a key.
"""

from __future__ import annotations

from typing import Any

from hotpartition.core.metrics import MetricName
from hotpartition.errors import MalformedPageError, RegistryForeignError, RegistryUnavailableError
from hotpartition.ports import StoredPage, Telemetry
from hotpartition.redis.cluster import RedisConnection, lease_key, page_key

FORMAT = "2"
_PAGE, _HOLDER = "page", "holder"


class RedisPageStore:
    """`PageStore` on a Redis cluster. Its clock is that of Redis's nodes, which run as one."""

    def __init__(self, connection: RedisConnection, table_name: str, telemetry: Telemetry) -> None:
        """Use a connection; `telemetry` gets reports of foreign data."""
        self._connection = connection
        self._table_name = table_name
        self._telemetry = telemetry

    def get(self, collection: str, variant: str, copy: int) -> tuple[StoredPage, int] | None:
        """Implement `PageStore.get`, in one round trip.

        Raises:
            RegistryForeignError: the key is of another type: an operator has to remove it.
        """
        key = page_key(self._table_name, collection, variant, copy)
        commands = ("HGET", key, _PAGE), ("HPTTL", key, "FIELDS", 1, _PAGE)
        try:
            text, ttl = self._connection.call(key, lambda client: client.run_together(key, *commands))
        except RegistryForeignError as error:
            self._telemetry.count(MetricName.REGISTRY_MALFORMED)
            self._telemetry.event("foreign data in redis skipped", collection=collection, reason=str(error))
            raise
        if text is None or (left_ms := _number_of(ttl)) == _GONE:
            return None
        page = _parse(text)
        if left_ms < 0:
            raise MalformedPageError("a cached page without a TTL")
        return page, max(0, page.keep_ms - left_ms)

    def put(self, collection: str, variant: str, page: StoredPage, *, copies: int) -> None:
        """Implement `PageStore.put`."""
        text = f"{FORMAT} {page.leased_at_ms} {page.keep_ms} {page.cost_ms} {page.units} {page.payload}"
        expires_at_ms = page.leased_at_ms + page.keep_ms
        failure: RegistryUnavailableError | None = None
        for copy in range(copies):
            key = page_key(self._table_name, collection, variant, copy)
            try:
                self._connection.call(key, lambda client: client.hsetex(key, _PAGE, text, pxat=expires_at_ms))  # noqa: B023 - called here
            except RegistryUnavailableError as error:
                failure = error
        if failure is not None:
            raise failure

    def take_lease(self, collection: str, variant: str, lease_ms: int) -> int | None:
        """Implement `PageStore.take_lease`, in one round trip: when it ends says when it was taken."""
        key = lease_key(self._table_name, collection, variant)
        commands = (
            ("HSETEX", key, "FNX", "PX", lease_ms, "FIELDS", 1, _HOLDER, "1"),
            ("HPEXPIRETIME", key, "FIELDS", 1, _HOLDER),
        )
        is_taken, ends_at = self._connection.call(key, lambda client: client.run_together(key, *commands))
        ends_at_ms = _number_of(ends_at)
        # A lease that ended before it was looked at was not taken in time.
        return ends_at_ms - lease_ms if is_taken and ends_at_ms > 0 else None


_GONE = -2
"""What Redis says of the TTL of a field that is not there."""


def _number_of(response: Any) -> int:
    """Read a response about one field of a hash; a missing hash is one without the field."""
    return int(response[0]) if response else _GONE


def _parse(text: str) -> StoredPage:
    try:
        version, leased_at_ms, keep_ms, cost_ms, units, payload = text.split(" ", 5)
        page = StoredPage(payload, int(leased_at_ms), int(keep_ms), int(cost_ms), float(units))
    except ValueError as error:
        raise MalformedPageError("not a cached page") from error
    if version != FORMAT:
        raise MalformedPageError(f"a cached page of format {version[:10]!r}")
    return page
