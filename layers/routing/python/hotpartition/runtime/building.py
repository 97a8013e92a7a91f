"""The one place that builds an engine: from its adapters (`Ends`) and from settings.

Functions, tables that adapt, the simulator and tests call it, each with ends of its own. What only some of them import
is in `building_pages.py` and `building_control.py`: a cold start pays for each module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hotpartition.core.backoff import Clock
from hotpartition.core.closes import TIMES, CloseTimes
from hotpartition.core.items import KeyT
from hotpartition.core.keys import KeyForm
from hotpartition.core.merge import ItemT, PositionOf
from hotpartition.core.ports import Background, ItemStore, JournalReading, PageStore, Registry, ReportSink, Telemetry
from hotpartition.core.route import MAX_CHOICES
from hotpartition.core.sampler import LoadSampler
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.engine.gatherer import Gatherer
from hotpartition.engine.read_counting import ReadCounting
from hotpartition.engine.read_repair import ReadRepair
from hotpartition.engine.route_cache import MAX_ROUTES, RouteCache, Routes, RouteSource
from hotpartition.engine.write_counting import ReportedWrites
from hotpartition.engine.writer import Writer
from hotpartition.runtime.building_leases import build_leases
from hotpartition.runtime.settings import Settings


@dataclass(frozen=True, slots=True)
class Parts:
    """The classes that an engine is built from; a test breaks the protocol on purpose by replacing one."""

    routes: type[RouteSource] = RouteSource
    writer: type[Writer] = Writer
    gatherer: type[Gatherer[Any, Any]] = Gatherer


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """The adapters of an engine, beside the store of its items."""

    registry: Registry
    repairs: Registry | None
    """Takes the repairs of the registry; None: the engine may not repair it."""
    reports: ReportSink
    background: Background
    telemetry: Telemetry
    clock: Clock
    timer: Callable[[], float]
    """A monotonic clock in seconds."""
    page_store: PageStore | None = None
    """The fleet's cached pages; None: pages are not cached."""
    environment_id: str
    """Unique in the fleet. Made on the first request: SnapStart clones earlier values."""
    parts: Parts = Parts()


def build_routes(ends: Ends, settings: Settings, journal: JournalReading | None = None) -> RouteSource:
    """Build the source of routes; with a journal, as writers need it, only of those that the journal confirmed."""
    cache = RouteCache(
        ttl_seconds=settings.route_cache_seconds,
        max_entries=MAX_ROUTES,
        random=ends.clock.random,
    )
    return ends.parts.routes(
        cache=cache, registry=ends.registry, telemetry=ends.telemetry, timer=ends.timer, journal=journal
    )


def build_writer(
    ends: Ends,
    settings: Settings,
    *,
    journal: JournalReading,
    form: KeyForm,
    choices: int = MAX_CHOICES,
    budget_ms: float | None = None,
    sampler: type[LoadSampler] = LoadSampler,
    closing: bool = True,
    times: CloseTimes = TIMES,
) -> Writer:
    """Build a writer; `budget_ms` is taken from the settings unless it is given.

    `closing`: whether positions are times of the present, so that routes may be closed, by these `times`.
    """
    leases = None
    if closing:
        leases = build_leases(
            settings,
            journal=journal,
            telemetry=ends.telemetry,
            now_ms=ends.clock.now_ms,
            times=times,
        )
    return ends.parts.writer(
        routes=build_routes(ends, settings, leases or journal),
        counting=ReportedWrites(
            sampler=sampler(
                environment_id=ends.environment_id,
                sampling_distance_wcu=settings.sampling_distance_wcu,
                random=ends.clock.random,
            ),
            reports=ends.reports,
            telemetry=ends.telemetry,
        ),
        telemetry=ends.telemetry,
        clock=ends.clock,
        budget_ms=settings.request_budget_ms if budget_ms is None else budget_ms,
        form=form,
        choices=choices,
        leases=leases,
    )


def build_gatherer(
    ends: Ends,
    settings: Settings,
    routes: Routes,
    *,
    store: ItemStore[KeyT, ItemT],
    form: KeyForm,
    position_of: PositionOf[KeyT],
    counting: ReadCounting | None = None,
) -> Gatherer[KeyT, ItemT]:
    """Build the gatherer, which reads pages and locates items."""
    return ends.parts.gatherer(
        store=store,
        routes=ReadRepair(
            registry=ends.repairs,
            routes=routes,
            background=ends.background,
            telemetry=ends.telemetry,
            now_ms=ends.clock.now_ms,
        ),
        telemetry=ends.telemetry,
        clock=ends.clock,
        budget_ms=settings.request_budget_ms,
        form=form,
        position_of=position_of,
        counting=counting,
    )


def build_key_form(settings: Settings) -> KeyForm:
    """Build the form of a table's partition keys; in commands a collection is called `conversation_id`."""
    return KeyForm(settings.key_separator, label="conversation_id")


def build_journal_place(settings: Settings, partition_key: str, sort_key: str, *, index_name: str = "") -> JournalPlace:
    """Build the place of a table's routing items, given the names of its own keys.

    `index_name` is the index that lists them where they lie in their collections.
    """
    if settings.journal_table_name:
        return JournalPlace(settings.journal_table_name, settings.journal_partition_key_name, sort_key="")
    return JournalPlace(settings.table_name, partition_key, sort_key, settings.journal_sort_key, index_name)


def find_journal(settings: Settings) -> JournalPlace:
    """Build the place of the routing items of the table that the settings describe."""
    names = settings.partition_key_name, settings.sort_key_name
    return build_journal_place(settings, *names, index_name=settings.routing_index_name)
