"""Builds the operations job where there is no Redis."""

from __future__ import annotations

from collections.abc import Mapping

from hotpartition.control.ends import JournalEnds
from hotpartition.control.hot_keys import LoadItemHeat, RunAll
from hotpartition.control.operations import Operations, OperationsLimits
from hotpartition.control.reconcile import Reconciler
from hotpartition.core.backoff import Clock
from hotpartition.core.closes import TIMES, CloseTimes
from hotpartition.core.keys import KeyForm
from hotpartition.core.ports import Telemetry
from hotpartition.dynamodb.calls import DynamoDBCalls
from hotpartition.dynamodb.routing_items import DynamoDBRoutingItems
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.engine.journal_routes import REFRESH_SECONDS
from hotpartition.runtime.building import build_key_form, find_journal
from hotpartition.runtime.building_in_band import open_in_band
from hotpartition.runtime.building_leases import find_close_times
from hotpartition.runtime.clocks import system_clock
from hotpartition.runtime.settings import Settings


def open_jobs(environ: Mapping[str, str], telemetry: Telemetry) -> tuple[Operations, Reconciler]:
    """Build the jobs of the operations function."""
    # Imports libcurl, which the command line need not have.
    from hotpartition.runtime.calls import open_calls  # noqa: PLC0415

    settings = Settings.from_env(environ, "in-band operate")
    return open_in_band_operations(
        open_calls(settings),
        find_journal(settings),
        telemetry,
        system_clock(),
        settings,
        form=build_key_form(settings),
        has_positions=settings.has_positions,
    )


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
    times: CloseTimes = TIMES,
) -> tuple[Operations, Reconciler]:
    """Build the jobs over a client of DynamoDB.

    `has_positions`: whether positions are times; `run_all` is as `LoadItemHeat` takes it.
    """
    opened = open_in_band(calls, place, telemetry, clock)
    ends = JournalEnds(
        journal=opened.journal,
        routing_items=DynamoDBRoutingItems(calls, place),
        telemetry=telemetry,
        clock=clock,
        form=form,
    )
    hot_keys = LoadItemHeat(ends, opened.loads, opened.store_clock, key_wcu=settings.hot_at_once_wcu, run_all=run_all)
    limits = OperationsLimits(
        max_shard_count=settings.max_shard_count,
        route_cache_seconds=REFRESH_SECONDS,
        has_positions=has_positions,
        close_times=find_close_times(settings, times),
    )
    return Operations(ends, hot_keys, limits), Reconciler(ends)
