"""Builds an engine that finds hot keys in band: without Redis, and without anything that runs beside requests."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from hotpartition.core.backoff import Clock
from hotpartition.core.closes import TIMES, CloseTimes
from hotpartition.core.keys import KeyForm
from hotpartition.core.ports import Journal, LoadItems, Telemetry
from hotpartition.core.route import MAX_CHOICES
from hotpartition.core.store_clock import StoreClock
from hotpartition.dynamodb.calls import DynamoDBCalls
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.load_items import DynamoDBLoadItems
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.engine.closing import Closer
from hotpartition.engine.in_band import RAISE_BUDGET_MS, InBandCounting
from hotpartition.engine.in_band_cooling import InBandCooling
from hotpartition.engine.journal_routes import JournalRoutes
from hotpartition.engine.raising import Raiser
from hotpartition.engine.route_cache import MAX_ROUTES
from hotpartition.engine.writer import Writer
from hotpartition.runtime.building_leases import build_leases, find_close_times
from hotpartition.runtime.settings import Settings
from hotpartition.runtime.thresholds import build_thresholds


class InBandEnds(NamedTuple):
    """The adapters of such an engine, beside the store of its items."""

    journal: Journal
    loads: LoadItems
    store_clock: StoreClock
    telemetry: Telemetry
    clock: Clock


def open_in_band(calls: DynamoDBCalls, place: JournalPlace, telemetry: Telemetry, clock: Clock) -> InBandEnds:
    """Build the ends over a client of DynamoDB."""
    store_clock = StoreClock()
    loads = DynamoDBLoadItems(calls, place, store_clock, clock.now_ms)
    return InBandEnds(DynamoDBJournal(calls, place), loads, store_clock, telemetry, clock)


def build_in_band_routes(ends: InBandEnds) -> JournalRoutes:
    """Build the source of routes."""
    return JournalRoutes(
        journal=ends.journal, telemetry=ends.telemetry, random=ends.clock.random, max_entries=MAX_ROUTES
    )


def build_in_band_writer(
    ends: InBandEnds,
    routes: JournalRoutes,
    settings: Settings,
    *,
    form: KeyForm,
    budget_ms: float | None = None,
    choices: int = MAX_CHOICES,
    counting: type[InBandCounting] = InBandCounting,
    closing: bool = True,
    times: CloseTimes = TIMES,
) -> Writer:
    """Build a writer that raises hot keys; a test finds them sooner, or breaks the protocol, by `counting`.

    `budget_ms`, `closing` and `times` are as `build_writer` takes them.
    """
    clock, leases, cooling = ends.clock, None, None
    if closing:
        cooling = _build_cooling(ends, settings, times)
        leases = build_leases(
            settings,
            journal=ends.journal,
            telemetry=ends.telemetry,
            now_ms=clock.now_ms,
            times=times,
        )
    if leases is not None and cooling is not None:
        leases.on_renewed = cooling.renewed
    store_time = replace(clock, now_ms=lambda: ends.store_clock.at(clock.now_ms()))
    counts = counting(
        routes=routes,
        journal=ends.journal,
        loads=ends.loads,
        raiser=Raiser(journal=ends.journal, registry=None, telemetry=ends.telemetry, clock=store_time),
        store_clock=ends.store_clock,
        telemetry=ends.telemetry,
        clock=clock,
        thresholds=build_thresholds(settings, is_sustained=False),
        is_raising=settings.is_raising,
        cooling=cooling,
    )
    return Writer(
        routes=routes,
        counting=counts,
        telemetry=ends.telemetry,
        clock=clock,
        budget_ms=settings.request_budget_ms if budget_ms is None else budget_ms,
        form=form,
        choices=choices,
        leases=leases,
    )


def _build_cooling(ends: InBandEnds, settings: Settings, times: CloseTimes) -> InBandCooling | None:
    """Build the part that closes cooled keys; None: nothing is closed."""
    close_times = find_close_times(settings, times)
    if close_times is None:
        return None
    raiser = Raiser(
        journal=ends.journal, registry=None, telemetry=ends.telemetry, clock=ends.clock, budget_ms=RAISE_BUDGET_MS
    )
    return InBandCooling(
        loads=ends.loads,
        closer=Closer(journal=ends.journal, raiser=raiser, telemetry=ends.telemetry, times=close_times),
        store_clock=ends.store_clock,
        telemetry=ends.telemetry,
        clock=ends.clock,
        key_wcu=settings.hot_at_once_wcu,
        close_after_ms=round(settings.close_after_seconds * 1000),
    )
