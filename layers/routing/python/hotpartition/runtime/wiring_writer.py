"""How a writer is put together from its settings."""

from __future__ import annotations

import time
import uuid

from hotpartition.core.keys import KeyForm
from hotpartition.core.sampler import LoadSampler
from hotpartition.dynamodb.calls import DynamoDBCalls
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.engine.route_cache import RouteCache, RouteSource
from hotpartition.engine.writer import Writer
from hotpartition.ports import Telemetry
from hotpartition.redis.registry import RedisRegistry
from hotpartition.redis.reports import RedisReportSink
from hotpartition.runtime.background import BackgroundThread
from hotpartition.runtime.settings import WriterSettings
from hotpartition.runtime.wiring import connect_redis, system_clock


def build_writer(
    settings: WriterSettings, telemetry: Telemetry, *, calls: DynamoDBCalls, place: JournalPlace, form: KeyForm
) -> Writer:
    """Build a writer. Call it on the first request: it makes the environment's id."""
    clock = system_clock()
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
        routes=RouteSource(
            cache=cache,
            registry=RedisRegistry(connection, settings.table_name, telemetry),
            telemetry=telemetry,
            timer=time.monotonic,
            journal=DynamoDBJournal(calls, place),
        ),
        sampler=LoadSampler(
            environment_id=uuid.uuid4().hex,
            sampling_distance_wcu=settings.sampling_distance_wcu,
            random=clock.random,
        ),
        reports=reports,
        telemetry=telemetry,
        clock=clock,
        budget_ms=settings.request_budget_ms,
        form=form,
    )
