"""The report streams in Redis, for writers, readers and the consumer. Keys: `cluster.py`; entries: `reports.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from threading import Lock
from typing import Any

from hotpartition.core.metrics import MetricName
from hotpartition.core.reports import ReadReport, Report, stream_partition_of
from hotpartition.core.shares import WHOLE, Share
from hotpartition.errors import RegistryForeignError, RegistryUnavailableError
from hotpartition.ports import Background, StreamEntry, Telemetry
from hotpartition.redis.cluster import RedisConnection, consumer_key, reports_key

STREAM_AGE_MS = 60_000
"""What is older is trimmed: four times what a consumer reads back."""

_LATEST = "latest"


class RedisReportSink:
    """`ReportSink` on a Redis cluster; sends beside the request. Safe under threads."""

    def __init__(
        self,
        connection: RedisConnection,
        table_name: str,
        *,
        partitions: int,
        background: Background,
        now_ms: Callable[[], int],
    ) -> None:
        """Use a connection of its own, so that a failing report does not make routes unavailable."""
        self._connection = connection
        self._table_name = table_name
        self._partitions = partitions
        self._background = background
        self._now_ms = now_ms
        self._dropped = 0
        self._lock = Lock()

    def send(self, report: Report | ReadReport) -> None:
        """See `ReportSink.send`."""
        if not self._background.submit(lambda: self._add(report)):
            self._drop()

    def take_dropped(self) -> int:
        """See `ReportSink.take_dropped`."""
        if not self._dropped:  # nearly always, and each write asks
            return 0
        with self._lock:
            dropped, self._dropped = self._dropped, 0
        return dropped

    def _drop(self) -> None:
        with self._lock:
            self._dropped += 1

    def _add(self, report: Report | ReadReport) -> None:
        partition = stream_partition_of(report.collection, self._partitions)
        key = reports_key(self._table_name, partition)
        fields: dict[Any, Any] = dict(report.encode())
        try:
            self._connection.call(
                key, lambda client: client.xadd(key, fields, minid=self._now_ms() - STREAM_AGE_MS, approximate=True)
            )
        except RegistryUnavailableError:
            self._drop()


class RedisReportSource:
    """`ReportSource` on a Redis cluster."""

    def __init__(self, connection: RedisConnection, table_name: str, telemetry: Telemetry | None = None) -> None:
        """Use a connection; `telemetry` is told of what is none of ours."""
        self._connection = connection
        self._table_name = table_name
        self._telemetry = telemetry

    def read(self, partition: int, after_id: str, limit: int) -> Sequence[StreamEntry]:
        """See `ReportSource.read`."""
        key = reports_key(self._table_name, partition)
        response: Any = None
        with self._skipping_foreign_data():
            response = self._connection.call(key, lambda client: client.xread({key: after_id}, count=limit))
        if not response:
            return ()
        ((_, entries),) = response
        return [StreamEntry(entry_id, fields or {}) for entry_id, fields in entries]

    def announce(self, started_ms: int, share: Share = WHOLE) -> None:
        """See `ReportSource.announce`."""
        key = consumer_key(self._table_name, share)
        # GT: an atomic maximum, so that a late older consumer does not hide a younger one.
        with self._skipping_foreign_data():
            self._connection.call(key, lambda client: client.zadd(key, {_LATEST: started_ms}, gt=True))

    def latest_start_ms(self, share: Share = WHOLE) -> int | None:
        """See `ReportSource.latest_start_ms`."""
        key = consumer_key(self._table_name, share)
        score: Any = None
        with self._skipping_foreign_data():
            score = self._connection.call(key, lambda client: client.zscore(key, _LATEST))
        return None if score is None or not isfinite(score) else int(score)

    @contextmanager
    def _skipping_foreign_data(self) -> Iterator[None]:
        try:
            yield
        except RegistryForeignError as error:
            if self._telemetry is not None:
                self._telemetry.count(MetricName.REGISTRY_MALFORMED)
                self._telemetry.event("foreign data in redis skipped", reason=str(error))
