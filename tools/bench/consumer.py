"""`consumer`: reports a second from Redis to decisions, against reading the same stream and only decoding it.

The consumer runs on a clock of the benchmark's: each time it would sleep, its CPU clock stops, the reports of the next
100 ms are put into Redis, and it goes on. So passes are as many as in production at that rate, and what is fed is
not timed. Two smaller loads beside it show how the cost grows: each pass costs something, each report costs more.
"""

from __future__ import annotations

import gc
import os
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from random import Random
from statistics import median
from typing import Any, TypeVar

from redis import Redis

from hotpartition.control.consumer import GC_THRESHOLDS, POLL_MS, Consumer
from hotpartition.control.ends import ControlEnds
from hotpartition.core.backoff import Clock
from hotpartition.core.ports import Journal, JournalEntry
from hotpartition.core.reports import READ_LIMIT, Report, stream_partition_of
from hotpartition.core.route import Close, Generation, Route
from hotpartition.core.route_history import Cause
from hotpartition.core.sampler import SLOT_MS
from hotpartition.redis.cluster import reports_key
from hotpartition.redis.registry import RedisRegistry
from hotpartition.redis.report_streams import FIELD, RedisReportSource
from hotpartition.runtime.build_control import build_consumer
from hotpartition.runtime.connect import build_key_form, connect_redis
from hotpartition.runtime.settings import Settings
from hotpartition.table.routes import LoggedTelemetry
from tools.bench.measure import Measured, interleave
from tools.bench.setup import TABLE, Setup, Unasked

ResultT = TypeVar("ResultT")

LOADS = (1_000, 10_000, 30_000)
"""Reports a second; the last one is the row's."""
SECONDS = 5
"""So long that the slots that a decision looks at are filled."""
CONVERSATIONS = 2_000
ENVIRONMENTS = 1_000
SAMPLING_DISTANCE_WCU = 5.0
MIN_PER_SECOND = 30_000.0


def measure_consumer(setup: Setup) -> Measured:
    """Take in the same reports on both sides: two thousand conversations by Zipf, a thousand environments."""
    settings = Settings.from_env(os.environ, "consumer", registry_command_timeout_ms=5_000)
    passes = setup.count(SECONDS * 1000 // POLL_MS)
    redis, raises, spent = Redis(port=setup.redis_port), 0, {}
    gc.set_threshold(*GC_THRESHOLDS)  # as the function does; for both sides

    def ours(per_second: int) -> float:
        """Take in all reports of a load, and return how many a second of CPU that were."""
        nonlocal raises
        feed = _Feed(redis, settings.stream_partitions, passes, per_second)
        consumer = _build_consumer(settings, feed)
        summary = feed.measure(lambda: consumer.run(passes * POLL_MS))
        if summary.entries != feed.count:
            raise ValueError(f"the consumer took in {summary.entries} of {feed.count} reports")
        raises, spent[per_second] = summary.raises, feed.cpu_seconds
        return feed.count / feed.cpu_seconds

    def rival() -> float:
        feed = _Feed(redis, settings.stream_partitions, passes, LOADS[-1])
        source = RedisReportSource(connect_redis(settings, LoggedTelemetry(), "bench"), TABLE)
        return feed.measure(lambda: _only_decode(source, feed)) / feed.cpu_seconds

    # The smaller loads first, so that what is raised is that of the largest.
    for load in LOADS[:-1]:
        ours(load)
    samples = interleave(lambda: ours(LOADS[-1]), rival, setup.runs, warms_up=False)
    seconds, reports = passes * POLL_MS / 1000, passes * LOADS[-1] * POLL_MS // 1000
    spent[LOADS[-1]] = reports / median(each for each, _ in samples)
    return Measured(
        unit="reports/s",
        rival="XREAD and decoding alone",
        samples=samples,
        details={
            "raises": raises,
            "reports": reports,
            **{f"core_share_at_{load}": cpu / seconds for load, cpu in spent.items()},
        },
        at_least={"value": MIN_PER_SECOND, "ratio": 0.5},
        conditions="a run's reports by its CPU (time.process_time) on one core, feeding left out; "
        f"{LOADS[-1]} reports/s for {seconds:g} s of the consumer's time, "
        f"{CONVERSATIONS} conversations by Zipf, {ENVIRONMENTS} environments; "
        "core_share_at: of one core, at as many reports a second",
    )


class _Feed:
    """The reports of a run, and time, which stands still while they are taken in.

    Each sleep puts the reports of the next pass into emptied streams, and is not part of the CPU that is counted.
    """

    def __init__(self, redis: Redis, partitions: int, passes: int, per_second: int) -> None:
        redis.flushall()
        self.partitions = partitions
        self.passes = passes
        self.count = passes * per_second * POLL_MS // 1000
        self.cpu_seconds = 0.0
        self._redis = redis
        self._weights = list(accumulate(1 / (rank + 1) for rank in range(CONVERSATIONS)))
        self._start_ms = time.time_ns() // 1_000_000 // SLOT_MS * SLOT_MS
        self._pass = 0
        self._started = 0.0

    def now_ms(self) -> int:
        return self._start_ms + self._pass * POLL_MS

    def sleep(self, _: float) -> None:
        self.cpu_seconds += time.process_time() - self._started
        if self._pass < self.passes:
            self._put()
        self._pass += 1
        self._started = time.process_time()

    def measure(self, work: Callable[[], ResultT]) -> ResultT:
        gc.collect()
        self._started = time.process_time()
        result = work()
        self.cpu_seconds += time.process_time() - self._started
        return result

    def _put(self) -> None:
        random, pipeline = Random(self._pass), self._redis.pipeline(transaction=False)
        for _ in range(self.count // self.passes):
            report = self._report(random, self.now_ms())
            stream = reports_key(TABLE, stream_partition_of(report.collection, self.partitions))
            pipeline.xadd(stream, {FIELD: report.encode()}, id=f"{self.now_ms()}-*")
        pipeline.execute()

    def _report(self, random: Random, at_ms: int) -> Report:
        rank = bisect_left(self._weights, random.random() * self._weights[-1])
        return Report(
            collection=f"conversation-{rank}",
            slot=at_ms // SLOT_MS,
            source=f"{random.randrange(ENVIRONMENTS):032x}",
            value=SAMPLING_DISTANCE_WCU * random.randint(1, 4),
            position=at_ms - random.randrange(POLL_MS),
            shard_count=0,
        )


def _build_consumer(settings: Settings, clock: _Feed) -> Consumer:
    connection = connect_redis(settings, LoggedTelemetry(), "bench")
    registry = RedisRegistry(connection, TABLE)
    ends = ControlEnds(
        source=RedisReportSource(connection, TABLE),
        journal=_MemoryJournal(),
        routing_items=Unasked(),
        registry=registry,
        telemetry=LoggedTelemetry(),
        clock=Clock(now_ms=clock.now_ms, sleep=clock.sleep, random=Random(7).random),
        elapsed=lambda: clock.now_ms() / 1000,
        form=build_key_form(settings),
    )
    return build_consumer(ends, settings)


def _only_decode(source: RedisReportSource, feed: _Feed) -> int:
    count = 0
    after = [f"{feed.now_ms() - 1}-0"] * feed.partitions
    for _ in range(feed.passes):
        feed.sleep(POLL_MS / 1000)
        for partition in range(feed.partitions):
            entries: Sequence[Any] = source.read(partition, after[partition], READ_LIMIT)
            for entry in entries:
                Report.decode(entry.text)
            if entries:
                after[partition] = entries[-1].entry_id
                count += len(entries)
    return count


class _MemoryJournal(Journal):
    """Routes in memory: a raise costs DynamoDB's time, and nothing that would be timed here."""

    def __init__(self) -> None:
        self._entries: dict[str, JournalEntry] = {}

    def get(self, conversation_id: str, *, is_strong: bool) -> JournalEntry:  # noqa: ARG002 - there is one copy
        return self._entries.get(conversation_id, JournalEntry())

    def add(
        self, collection: str, generations: Iterable[Generation], *, cause: Cause, now_ms: int, pause_ms: int = 0
    ) -> JournalEntry:
        del cause, pause_ms
        known = self._entries.get(collection, JournalEntry()).route
        entry = JournalEntry(known.union(Route(frozenset(generations))), now_ms)
        self._entries[collection] = entry
        return entry

    def add_close(
        self, collection: str, close: Close, *, cause: Cause, now_ms: int, seen: JournalEntry | None = None
    ) -> None:
        """Refuse it: nothing is closed here."""
