"""How the write function's job is put together from its settings."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

from hotpartition.core.capacity import Item
from hotpartition.core.counter import WriteCounter
from hotpartition.core.merge import ItemT
from hotpartition.dynamodb.clients import open_dynamodb
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.message_store import DynamoDBMessageStore
from hotpartition.jobs.route_cache import RouteCache, RouteSource
from hotpartition.jobs.writer import Writer
from hotpartition.ports import Telemetry
from hotpartition.redis.registry import RedisRegistry
from hotpartition.redis.reports import RedisReportSink
from hotpartition.runtime.background import BackgroundThread
from hotpartition.runtime.settings import WriterSettings
from hotpartition.runtime.wiring import connect_redis, system_clock


def build_writer(settings: WriterSettings, telemetry: Telemetry, decode: Callable[[Item], ItemT]) -> Writer[ItemT]:
    """Build the write function's job. Call it on the first request: it makes the environment's id.

    `decode` makes of a stored item what the application knows it as.
    """
    clock = system_clock()
    calls = open_dynamodb(settings.dynamodb_client, endpoint=settings.dynamodb_endpoint)
    journal = DynamoDBJournal(calls, settings.table_name, index_name="")
    # One for both: each new connection is authenticated anew, and both are hardly ever in use at the same time.
    connection = connect_redis(settings, telemetry, "routes")
    reports = RedisReportSink(
        connection,
        settings.table_name,
        partitions=settings.stream_partitions,
        background=BackgroundThread(),
        now_ms=clock.now_ms,
    )
    cache = RouteCache(
        ttl_seconds=settings.route_cache_seconds, max_entries=settings.route_cache_entries, random=clock.random
    )
    return Writer(
        store=DynamoDBMessageStore(calls, settings.table_name, decode),
        routes=RouteSource(
            cache=cache,
            registry=RedisRegistry(connection, settings.table_name, telemetry),
            telemetry=telemetry,
            timer=time.monotonic,
            journal=journal,
        ),
        counter=WriteCounter(
            environment_id=uuid.uuid4().hex,
            sampling_distance_wcu=settings.sampling_distance_wcu,
            random=clock.random,
        ),
        reports=reports,
        telemetry=telemetry,
        clock=clock,
        budget_ms=settings.request_budget_ms,
    )
