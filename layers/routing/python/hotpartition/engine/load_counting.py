"""Counts load as it is offered, so that hot keys are found: writes, throttled or not, and pages, cached or not."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, NamedTuple

from hotpartition.core.errors import RetryLaterError, ThrottledError
from hotpartition.core.items import ItemKey
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import ReportSink, Telemetry
from hotpartition.core.reports import Report
from hotpartition.core.sampler import Crossing, LoadSampler


class Offer(NamedTuple):
    """A write as it is counted: its item, its cost in units, and the N that it is placed under (0: the base key)."""

    key: ItemKey[Any]
    wcu: float
    shard_count: int = 0


class WriteCounting:
    """Counts the writes to a table: not at all, where hot keys are not looked for.

    Fails open: a write that cannot be counted is stored all the same.
    """

    def offered(self, offer: Offer, now_ms: int) -> Report | None:
        """Count one write, before its first attempt; return its report, if it was sampled."""

    def refused(self, offer: Offer, now_ms: int, report: Report | None, error: RetryLaterError) -> Report | None:
        """Take in that all choices refused a write; given its report so far, return its report by now."""

    def served(self, collection: str) -> None:
        """Take in that DynamoDB served a write of a collection."""

    def alarm(self, collection: str, now_ms: int) -> None:
        """Take in that something of a collection was refused, be it for the limit of a key range or not."""


class _Reported:
    """Load by reports, which a consumer sums up. They are sent beside the requests. Safe under threads."""

    def __init__(self, *, sampler: LoadSampler, reports: ReportSink, telemetry: Telemetry) -> None:
        self._sampler = sampler
        self._reports = reports
        self._telemetry = telemetry
        self._lock = Lock()

    def _sample(self, collection: str, units: float, now_ms: int) -> Crossing | None:
        # Reports are sent beside the requests, so a dropped one is known, and counted, a request later.
        if dropped := self._reports.take_dropped():
            self._telemetry.count(MetricName.REPORTS_DROPPED, dropped)
        with self._lock:
            return self._sampler.record(collection, units, now_ms)


class ReportedPages(_Reported):
    """Counts pages: the RCU of each, cached or not.

    Which units a page takes is known once it was read, so that its report overlaps the rest of the request: an
    environment that is frozen before the report has left sends it with its next request. Such reports are late, or too
    late to count; an environment that serves many pages is not frozen for long.
    """

    def __init__(
        self, *, sampler: LoadSampler, reports: ReportSink, telemetry: Telemetry, now_ms: Callable[[], int]
    ) -> None:
        super().__init__(sampler=sampler, reports=reports, telemetry=telemetry)
        self._now_ms = now_ms

    def count(self, collection: str, rcu: float) -> None:
        """Count one page, whether a cache or DynamoDB served it."""
        if crossing := self._sample(collection, rcu, self._now_ms()):
            self._reports.send(Report(collection, *crossing, pages=crossing.value / rcu))


class ReportedWrites(_Reported, WriteCounting):
    """`WriteCounting` by reports: decisions follow the load, so neither refusals nor successes count by themselves."""

    def offered(self, offer: Offer, now_ms: int) -> Report | None:
        """Implement `WriteCounting.offered`."""
        crossing = self._sample(offer.key.collection, offer.wcu, now_ms)
        if crossing is None:
            return None
        report = Report(offer.key.collection, *crossing, offer.key.position, offer.shard_count)
        self._reports.send(report)
        return report

    def refused(self, offer: Offer, now_ms: int, report: Report | None, error: RetryLaterError) -> Report | None:
        """Implement `WriteCounting.refused`: where a report was sent, say so in it.

        Only if the limit was surely that of partitions: for the table's, no N is large enough.
        """
        del offer, now_ms
        is_key_range = isinstance(error, ThrottledError) and error.is_key_range
        if report is None or report.is_throttled or not is_key_range:
            return report
        throttled = report._replace(is_throttled=True)
        self._reports.send(throttled)
        return throttled
