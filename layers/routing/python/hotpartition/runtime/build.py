"""The one place that builds an engine: what reads and writes the items of a table.

There are three ways to find hot keys, and one builder for each kind of routes. A consumer finds them (`build_engine` on
ends with a registry); writers find them in band (`build_engine` on ends without); nothing does, since the code sets the
routes (`build_fixed_engine`). What a way does not need is not imported: a cold start pays for each module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from hotpartition.core.backoff import Clock
from hotpartition.core.closes import TIMES, CloseTimes
from hotpartition.core.keys import KeyForm
from hotpartition.core.ports import (
    Background,
    Journal,
    JournalReading,
    LoadItems,
    PageStore,
    Registry,
    ReportSink,
    Telemetry,
)
from hotpartition.core.route import MAX_CHOICES
from hotpartition.core.sampler import LoadSampler
from hotpartition.core.times import SECOND_MS, StoreClock
from hotpartition.engine.gatherer import Gatherer
from hotpartition.engine.load_counting import ReportedPages, ReportedWrites, WriteCounting
from hotpartition.engine.route_cache import Routes
from hotpartition.runtime.settings import ADAPTIVE, IN_BAND_READ, READ, Settings

if TYPE_CHECKING:
    from hotpartition.core.detector import Thresholds
    from hotpartition.engine.in_band import InBandCounting
    from hotpartition.engine.in_band_cooling import InBandCooling
    from hotpartition.engine.leases import Leases
    from hotpartition.engine.read_cache import Codec, ReadCache
    from hotpartition.engine.writer import Writer


@dataclass(frozen=True, slots=True)
class Parts:
    """Other classes than the product's own, for a run in the simulator that observes a cache, or is scaled down."""

    read_cache: type[ReadCache[Any]] | None = None
    counting: type[InBandCounting] | None = None
    """Of writers that find hot keys in band."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """The adapters of an engine, beside the store of its items. Made on the first request.

    Without a registry there are neither reports nor cached pages, and writers find hot keys by the load items.
    """

    telemetry: Telemetry
    clock: Clock
    journal: Journal | JournalReading | None = None
    """None: nothing is written."""
    registry: Registry | None = None
    repairs: Registry | None = None
    """Takes the repairs of the registry; None: the engine may not repair it."""
    reports: ReportSink | None = None
    page_store: PageStore | None = None
    """The fleet's cached pages; None: pages are not cached."""
    background: Background | None = None
    timer: Callable[[], float] = lambda: 0.0
    """A monotonic clock in seconds."""
    environment_id: str = ""
    """Unique in the fleet."""
    loads: LoadItems | None = None
    store_clock: StoreClock = field(default_factory=StoreClock)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What reads and writes the items of a table. Safe under threads if its stores are."""

    routes: Routes
    telemetry: Telemetry
    clock: Clock
    form: KeyForm
    choices: int
    budget_ms: float
    gatherer: Callable[..., Gatherer[Any, Any]]
    """Builds what reads pages and locates items over a `store`; `Gatherer` says what else it takes."""
    counting: ReportedPages | None = None
    """Counts pages; None: nothing is read-hot."""
    make_cache: Callable[[Codec[Any]], ReadCache[Any]] | None = None
    """Builds the fleet's cache, given how its values are written; None: there is none."""
    page_store: PageStore | None = None
    """The fleet's cached values, in Redis."""
    written_by: Writer | None = None

    @property
    def writer(self) -> Writer:
        """Places new items, and counts all writes."""
        if self.written_by is None:
            raise TypeError("this engine was built for a function that only reads")
        return self.written_by

    def count_read(self, collection: str, units: float) -> None:
        """Count what was read of a key as its heat, from a cache or not, where that is known."""
        if self.counting is not None and units:
            self.counting.count(collection, units)


def build_engine(
    ends: Ends,
    settings: Settings,
    *,
    form: KeyForm,
    choices: int = MAX_CHOICES,
    budget_ms: float | None = None,
    closing: bool = True,
    times: CloseTimes = TIMES,
    parts: Parts | None = None,
) -> Engine:
    """Build the engine of a function, or of a table.

    Args:
        ends: its adapters; with a registry, a consumer finds hot keys.
        settings: those of a function that reads, writes, or both.
        form: how partition keys look.
        choices: how many shards may take one item.
        budget_ms: how long a call goes on trying; None: as the settings say.
        closing: whether positions are times of the present, so that routes may be closed.
        times: those of closes; how long a lease is comes from the settings.
        parts: classes in place of the product's own.
    """
    parts, is_writing = parts or Parts(), settings.function not in READ | IN_BAND_READ
    leases = _build_leases(ends, settings, times) if closing and is_writing else None
    if ends.registry is not None:
        routes, counting = _find_by_reports(ends, settings, leases)
    else:
        routes, counting = _find_in_band(ends, settings, parts, leases, times if closing else None)
    budget_ms = settings.request_budget_ms if budget_ms is None else budget_ms
    limits = {"form": form, "choices": choices, "budget_ms": budget_ms}
    engine = _build(ends, routes, limits)
    if is_writing:
        engine = replace(engine, written_by=_build_writer(engine, counting, leases))
    if ends.reports is not None and settings.function in READ | ADAPTIVE:
        read_counting, make_cache = _build_pages(ends, settings, parts)
        page_store = ends.page_store if make_cache else None
        engine = replace(engine, counting=read_counting, make_cache=make_cache, page_store=page_store)
    return engine


def build_fixed_engine(
    routes: Routes, *, telemetry: Telemetry, clock: Clock, form: KeyForm, choices: int, budget_ms: float
) -> Engine:
    """Build the engine of a table whose routes the code sets: nothing is counted, and nothing is closed."""
    limits = {"form": form, "choices": choices, "budget_ms": budget_ms}
    engine = _build(Ends(telemetry=telemetry, clock=clock), routes, limits, has_journal=False)
    return replace(engine, written_by=_build_writer(engine, WriteCounting(), None))


def _build(ends: Ends, routes: Routes, limits: Mapping[str, Any], **reading: Any) -> Engine:
    """Build an engine that reads."""
    shared: dict[str, Any] = {"routes": routes, "telemetry": ends.telemetry, "clock": ends.clock, **limits}
    return Engine(gatherer=partial(Gatherer, **shared, **reading), **shared)


def _build_writer(engine: Engine, counting: WriteCounting, leases: Leases | None) -> Writer:
    from hotpartition.engine.writer import Writer  # noqa: PLC0415 - see this module's docstring

    return Writer(
        routes=engine.routes,
        counting=counting,
        telemetry=engine.telemetry,
        clock=engine.clock,
        budget_ms=engine.budget_ms,
        form=engine.form,
        choices=engine.choices,
        leases=leases,
    )


def build_close_times(settings: Settings, times: CloseTimes) -> CloseTimes:
    """Take the length of leases from the settings."""
    return replace(times, lease_ms=round(settings.lease_seconds * SECOND_MS))


def find_close_times(settings: Settings, times: CloseTimes = TIMES) -> CloseTimes | None:
    """Say by which times keys are closed; None: not at all, since that is switched off or writers have no leases."""
    return build_close_times(settings, times) if settings.is_closing and settings.lease_seconds else None


def build_thresholds(settings: Settings, *, is_sustained: bool = True) -> Thresholds:
    """Take the decision's numbers from the settings; unless `is_sustained`, the load of a second is the only limit."""
    from hotpartition.core.detector import Thresholds  # noqa: PLC0415 - see this module's docstring

    return Thresholds(
        hot_at_once_wcu=settings.hot_at_once_wcu,
        hot_sustained_wcu=settings.hot_sustained_wcu if is_sustained else settings.hot_at_once_wcu,
        target_shard_wcu=settings.target_shard_wcu,
        max_shard_count=settings.max_shard_count,
    )


def _find_by_reports(ends: Ends, settings: Settings, leases: Leases | None) -> tuple[Routes, WriteCounting]:
    """Build the routes in Redis, and the reports by which a consumer finds hot keys."""
    from hotpartition.engine.registry_routes import RegistryRoutes  # noqa: PLC0415 - see this module's docstring

    routes = RegistryRoutes(
        registry=cast("Registry", ends.registry),
        journal=leases or ends.journal,
        telemetry=ends.telemetry,
        now_ms=ends.clock.now_ms,
        random=ends.clock.random,
        ttl_seconds=settings.route_cache_seconds,
        # A writer's user in Redis may not ask for the read-hot mark.
        asks_copies=settings.function in READ | ADAPTIVE,
        repairs=ends.repairs,
        background=ends.background,
    )
    if ends.reports is None or settings.function in READ:
        return routes, WriteCounting()
    sampler = _build_sampler(ends, settings.sampling_distance_wcu)
    return routes, ReportedWrites(sampler=sampler, reports=ends.reports, telemetry=ends.telemetry)


def _build_sampler(ends: Ends, distance: float) -> LoadSampler:
    return LoadSampler(environment_id=ends.environment_id, sampling_distance=distance, random=ends.clock.random)


def _find_in_band(
    ends: Ends, settings: Settings, parts: Parts, leases: Leases | None, times: CloseTimes | None
) -> tuple[Routes, WriteCounting]:
    """Build the routes in the journal, and what finds and raises hot keys in band."""
    from hotpartition.engine.journal_routes import JournalRoutes  # noqa: PLC0415 - see this module's docstring

    journal, loads, clock, telemetry = cast("Journal", ends.journal), ends.loads, ends.clock, ends.telemetry
    routes = JournalRoutes(journal=journal, telemetry=telemetry, now_ms=clock.now_ms, random=clock.random)
    if loads is None:
        return routes, WriteCounting()
    from hotpartition.engine.in_band import InBandCounting  # noqa: PLC0415 - as above
    from hotpartition.engine.raising import Raiser  # noqa: PLC0415 - as above

    cooling = None if times is None else _build_cooling(ends, loads, settings, find_close_times(settings, times))
    if leases is not None and cooling is not None:
        leases.on_renewed = cooling.renewed
    store_time = replace(clock, now_ms=lambda: ends.store_clock.at(clock.now_ms()))
    return routes, (parts.counting or InBandCounting)(
        routes=routes,
        journal=journal,
        loads=loads,
        raiser=Raiser(journal=journal, registry=None, telemetry=telemetry, clock=store_time),
        store_clock=ends.store_clock,
        telemetry=telemetry,
        clock=clock,
        thresholds=build_thresholds(settings, is_sustained=False),
        is_raising=settings.is_raising,
        cooling=cooling,
    )


def _build_cooling(ends: Ends, loads: LoadItems, settings: Settings, times: CloseTimes | None) -> InBandCooling | None:
    """Build the part that closes cooled keys in band; None: nothing is closed."""
    if times is None:
        return None
    from hotpartition.engine.closing import Closer  # noqa: PLC0415 - see this module's docstring
    from hotpartition.engine.in_band import RAISE_BUDGET_MS  # noqa: PLC0415 - as above
    from hotpartition.engine.in_band_cooling import InBandCooling  # noqa: PLC0415 - as above
    from hotpartition.engine.raising import Raiser  # noqa: PLC0415 - as above

    journal, telemetry = cast("Journal", ends.journal), ends.telemetry
    raiser = Raiser(journal=journal, registry=None, telemetry=telemetry, clock=ends.clock, budget_ms=RAISE_BUDGET_MS)
    return InBandCooling(
        loads=loads,
        closer=Closer(journal=journal, raiser=raiser, telemetry=telemetry, times=times),
        store_clock=ends.store_clock,
        telemetry=telemetry,
        clock=ends.clock,
        key_wcu=settings.hot_at_once_wcu,
        close_after_ms=round(settings.close_after_seconds * 1000),
    )


def _build_leases(ends: Ends, settings: Settings, times: CloseTimes) -> Leases | None:
    """Build the leases of a process's writers; None where the settings say that nothing is closed."""
    from hotpartition.engine.leases import Leases  # noqa: PLC0415 - see this module's docstring

    times = build_close_times(settings, times)
    if not times.lease_ms:
        return None
    return Leases(
        journal=cast("JournalReading", ends.journal),
        telemetry=ends.telemetry,
        times=times,
        now_ms=ends.clock.now_ms,
    )


def _build_pages(
    ends: Ends, settings: Settings, parts: Parts
) -> tuple[ReportedPages, Callable[[Codec[Any]], ReadCache[Any]] | None]:
    """Build what counts pages, and what builds the cache of the newest ones."""
    from hotpartition.core.freshness import CacheLimits  # noqa: PLC0415 - see this module's docstring
    from hotpartition.engine.read_cache import ReadCache  # noqa: PLC0415 - as above

    counting = ReportedPages(
        sampler=_build_sampler(ends, settings.read_sampling_distance_rcu),
        reports=cast("ReportSink", ends.reports),
        telemetry=ends.telemetry,
        now_ms=ends.clock.now_ms,
    )
    store = ends.page_store
    if store is None or not settings.page_cache:
        return counting, None
    limits = CacheLimits(ttl_ms=settings.page_ttl_seconds * 1000, bound_ms=settings.page_staleness_seconds * 1000)

    def make_cache(codec: Codec[Any]) -> ReadCache[Any]:
        return (parts.read_cache or ReadCache)(
            store=store,
            codec=codec,
            limits=limits,
            telemetry=ends.telemetry,
            clock=ends.clock,
            timer=ends.timer,
            environment_id=ends.environment_id,
        )

    return counting, make_cache
