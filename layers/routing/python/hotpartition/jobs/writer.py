"""The write job: place an item by the route as known, count it, store it once.

    route (cache, Redis, or the last known) ──> choices ──> conditional put ──> acknowledged
                                                  │ counter; a crossing's report is sent beside the put

What the first choice refuses goes to the next one at once; when all refused, the write waits, takes the route again and
begins anew. A stale route is harmless (docs/architecture.md), so nothing here locks or checks versions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic

from hotpartition.core.backoff import Budget, Clock
from hotpartition.core.capacity import ITEM_LIMIT_BYTES, Item, write_units
from hotpartition.core.counter import WriteCounter
from hotpartition.core.keys import SEPARATOR
from hotpartition.core.merge import ItemT, choose_copy
from hotpartition.core.message_ids import message_time_ms
from hotpartition.core.metrics import MetricName
from hotpartition.core.refusals import RecentRefusals
from hotpartition.core.reports import Report
from hotpartition.core.route import MAX_SHARD_COUNT, Placement, Route, choose_placements
from hotpartition.errors import MessageTooLargeError, RetryLaterError, StoreUnavailableError, ThrottledError
from hotpartition.jobs.route_cache import RouteSource
from hotpartition.ports import MessageStore, ReportSink, Telemetry

PARTITION_KEY_NAME_BYTES = len("pk")
LONGEST_SUFFIX_BYTES = len(SEPARATOR) + len(str(MAX_SHARD_COUNT - 1))
_STORED_AT = (None, MetricName.STORED_AT_SECOND_CHOICE, MetricName.STORED_AT_THIRD_CHOICE)


@dataclass(slots=True)
class _Write:
    """One write under way: where it may go, and where it has not been refused yet."""

    collection: str
    message_id: str
    item: Item
    may_be_stored: bool
    """Whether an earlier attempt may have stored it, at any of its choices."""
    placements: tuple[Placement, ...] = ()
    untried: list[Placement] = field(default_factory=list)
    attempts: int = 0

    def place(self, route: Route, refusals: RecentRefusals, now_ms: int) -> None:
        """Begin anew with all choices under a route; those that refused a moment ago come last."""
        self.placements = choose_placements(route, self.collection, self.message_id)
        self.untried = refusals.order(self.placements, now_ms)


class Writer(Generic[ItemT]):
    """Writes items. One per execution environment; serves one request at a time."""

    def __init__(
        self,
        *,
        store: MessageStore[ItemT],
        routes: RouteSource,
        counter: WriteCounter,
        reports: ReportSink,
        telemetry: Telemetry,
        clock: Clock,
        budget_ms: float,
    ) -> None:
        self._store = store
        self._routes = routes
        self._counter = counter
        self._reports = reports
        self._telemetry = telemetry
        self._clock = clock
        self._budget_ms = budget_ms
        self._refusals = RecentRefusals()

    def write(
        self,
        collection: str,
        message_id: str,
        item: Item,
        *,
        size_bytes: int,
        may_be_stored: bool,
        remaining_ms: float = float("inf"),
    ) -> ItemT | None:
        """Store an item, or find what is stored in its place already.

        Args:
            collection: its base key. REQUIRES: a valid one.
            message_id: its id. REQUIRES: in canonical form.
            item: all its attributes but the partition key.
            size_bytes: what DynamoDB counts for the item as it is given.
            may_be_stored: False when the caller has just made the id. Otherwise the item is looked for at its other
                choices before it is put anywhere but at its first one.
            remaining_ms: time the function has left; the budget never passes it.

        Returns:
            None when it was stored by this call; else what is stored under this id, left as it is.

        Raises:
            MessageTooLargeError: the item would pass DynamoDB's limit.
            RetryLaterError: DynamoDB refused for the whole budget; `message_id` is the id to repeat with.
        """
        now_ms = self._clock.now_ms()
        # Reports are sent beside the requests, so what was dropped is known, and counted, a request later.
        if dropped := self._reports.take_dropped():
            self._telemetry.count(MetricName.REPORTS_DROPPED, dropped)
        base_bytes = size_bytes + PARTITION_KEY_NAME_BYTES + len(collection)
        # With the longest suffix, so that a retry across a raise cannot become too large.
        if base_bytes + LONGEST_SUFFIX_BYTES > ITEM_LIMIT_BYTES:
            raise MessageTooLargeError(base_bytes + LONGEST_SUFFIX_BYTES, ITEM_LIMIT_BYTES)
        budget = Budget(self._clock, min(self._budget_ms, remaining_ms))
        write = _Write(collection, message_id, item, may_be_stored)
        write.place(self._routes.get_route(collection, now_ms), self._refusals, now_ms)
        report = self._count(collection, message_id, base_bytes, write.placements[0], now_ms)
        while True:
            try:
                return self._try_choices(write)
            except RetryLaterError as error:
                is_refused_everywhere = not write.untried
                if is_refused_everywhere:
                    report = self._report_throttle(report)
                if not budget.wait():
                    error.message_id = message_id
                    raise
                if is_refused_everywhere:
                    # The collection may have been raised meanwhile: this very item may have a better place now.
                    route = self._routes.refresh_after_throttle(collection, self._clock.now_ms())
                    write.place(route, self._refusals, self._clock.now_ms())

    def _try_choices(self, write: _Write) -> ItemT | None:
        """Put the item where it was not refused yet, one choice after another without waiting.

        Raises:
            RetryLaterError: all refused (`untried` is empty then); or it is to be tried at the same place again.
        """
        while True:
            placement = write.untried[0]
            try:
                if write.may_be_stored and placement != write.placements[0]:
                    found = self._find(write)
                    if found is not None:
                        return found
                return self._put(write, placement)
            except ThrottledError as error:
                self._telemetry.count(MetricName.WRITES_THROTTLED)
                if not error.is_key_range:
                    raise
                self._refusals.add(placement.partition_key, self._clock.now_ms())
                del write.untried[0]
                if not write.untried:
                    raise
            except StoreUnavailableError:
                # Nobody knows whether it was stored: a repetition here finds out, another place would not.
                write.may_be_stored = True
                raise

    def _find(self, write: _Write) -> ItemT | None:
        """Look for the item at all its choices, once before the first put that is not at the first of them.

        Raises:
            StoreUnavailableError: it could not be looked for.
        """
        try:
            copies, _ = self._store.get([p.partition_key for p in write.placements], write.message_id, is_strong=True)
        except ThrottledError as error:  # which is no refusal of the put
            raise StoreUnavailableError("the other choices could not be looked at") from error
        write.may_be_stored = False
        return choose_copy(copies) if copies else None

    def _put(self, write: _Write, placement: Placement) -> ItemT | None:
        if write.attempts:
            self._telemetry.count(MetricName.PUTS_REPEATED)
        write.attempts += 1
        existing = self._store.put({"pk": {"S": placement.partition_key}, **write.item})
        metric = _STORED_AT[write.placements.index(placement)]
        if metric and existing is None:
            self._telemetry.count(metric)
        return existing

    def _count(
        self, collection: str, message_id: str, base_bytes: int, placement: Placement, now_ms: int
    ) -> Report | None:
        """Count the write as offered; report it, beside the put, if it crosses a sampling point."""
        suffix_bytes = len(placement.partition_key) - len(collection)
        wcu = write_units(base_bytes + suffix_bytes)
        crossing = self._counter.record(collection, wcu, now_ms)
        if crossing is None:
            return None
        report = Report(
            collection=collection,
            slot=crossing.slot,
            source=crossing.source,
            value_wcu=crossing.value_wcu,
            position=message_time_ms(message_id),
            shard_count=placement.shard_count,
        )
        self._reports.send(report)
        return report

    def _report_throttle(self, report: Report | None) -> Report | None:
        """Count a write that all choices refused; where a report was sent, say so in it."""
        self._telemetry.count(MetricName.WRITES_REFUSED_EVERYWHERE)
        if report is None or report.is_throttled:
            return report
        throttled = report._replace(is_throttled=True)
        self._reports.send(throttled)
        return throttled
