"""The report streams in Redis, for writers, readers and the consumer. Keys: `cluster.py`; entries: `reports.py`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from math import isfinite
from threading import Lock
from typing import Any

from hotpartition.core.errors import RegistryForeignError, RegistryUnavailableError
from hotpartition.core.ports import Background, StreamEntry
from hotpartition.core.reports import Report, stream_partition_of
from hotpartition.redis.cluster import Command, RedisAdapter, RedisConnection, consumer_key, reports_key

STREAM_AGE_MS = 60_000
"""Older entries are trimmed: four times as long as a consumer reads back."""

MAX_WAITING = 1_000
"""Reports that wait to be sent at most; what a busy process has in seconds while Redis is slow."""

FIELD = "r"
"""The one field of an entry. Each costs both ends and Redis more than its text does: one is read at three times the
speed of eight."""

_LATEST = "latest"


class RedisReportSink(RedisAdapter):
    """`ReportSink` on a Redis cluster; sends beside the request. Safe under threads.

    Reports that arrive while others are being sent go next, all in one round trip.
    """

    def __init__(
        self,
        connection: RedisConnection,
        table_name: str,
        *,
        partitions: int,
        background: Background,
        now_ms: Callable[[], int],
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        """Start with nothing to send.

        `pause` waits after each sending, so that a busy process sends many reports in a round trip; with it,
        `background` runs nothing else.
        """
        super().__init__(connection, table_name)
        self._partitions = partitions
        self._background = background
        self._now_ms = now_ms
        self._pause = pause
        self._waiting: list[Report] = []
        self._is_sending = False
        self._dropped = 0
        self._lock = Lock()

    def send(self, report: Report) -> None:
        """Implement `ReportSink.send`."""
        with self._lock:
            if len(self._waiting) == MAX_WAITING:
                self._dropped += 1
                return
            self._waiting.append(report)
            if self._is_sending:
                return
            self._is_sending = True
        if not self._background.submit(self._send_waiting):
            with self._lock:
                self._dropped += len(self._waiting)
                self._waiting, self._is_sending = [], False

    def take_dropped(self) -> int:
        """Implement `ReportSink.take_dropped`."""
        if not self._dropped:  # nearly always, and each write asks
            return 0
        with self._lock:
            dropped, self._dropped = self._dropped, 0
        return dropped

    def _send_waiting(self) -> None:
        try:
            while reports := self._take():
                self._add(reports)
                self._pause()
        except BaseException:
            with self._lock:
                self._is_sending = False
            raise

    def _take(self) -> Sequence[Report]:
        """Take what waits; when that is nothing, the next report begins a new sending."""
        with self._lock:
            taken, self._waiting = self._waiting, []
            self._is_sending = bool(taken)
        return taken

    def _add(self, reports: Iterable[Report]) -> None:
        oldest_ms = self._now_ms() - STREAM_AGE_MS
        commands: defaultdict[str, list[Command]] = defaultdict(list)
        for report in reports:
            key = reports_key(self._table_name, stream_partition_of(report.collection, self._partitions))
            commands[key].append(("XADD", key, "MINID", "~", oldest_ms, "*", FIELD, report.encode()))
        for key, additions in commands.items():
            try:
                self._connection.run(key, *additions)
            except RegistryUnavailableError:
                with self._lock:
                    self._dropped += len(additions)


class RedisReportSource(RedisAdapter):
    """`ReportSource` on a Redis cluster; a key of another type is skipped."""

    def read(self, partition: int, after_id: str, limit: int) -> Sequence[StreamEntry]:
        """Implement `ReportSource.read`."""
        key = reports_key(self._table_name, partition)
        response = self._ask(key, "XREAD", "COUNT", limit, "STREAMS", key, after_id)
        if not response:
            return ()
        ((_, entries),) = response
        return [StreamEntry(entry_id, (fields or {}).get(FIELD, "")) for entry_id, fields in entries]

    def announce(self, started_ms: int) -> None:
        """Implement `ReportSource.announce`."""
        key = consumer_key(self._table_name)
        # GT: an atomic maximum, so that a late older consumer does not hide a younger one.
        self._ask(key, "ZADD", key, "GT", started_ms, _LATEST)

    def latest_start_ms(self) -> int | None:
        """Implement `ReportSource.latest_start_ms`."""
        key = consumer_key(self._table_name)
        score = self._ask(key, "ZSCORE", key, _LATEST)
        return None if score is None or not isfinite(score) else int(score)

    def _ask(self, key: str, *command: str | int) -> Any:
        """Run a command; None where the key is of another type."""
        with suppress(RegistryForeignError):
            return self._run(key, command)[0]
