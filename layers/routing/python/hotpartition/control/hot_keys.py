"""Which keys are hot now, by the fleet's reports (`ReportedHeat`) or its load items (`LoadItemHeat`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import NamedTuple

from hotpartition.control.ends import ControlEnds, JournalEnds
from hotpartition.control.streams import StreamReader, Unread
from hotpartition.core.errors import RegistryUnavailableError
from hotpartition.core.fleet_load import KEPT_SLOTS, FleetLoad
from hotpartition.core.ports import LoadItems, RoutingItem
from hotpartition.core.reports import stream_partition_of
from hotpartition.core.route import EMPTY_ROUTE
from hotpartition.core.sampler import slot_of
from hotpartition.core.times import StoreClock
from hotpartition.core.window import (
    SLOTS_PER_SECOND,
    SUSTAINED_SECONDS,
    SUSTAINED_SLOTS,
    CollectionReports,
    ReportWindow,
    last_whole_slot,
)

HEAT_LATENESS_MS = 1_500
"""How much longer than the slots that count the streams are read back: reports come late, and clocks differ."""
MAX_HEAT_READS = 8
"""Reads of one stream for one look at the heat, of 5,000 reports each: seconds of work, if all streams are so full."""

LEAST_LOOKED_AT = 100
"""Load items that are read for one look at the heat, at least: of the keys that were raised last."""


class Load(NamedTuple):
    """The load that is offered to a collection: writes, and which share of them is throttled; and reads."""

    wcu_per_second: float = 0.0
    throttled_share: float = 0.0
    rcu_per_second: float = 0.0


NO_LOAD = Load()


def measure_writes(reports: CollectionReports, now_ms: int) -> Load:
    """Measure the mean load of the last five seconds' whole slots, throttled writes included, once each."""
    last = last_whole_slot(now_ms)
    shares = [share for slot, share in reports.shares(last - SUSTAINED_SLOTS + 1) if slot <= last]
    wcu = sum(share.units for share in shares)
    if not wcu:
        return NO_LOAD
    throttled = sum(share.refused_units for share in shares)
    return Load(wcu / SUSTAINED_SECONDS, throttled / wcu)


def measure_load(load: FleetLoad, now_ms: int) -> Load | None:
    """Measure the mean load of the last four seconds' whole slots, as a load item has it; None where it has none.

    `now_ms` is of DynamoDB's clock. A load item counts from the first refusal on: one that is younger shows too little.
    """
    now = slot_of(now_ms)
    recent = {cell: wcu for cell, wcu in load.items() if now - KEPT_SLOTS <= cell.slot < now}
    wcu = sum(wcu for cell, wcu in recent.items() if not cell.is_throttled)
    if not wcu:
        return None
    throttled = sum(wcu for cell, wcu in recent.items() if cell.is_throttled)
    return Load(wcu * SLOTS_PER_SECOND / KEPT_SLOTS, min(1.0, throttled / wcu))


@dataclass(frozen=True, slots=True)
class RouteRow:
    """A route in a list. `wcu_per_second` None: not measured; `newest_since_ms` None: never raised.

    `shard_count` is the N of messages sent now; `throttled_share` is a share of the load, not of the requests.
    `rcu_per_second` is the requested load, cached or not, None as for writes.
    `closed_at_ms` is where the era began that its latest confirmed close began; None: it was never closed.
    `raised_at_ms` is when it was raised last, by the journal; None: that is not recorded, or was not looked up.
    """

    collection: str
    wcu_per_second: float | None
    throttled_share: float | None
    shard_count: int
    capacity_wcu_per_second: float
    newest_since_ms: int | None
    is_malformed: bool = False
    rcu_per_second: float | None = None
    closed_at_ms: int | None = None
    raised_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class HotList:
    """The hottest collections, and then the routes raised last.

    `active` counts all collections that reported, None where no stream could be read; `is_complete` is False when one
    could not be read to its end, `streams_unavailable` counts those of `streams` that Redis gave nothing of.
    In band there are neither streams nor consumers, `active` counts the raised keys with a load, and `is_complete` is
    False where not all raised keys were looked at.
    `consumer_started_at_ms` is when the latest stream consumer began its run; None: unknown.
    """

    rows: tuple[RouteRow, ...]
    active: int | None
    is_complete: bool
    streams: int
    streams_unavailable: int
    consumer_started_at_ms: int | None
    at_ms: int


def build_row(item: RoutingItem, load: Load | None, now_ms: int, *, key_wcu: float) -> RouteRow:
    """Build a collection's row, by its routing item; `load` None: not measured."""
    known = item.route or EMPTY_ROUTE
    shard_count = known.shard_count_at(now_ms)
    return RouteRow(
        item.collection,
        load.wcu_per_second if load else None,
        load.throttled_share if load else None,
        shard_count,
        key_wcu * max(shard_count, 1),
        max((g.since_ms for g in known.generations), default=None),
        is_malformed=item.route is None,
        rcu_per_second=load.rcu_per_second if load else None,
        closed_at_ms=max((close.at_ms for close in known.closes if close.is_confirmed), default=None),
        raised_at_ms=max((record.decided_at_ms for record in item.raises), default=None),
    )


@dataclass(frozen=True, slots=True)
class ReportedHeat:
    """Lists the hot keys by the report streams, as the settings of the other functions judge them."""

    ends: ControlEnds
    _: KW_ONLY
    key_wcu: float
    """Load of one key that is hot, in WCU/s."""
    hot_at_once_rcu: float
    stream_partitions: int

    def list_hot(self, limit: int) -> HotList:
        """List the collections that are written or read now, hottest first, and fill up with the routes raised last.

        Raises:
            RetryLaterError: the journal could not be read.
        """
        now_ms = self.ends.clock.now_ms()
        reports, unread = self._read_reports(now_ms)
        loads = self._measure(reports, now_ms)
        hottest = sorted(loads, key=lambda c: (-self._rank(loads[c]), c))[:limit]
        newest = {i.collection: i for i in self.ends.retry(lambda: self.ends.routing_items.newest(limit))}
        shown: list[tuple[RoutingItem, Load | None]] = [(self._find_route(c, newest), loads[c]) for c in hottest]
        idle = [c for c in newest if c not in loads][: limit - len(shown)]
        shown += [(newest[c], self._load_without_reports(c, unread)) for c in idle]
        rows = [build_row(item, load, now_ms, key_wcu=self.key_wcu) for item, load in shown]
        streams, unavailable = self.stream_partitions, len(unread.unavailable)
        active = None if unavailable == streams else len(loads)
        is_complete = not unread.streams
        return HotList(tuple(rows), active, is_complete, streams, unavailable, self._find_consumer(), now_ms)

    def _measure(self, reports: StreamReader, now_ms: int) -> dict[str, Load]:
        """Measure the offered load of each collection that has any."""
        loads: dict[str, Load] = {}
        for collection, written in reports.writes.as_mapping().items():
            if (load := measure_writes(written, now_ms)).wcu_per_second:
                loads[collection] = load
        for collection, read in reports.reads.as_mapping().items():
            # What pages take, or would take uncached: the mean of the last five seconds' whole slots.
            if rcu_per_second := read.mean(last_whole_slot(now_ms)):
                loads[collection] = loads.get(collection, NO_LOAD)._replace(rcu_per_second=rcu_per_second)
        return loads

    def _rank(self, load: Load) -> float:
        """Compare loads of both kinds: each as a share of the threshold."""
        return max(load.wcu_per_second / self.key_wcu, load.rcu_per_second / self.hot_at_once_rcu)

    def _load_without_reports(self, collection: str, unread: Unread) -> Load | None:
        """Return no load for a collection without reports if its stream was read; None where that is not known."""
        stream = stream_partition_of(collection, self.stream_partitions)
        return None if stream in unread.streams else NO_LOAD

    def _read_reports(self, now_ms: int) -> tuple[StreamReader, Unread]:
        """Read the fleet's recent reports; a stream that is away is left out."""
        reader = StreamReader(
            self.ends,
            streams=self.stream_partitions,
            since_ms=now_ms - SUSTAINED_SECONDS * 1000 - HEAT_LATENESS_MS,
            writes=ReportWindow(),
            reads=ReportWindow(),
            most_reads=MAX_HEAT_READS,
        )
        return reader, reader.read()

    def _find_consumer(self) -> int | None:
        try:
            return self.ends.source.latest_start_ms()
        except RegistryUnavailableError:
            return None

    def _find_route(self, collection: str, newest: Mapping[str, RoutingItem]) -> RoutingItem:
        """Ask the registry, and the journal while it is away; the routes that grew last say when."""
        nothing = RoutingItem(collection, EMPTY_ROUTE)
        try:
            return replace(newest.get(collection, nothing), route=self.ends.registry.get(collection))
        except RegistryUnavailableError:
            return self.ends.retry(lambda: self.ends.routing_items.read(collection)) or nothing


RunAll = Callable[[Callable[[RoutingItem], RouteRow], Iterable[RoutingItem]], Iterable[RouteRow]]


@dataclass(frozen=True, slots=True)
class LoadItemHeat:
    """Lists the hot keys by load items of raised ones, counted while DynamoDB refuses writes, and for seconds after.

    A key that was refused and not raised is not listed: load items cannot be listed.
    """

    ends: JournalEnds
    loads: LoadItems
    store_clock: StoreClock
    _: KW_ONLY
    key_wcu: float
    """Load of one key that is hot, in WCU/s."""
    run_all: RunAll = map
    """Looks at one key after the other, or at several at the same time."""

    def list_hot(self, limit: int) -> HotList:
        """List the raised keys with the most load, hottest first, then those without: as `ReportedHeat.list_hot`."""
        clock = self.ends.clock
        most = max(limit, LEAST_LOOKED_AT)
        newest = self.ends.retry(lambda: self.ends.routing_items.newest(most + 1))
        rows = list(self.run_all(self._look_at, newest[:most]))
        # Stable: the newest first among equals.
        rows.sort(key=lambda row: -(row.wcu_per_second or 0.0))
        active = sum(row.wcu_per_second is not None for row in rows)
        return HotList(tuple(rows[:limit]), active, len(newest) <= most, 0, 0, None, clock.now_ms())

    def _look_at(self, item: RoutingItem) -> RouteRow:
        load = self.ends.retry(partial(self.loads.get, item.collection))
        now_ms = self.store_clock.at(self.ends.clock.now_ms())
        row = build_row(item, measure_load(load, now_ms), now_ms, key_wcu=self.key_wcu)
        return replace(row, rcu_per_second=None)


HotKeys = ReportedHeat | LoadItemHeat
