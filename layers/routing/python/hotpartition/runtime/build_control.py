"""Builds the jobs beside requests, consumer and operations, with Redis or without.

They are imported where they are built: neither function needs the other's, and without Redis nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hotpartition.control.ends import ControlEnds, JournalEnds
from hotpartition.core.backoff import Clock
from hotpartition.core.closes import WARM_SHARE
from hotpartition.core.keys import KeyForm
from hotpartition.core.ports import Telemetry
from hotpartition.core.times import StoreClock
from hotpartition.dynamodb.calls import DynamoDBCalls
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.load_items import DynamoDBLoadItems
from hotpartition.dynamodb.routing_items import DynamoDBRoutingItems
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.runtime.build import build_thresholds, find_close_times
from hotpartition.runtime.clocks import ElapsedTime, system_clock
from hotpartition.runtime.connect import build_key_form, connect_redis, find_journal, open_calls
from hotpartition.runtime.settings import Settings, name_of

if TYPE_CHECKING:
    from hotpartition.control.consumer import Consumer
    from hotpartition.control.hot_keys import RunAll
    from hotpartition.control.operations import Operations
    from hotpartition.redis.cluster import RedisConnection


def open_consumer(settings: Settings, telemetry: Telemetry) -> Consumer:
    """Build the stream consumer's job."""
    ends = _open_ends(settings, telemetry, connect_redis(settings, telemetry, "detection", is_patient=True))
    return build_consumer(ends, settings)


def build_consumer(ends: ControlEnds, settings: Settings) -> Consumer:
    """Build a consumer on any ends."""
    from hotpartition.control.consumer import Consumer  # noqa: PLC0415 - see this module's docstring
    from hotpartition.control.cooling import CoolingLimits  # noqa: PLC0415 - as above

    close_times = find_close_times(settings)
    cooling = None
    if close_times is not None and settings.has_positions:
        close_after_ms = round(settings.close_after_seconds * 1000)
        cooling = CoolingLimits(settings.hot_sustained_wcu * WARM_SHARE, close_after_ms, close_times)
    return Consumer(
        ends,
        thresholds=build_thresholds(settings),
        hot_at_once_rcu=settings.hot_at_once_rcu,
        stream_partitions=settings.stream_partitions,
        max_raises_per_hour=settings.max_raises_per_hour if settings.is_raising else 0,
        cooling=cooling,
    )


def open_operations(environ: Mapping[str, str], telemetry: Telemetry) -> Operations:
    """Build the job of the operations function."""
    settings = Settings.from_env(environ, name_of("operate", environ))
    if settings.function == "operate":
        ends = _open_ends(settings, telemetry, connect_redis(settings, telemetry, "operations", is_patient=True))
        return build_operations(ends, settings)
    return open_in_band_operations(
        open_calls(settings),
        find_journal(settings),
        telemetry,
        system_clock(),
        settings,
        form=build_key_form(settings),
        has_positions=settings.has_positions,
    )


def build_operations(ends: ControlEnds, settings: Settings) -> Operations:
    """Build the operations job, on any ends."""
    from hotpartition.control.hot_keys import ReportedHeat  # noqa: PLC0415 - see this module's docstring
    from hotpartition.control.operations import Operations, OperationsLimits  # noqa: PLC0415 - as above

    hot_keys = ReportedHeat(
        ends,
        key_wcu=settings.hot_sustained_wcu,
        hot_at_once_rcu=settings.hot_at_once_rcu,
        stream_partitions=settings.stream_partitions,
    )
    limits = OperationsLimits(
        max_shard_count=settings.max_shard_count,
        route_cache_seconds=settings.route_cache_seconds,
        has_positions=settings.has_positions,
        close_times=find_close_times(settings),
    )
    return Operations(ends, hot_keys, limits)


def open_in_band_operations(
    calls: DynamoDBCalls,
    place: JournalPlace,
    telemetry: Telemetry,
    clock: Clock,
    settings: Settings,
    *,
    form: KeyForm,
    has_positions: bool = False,
    run_all: RunAll = map,
) -> Operations:
    """Build the job where there is no Redis, over a client of DynamoDB.

    `has_positions`: whether positions are times; `run_all` is as `LoadItemHeat` takes it.
    """
    from hotpartition.control.hot_keys import LoadItemHeat  # noqa: PLC0415 - see this module's docstring
    from hotpartition.control.operations import Operations, OperationsLimits  # noqa: PLC0415 - as above
    from hotpartition.engine.journal_routes import REFRESH_SECONDS  # noqa: PLC0415 - as above

    store_clock = StoreClock()
    loads = DynamoDBLoadItems(calls, place, store_clock, clock.now_ms)
    ends = JournalEnds(
        journal=DynamoDBJournal(calls, place),
        routing_items=DynamoDBRoutingItems(calls, place),
        telemetry=telemetry,
        clock=clock,
        form=form,
    )
    hot_keys = LoadItemHeat(ends, loads, store_clock, key_wcu=settings.hot_at_once_wcu, run_all=run_all)
    limits = OperationsLimits(
        max_shard_count=settings.max_shard_count,
        route_cache_seconds=REFRESH_SECONDS,
        has_positions=has_positions,
        close_times=find_close_times(settings),
    )
    return Operations(ends, hot_keys, limits)


def _open_ends(settings: Settings, telemetry: Telemetry, connection: RedisConnection) -> ControlEnds:
    from hotpartition.redis.registry import RedisRegistry  # noqa: PLC0415 - see this module's docstring
    from hotpartition.redis.report_streams import RedisReportSource  # noqa: PLC0415 - as above

    calls, place, name = open_calls(settings), find_journal(settings), settings.table_name
    return ControlEnds(
        source=RedisReportSource(connection, name, telemetry),
        journal=DynamoDBJournal(calls, place),
        routing_items=DynamoDBRoutingItems(calls, place),
        registry=RedisRegistry(connection, name, telemetry),
        telemetry=telemetry,
        clock=system_clock(),
        elapsed=ElapsedTime(),
        form=build_key_form(settings),
    )
