"""Closes cooled collections: the consumer's part that finds raised collections with low load.

A collection is warm while its mean load of five seconds is half of what makes it hot, or more. A warm one has a mark in
Redis that ends after `close_after_seconds` without renewal; a raised one without a mark is closed.

A missing mark means "cool" only while the marks are complete. Where they may not be, all collections are spared for one
TTL of the marks: when this consumer stood still for half a TTL, by its monotonic clock, which is looked at again
directly before each close; and when the closing cursor is gone, since Redis was emptied or no consumer was there
before. While a stream cannot be read, nothing is closed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from hotpartition.control.ends import ControlEnds
from hotpartition.control.streams import StreamReader
from hotpartition.core.closes import CloseTimes
from hotpartition.core.errors import (
    InvalidRequestError,
    MalformedGenerationError,
    RegistryForeignError,
    RegistryUnavailableError,
    RetryLaterError,
)
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import report_unreadable
from hotpartition.core.route_history import Cause
from hotpartition.engine.closing import COOLED

MARK_MS = 5_000
"""How often warm keys are marked: each mean of five seconds is seen about once. Four times in each TTL at least."""
FIRST_CHECK_MS = 10_000
"""How long after its start a consumer first looks for cooled collections: its own marks are there, too."""
CHECK_MS = 60_000
"""How often it looks. All three are shorter where `close_after_seconds` is."""
STOOD_STILL_SHARE = 0.5
"""Share of the marks' TTL without a round of marks after which some may have ended, although the load has not."""
CHECKED_ITEMS = 200
"""Routing items looked at each minute; the next minute goes on behind them."""
MAX_CLOSES = 30
"""Collections closed each minute at most, however many have cooled: half a unit of the journal's a second or so."""
EVERYTHING = ""
"""Marked warm in place of every collection, after Redis has lost marks."""
BEGINNING = "-"
"""Cursor of the first routing item. Without a cursor, no consumer has looked yet."""


@dataclass(frozen=True, slots=True)
class CoolingLimits:
    """When a collection is warm, in WCU/s, and for how long after that it is not closed."""

    warm_wcu: float
    close_after_ms: int
    times: CloseTimes


class Cooler:
    """Marks warm collections and closes cold ones. One per run of a consumer; all its state can be lost."""

    def __init__(self, ends: ControlEnds, limits: CoolingLimits) -> None:
        self._ends = ends
        self._closer = ends.build_closer(limits.times)
        self._limits = limits
        self._mark_seconds = min(MARK_MS, limits.close_after_ms // 4) / 1000
        self._still_seconds = limits.close_after_ms * STOOD_STILL_SHARE / 1000
        # by the monotonic clock: when the last complete round of marks began
        self._marked_at = self._ends.elapsed() - self._mark_seconds
        self._next_check_ms = self._ends.clock.now_ms() + min(FIRST_CHECK_MS, limits.close_after_ms)
        self._cooled: deque[str] = deque()

    def work(self, reader: StreamReader) -> str | None:
        """Do the work that is due, in each pass of the consumer: marks, a check, one close.

        Return the collection that a close was tried of: its route may have changed.
        """
        now_ms = self._ends.clock.now_ms()
        try:
            if self._stood_still():
                self._spare_all()
            if self._ends.elapsed() - self._marked_at >= self._mark_seconds:
                self._mark(reader)
            if now_ms >= self._next_check_ms:
                self._next_check_ms = now_ms + min(CHECK_MS, self._limits.close_after_ms)
                if now_ms - reader.read_at_ms < MARK_MS:
                    self._check()
            if self._cooled and self._close(cooled := self._cooled.popleft()):
                return cooled
        except RegistryUnavailableError:
            self._ends.telemetry.count(MetricName.REGISTRY_UNAVAILABLE)
        return None

    def _stood_still(self) -> bool:
        """Say whether marks may have ended because nothing renewed them."""
        return self._ends.elapsed() - self._marked_at >= self._still_seconds

    def _spare_all(self) -> None:
        """Close nothing for as long as marks last: some may be missing."""
        self._cooled.clear()
        self._ends.registry.mark_warm(EVERYTHING, self._limits.close_after_ms)

    def _mark(self, reader: StreamReader) -> None:
        began_at = self._ends.elapsed()
        for collection in reader.writes.list_above(self._limits.warm_wcu, reader.read_at_ms_of):
            self._ends.registry.mark_warm(collection, self._limits.close_after_ms)
        self._marked_at = began_at

    def _check(self) -> None:
        """Look at the next routing items, and remember those of raised collections that have no mark."""
        cursor = self._ends.registry.closing_cursor()
        if cursor is None:
            self._spare_all()
            self._ends.registry.keep_closing_cursor(BEGINNING)
        if self._ends.registry.is_warm(EVERYTHING):
            return
        try:
            place = None if cursor in {None, BEGINNING} else cursor
            items, following = self._ends.routing_items.page(place, CHECKED_ITEMS)
        except InvalidRequestError:  # whatever lay in Redis
            self._ends.registry.keep_closing_cursor(BEGINNING)
            return
        except RetryLaterError:
            return
        open_ = [item.collection for item in items if item.route and item.route.shard_count_at(None)]
        cooled = [each for each in open_ if not self._is_warm(each)]
        self._cooled.extend(cooled[:MAX_CLOSES])
        if len(cooled) <= MAX_CLOSES:
            self._ends.registry.keep_closing_cursor(following or BEGINNING)

    def _is_warm(self, collection: str) -> bool:
        try:
            return self._ends.registry.is_warm(collection)
        except RegistryForeignError:
            return True  # an operator has to remove the foreign value

    def _close(self, collection: str) -> bool:
        """Close a collection if it is still without a mark; say whether that was tried."""
        if self._is_warm(collection):
            return False
        try:
            # Collections raised since are not marked yet, and count as marked.
            grown_by_ms = self._ends.clock.now_ms() - self._limits.close_after_ms
            planned = self._closer.plan(collection, cause=Cause(COOLED), grown_by_ms=grown_by_ms)
            # Last of all, since it may have stood still in each of the calls before.
            if self._stood_still() or self._ends.registry.closing_cursor() is None:
                return False
            self._closer.confirm(self._closer.announce(planned))
        except RetryLaterError:
            self._ends.telemetry.event("close failed, to be decided again", collection=collection)
        except MalformedGenerationError as error:
            report_unreadable(self._ends.telemetry, collection, reason=str(error))
        return True
