"""Cached pages in Redis, and the leases to read them. Keys: `cluster.py`.

Both are fields with a TTL (HSETEX, since Redis 8.0 and Valkey 9.0), not strings: a user with only HSETEX and HGET
cannot overwrite a route, a mark or a stream, which have other types. SET would replace a value of any type.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

from hotpartition.core.errors import MalformedPageError, RegistryUnavailableError
from hotpartition.core.freshness import COPIES
from hotpartition.core.ports import StoredPage, Telemetry
from hotpartition.redis.cluster import RedisAdapter, RedisConnection, lease_key, page_key

FORMAT = "2"
_PAGE, _HOLDER = "page", "holder"

RELEARN_MS = 10_000.0
"""How long Redis's time is continued by the monotonic clock before Redis is asked for it again."""
DRIFT = 0.001
"""By how much of a time two clocks may measure it differently, at most: twice what NTP corrects at once."""


class RedisPageStore(RedisAdapter):
    """`PageStore` on a Redis cluster. Its clock is that of Redis's nodes, which run as one."""

    def __init__(
        self, connection: RedisConnection, table_name: str, telemetry: Telemetry, timer: Callable[[], float]
    ) -> None:
        """Use a connection; `telemetry` gets reports of foreign data, `timer` is a monotonic clock in seconds."""
        super().__init__(connection, table_name, telemetry)
        self._timer = timer
        self._learned: tuple[float, float] | None = None
        """Redis's time, and the monotonic time at which it was that at the latest; both in ms."""

    def get(self, collection: str, variant: str, copy: int) -> tuple[StoredPage, int] | None:
        """Implement `PageStore.get`, in one round trip.

        The age may be too large by the round trip in which Redis's time was learned, and by `DRIFT`; never too small.

        Raises:
            RegistryForeignError: the key is of another type: an operator has to remove it.
        """
        key = page_key(self._table_name, collection, variant, copy)
        asked_at_ms, learned = self._timer() * 1000, self._learned
        if learned is not None and asked_at_ms >= learned[1] + RELEARN_MS:
            learned = None
        asked_of = ("FIELDS", 1, _PAGE)
        times = () if learned else (("HPTTL", key, *asked_of), ("HPEXPIRETIME", key, *asked_of))
        text, *known = self._run(key, ("HGET", key, _PAGE), *times, collection=collection)
        if text is None:
            return None
        page = _parse(text)
        if learned is None:
            ttl_ms, ends_at_ms = map(_number_of, known)
            if ends_at_ms != page.leased_at_ms + page.keep_ms:
                return None  # it ended, or another took its place, between the commands
            learned = self._learned = ends_at_ms - ttl_ms, asked_at_ms
        redis_ms, known_at_ms = learned
        now_ms = redis_ms + (asked_at_ms - known_at_ms) * (1 + DRIFT)
        return page, max(0, ceil(now_ms - page.leased_at_ms))

    def put(self, collection: str, variant: str, page: StoredPage) -> None:
        """Implement `PageStore.put`."""
        text = f"{FORMAT} {page.leased_at_ms} {page.keep_ms} {page.cost_ms} {page.units} {page.payload}"
        lasting = ("PXAT", page.leased_at_ms + page.keep_ms, "FIELDS", 1, _PAGE, text)
        failure: RegistryUnavailableError | None = None
        for copy in range(COPIES):
            key = page_key(self._table_name, collection, variant, copy)
            try:
                self._connection.run(key, ("HSETEX", key, *lasting))
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
        is_taken, ends_at = self._connection.run(key, *commands)
        ends_at_ms = _number_of(ends_at)
        # A lease that ended before it was looked at was not taken in time.
        return ends_at_ms - lease_ms if is_taken and ends_at_ms > 0 else None


_GONE = -2
"""Redis's value for the TTL of a field that is not there."""


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
