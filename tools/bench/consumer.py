"""`consumer`: reports a second from Redis to decisions, against reading the same stream and only decoding it.

The consumer runs on a clock of the benchmark's: each time it would sleep, its CPU clock stops, the reports of the next
100 ms are put into Redis, and it goes on. So passes are as many as in production at that rate, and what is fed is
not timed. Two smaller loads beside it show how the cost grows: each pass costs something, each report costs more.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterable
from itertools import accumulate
from random import Random
from typing import Any, TypeVar

from hotpartition.control.consumer import GC_THRESHOLDS, POLL_MS
from hotpartition.control.ends import ControlEnds
from hotpartition.core.backoff import Clock
from hotpartition.core.ports import JournalEntry
from hotpartition.core.reports import READ_LIMIT, Report, stream_partition_of
from hotpartition.core.route import Generation, Route
from hotpartition.core.sampler import SLOT_MS
from hotpartition.redis.cluster import reports_key
from hotpartition.redis.registry import RedisRegistry
from hotpartition.redis.report_streams import FIELD, RedisReportSource
from hotpartition.runtime.build_control import build_consumer
from hotpartition.runtime.connect import build_key_form, connect_redis
from hotpartition.runtime.settings import Settings
from hotpartition.table.routes import LoggedTelemetry
from tools.bench.measure import Measured, interleave
from tools.bench.setup import TABLE, Unasked, open_redis

ResultT = TypeVar("ResultT")

LOAD, SMALLER_LOADS = 30_000, (1_000, 10_000)
"""Reports a second."""
SECONDS = 5
"""So long that the slots that a decision looks at are filled."""
PASSES = SECONDS * 1000 // POLL_MS
CONVERSATIONS = 2_000
WEIGHTS = list(accumulate(1 / (rank + 1) for rank in range(CONVERSATIONS)))
ENVIRONMENTS = 1_000
SAMPLING_DISTANCE_WCU = 5.0


class Routes(Unasked):
    """The journal, in memory: a raise costs DynamoDB's time, and nothing that would be timed here."""

    def __init__(self) -> None:
        self._entries: dict[str, JournalEntry] = {}

    def get(self, collection: str, **_: object) -> JournalEntry:
        """Implement `Journal.get`."""
        return self._entries.get(collection, JournalEntry())

    def add(self, collection: str, generations: Iterable[Generation], *, now_ms: int, **_: object) -> JournalEntry:
        """Implement `Journal.add`."""
        route = self.get(collection).route.union(Route(frozenset(generations)))
        entry = self._entries[collection] = JournalEntry(route, now_ms)
        return entry


class Feed:
    """The reports of a run, and time, which stands still while they are taken in.

    Each sleep puts the reports of the next pass into emptied streams, and is not part of the CPU that is counted.
    """

    def __init__(self, settings: Settings, per_second: int) -> None:
        self.settings, self.redis = settings, open_redis()
        self.redis.flushall()
        self.connection = connect_redis(settings, LoggedTelemetry(), "bench")
        self.source = RedisReportSource(self.connection, TABLE)
        self.count = SECONDS * per_second
        self._start_ms = time.time_ns() // 1_000_000 // SLOT_MS * SLOT_MS
        self._pass, self._cpu_seconds, self._started = 0, 0.0, 0.0

    def now_ms(self) -> int:
        """Say the time."""
        return self._start_ms + self._pass * POLL_MS

    def sleep(self, _: float = 0.0) -> None:
        """Go on to the next pass."""
        self._cpu_seconds += time.process_time() - self._started
        if self._pass < PASSES:
            self._put()
        self._pass += 1
        self._started = time.process_time()

    def measure(self, work: Callable[[], ResultT]) -> tuple[ResultT, float]:
        """Let all reports be taken in, and return with what comes of it how much CPU that took, in seconds."""
        gc.collect()
        self._started = time.process_time()
        result = work()
        return result, self._cpu_seconds + time.process_time() - self._started

    def _put(self) -> None:
        random, now_ms, pipeline = Random(self._pass), self.now_ms(), self.redis.pipeline(transaction=False)
        for rank in random.choices(range(CONVERSATIONS), cum_weights=WEIGHTS, k=self.count // PASSES):
            report = Report(
                collection=f"conversation-{rank}",
                slot=now_ms // SLOT_MS,
                source=f"{random.randrange(ENVIRONMENTS):032x}",
                value=SAMPLING_DISTANCE_WCU * random.randint(1, 4),
                position=now_ms - random.randrange(POLL_MS),
                shard_count=0,
            )
            stream = reports_key(TABLE, stream_partition_of(report.collection, self.settings.stream_partitions))
            pipeline.xadd(stream, {FIELD: report.encode()}, id=f"{now_ms}-*")
        pipeline.execute()

    def consume(self) -> int:
        """Read, sum up and decide, as the function does; return how many raises that were."""
        ends = ControlEnds(
            source=self.source,
            journal=Routes(),
            routing_items=Unasked(),
            registry=RedisRegistry(self.connection, TABLE),
            telemetry=LoggedTelemetry(),
            clock=Clock(now_ms=self.now_ms, sleep=self.sleep, random=Random(7).random),
            elapsed=lambda: self.now_ms() / 1000,
            form=build_key_form(self.settings),
        )
        summary = build_consumer(ends, self.settings).run(PASSES * POLL_MS)
        if summary.entries != self.count:
            raise ValueError(f"the consumer took in {summary.entries} of {self.count} reports")
        return summary.raises

    def only_decode(self) -> None:
        """Read the same in as many passes, and decode it."""
        after = [f"{self.now_ms() - 1}-0"] * self.settings.stream_partitions
        for _ in range(PASSES):
            self.sleep()
            for partition, seen in enumerate(after):
                entries: Any = self.source.read(partition, seen, READ_LIMIT)
                for entry in entries:
                    Report.decode(entry.text)
                    after[partition] = entry.entry_id


def measure_consumer() -> Measured:
    """Take in the same reports on both sides: two thousand conversations by Zipf, a thousand environments."""
    settings = Settings.from_env(os.environ, "consumer", registry_command_timeout_ms=5_000)
    gc.set_threshold(*GC_THRESHOLDS)  # as the function does; for both sides
    details: dict[str, float] = {}

    def ours(per_second: int = LOAD) -> float:
        feed = Feed(settings, per_second)
        details["raises"], seconds = feed.measure(feed.consume)
        details[f"core_share_at_{per_second}"] = seconds / SECONDS
        return feed.count / seconds

    def rival() -> float:
        feed = Feed(settings, LOAD)
        _, seconds = feed.measure(feed.only_decode)
        return feed.count / seconds

    for load in SMALLER_LOADS:
        ours(load)
    return Measured(
        unit="reports/s",
        rival="XREAD and decoding alone",
        samples=interleave(ours, rival),
        details=details,
        at_least={"value": 30_000.0, "ratio": 0.5},
        conditions="a run's reports by its CPU (time.process_time) on one core, feeding left out; "
        f"{LOAD} reports/s for {SECONDS} s of the consumer's time, {CONVERSATIONS} conversations by Zipf, "
        f"{ENVIRONMENTS} environments; core_share_at: of one core, at as many reports a second, in the last run",
    )
