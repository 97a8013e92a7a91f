"""How the operations function's jobs are put together from its settings."""

from __future__ import annotations

from hotpartition.control.operations import Operations, OperationsLimits
from hotpartition.control.reconcile import Reconciler
from hotpartition.dynamodb.clients import open_dynamodb
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.routing_items import DynamoDBRoutingItems
from hotpartition.ports import Telemetry
from hotpartition.redis.listing import RedisRegistryListing
from hotpartition.redis.registry import RedisRegistry
from hotpartition.redis.reports import RedisReportSource
from hotpartition.runtime.table_settings import OperateSettings
from hotpartition.runtime.wiring import connect_redis, system_clock
from hotpartition.runtime.wiring_table import build_key_form, find_journal


def build_operations(settings: OperateSettings, telemetry: Telemetry) -> tuple[Operations, Reconciler]:
    """Build the jobs of the operations function."""
    clock = system_clock()
    calls = open_dynamodb(settings.dynamodb_client, endpoint=settings.dynamodb_endpoint)
    place, form = find_journal(settings), build_key_form(settings)
    connection = connect_redis(settings, telemetry, "operations", is_patient=True)
    journal = DynamoDBJournal(calls, place)
    routing_items = DynamoDBRoutingItems(calls, place)
    registry = RedisRegistry(connection, settings.table_name, telemetry)
    operations = Operations(
        source=RedisReportSource(connection, settings.table_name, telemetry),
        journal=journal,
        routing_items=routing_items,
        registry=registry,
        telemetry=telemetry,
        clock=clock,
        limits=OperationsLimits(
            stream_partitions=settings.stream_partitions,
            consumers=settings.consumers,
            hot_sustained_wcu=settings.hot_sustained_wcu,
            hot_sustained_rcu=settings.hot_sustained_rcu,
            max_shard_count=settings.max_shard_count,
            route_cache_seconds=settings.route_cache_seconds,
            has_positions=settings.has_positions,
        ),
        form=form,
    )
    check = Reconciler(
        journal=journal,
        routing_items=routing_items,
        registry=registry,
        listing=RedisRegistryListing(connection, settings.table_name),
        telemetry=telemetry,
        clock=clock,
        form=form,
    )
    return operations, check
