"""Reading the report streams into the detectors' windows: for the consumer, and for operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, islice

from hotpartition.control.ends import ControlEnds
from hotpartition.core.errors import InvalidCollectionError, MalformedReportError, RegistryUnavailableError
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import StreamEntry
from hotpartition.core.reports import READ_LIMIT, Report, stream_partition_of
from hotpartition.core.window import ReportWindow

MAX_SKIPS_LOGGED = 100
"""Malformed entries that are logged between two calls of `log_skips_again`."""
REASON_LENGTH = 200


@dataclass(slots=True)
class Unread:
    """The streams that were not read to their end; and those of them that Redis gave nothing of."""

    streams: set[int]
    unavailable: set[int]


@dataclass(slots=True)
class _Cursor:
    """How far one stream was read, and when: decisions take this time as now, however long earlier calls took."""

    after_id: str
    read_at_ms: int


class StreamReader:
    """Reads streams, each from where it was left. Counts skipped entries, and logs them.

    Reports go to the window of their kind. `streams` says how many there are; `most_reads` bounds the reads of one at a
    time.
    """

    def __init__(
        self,
        ends: ControlEnds,
        *,
        streams: int,
        since_ms: int,
        writes: ReportWindow,
        reads: ReportWindow,
        most_reads: int | None = None,
    ) -> None:
        self.writes = writes
        self.reads = reads
        self.entries = self.malformed = self.out_of_window = 0
        self._ends = ends
        self._most_reads = most_reads
        self._skips_logged = 0
        now_ms, first_id = ends.clock.now_ms(), f"{max(since_ms, 0)}-0"
        self._cursors = {stream: _Cursor(first_id, now_ms) for stream in range(streams)}

    @property
    def read_at_ms(self) -> int:
        """When the stream that was read longest ago was read."""
        return min(cursor.read_at_ms for cursor in self._cursors.values())

    def read_at_ms_of(self, collection: str) -> int:
        """Return up to when a collection's reports were read."""
        return self._cursors[stream_partition_of(collection, len(self._cursors))].read_at_ms

    def read(self) -> Unread:
        """Read new entries of all streams; one that is away does not delay the others."""
        unread = Unread(set(), set())
        for stream, cursor in self._cursors.items():
            try:
                is_read = self._read_stream(stream, cursor)
            except RegistryUnavailableError:
                self._ends.telemetry.count(MetricName.REGISTRY_UNAVAILABLE)
                unread.unavailable.add(stream)
                is_read = False
            if not is_read:
                unread.streams.add(stream)
        return unread

    def log_skips_again(self) -> None:
        """Log the next malformed entries, however many were logged before."""
        self._skips_logged = 0

    def _read_stream(self, stream: int, cursor: _Cursor) -> bool:
        """Read one stream; say whether its end was reached."""
        now_ms = self._ends.clock.now_ms()
        for _ in islice(count(), self._most_reads):
            entries = self._ends.source.read(stream, cursor.after_id, READ_LIMIT)
            if entries:
                cursor.after_id = entries[-1].entry_id
                self._take(entries)
            if len(entries) < READ_LIMIT:
                cursor.read_at_ms = now_ms
                return True
        return False

    def _take(self, entries: Sequence[StreamEntry]) -> None:
        now_ms = self._ends.clock.now_ms()
        self.entries += len(entries)
        decode, check, add = Report.decode, self._ends.form.check, self.writes.add
        for entry_id, text in entries:
            try:
                report = decode(text)
                check(report.collection)
            except (MalformedReportError, InvalidCollectionError) as error:
                self._skip(entry_id, str(error))
                continue
            is_taken = self.reads.add(report, now_ms) if report.pages else add(report, now_ms)
            self.out_of_window += not is_taken

    def _skip(self, entry_id: str, reason: str) -> None:
        """Count a malformed entry, and log it unless many were logged lately: there may be thousands a second."""
        self.malformed += 1
        self._skips_logged += 1
        if self._skips_logged <= MAX_SKIPS_LOGGED:
            self._ends.telemetry.event("malformed report skipped", entry_id=entry_id, reason=reason[:REASON_LENGTH])
