"""How the read function's job is put together from its settings."""

from __future__ import annotations

import time
from collections.abc import Callable

from hotpartition.core.capacity import Item
from hotpartition.core.merge import ItemT
from hotpartition.dynamodb.clients import open_dynamodb
from hotpartition.dynamodb.message_store import DynamoDBMessageStore
from hotpartition.jobs.reader import Reader
from hotpartition.jobs.route_cache import RouteCache, RouteSource
from hotpartition.ports import Telemetry
from hotpartition.redis.registry import RedisRegistry
from hotpartition.runtime.background import BackgroundThread
from hotpartition.runtime.settings import ReaderSettings
from hotpartition.runtime.wiring import connect_redis, system_clock


def build_reader(settings: ReaderSettings, telemetry: Telemetry, decode: Callable[[Item], ItemT]) -> Reader[ItemT]:
    """Build the read function's job. `decode` makes of a stored item what the application knows it as."""
    clock = system_clock()
    calls = open_dynamodb(
        settings.dynamodb_client,
        endpoint=settings.dynamodb_endpoint,
        parallel=settings.fan_out_threads,
        hedge_quantile=settings.hedge_quantile,
    )
    # One for lookups and repairs: each new connection is authenticated anew.
    connection = connect_redis(settings, telemetry, "routes")
    registry = RedisRegistry(connection, settings.table_name, telemetry)
    cache = RouteCache(
        ttl_seconds=settings.route_cache_seconds, max_entries=settings.route_cache_entries, random=clock.random
    )
    return Reader(
        store=DynamoDBMessageStore(calls, settings.table_name, decode),
        registry=RedisRegistry(connection, settings.table_name),
        routes=RouteSource(cache=cache, registry=registry, telemetry=telemetry, timer=time.monotonic),
        background=BackgroundThread(),
        telemetry=telemetry,
        clock=clock,
        budget_ms=settings.request_budget_ms,
        settle_ms=settings.settle_seconds * 1000,
    )
