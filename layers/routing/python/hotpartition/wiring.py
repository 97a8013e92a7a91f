"""How a function's collaborators are put together from its settings; the handlers call this once, at cold start."""

from __future__ import annotations

import random
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

from hotpartition.background import BackgroundThread
from hotpartition.backoff import Clock
from hotpartition.consumer import Consumer
from hotpartition.counter import WriteCounter
from hotpartition.detector import Thresholds
from hotpartition.dynamodb import DynamoDBJournal, DynamoDBMessageStore, create_client
from hotpartition.hedging import HedgePolicy, Hedger
from hotpartition.ports import Telemetry
from hotpartition.reader import Reader
from hotpartition.redis_cluster import RedisConnection
from hotpartition.redis_registry import RedisRegistry
from hotpartition.redis_reports import RedisReportSink, RedisReportSource
from hotpartition.routes import RouteCache, RouteSource
from hotpartition.settings import CommonSettings, ConsumerSettings, ReaderSettings, WriterSettings
from hotpartition.writer import Writer

CONSUMER_COMMAND_TIMEOUT_MS = 1_000
"""The consumer is on nobody's request path and reads thousands of entries at a time: it may wait."""

HEDGE_THREADS = 4
"""Threads beside those of a round, so that a hedge does not queue behind what it hedges."""


def wall_clock_ms() -> int:
    """Return Unix time in ms."""
    return time.time_ns() // 1_000_000


def system_clock() -> Clock:
    """Build the real clock, sleep and chance."""
    return Clock(now_ms=wall_clock_ms, sleep=time.sleep, random=random.random)


def build_writer(settings: WriterSettings, telemetry: Telemetry) -> Writer:
    """Build the write function's job. Call it on the first request: it makes the environment's id."""
    clock = system_clock()
    client = create_client(connections=2)
    journal = DynamoDBJournal(client, settings.table_name, index_name="")
    reports = RedisReportSink(
        connect_redis(settings),
        settings.table_name,
        partitions=settings.stream_partitions,
        background=BackgroundThread(),
        now_ms=clock.now_ms,
    )
    cache = RouteCache(
        life_seconds=settings.route_cache_seconds, max_entries=settings.route_cache_entries, random=clock.random
    )
    return Writer(
        store=DynamoDBMessageStore(client, settings.table_name),
        routes=RouteSource(
            cache=cache,
            registry=RedisRegistry(connect_redis(settings), settings.table_name),
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
        random_bits=random.SystemRandom().getrandbits,
        budget_ms=settings.request_budget_ms,
    )


def build_reader(settings: ReaderSettings, telemetry: Telemetry) -> Reader:
    """Build the read function's job."""
    clock = system_clock()
    client = create_client(connections=settings.fan_out_threads + HEDGE_THREADS)
    executor = ThreadPoolExecutor(max_workers=settings.fan_out_threads, thread_name_prefix="query")
    hedger = None
    if settings.hedge_quantile:
        policy = HedgePolicy(quantile=settings.hedge_quantile)
        hedger = Hedger(policy, ThreadPoolExecutor(HEDGE_THREADS, thread_name_prefix="hedge"), time.monotonic)
    registry = RedisRegistry(connect_redis(settings), settings.table_name)
    cache = RouteCache(
        life_seconds=settings.route_cache_seconds, max_entries=settings.route_cache_entries, random=clock.random
    )
    return Reader(
        store=DynamoDBMessageStore(client, settings.table_name, executor, hedger=hedger),
        journal=DynamoDBJournal(client, settings.table_name, index_name=""),
        registry=RedisRegistry(connect_redis(settings), settings.table_name),
        routes=RouteSource(cache=cache, registry=registry, telemetry=telemetry, timer=time.monotonic),
        background=BackgroundThread(),
        telemetry=telemetry,
        clock=clock,
        budget_ms=settings.request_budget_ms,
        settle_ms=settings.settle_seconds * 1000,
    )


def build_consumer(settings: ConsumerSettings, telemetry: Telemetry) -> Consumer:
    """Build the stream consumer's job."""
    connection = connect_redis(settings, command_timeout_ms=CONSUMER_COMMAND_TIMEOUT_MS)
    client = create_client(connections=1)
    return Consumer(
        source=RedisReportSource(connection, settings.table_name),
        journal=DynamoDBJournal(client, settings.table_name, settings.routing_index_name),
        registry=RedisRegistry(connection, settings.table_name),
        telemetry=telemetry,
        clock=system_clock(),
        thresholds=Thresholds(
            hot_at_once_wcu=settings.hot_at_once_wcu,
            hot_sustained_wcu=settings.hot_sustained_wcu,
            target_shard_wcu=settings.target_shard_wcu,
            max_shard_count=settings.max_shard_count,
        ),
        stream_partitions=settings.stream_partitions,
    )


def connect_redis(settings: CommonSettings, *, command_timeout_ms: int | None = None) -> RedisConnection:
    """Build a connection of its own for one purpose; nothing is opened yet."""
    return RedisConnection(
        host=settings.registry_host,
        port=settings.registry_port,
        is_tls=settings.registry_tls,
        connect_timeout_ms=settings.registry_connect_timeout_ms,
        command_timeout_ms=command_timeout_ms or settings.registry_command_timeout_ms,
        rest_ms=settings.registry_rest_ms,
        now_ms=lambda: time.monotonic() * 1000,
    )
