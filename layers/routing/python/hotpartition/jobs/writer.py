"""The write job: place an item by the route as known, count it, store it once.

    route (cache, Redis, or the last known) ──> placement ──> conditional put ──> acknowledged
                                                  │ counter; a crossing's report is sent beside the put

A stale route is harmless (design.md, section 5), so nothing here locks or checks versions.
"""

from __future__ import annotations

from typing import Generic

from hotpartition.core.backoff import Budget, Clock
from hotpartition.core.capacity import ITEM_LIMIT_BYTES, Item, write_units
from hotpartition.core.counter import WriteCounter
from hotpartition.core.keys import SEPARATOR
from hotpartition.core.merge import ItemT
from hotpartition.core.message_ids import message_time_ms
from hotpartition.core.metrics import MetricName
from hotpartition.core.reports import Report
from hotpartition.core.route import MAX_SHARD_COUNT, Placement, choose_placement
from hotpartition.errors import MessageTooLargeError, RetryLaterError, ThrottledError
from hotpartition.jobs.route_cache import RouteSource
from hotpartition.ports import MessageStore, ReportSink, Telemetry

PARTITION_KEY_NAME_BYTES = len("pk")
LONGEST_SUFFIX_BYTES = len(SEPARATOR) + len(str(MAX_SHARD_COUNT - 1))


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

    def write(
        self,
        conversation_id: str,
        message_id: str,
        item: Item,
        *,
        size_bytes: int,
        remaining_ms: float = float("inf"),
    ) -> ItemT | None:
        """Store an item, or find what is stored in its place already.

        Args:
            conversation_id: its base key. REQUIRES: a valid one.
            message_id: its id. REQUIRES: in canonical form.
            item: all its attributes but the partition key.
            size_bytes: what DynamoDB counts for the item as it is given.
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
        base_bytes = size_bytes + PARTITION_KEY_NAME_BYTES + len(conversation_id)
        # With the longest suffix, so that a retry across a raise cannot become too large.
        if base_bytes + LONGEST_SUFFIX_BYTES > ITEM_LIMIT_BYTES:
            raise MessageTooLargeError(base_bytes + LONGEST_SUFFIX_BYTES, ITEM_LIMIT_BYTES)
        budget = Budget(self._clock, min(self._budget_ms, remaining_ms))
        route = self._routes.get_route(conversation_id, now_ms)
        placement = choose_placement(route, conversation_id, message_id)
        report = self._count(conversation_id, message_id, base_bytes, placement, now_ms)
        while True:
            try:
                return self._store.put({"pk": {"S": placement.partition_key}, **item})
            except RetryLaterError as error:
                if isinstance(error, ThrottledError):
                    report = self._report_throttle(report, error)
                if not budget.wait():
                    error.message_id = message_id
                    raise
                if isinstance(error, ThrottledError) and error.is_key_range:
                    # The conversation may have been raised meanwhile: this very item may have a better place now.
                    route = self._routes.refresh_after_throttle(conversation_id, self._clock.now_ms())
                    placement = choose_placement(route, conversation_id, message_id)

    def _count(
        self, conversation_id: str, message_id: str, base_bytes: int, placement: Placement, now_ms: int
    ) -> Report | None:
        """Count the write as offered; report it, beside the put, if it crosses a sampling point."""
        suffix_bytes = len(placement.partition_key) - len(conversation_id)
        wcu = write_units(base_bytes + suffix_bytes)
        crossing = self._counter.record(conversation_id, wcu, now_ms)
        if crossing is None:
            return None
        report = Report(
            conversation_id=conversation_id,
            slot=crossing.slot,
            source=crossing.source,
            value_wcu=crossing.value_wcu,
            message_time_ms=message_time_ms(message_id),
            shard_count=placement.shard_count,
        )
        self._reports.send(report)
        return report

    def _report_throttle(self, report: Report | None, error: ThrottledError) -> Report | None:
        """Count a throttle; where a report was sent, say in it that its write was throttled."""
        self._telemetry.count(MetricName.WRITES_THROTTLED)
        if report is None or report.is_throttled or not error.is_key_range:
            return report
        throttled = report._replace(is_throttled=True)
        self._reports.send(throttled)
        return throttled
