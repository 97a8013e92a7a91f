"""The operations job: what an operator asks of the running stack, and the raise that an operator may make.

Nothing here is on a request's path. A raise by hand goes the way of all raises, the journal first and the registry
second: repeated, interrupted or done by two people at once, it does no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from hotpartition.control.ends import ControlEnds
from hotpartition.control.reconcile import RETRY_BUDGET_MS, RouteState, compare
from hotpartition.control.streams import StreamReader, Unread
from hotpartition.core.backoff import try_for
from hotpartition.core.detector import SUSTAINED_SECONDS, ReportWindow
from hotpartition.core.heat import NO_HEAT, NO_READ_HEAT, Heat, ReadHeat, measure_heat, measure_read_heat
from hotpartition.core.keys import MAX_SHARD_COUNT
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import RoutingItem
from hotpartition.core.read_heat import ReadWindow
from hotpartition.core.reports import stream_partition_of
from hotpartition.core.route import EMPTY_ROUTE, Generation, Route
from hotpartition.core.route_history import BY_HAND, Cause
from hotpartition.core.shares import Share, list_shares
from hotpartition.core.timestamps import format_time
from hotpartition.errors import (
    InvalidCollectionError,
    InvalidRequestError,
    Problem,
    RegistryUnavailableError,
)

MIN_SHARD_COUNT = 2
"""One shard would serve no more than the base key does."""

SINCE_AGO_MS = 5_000
"""How far before now a raise by hand begins unless told: messages whose ids clients minted a moment ago are with it."""
MAX_SINCE_AHEAD_MS = 24 * 3_600_000
"""A generation is for ever, so a `since` that is far ahead is taken for a mistake."""
LONG_AGO_MS = 24 * 3_600_000
"""How far back a raise by hand reaches before it is warned of: older pages get dearer to read."""

HEAT_LATENESS_MS = 1_500
"""How much longer than the slots that count the streams are read back: reports come late, and clocks differ."""
MAX_HEAT_READS = 8
"""Reads of one stream for one look at the heat, of 5,000 reports each: seconds of work, if all streams are so full."""

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class RouteRow:
    """A route in a list. `wcu_per_second` None: not measured; `newest_since_ms` None: never raised.

    `shard_count` is the N of messages sent now; `throttled_share` is a share of the load, not of the requests.
    `rcu_per_second` and `pages_per_second` are what is asked for, cached or not, None as for writes. `page_copies` is
    in how many copies the newest page is kept, 0 unless it is read-hot; None: Redis was not asked, or did not respond.
    """

    collection: str
    wcu_per_second: float | None
    throttled_share: float | None
    shard_count: int
    capacity_wcu_per_second: float
    newest_since_ms: int | None
    is_malformed: bool = False
    rcu_per_second: float | None = None
    pages_per_second: float | None = None
    page_copies: int | None = None


@dataclass(frozen=True, slots=True)
class HotList:
    """The hottest collections, and then the routes raised last.

    `active` counts all collections that reported, None where no stream could be read; `is_complete` is False when one
    could not be read to its end, `streams_unavailable` counts those of `streams` that Redis gave nothing of.
    `consumers_started_ms` is when the latest stream consumer of each share began its run; None: nobody knows.
    """

    rows: tuple[RouteRow, ...]
    active: int | None
    is_complete: bool
    streams: int
    streams_unavailable: int
    consumers_started_ms: tuple[int | None, ...]
    at_ms: int

    @property
    def consumer_started_ms(self) -> int | None:
        """The oldest of these starts, since one missing consumer is one too many; None: nobody knows of one."""
        known = [start for start in self.consumers_started_ms if start is not None]
        return min(known) if len(known) == len(self.consumers_started_ms) else None


@dataclass(frozen=True, slots=True)
class RoutePage:
    """Some routes of the journal, in no particular order."""

    rows: tuple[RouteRow, ...]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class RaiseByHand:
    """What a raise by hand did. `shard_count_before` is the N of the messages from `generation.since_ms` on."""

    collection: str
    generation: Generation
    is_changed: bool
    shard_count_before: int
    route: Route
    is_in_registry: bool
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationsLimits:
    """What the other functions are set to, as far as an operator is told of it."""

    stream_partitions: int
    consumers: int
    hot_sustained_wcu: float
    hot_sustained_rcu: float
    max_shard_count: int
    route_cache_seconds: float
    has_positions: bool = True
    """Whether positions are times; else a raise by hand holds for all items."""


class _Load(NamedTuple):
    """What is offered to one collection."""

    writes: Heat = NO_HEAT
    reads: ReadHeat = NO_READ_HEAT


class _Known(NamedTuple):
    """What is known of a route, None where it cannot be read; and of the copies of the newest page, None if nothing."""

    route: Route | None
    copies: int | None = None


class Operations:
    """Serves operators."""

    def __init__(self, ends: ControlEnds, limits: OperationsLimits) -> None:
        self._ends = ends
        self._form = ends.form
        self._source = ends.source
        self._journal = ends.journal
        self._routing_items = ends.routing_items
        self._registry = ends.registry
        self._telemetry = ends.telemetry
        self._clock = ends.clock
        self._limits = limits
        self._raiser = ends.build_raiser()

    def list_hot(self, limit: int) -> HotList:
        """List the collections that are written or read now, hottest first, and fill up with the routes raised last.

        Raises:
            RetryLaterError: the journal could not be read.
        """
        now_ms = self._clock.now_ms()
        reports, unread = self._read_reports(now_ms)
        loads = self._measure(reports, now_ms)
        hottest = sorted(loads, key=lambda c: (-self._rank(loads[c]), c))[:limit]
        rows = [self._row(c, self._find_route(c), loads[c], now_ms) for c in hottest]
        if len(rows) < limit:
            listed = set(hottest)
            newest = self._try(lambda: self._routing_items.newest(limit))
            idle = [
                self._row(i.collection, _Known(i.route), self._load_without_reports(i.collection, unread), now_ms)
                for i in newest
            ]
            rows += [row for row in idle if row.collection not in listed][: limit - len(rows)]
        streams, unavailable = self._limits.stream_partitions, len(unread.unavailable)
        active = None if unavailable == streams else len(loads)
        is_complete = not unread.streams
        return HotList(tuple(rows), active, is_complete, streams, unavailable, self._find_consumers(), now_ms)

    def list_routes(self, cursor: str | None, limit: int) -> RoutePage:
        """List some routes of the journal, without their heat.

        Raises:
            InvalidRequestError: the cursor is none of ours.
            RetryLaterError: the journal could not be read.
        """
        now_ms = self._clock.now_ms()
        items, following = self._try(lambda: self._routing_items.page(cursor, limit))
        return RoutePage(tuple(self._row(i.collection, _Known(i.route), None, now_ms) for i in items), following)

    def show_route(self, collection: str) -> RouteState:
        """Compare one collection's route in both places, and say who or what made it.

        Raises:
            InvalidRequestError: the collection is malformed.
            RetryLaterError: the journal could not be read.
        """
        self._form.check(collection)
        try:
            # Before the journal: what the registry knows later would look as if it were ahead.
            registry: Route | None = self._registry.get(collection)
        except RegistryUnavailableError:
            registry = None
        item = self._read(collection)
        return RouteState(collection, item, registry, compare(item, registry), self._clock.now_ms())

    def raise_by_hand(
        self, collection: str, shard_count: int, *, since_ms: int | None = None, by: str | None = None
    ) -> RaiseByHand:
        """Spread a collection's messages from an instant on over so many shards; if it has as many, change nothing.

        Raises:
            InvalidRequestError: naming every wrong field.
            MalformedGenerationError: the stored route cannot be read.
            RetryLaterError: the journal refused for seconds; whatever became of it, repeating it is safe.
        """
        now_ms = self._clock.now_ms()
        if since_ms is None:
            since_ms = now_ms - SINCE_AGO_MS if self._limits.has_positions else 0
        self._check_raise(collection, shard_count, since_ms, now_ms)
        generation = Generation(since_ms=since_ms, shard_count=shard_count)
        route = self._raiser.persist(lambda: self._journal.get(collection, is_strong=True)).route
        before = route.shard_count_at(since_ms)
        is_changed = shard_count > before
        if is_changed:
            raised = self._raiser.raise_route(collection, (generation,), cause=Cause(BY_HAND, by=by))
            route, is_in_registry = raised.entry.route, raised.is_in_registry
            self._telemetry.count(MetricName.RAISES)
        else:
            is_in_registry = self._raiser.publish(collection, route)
        self._telemetry.event(
            "raise by hand",
            collection=collection,
            generation=generation.encode(),
            changed=is_changed,
            shard_count_before=before,
            by=by,
            in_registry=is_in_registry,
        )
        warnings = self._raise_warnings(route, generation, now_ms, is_changed=is_changed, is_in_registry=is_in_registry)
        return RaiseByHand(collection, generation, is_changed, before, route, is_in_registry, warnings)

    def _measure(self, reports: StreamReader, now_ms: int) -> dict[str, _Load]:
        """Measure what is offered to each collection to which anything is."""
        loads: dict[str, _Load] = {}
        for collection, written in reports.writes.items():
            if (heat := measure_heat(written, now_ms)).wcu_per_second:
                loads[collection] = _Load(heat)
        for collection, read in reports.reads.items():
            if (read_heat := measure_read_heat(read, now_ms)).rcu_per_second:
                loads[collection] = _Load(loads.get(collection, _Load()).writes, read_heat)
        return loads

    def _rank(self, load: _Load) -> float:
        """Compare loads of both kinds: each as a share of what makes a collection hot."""
        limits = self._limits
        writes, reads = load.writes.wcu_per_second, load.reads.rcu_per_second
        return max(writes / limits.hot_sustained_wcu, reads / limits.hot_sustained_rcu)

    def _load_without_reports(self, collection: str, unread: Unread) -> _Load | None:
        """Return no load for a collection without reports if its stream was read; None where that is not known."""
        stream = stream_partition_of(collection, self._limits.stream_partitions)
        return None if stream in unread.streams else _Load()

    def _read_reports(self, now_ms: int) -> tuple[StreamReader, Unread]:
        """Read what the fleet reported of late; a stream that is away is left out."""
        count = self._limits.stream_partitions
        reader = StreamReader(
            self._ends,
            streams=range(count),
            stream_count=count,
            since_ms=now_ms - SUSTAINED_SECONDS * 1000 - HEAT_LATENESS_MS,
            writes=ReportWindow(),
            reads=ReadWindow(),
            most_reads=MAX_HEAT_READS,
        )
        return reader, reader.read()

    def _find_consumers(self) -> tuple[int | None, ...]:
        return tuple(self._find_consumer(share) for share in list_shares(self._limits.consumers))

    def _find_consumer(self, share: Share) -> int | None:
        try:
            return self._source.latest_start_ms(share)
        except RegistryUnavailableError:
            return None

    def _find_route(self, collection: str) -> _Known:
        """Ask the registry, and the journal while it is away."""
        try:
            return _Known(*self._registry.get_for_reading(collection))
        except RegistryUnavailableError:
            item = self._read(collection)
            return _Known(EMPTY_ROUTE if item is None else item.route)

    def _row(self, collection: str, found: _Known, load: _Load | None, now_ms: int) -> RouteRow:
        known = found.route or EMPTY_ROUTE
        shard_count = known.shard_count_at(now_ms)
        return RouteRow(
            collection,
            load.writes.wcu_per_second if load else None,
            load.writes.throttled_share if load else None,
            shard_count,
            self._limits.hot_sustained_wcu * max(shard_count, 1),
            max((g.since_ms for g in known.generations), default=None),
            is_malformed=found.route is None,
            rcu_per_second=load.reads.rcu_per_second if load else None,
            pages_per_second=load.reads.pages_per_second if load else None,
            page_copies=found.copies,
        )

    def _raise_warnings(
        self, route: Route, generation: Generation, now_ms: int, *, is_changed: bool, is_in_registry: bool
    ) -> tuple[str, ...]:
        warnings = []
        n, since = generation.shard_count, format_time(generation.since_ms)
        if is_changed:
            warnings.append(
                f"Each read of items from {since} on now queries {route.shard_count_at(generation.since_ms)} shard"
                " keys beside the base key, for ever: N never goes down."
            )
            warnings.append(
                f"Writers use the new shards within {self._limits.route_cache_seconds:g} s: so long a route is cached."
            )
        if n > self._limits.max_shard_count:
            warnings.append(
                f"{n} is more than detection itself ever decides (max_shard_count is {self._limits.max_shard_count}):"
                " it will not raise this collection any further."
            )
        if is_changed and self._limits.has_positions and generation.since_ms < now_ms - LONG_AGO_MS:
            warnings.append(
                f"Pages as old as {since} get dearer to read as well, though their items stay where they are."
            )
        if is_changed and generation.since_ms > now_ms:
            warnings.append(
                f"Items from before {since} go where they went so far; the newest pages get dearer at once."
            )
        if not is_in_registry:
            warnings.append(
                "Redis did not respond, so writers do not learn of it yet: the journal has it; run"
                " `hotpartition verify --mend` once Redis responds."
            )
        return tuple(warnings)

    def _read(self, collection: str) -> RoutingItem | None:
        return self._try(lambda: self._routing_items.read(collection))

    def _try(self, call: Callable[[], ResultT]) -> ResultT:
        return try_for(self._clock, RETRY_BUDGET_MS, call)

    def _check_raise(self, collection: str, shard_count: int, since_ms: int, now_ms: int) -> None:
        """Check what a raise by hand is to do.

        Raises:
            InvalidRequestError: naming every wrong field.
        """
        problems: list[Problem] = []
        try:
            self._form.check(collection)
        except InvalidCollectionError as error:
            problems += error.problems
        if not MIN_SHARD_COUNT <= shard_count <= MAX_SHARD_COUNT:
            problems.append(Problem("shard_count", f"should be from {MIN_SHARD_COUNT} to {MAX_SHARD_COUNT}"))
        if not 0 <= since_ms <= now_ms + MAX_SINCE_AHEAD_MS:
            problems.append(Problem("since", "should be after 1970 and at most a day ahead"))
        if problems:
            raise InvalidRequestError(problems)
