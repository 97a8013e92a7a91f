"""How a function's collaborators are put together from its settings; the handlers call this once, at cold start."""

from __future__ import annotations

import random
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from redis.credentials import CredentialProvider

from hotpartition.background import BackgroundThread
from hotpartition.backoff import Clock
from hotpartition.consumer import Consumer
from hotpartition.counter import WriteCounter
from hotpartition.detector import Thresholds
from hotpartition.dynamodb import DynamoDBJournal, DynamoDBMessageStore, DynamoDBRoutingItems, create_client
from hotpartition.hedging import HedgePolicy, Hedger
from hotpartition.operations import Operations, OperationsLimits
from hotpartition.ports import Telemetry
from hotpartition.reader import Reader
from hotpartition.redis_cluster import RedisConnection
from hotpartition.redis_credentials import PasswordFile, iam_credentials
from hotpartition.redis_listing import RedisRegistryListing
from hotpartition.redis_registry import RedisRegistry
from hotpartition.redis_reports import RedisReportSink, RedisReportSource
from hotpartition.registry_check import RegistryCheck
from hotpartition.routes import RouteCache, RouteSource
from hotpartition.settings import CommonSettings, ConsumerSettings, OperateSettings, ReaderSettings, WriterSettings
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
    # Seeded here: the module's own generator is in a snapshot that many environments start from (SnapStart).
    return Clock(now_ms=wall_clock_ms, sleep=time.sleep, random=random.Random().random)


def build_writer(settings: WriterSettings, telemetry: Telemetry) -> Writer:
    """Build the write function's job. Call it on the first request: it makes the environment's id."""
    clock = system_clock()
    client = create_client(connections=2)
    journal = DynamoDBJournal(client, settings.table_name, index_name="")
    reports = RedisReportSink(
        connect_redis(settings, telemetry, "reports"),
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
            registry=RedisRegistry(connect_redis(settings, telemetry, "routes"), settings.table_name),
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
    registry = RedisRegistry(connect_redis(settings, telemetry, "routes"), settings.table_name)
    cache = RouteCache(
        life_seconds=settings.route_cache_seconds, max_entries=settings.route_cache_entries, random=clock.random
    )
    return Reader(
        store=DynamoDBMessageStore(client, settings.table_name, executor, hedger=hedger),
        journal=DynamoDBJournal(client, settings.table_name, index_name=""),
        registry=RedisRegistry(connect_redis(settings, telemetry, "mending"), settings.table_name),
        routes=RouteSource(cache=cache, registry=registry, telemetry=telemetry, timer=time.monotonic),
        background=BackgroundThread(),
        telemetry=telemetry,
        clock=clock,
        budget_ms=settings.request_budget_ms,
        settle_ms=settings.settle_seconds * 1000,
    )


def build_consumer(settings: ConsumerSettings, telemetry: Telemetry) -> Consumer:
    """Build the stream consumer's job."""
    connection = connect_redis(settings, telemetry, "detection", command_timeout_ms=CONSUMER_COMMAND_TIMEOUT_MS)
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


def build_operations(settings: OperateSettings, telemetry: Telemetry) -> tuple[Operations, RegistryCheck]:
    """Build the jobs of the operations function."""
    clock = system_clock()
    client = create_client(connections=1)
    connection = connect_redis(settings, telemetry, "operations", command_timeout_ms=CONSUMER_COMMAND_TIMEOUT_MS)
    journal = DynamoDBJournal(client, settings.table_name, settings.routing_index_name)
    routing_items = DynamoDBRoutingItems(client, settings.table_name, settings.routing_index_name)
    registry = RedisRegistry(connection, settings.table_name)
    operations = Operations(
        source=RedisReportSource(connection, settings.table_name),
        journal=journal,
        routing_items=routing_items,
        registry=registry,
        telemetry=telemetry,
        clock=clock,
        limits=OperationsLimits(
            stream_partitions=settings.stream_partitions,
            hot_sustained_wcu=settings.hot_sustained_wcu,
            max_shard_count=settings.max_shard_count,
            route_cache_seconds=settings.route_cache_seconds,
        ),
    )
    check = RegistryCheck(
        journal=journal,
        routing_items=routing_items,
        registry=registry,
        listing=RedisRegistryListing(connection, settings.table_name),
        telemetry=telemetry,
        clock=clock,
    )
    return operations, check


def connect_redis(
    settings: CommonSettings, telemetry: Telemetry, purpose: str, *, command_timeout_ms: int | None = None
) -> RedisConnection:
    """Build a connection of its own for one purpose; nothing is opened yet."""
    user = settings.registry_user

    def note_refusal(reason: str) -> None:
        telemetry.event("registry refuses this function", reason=reason, user=user, purpose=purpose)

    return RedisConnection(
        host=settings.registry_host,
        port=settings.registry_port,
        is_tls=settings.registry_tls,
        ca_file=settings.registry_ca_file,
        credentials=_find_credentials(settings),
        on_refusal=note_refusal,
        connect_timeout_ms=settings.registry_connect_timeout_ms,
        command_timeout_ms=command_timeout_ms or settings.registry_command_timeout_ms,
        rest_ms=settings.registry_rest_ms,
        now_ms=lambda: time.monotonic() * 1000,
    )


def _find_credentials(settings: CommonSettings) -> CredentialProvider | None:
    match settings.registry_authentication:
        case "iam":
            return iam_credentials(
                cache_name=settings.registry_cache_name, user=settings.registry_user, now_seconds=time.time
            )
        case "password":
            return PasswordFile(user=settings.registry_user, path=Path(settings.registry_password_file))
        case _:
            return None
