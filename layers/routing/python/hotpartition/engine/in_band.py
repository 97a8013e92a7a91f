"""Finds hot keys in band: by refusals of DynamoDB, and by the fleet's own load. Needs nothing beside the table.

    refused ──> alarm: mark the key for some seconds ──> samples of its load, added to its load item
                └ look it up in the journal                 └ the response has the fleet's load ──> hot? raise

An alarm is not evidence: it names a partition, not a key, and a neighbour may heat it. The evidence is the load on this
very key. A key whose writes were never refused is neither marked nor sampled nor looked up. Everything is done within
the requests that notice it: nothing runs beside them.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from threading import Lock
from typing import Any

from hotpartition.core.backoff import Clock
from hotpartition.core.detector import Decision, Thresholds
from hotpartition.core.errors import RetryLaterError, ThrottledError
from hotpartition.core.fleet_load import LOAD_PLACES, SAMPLE_WCU, Cell, FleetLoad, decide_in_band, list_stale, widen
from hotpartition.core.items import ItemKey
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import JournalReading, LoadItems, Telemetry
from hotpartition.core.reports import Report
from hotpartition.core.route_history import Cause
from hotpartition.core.sampler import slot_of
from hotpartition.core.times import StoreClock
from hotpartition.engine.in_band_cooling import InBandCooling
from hotpartition.engine.journal_routes import JournalRoutes
from hotpartition.engine.load_counting import Offer, WriteCounting
from hotpartition.engine.raising import Raiser
from hotpartition.engine.route_cache import keep_newest

MARKED_MS = 10_000
"""How long a key stays marked after the last refusal."""
FIRST_MS = 1_500
FIRST_SAMPLE_WCU = 10.0
"""WCU between two samples of writes to the base key in the first seconds of a mark, which decide; later
`SAMPLE_WCU` or more, to find out whether they decided for too few shards."""
MAX_MARKS = 1_000
RAISE_PAUSE_MS = 1_000
"""Least time between two raises of one key, by any process: DynamoDB checks it."""
RAISE_BUDGET_MS = 200
"""How long a raise is tried, within the write that decided it: others try as well. The routing item may share the
partition that is hot."""
STUCK_MS = 5_000
STUCK_REFUSALS = 20
"""How long, and how often, a base key refuses each write of a process before that is evidence: its writers wait, and
never offer as much as would make it hot. Where a neighbour has a third of its writes refused, that never happens."""
SILENT_MS = 60_000
"""How long a process leaves a key alone that it cannot count, for instance since a right is missing."""

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Mark:
    """A key under suspicion."""

    since_ms: int
    until_ms: int
    distance_wcu: float
    left_wcu: float
    """Until the next sample."""
    stale: Sequence[Cell] = ()
    """The WCU that the next sample removes from the load item."""
    place: int = 0
    """Which load item it goes to."""
    rests_until_ms: int = 0
    """Until when this process raises it no more: it has tried a moment ago."""
    is_silent_until_ms: int = 0
    refusals: int = 0
    """By the base key, since a write was served last."""
    refused_since_ms: int = 0


@dataclass(eq=False, repr=False, kw_only=True)
class InBandCounting(WriteCounting):
    """`WriteCounting` of marked keys, which raises hot ones. Safe under threads."""

    first_sample_wcu = FIRST_SAMPLE_WCU
    sample_wcu = SAMPLE_WCU

    routes: JournalRoutes
    journal: JournalReading
    loads: LoadItems
    raiser: Raiser
    store_clock: StoreClock
    telemetry: Telemetry
    clock: Clock
    thresholds: Thresholds
    is_raising: bool = True
    """False: hot keys are found, and not raised."""
    cooling: InBandCooling | None = None
    """Closes cooled keys; None: nothing is closed."""
    _marks: OrderedDict[str, _Mark] = field(default_factory=OrderedDict, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def offered(self, offer: Offer, now_ms: int) -> Report | None:
        """Implement `WriteCounting.offered`: nothing is done for a key that is neither raised nor marked."""
        key, wcu, shard_count = offer
        if shard_count and self.cooling is not None:
            self.cooling.count(key, wcu, now_ms)
        if not self._marks:
            return None
        sample = self._sample(key.collection, wcu, shard_count, now_ms)
        if sample is None:
            return None
        cell = Cell(slot_of(self.store_clock.at(now_ms)), shard_count, False)
        self._add(key, cell, sample)
        return Report(key.collection, cell.slot, "", sample, key.position, shard_count)

    def refused(self, offer: Offer, now_ms: int, report: Report | None, error: RetryLaterError) -> Report | None:
        """Implement `WriteCounting.refused`: mark the key, and count the write if it was not counted before."""
        if not isinstance(error, ThrottledError) or not error.may_be_key_range:
            return report
        key, _, shard_count = offer
        if self._mark(key.collection, now_ms):
            report = self.offered(offer, now_ms)
        if not error.is_key_range:
            return report
        if not shard_count:
            self._note_refusal(offer, now_ms)
            return report
        if report is None or report.is_throttled:
            return report
        # Two huge items are not evidence: no throttled sample stands for more than others do.
        wcu = min(report.value, widen(SAMPLE_WCU, shard_count))
        self._add(key, Cell(slot_of(self.store_clock.at(now_ms)), shard_count, True), wcu)
        return report._replace(is_throttled=True)

    def served(self, collection: str) -> None:
        """Implement `WriteCounting.served`."""
        if self._marks and (mark := self._marks.get(collection)) is not None:
            mark.refusals = 0

    def _note_refusal(self, offer: Offer, now_ms: int) -> None:
        """Count a refusal by the base key; where it refuses everything, raise the key by that alone."""
        with self._lock:
            mark = self._marks.get(offer.key.collection)
            if mark is None:
                return
            if not mark.refusals:
                mark.refused_since_ms = now_ms
            mark.refusals += 1
            if mark.refusals < STUCK_REFUSALS or now_ms - mark.refused_since_ms < STUCK_MS:
                return
            mark.refusals = 0
        cell = Cell(slot_of(self.store_clock.at(now_ms)), 0, True)
        self._add(offer.key, cell, min(offer.wcu, SAMPLE_WCU), is_stuck=True)

    def alarm(self, collection: str, now_ms: int) -> None:
        """Implement `WriteCounting.alarm`: BatchWriteItem gives no reason, so unprocessed items are not evidence."""
        self._mark(collection, now_ms)

    def _mark(self, collection: str, now_ms: int) -> bool:
        """Mark a key, or keep it marked; say whether it was not."""
        with self._lock:
            mark = self._marks.get(collection)
            if mark is not None and now_ms < mark.until_ms:
                mark.until_ms = now_ms + MARKED_MS
                self._marks.move_to_end(collection)
                return False
            distance = self.first_sample_wcu
            left_wcu = self.clock.random() * distance
            keep_newest(self._marks, collection, _Mark(now_ms, now_ms + MARKED_MS, distance, left_wcu), MAX_MARKS)
            return True

    def _sample(self, collection: str, wcu: float, shard_count: int, now_ms: int) -> float | None:
        """Count a write of a marked key: systematic samples with a random start, as `LoadSampler` takes them."""
        with self._lock:
            mark = self._marks.get(collection)
            if mark is None:
                return None
            if now_ms >= mark.until_ms:
                del self._marks[collection]
                return None
            is_deciding = not shard_count and now_ms - mark.since_ms < FIRST_MS
            distance = self.first_sample_wcu if is_deciding else widen(self.sample_wcu, shard_count)
            # So that each WCU has the same chance: the rest is uniform between 0 and the distance.
            mark.left_wcu *= distance / mark.distance_wcu
            mark.distance_wcu = distance
            mark.left_wcu -= wcu
            if mark.left_wcu >= 0:
                return None
            points = ceil(-mark.left_wcu / distance)
            mark.left_wcu += points * distance
            return points * distance

    def _add(self, key: ItemKey[Any], cell: Cell, wcu: float, *, is_stuck: bool = False) -> None:
        """Add a sample to the fleet's load, and act on the new sum; no failure reaches the write."""
        mark = self._marks.get(key.collection)
        if mark is None or self.clock.now_ms() < mark.is_silent_until_ms:
            return
        try:
            self._add_and_act(key, mark, cell, wcu, is_stuck=is_stuck)
        except RetryLaterError:
            self.telemetry.count(MetricName.REPORTS_DROPPED)
        except Exception as error:  # noqa: BLE001 - whatever it is, the item is stored all the same
            self.telemetry.count(MetricName.REPORTS_DROPPED)
            mark.is_silent_until_ms = self.clock.now_ms() + SILENT_MS
            facts = {"collection": key.collection, "reason": str(error)}
            _logger.warning("hot keys cannot be found in band: %s: %s", key.collection, error, extra=facts)

    def _add_and_act(self, key: ItemKey[Any], mark: _Mark, cell: Cell, wcu: float, *, is_stuck: bool) -> None:
        load = self._add_somewhere(key.collection, mark, cell, wcu)
        now_ms = self.store_clock.at(self.clock.now_ms())
        mark.stale = list_stale(load, now_ms)
        if now_ms >= mark.rests_until_ms and self._act(key, load, now_ms, is_stuck=is_stuck):
            mark.rests_until_ms = now_ms + RAISE_PAUSE_MS

    def _add_somewhere(self, collection: str, mark: _Mark, cell: Cell, wcu: float) -> FleetLoad:
        """Add a sample to the first load item that takes it, of those that this process was not refused by."""
        while True:
            place = mark.place
            try:
                return self.loads.add(collection, place, cell, wcu, stale=mark.stale)
            except ThrottledError:
                if place + 1 == LOAD_PLACES:
                    raise
                mark.place, mark.stale = place + 1, ()

    def _act(self, key: ItemKey[Any], load: FleetLoad, now_ms: int, *, is_stuck: bool) -> bool:
        """Raise the key if it is hot; say whether that was tried."""
        if not self.is_raising or self._decide(key, load, now_ms, is_stuck=is_stuck).generation is None:
            return False
        # The route that was decided by may be older than another process's raise, or its time may not be known.
        entry = self.journal.get(key.collection, is_strong=True)
        self.routes.learn(key.collection, entry)
        decision = self._decide(key, load, now_ms, is_stuck=is_stuck)
        if decision.generation is not None:
            self._raise(key.collection, decision)
        return True

    def _decide(self, key: ItemKey[Any], load: FleetLoad, now_ms: int, *, is_stuck: bool) -> Decision:
        return decide_in_band(
            key.collection,
            load,
            self.routes.for_read(key.collection).route,
            self.thresholds,
            position=key.position,
            now_ms=now_ms,
            raised_at_ms=self.routes.raised_at_ms(key.collection),
            is_stuck=is_stuck,
        )

    def _raise(self, collection: str, decision: Decision) -> None:
        assert decision.generation is not None  # noqa: S101  what decided for none does not raise
        raised = self.raiser.raise_route(
            collection,
            [decision.generation],
            cause=Cause(str(decision.reason), round(decision.rate_wcu_per_second)),
            deadline_ms=self.store_clock.at(self.clock.now_ms()) + RAISE_BUDGET_MS,
            pause_ms=RAISE_PAUSE_MS,
        )
        self.routes.learn(collection, raised.entry)
        if raised.is_made:
            self.telemetry.count(MetricName.RAISES)
            self.telemetry.event(
                "raised",
                collection=collection,
                reason=str(decision.reason),
                generation=decision.generation.encode(),
                rate_wcu_per_second=round(decision.rate_wcu_per_second),
                throttled_wcu=round(decision.throttled_wcu),
            )
