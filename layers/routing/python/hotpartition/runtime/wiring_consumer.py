"""How the stream consumer's job is put together from its settings."""

from __future__ import annotations

from hotpartition.control.consumer import Consumer
from hotpartition.dynamodb.clients import open_dynamodb
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.routing_items import DynamoDBRoutingItems
from hotpartition.ports import Telemetry
from hotpartition.redis.registry import RedisRegistry
from hotpartition.redis.reports import RedisReportSource
from hotpartition.runtime.table_settings import ConsumerSettings
from hotpartition.runtime.thresholds import build_read_thresholds, build_thresholds
from hotpartition.runtime.wiring import connect_redis, system_clock
from hotpartition.runtime.wiring_table import build_key_form, find_journal


def build_consumer(settings: ConsumerSettings, telemetry: Telemetry) -> Consumer:
    """Build the stream consumer's job."""
    connection = connect_redis(settings, telemetry, "detection", is_patient=True)
    calls = open_dynamodb(settings.dynamodb_client, endpoint=settings.dynamodb_endpoint)
    place = find_journal(settings)
    return Consumer(
        source=RedisReportSource(connection, settings.table_name, telemetry),
        journal=DynamoDBJournal(calls, place),
        routing_items=DynamoDBRoutingItems(calls, place),
        registry=RedisRegistry(connection, settings.table_name, telemetry),
        telemetry=telemetry,
        clock=system_clock(),
        thresholds=build_thresholds(settings),
        read_thresholds=build_read_thresholds(settings),
        stream_partitions=settings.stream_partitions,
        form=build_key_form(settings),
    )
