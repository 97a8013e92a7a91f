"""How the read function's job is put together from its settings."""

from __future__ import annotations

import time

from hotpartition.background import BackgroundThread
from hotpartition.dynamodb import DynamoDBJournal, DynamoDBMessageStore
from hotpartition.dynamodb_clients import open_dynamodb
from hotpartition.ports import Telemetry
from hotpartition.reader import Reader
from hotpartition.redis_registry import RedisRegistry
from hotpartition.routes import RouteCache, RouteSource
from hotpartition.settings import ReaderSettings
from hotpartition.wiring import connect_redis, system_clock


def build_reader(settings: ReaderSettings, telemetry: Telemetry) -> Reader:
    """Build the read function's job."""
    clock = system_clock()
    calls = open_dynamodb(settings, parallel=settings.fan_out_threads, hedge_quantile=settings.hedge_quantile)
    registry = RedisRegistry(connect_redis(settings, telemetry, "routes"), settings.table_name)
    cache = RouteCache(
        life_seconds=settings.route_cache_seconds, max_entries=settings.route_cache_entries, random=clock.random
    )
    return Reader(
        store=DynamoDBMessageStore(calls, settings.table_name),
        journal=DynamoDBJournal(calls, settings.table_name, index_name=""),
        registry=RedisRegistry(connect_redis(settings, telemetry, "mending"), settings.table_name),
        routes=RouteSource(cache=cache, registry=registry, telemetry=telemetry, timer=time.monotonic),
        background=BackgroundThread(),
        telemetry=telemetry,
        clock=clock,
        budget_ms=settings.request_budget_ms,
        settle_ms=settings.settle_seconds * 1000,
    )
