"""How what reads items is put together from its settings."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Generic, NamedTuple

from hotpartition.core.keys import KeyForm
from hotpartition.core.merge import ItemT, Page, PositionOf
from hotpartition.dynamodb.calls import DynamoDBCalls
from hotpartition.dynamodb.clients import open_dynamodb
from hotpartition.engine.gatherer import Gatherer
from hotpartition.engine.newest_pages import NewestPages
from hotpartition.engine.page_cache import PageCodec
from hotpartition.engine.read_repair import ReadRepair
from hotpartition.engine.route_cache import RouteCache, RouteSource
from hotpartition.ports import ItemStore, Telemetry
from hotpartition.redis.pages import RedisPageStore
from hotpartition.redis.registry import RedisRegistry
from hotpartition.redis.reports import RedisReportSink
from hotpartition.runtime.background import BackgroundThread
from hotpartition.runtime.settings import ReaderSettings
from hotpartition.runtime.wiring import connect_redis, system_clock
from hotpartition.runtime.wiring_pages import build_page_cache, build_read_counting


def open_reading(settings: ReaderSettings) -> DynamoDBCalls:
    """Open what a reader sends its rounds of queries with."""
    return open_dynamodb(
        settings.dynamodb_client,
        endpoint=settings.dynamodb_endpoint,
        parallel=settings.fan_out_threads,
        hedge_quantile=settings.hedge_quantile,
    )


class Reading(NamedTuple, Generic[ItemT]):
    """What reads the items of a table. `newest` is None where pages are not cached."""

    gatherer: Gatherer[str, ItemT]
    newest: NewestPages[ItemT] | None


def build_reading(
    settings: ReaderSettings,
    telemetry: Telemetry,
    *,
    store: ItemStore[str, ItemT],
    form: KeyForm,
    position_of: PositionOf[str],
    codec: PageCodec[Page[str, ItemT]],
    cached_limits: Sequence[int],
) -> Reading[ItemT]:
    """Build what reads the items of a table. Call it on the first request: it makes the environment's id."""
    clock, environment_id = system_clock(), uuid.uuid4().hex
    # One for lookups, repairs, reports and pages: each new connection is authenticated anew.
    connection = connect_redis(settings, telemetry, "routes")
    registry = RedisRegistry(connection, settings.table_name, telemetry)
    cache = RouteCache(
        ttl_seconds=settings.route_cache_seconds, max_entries=settings.route_cache_entries, random=clock.random
    )
    background = BackgroundThread()
    reports = RedisReportSink(
        connection,
        settings.table_name,
        partitions=settings.stream_partitions,
        background=background,
        now_ms=clock.now_ms,
    )
    counting = build_read_counting(
        settings, reports=reports, telemetry=telemetry, clock=clock, environment_id=environment_id
    )
    routes = RouteSource(cache=cache, registry=registry, telemetry=telemetry, timer=time.monotonic)
    repair = ReadRepair(
        registry=RedisRegistry(connection, settings.table_name),
        routes=routes,
        background=background,
        telemetry=telemetry,
        now_ms=clock.now_ms,
    )
    gatherer = Gatherer(
        store=store,
        routes=repair,
        telemetry=telemetry,
        clock=clock,
        budget_ms=settings.request_budget_ms,
        form=form,
        position_of=position_of,
        counting=counting,
    )
    if not settings.page_cache:
        return Reading(gatherer, None)
    pages = build_page_cache(
        settings,
        store=RedisPageStore(connection, settings.table_name, telemetry),
        codec=codec,
        telemetry=telemetry,
        clock=clock,
        environment_id=environment_id,
    )
    newest = NewestPages(
        gatherer, routes=routes, cache=pages, limits=cached_limits, counting=counting, now_ms=clock.now_ms
    )
    return Reading(gatherer, newest)
