"""Builds the read cache: of a function or a table, on the fleet's Redis; or a user's own, with a Redis or without."""

from __future__ import annotations

import time
import uuid
from urllib.parse import unquote, urlsplit

from hotpartition.core.freshness import CacheLimits
from hotpartition.core.ports import PageStore, Telemetry
from hotpartition.engine.read_cache import Codec, ReadCache, ValueT
from hotpartition.runtime.clocks import ElapsedTime, system_clock

_CONNECT_MS, _COMMAND_MS, _COOLDOWN_MS = 500, 30, 1_000
"""Limits of a user's own Redis: as those of a function, on the path of a request."""


def build_value_cache(
    codec: Codec[ValueT],
    limits: CacheLimits,
    telemetry: Telemetry,
    *,
    redis: str | None,
    name: str,
    max_entries: int,
    max_bytes: int,
) -> tuple[ReadCache[ValueT], PageStore | None]:
    """Build the cache of users' own values, and the fleet's values. Nothing is opened before it is used.

    Args:
        codec: of the values.
        limits: the TTL and the staleness bound.
        telemetry: gets counts.
        redis: address of a Redis cluster, `rediss://user:password@host:port`; None keeps values in this process.
        name: what keys in Redis begin with, after `hp:`.
        max_entries: how many values this process keeps.
        max_bytes: how large they are together.

    Raises:
        ValueError: `redis` is not an address.
    """
    timer = ElapsedTime()
    store = None if redis is None else _open_store(redis, name, telemetry, timer)
    cache = ReadCache(
        codec=codec,
        limits=limits,
        telemetry=telemetry,
        clock=system_clock(),
        timer=timer,
        store=store,
        environment_id=uuid.uuid4().hex,
        excused=(Exception,),
        max_entries=max_entries,
        max_bytes=max_bytes,
    )
    return cache, store


def _open_store(address: str, name: str, telemetry: Telemetry, timer: ElapsedTime) -> PageStore:
    # Only a cache of a fleet needs redis-py.
    from redis.credentials import UsernamePasswordCredentialProvider  # noqa: PLC0415

    from hotpartition.redis.cluster import RedisConnection  # noqa: PLC0415
    from hotpartition.redis.pages import RedisPageStore  # noqa: PLC0415

    parts = urlsplit(address)
    if parts.scheme not in {"redis", "rediss"} or not parts.hostname:
        raise ValueError("redis= is the address of a Redis cluster, such as rediss://user:password@host:6379")
    credentials = None
    if parts.password is not None:
        credentials = UsernamePasswordCredentialProvider(unquote(parts.username or "") or None, unquote(parts.password))
    connection = RedisConnection(
        host=parts.hostname,
        port=parts.port or 6379,
        is_tls=parts.scheme == "rediss",
        credentials=credentials,
        on_refusal=lambda reason: telemetry.event(f"Redis refuses the read cache: {reason}"),
        connect_timeout_ms=_CONNECT_MS,
        command_timeout_ms=_COMMAND_MS,
        cooldown_ms=_COOLDOWN_MS,
        now_ms=lambda: time.monotonic() * 1000,
    )
    return RedisPageStore(connection, name, telemetry, timer)
