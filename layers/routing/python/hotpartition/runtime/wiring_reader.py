"""How a gatherer is put together from its settings."""

from __future__ import annotations

import time

from hotpartition.core.keys import KeyForm
from hotpartition.core.merge import ItemT, PositionOf
from hotpartition.dynamodb.calls import DynamoDBCalls
from hotpartition.dynamodb.clients import open_dynamodb
from hotpartition.jobs.gatherer import Gatherer
from hotpartition.jobs.route_cache import RouteCache, RouteSource
from hotpartition.ports import ItemStore, Telemetry
from hotpartition.redis.registry import RedisRegistry
from hotpartition.runtime.background import BackgroundThread
from hotpartition.runtime.settings import ReaderSettings
from hotpartition.runtime.wiring import connect_redis, system_clock


def open_reading(settings: ReaderSettings) -> DynamoDBCalls:
    """Open what a reader sends its rounds of queries with."""
    return open_dynamodb(
        settings.dynamodb_client,
        endpoint=settings.dynamodb_endpoint,
        parallel=settings.fan_out_threads,
        hedge_quantile=settings.hedge_quantile,
    )


def build_gatherer(
    settings: ReaderSettings, telemetry: Telemetry, *, store: ItemStore[ItemT], form: KeyForm, position_of: PositionOf
) -> Gatherer[ItemT]:
    """Build a gatherer over the items of a table."""
    clock = system_clock()
    # One for lookups and repairs: each new connection is authenticated anew.
    connection = connect_redis(settings, telemetry, "routes")
    registry = RedisRegistry(connection, settings.table_name, telemetry)
    cache = RouteCache(
        ttl_seconds=settings.route_cache_seconds, max_entries=settings.route_cache_entries, random=clock.random
    )
    return Gatherer(
        store=store,
        registry=RedisRegistry(connection, settings.table_name),
        routes=RouteSource(cache=cache, registry=registry, telemetry=telemetry, timer=time.monotonic),
        background=BackgroundThread(),
        telemetry=telemetry,
        clock=clock,
        budget_ms=settings.request_budget_ms,
        form=form,
        position_of=position_of,
    )
