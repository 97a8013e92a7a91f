"""Counts the requested pages, so that the consumer finds collections that are read too much."""

from __future__ import annotations

from collections.abc import Callable

from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import ReportSink, Telemetry
from hotpartition.core.sampler import ReadSampler


class ReadCounting:
    """Counts pages as offered: the RCU of each, cached or not. Safe under threads.

    A page that crosses a sampling point is reported beside the request. Which units a page takes is known once it was
    read, so that its report overlaps the rest of the request: an environment that is frozen before the report has
    left sends it with its next request. Such reports are late, or too late to count; an environment that serves many
    pages is not frozen for long.
    """

    def __init__(
        self, *, sampler: ReadSampler, reports: ReportSink, telemetry: Telemetry, now_ms: Callable[[], int]
    ) -> None:
        self._sampler = sampler
        self._reports = reports
        self._telemetry = telemetry
        self._now_ms = now_ms

    def count(self, collection: str, rcu: float) -> None:
        """Count one page, whether a cache or DynamoDB served it."""
        # Reports are sent beside the requests, so a dropped one is known, and counted, a request later.
        if dropped := self._reports.take_dropped():
            self._telemetry.count(MetricName.REPORTS_DROPPED, dropped)
        report = self._sampler.record(collection, rcu, self._now_ms())
        if report is not None:
            self._reports.send(report)
