"""The scale study: 10,000, 100,000 and 1,000,000 writes a second through the project's own counters and detector.

What is aggregated, and why that is exact enough. Time goes in steps of 25 ms. For each step the number of writes of
each (environment, conversation) is drawn from its exact distribution (a Poisson number of writes in all, each with its
conversation by popularity and its environment at random, which makes the cells independent Poisson numbers), and the
environment's own `LoadSampler` records the step's sum at once. A slot is ten steps, and what a counter has crossed by
the end of a slot depends on the slot's sum only, never on the steps: so the estimate is exact. What a step blurs is

- when a report is sent, by at most half a step (12.5 ms, beside a poll of 100 ms and slots of 250 ms);
- how many reports are sent, where one environment gets more than z WCU of one conversation within a step: it then
  sends one report for several crossings. Here an environment serves 100 writes a second, 2.5 in a step, and z is 5.

`exact=True` records write by write, each in its own millisecond, which is the resolution of the functions' clock; a
test holds both against each other at 10,000 writes a second.

Reports go into the project's own `ReportWindow` and `decide`, read as the consumer reads them, every 100 ms. What is
decided about one conversation does not depend on the others, so those below `WATCHED_WCU` are counted and left out.
How long a consumer takes for all this is not modelled: what it must do a second is counted instead, and as many
consumers share the streams as are needed for none to get more than it is planned for.

What can be worked out is not drawn: the estimate's error, false raises, look-ups, and what an entry takes. Writes of
1 WCU arrive at random (Poisson) and meet environments at random, so the counts of one conversation in the environments
of one slot are independent Poisson numbers. A count c crosses floor(c / z) sampling points, and one more with odds of
frac(c / z), because the first lies at u z with u uniform (`core/sampler.py`). All else follows from that.

`python -m tools.simulation sizes`, a few minutes, plays growing loads and says what each size of a deployment carries:
both its consumer and its Redis have room for the load, and every rush in it was raised within two seconds. What a CPU
and a node can do is put in: the first was measured elsewhere, the second is assumed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from math import ceil, exp, floor, sqrt
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hotpartition.control.consumer import POLL_MS
from hotpartition.core.detector import (
    HORIZON_SLOTS,
    SLOTS_PER_SECOND,
    SUSTAINED_SECONDS,
    SUSTAINED_SLOTS,
    ReportWindow,
    decide,
)
from hotpartition.core.reports import READ_LIMIT, WriteReport, stream_partition_of
from hotpartition.core.route import EMPTY_ROUTE, Route
from hotpartition.core.sampler import SLOT_MS, LoadSampler, slot_of
from hotpartition.core.shares import list_shares
from hotpartition.engine.route_cache import TTL_JITTER
from hotpartition.redis.cluster import reports_key
from hotpartition.redis.reports import FIELD, STREAM_AGE_MS
from hotpartition.runtime.settings import ConsumerSettings, WriterSettings
from hotpartition.runtime.thresholds import build_thresholds
from hotpartition_cdk.configuration import FULL_CPU_MB, HotPartitionOptions
from infra.environments import DEV, LARGE_ENVIRONMENT, PROD
from tools.simulation.results import COMMANDS_PER_SECOND, Distribution

STEP_MS = 25
START_MS = 1_800_000_000_000
"""When a run begins (a moment in 2027): the beginning of a slot."""
WRITES_PER_ENVIRONMENT = 100
"""Writes a second of one environment: 10 ms a request, and no environment idles. Fewer would mean more of them."""
QUIET_WCU = 600.0
"""Load of the busiest conversation that is not hot: three quarters of the threshold, so noise has its chance."""
ZIPF_EXPONENT = 1.0
RUSH_FROM_WCU = 100.0
RUSH_TO_WCU = 4_000.0
"""A conversation of about 100 WCU/s steps to 4,000 within a moment: the step of the project's own bar."""
QUIET_MS = 1_500
"""Nothing is hot before; traffic is counted from the second slot to here."""
REST_MS = 2_000
"""Left after the last onset."""

_WRITER = WriterSettings.defaults()
_CONSUMER = ConsumerSettings.defaults()
THRESHOLDS = build_thresholds(_CONSUMER.load, _CONSUMER.size, _CONSUMER.heat)
DEFAULT_Z = _WRITER.sampling.sampling_distance_wcu

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

REPORT_DELAY_MS = 5
"""From a write to its entry in the stream: one XADD within a region (assumption)."""
WATCHED_WCU = 200.0
"""Quiet conversations below this load are not fed to the detector: the odds that one looks hot are below 1e-60."""
BUSIEST = 0.99
"""Quiet conversations with at least this share of the busiest one's load are those whose estimates are checked."""
TABLE_NAME = "hotpartition-prod-messages"
LISTED = 20_000
"""So many of the busiest conversations are assigned to their streams one by one."""
SIZED_EVERY = 50
"""Every so many-th report's bytes are counted: they differ by a few digits only."""
STATE_BYTES_PER_REPORT = 500
"""What the consumer keeps for one report on average (tracemalloc, CPython 3.11): 430 with 15 s of 20,000 reports a
second of a population like this one, 570 with a tenth of that, where fewer share a slot. A test measures it again."""
STATE_BYTES_PER_SECOND = HORIZON_SLOTS * SLOT_MS / 1000 * STATE_BYTES_PER_REPORT
"""What it keeps for each report a second that it gets."""
CONSUMER_REPORTS_PER_SECOND = 60_000
CONSUMER_STATE_BYTES = 1e9
"""What one consumer is planned for at most: with more, another shares the streams."""
PARTITIONS = _WRITER.reports.stream_partitions

NEGLIGIBLE = 1e-18

STREAM_ENTRY_OVERHEAD_BYTES = 24
"""What Redis adds to the values of a stream entry: ids, lengths, and the tree above nodes of a hundred entries.

Measured: `MEMORY USAGE` of streams of 5,000 to 100,000 reports, Redis 8.2.3, is 112 bytes an entry for 88 bytes of
values; the field's name is stored once in a node. A test measures it again."""
LOADS = (5_000, 10_000, 20_000, 30_000, 40_000, 50_000, 75_000, 100_000, 150_000, 200_000)
"""Writes a second of one unit."""
DETECTED_SECONDS = 2.0

CPU_REPORTS_PER_SECOND = 40_100
"""Of one whole CPU of the consumer: the row `consumer` of docs/performance.md, on an AMD EPYC."""
COMMAND_SHARES = {"cache.t4g.micro": 0.2, "cache.t4g.small": 0.4, "cache.m7g.large": 1.0}
"""Of what a whole CPU serves, without end: T4g nodes have 10 % and 20 % of two (EC2 guide, "baseline utilization")."""
STREAM_BYTES = {"cache.t4g.micro": 0.25e9, "cache.t4g.small": 0.7e9, "cache.m7g.large": 3.2e9}
"""Half of a node's memory."""

ASSUMPTIONS = (
    "Writes are of one unit (up to 1 KB) and arrive at random; larger items count as more units and more reports.",
    "An environment serves 100 writes a second, and each request goes to any environment with the same odds.",
    f"Popularity follows Zipf's law, cut off at {QUIET_WCU:g} WCU/s, with one conversation for each write a second.",
    f"A rush takes one conversation from {RUSH_FROM_WCU:g} to {RUSH_TO_WCU:,.0f} WCU/s at one moment.",
    f"A report is in its stream after {REPORT_DELAY_MS} ms; each consumer reads every {POLL_MS} ms, and keeps up.",
    "What a consumer has to do is counted, its processor time is not.",
    "Nothing is throttled in this study; a throttled write that was sampled reports once more.",
    "Each environment's cache holds all conversations that it writes; a response is used for two seconds.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One size of the fleet. Rates are writes of one unit, per second; each run draws `rushes` onsets."""

    writes_per_second: int
    rushes: int
    seeds: int
    run_ms: int = 5_500
    z: float = DEFAULT_Z

    @property
    def environments(self) -> int:
        """Environments that share the load."""
        return self.writes_per_second // WRITES_PER_ENVIRONMENT

    @property
    def conversations(self) -> int:
        """One for each write a second: most are slow, the busiest have `QUIET_WCU`."""
        return self.writes_per_second


def popularity(level: Level) -> Floats:
    """List the conversations' steady rates in WCU/s, busiest first: Zipf, cut off at `QUIET_WCU`."""
    ranks = np.arange(1, level.conversations + 1) ** -ZIPF_EXPONENT
    low, high = 0.0, 10.0 * level.writes_per_second
    for _ in range(80):
        scale = (low + high) / 2
        if np.minimum(QUIET_WCU, scale * ranks).sum() < level.writes_per_second:
            low = scale
        else:
            high = scale
    rates: Floats = np.minimum(QUIET_WCU, high * ranks)
    return rates


@dataclass(slots=True)
class Rush:
    """One conversation that gets hot, and what became of it."""

    conversation: int
    onset_ms: int
    extra_wcu: float
    first_raise_ms: int | None = None
    shard_counts: list[int] = field(default_factory=list)


class Step(NamedTuple):
    """What is written at one moment: three columns of one length. A row is one environment's sum."""

    at_ms: int
    conversations: Integers
    environments: Integers
    wcu: Integers


class Traffic:
    """Draws a run's writes; `exact` leaves each in its own millisecond and does not add any up."""

    def __init__(self, level: Level, seed: int, *, exact: bool = False) -> None:
        self._level = level
        self._random = np.random.default_rng([level.writes_per_second, seed])
        self._exact = exact
        self._step_ms = 1 if exact else STEP_MS
        self.rates = popularity(level)
        self._cumulated = np.cumsum(self.rates)
        first = int(np.searchsorted(-self.rates, -RUSH_FROM_WCU))
        onsets = self._random.uniform(QUIET_MS, level.run_ms - REST_MS, level.rushes)
        self.rushes = [
            Rush(first + index, START_MS + int(onset), RUSH_TO_WCU - self.rates[first + index])
            for index, onset in enumerate(onsets)
        ]

    def steps(self) -> Iterator[Step]:
        """Draw the run, step by step; a step's writes count at its middle."""
        for begin_ms in range(START_MS, START_MS + self._level.run_ms, self._step_ms):
            conversations = np.concatenate([self._steady(), *self._rushing(begin_ms)])
            environments = self._random.integers(self._level.environments, size=len(conversations))
            if self._exact:
                order = self._random.permutation(len(conversations))
                ones = np.ones(len(conversations), dtype=np.int64)
                yield Step(begin_ms, conversations[order], environments[order], ones)
            else:
                cells, wcu = np.unique(conversations * self._level.environments + environments, return_counts=True)
                environments = cells % self._level.environments
                yield Step(begin_ms + self._step_ms // 2, cells // self._level.environments, environments, wcu)

    def _steady(self) -> Integers:
        total = self._cumulated[-1]
        writes = self._random.poisson(total * self._step_ms / 1000)
        chosen: Integers = np.searchsorted(self._cumulated, self._random.random(writes) * total, side="right")
        return chosen

    def _rushing(self, begin_ms: int) -> Iterator[Integers]:
        for rush in self.rushes:
            active_ms = min(begin_ms + self._step_ms - rush.onset_ms, self._step_ms)
            if active_ms > 0:
                writes = self._random.poisson(rush.extra_wcu * active_ms / 1000)
                yield np.full(writes, rush.conversation)


LEVELS = (
    Level(writes_per_second=10_000, rushes=2, seeds=20),
    Level(writes_per_second=100_000, rushes=10, seeds=4),
    Level(writes_per_second=1_000_000, rushes=40, seeds=2),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one run counted.

    `delays_seconds` are from onset to the decision that raised (None: none within the run), `shard_counts` what it
    raised to, `raises` all raises of rushes, `false_raises` those of quiet conversations. Errors are (estimate -
    offered) / offered of whole seconds.
    """

    quiet_reports_per_second: float
    quiet_writes_per_second: float
    command_bytes: float
    entry_bytes: float
    delays_seconds: tuple[float | None, ...]
    shard_counts: tuple[int, ...]
    raises: int
    false_raises: int
    quiet_errors: tuple[float, ...]
    rush_errors: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleLevel:
    """What one level says; the fields' meanings are in docs/simulation-summary.md."""

    writes_per_second: int
    environments: int
    conversations: int
    sampling_distance_wcu: float
    runs: int
    rushes: int
    reports_per_second: float
    reports_per_write: float
    report_bytes_per_second: float
    registry_lookups_per_second: float
    stream_reads_per_second: float
    redis_commands_per_second: float
    stream_memory_bytes: float
    busiest_stream_share: float
    stream_partitions_needed: int
    consumer_reports_held: float
    consumer_conversations_held: float
    consumer_decisions_per_second: float
    consumer_state_bytes: float
    consumers_needed: int
    busiest_consumer_reports_per_second: float
    busiest_consumer_state_bytes: float
    detection_seconds: Distribution
    delays_seconds: tuple[float | None, ...]
    raises_per_rush: float
    shard_counts: tuple[int, ...]
    false_raises: int
    expected_false_raises_per_hour: float
    quiet_error_mean: float
    quiet_error: float
    quiet_error_theory: float
    rush_error: float
    rush_error_theory: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleStudy:
    """The scale study: a level for each size of the fleet, and what was assumed."""

    first_seed: int
    assumptions: tuple[str, ...]
    levels: tuple[ScaleLevel, ...]


class _Detection:
    """A consumer's half: reads every 100 ms and decides, with the project's own window and decision."""

    def __init__(self, first_poll_ms: int) -> None:
        self.next_poll_ms = first_poll_ms
        self.window = ReportWindow()
        self._waiting: list[tuple[int, WriteReport]] = []
        self._routes: dict[str, Route] = {}
        self._raised_at_ms: dict[str, int] = {}

    def send(self, at_ms: int, report: WriteReport) -> None:
        """Put a report on its way; times never fall."""
        self._waiting.append((at_ms + REPORT_DELAY_MS, report))

    def poll(self) -> Iterator[tuple[str, int, int]]:
        """Read what has arrived, decide, and yield raises as (conversation id, time, N)."""
        now_ms = self.next_poll_ms
        self.next_poll_ms += POLL_MS
        arrived = next((i for i, (at_ms, _) in enumerate(self._waiting) if at_ms > now_ms), len(self._waiting))
        for _, report in self._waiting[:arrived]:
            self.window.add(report, now_ms)
        del self._waiting[:arrived]
        for conversation_id, reports in self.window.as_mapping().items():
            route = self._routes.get(conversation_id, EMPTY_ROUTE)
            raised_at_ms = self._raised_at_ms.get(conversation_id)
            for decision in decide(
                conversation_id, reports, route, THRESHOLDS, now_ms=now_ms, raised_at_ms=raised_at_ms
            ):
                if decision.generation:
                    known = self._routes.get(conversation_id, EMPTY_ROUTE)
                    self._routes[conversation_id] = known.union(Route(frozenset({decision.generation})))
                    self._raised_at_ms[conversation_id] = now_ms
                    yield conversation_id, now_ms, decision.generation.shard_count


@dataclass(slots=True)
class _Counts:
    """What a run adds up."""

    quiet_writes: int = 0
    quiet_reports: int = 0
    sized_reports: int = 0
    command_bytes: int = 0
    entry_bytes: int = 0
    false_raises: int = 0


class _Run:
    """One run of one level: environments that count, and as many consumers as it takes to decide."""

    def __init__(self, level: Level, seed: int, *, exact: bool) -> None:
        random = Random(f"scale-{level.writes_per_second}-{seed}")
        self.level = level
        self.traffic = Traffic(level, seed, exact=exact)
        self.names = [_name(i) for i in range(level.conversations)]
        self._records = [
            LoadSampler(
                environment_id=f"{random.getrandbits(128):032x}", sampling_distance_wcu=level.z, random=random.random
            ).record
            for _ in range(level.environments)
        ]
        self.rushes = {self.names[rush.conversation]: rush for rush in self.traffic.rushes}
        self.watched = np.zeros(level.conversations, dtype=bool)
        self.watched[: int(np.searchsorted(-self.traffic.rates, -WATCHED_WCU))] = True
        self.watched[[rush.conversation for rush in self.traffic.rushes]] = True
        self.busiest = range(int((self.traffic.rates >= BUSIEST * self.traffic.rates[0]).sum()))
        self.watched[self.busiest] = True
        count = consumers_needed(self.traffic.rates, level.writes_per_second / level.z)
        self._streams = PARTITIONS * count
        first_poll_ms = START_MS + random.randrange(POLL_MS)
        self.detections = [_Detection(first_poll_ms) for _ in range(count)]
        # WCU by slot of the run and conversation: the truth that estimates are held against
        self.offered = np.zeros((level.run_ms // SLOT_MS + 1, int(np.flatnonzero(self.watched)[-1]) + 1))
        self.counts = _Counts()

    def play(self) -> None:
        """Play the run to its end."""
        for step in self.traffic.steps():
            self._write(step)
            for detection in self.detections:
                while detection.next_poll_ms <= step.at_ms:
                    self._take(detection.poll())

    def _write(self, step: Step) -> None:
        is_quiet = START_MS + SLOT_MS <= step.at_ms < START_MS + QUIET_MS
        if is_quiet:
            self.counts.quiet_writes += int(step.wcu.sum())
        kept = step.conversations < self.offered.shape[1]
        row = self.offered[slot_of(step.at_ms) - slot_of(START_MS)]
        np.add.at(row, step.conversations[kept], step.wcu[kept])
        names, records, watched, at_ms = self.names, self._records, self.watched, step.at_ms
        # the one loop over everything that is written: tens of millions of rows
        for conversation, environment, wcu in zip(
            step.conversations.tolist(), step.environments.tolist(), step.wcu.tolist(), strict=True
        ):
            crossing = records[environment](names[conversation], wcu, at_ms)
            if crossing is not None and (is_quiet or watched[conversation]):
                report = WriteReport(names[conversation], crossing.slot, crossing.source, crossing.value_wcu, at_ms, 0)
                if is_quiet:
                    self._count(report)
                if watched[conversation]:
                    self._consumer_of(report.collection).send(at_ms, report)

    def _consumer_of(self, conversation_id: str) -> _Detection:
        return self.detections[stream_partition_of(conversation_id, self._streams) % len(self.detections)]

    def _count(self, report: WriteReport) -> None:
        counts = self.counts
        if counts.quiet_reports % SIZED_EVERY == 0:
            counts.sized_reports += 1
            counts.command_bytes += command_bytes(report, TABLE_NAME)
            counts.entry_bytes += stream_entry_bytes(report)
        counts.quiet_reports += 1

    def _take(self, raises: Iterable[tuple[str, int, int]]) -> None:
        for conversation_id, at_ms, shard_count in raises:
            rush = self.rushes.get(conversation_id)
            if rush is None or at_ms < rush.onset_ms:
                self.counts.false_raises += 1
                continue
            rush.shard_counts.append(shard_count)
            rush.first_raise_ms = rush.first_raise_ms or at_ms

    def sample(self) -> Sample:
        """Sum the run up."""
        seconds, counts, rushes = (QUIET_MS - SLOT_MS) / 1000, self.counts, self.traffic.rushes
        return Sample(
            quiet_reports_per_second=counts.quiet_reports / seconds,
            quiet_writes_per_second=counts.quiet_writes / seconds,
            command_bytes=counts.command_bytes / counts.sized_reports,
            entry_bytes=counts.entry_bytes / counts.sized_reports,
            delays_seconds=tuple(_delay(rush) for rush in rushes),
            shard_counts=tuple(max(rush.shard_counts) for rush in rushes if rush.shard_counts),
            raises=sum(len(rush.shard_counts) for rush in rushes),
            false_raises=counts.false_raises,
            quiet_errors=tuple(chain.from_iterable(self._errors(c, 0) for c in self.busiest)),
            rush_errors=tuple(
                chain.from_iterable(
                    self._errors(rush.conversation, slot_of(rush.onset_ms) - slot_of(START_MS) + 1) for rush in rushes
                )
            ),
        )

    def _errors(self, conversation: int, first: int) -> Iterator[float]:
        """Yield the relative error of each whole second of one conversation, from a slot of the run on."""
        name, start = self.names[conversation], slot_of(START_MS)
        reports = self._consumer_of(name).window.as_mapping()[name]
        estimates = {slot - start: share.wcu for slot, share in reports.shares(start)}
        # The last second's reports may not all have been read.
        for second in range(first, self.level.run_ms // SLOT_MS - 2 * SLOTS_PER_SECOND + 1, SLOTS_PER_SECOND):
            slots = range(second, second + SLOTS_PER_SECOND)
            estimate = sum(estimates.get(slot, 0.0) for slot in slots)
            yield float(estimate / self.offered[second : second + SLOTS_PER_SECOND, conversation].sum() - 1)


def run_level(level: Level, seed: int, *, exact: bool = False) -> Sample:
    """Run one level once: a pure function of its arguments."""
    run = _Run(level, seed, exact=exact)
    run.play()
    return run.sample()


def summarize(level: Level, samples: Sequence[Sample]) -> ScaleLevel:
    """Sum the runs of one level up, and work out what need not be drawn."""
    rates = popularity(level)
    reports = _mean([s.quiet_reports_per_second for s in samples])
    entry_bytes = _mean([s.entry_bytes for s in samples])
    lookups = lookups_per_second(rates, level.environments, ttl_seconds=_WRITER.routes.route_cache_seconds)
    share = busiest_share(rates, PARTITIONS)
    consumers = consumers_needed(rates, reports)
    consumer_share = busiest_consumer_share(rates, consumers)
    polls = 1000 / POLL_MS
    reads = PARTITIONS * polls * max(1, ceil(reports * share / polls / READ_LIMIT))
    held_seconds = HORIZON_SLOTS * SLOT_MS / 1000
    conversations_held = float((1 - np.exp(-rates / level.z * held_seconds)).sum())
    delays = tuple(chain.from_iterable(s.delays_seconds for s in samples))
    quiet_errors = np.concatenate([s.quiet_errors for s in samples])
    rush_errors = np.concatenate([s.rush_errors for s in samples])
    return ScaleLevel(
        writes_per_second=level.writes_per_second,
        environments=level.environments,
        conversations=level.conversations,
        sampling_distance_wcu=level.z,
        runs=len(samples),
        rushes=len(delays),
        reports_per_second=six_digits(reports),
        reports_per_write=six_digits(reports / _mean([s.quiet_writes_per_second for s in samples])),
        report_bytes_per_second=six_digits(reports * _mean([s.command_bytes for s in samples])),
        registry_lookups_per_second=six_digits(lookups),
        stream_reads_per_second=six_digits(reads),
        redis_commands_per_second=six_digits(reports + lookups + reads),
        stream_memory_bytes=six_digits(reports * STREAM_AGE_MS / 1000 * entry_bytes),
        busiest_stream_share=six_digits(share),
        stream_partitions_needed=partitions_needed(rates, reports),
        consumer_reports_held=six_digits(reports * held_seconds),
        consumer_conversations_held=six_digits(conversations_held),
        consumer_decisions_per_second=six_digits(conversations_held * polls),
        consumer_state_bytes=six_digits(reports * STATE_BYTES_PER_SECOND),
        consumers_needed=consumers,
        busiest_consumer_reports_per_second=six_digits(reports * consumer_share),
        busiest_consumer_state_bytes=six_digits(reports * consumer_share * STATE_BYTES_PER_SECOND),
        detection_seconds=Distribution.of(delays),
        delays_seconds=delays,
        raises_per_rush=six_digits(sum(s.raises for s in samples) / len(delays)),
        shard_counts=tuple(sorted(chain.from_iterable(s.shard_counts for s in samples))),
        false_raises=sum(s.false_raises for s in samples),
        expected_false_raises_per_hour=six_digits(fleet_false_raises_per_hour(level, rates)),
        quiet_error_mean=six_digits(float(quiet_errors.mean())),
        quiet_error=six_digits(float(np.sqrt((quiet_errors**2).mean()))),
        quiet_error_theory=six_digits(relative_error(rates[0], level.z, level.environments)),
        rush_error=six_digits(float(np.sqrt((rush_errors**2).mean()))),
        rush_error_theory=six_digits(relative_error(RUSH_TO_WCU, level.z, level.environments)),
    )


def stream_shares(rates: Floats, partitions: int) -> Floats:
    """Compute which share of all reports each stream gets; conversations beyond those listed spread evenly."""
    loads = np.full(partitions, rates[LISTED:].sum() / partitions)
    for index, rate in enumerate(rates[:LISTED].tolist()):
        loads[stream_partition_of(_name(index), partitions)] += rate
    shares: Floats = loads / loads.sum()
    return shares


def busiest_share(rates: Floats, partitions: int) -> float:
    """Compute which share of all reports the busiest stream gets."""
    return float(stream_shares(rates, partitions).max())


def partitions_needed(rates: Floats, reports_per_second: float) -> int:
    """Compute how many streams it takes so that one XREAD for each, every 100 ms, reads all that came in."""
    limit = READ_LIMIT * 1000 / POLL_MS
    return next(p for p in range(1, 1025) if reports_per_second * busiest_share(rates, p) <= limit)


def busiest_consumer_share(rates: Floats, consumers: int) -> float:
    """Compute which share of all reports the busiest of so many consumers gets, with four streams for each."""
    streams = stream_shares(rates, PARTITIONS * consumers)
    parts = [share.partitions(len(streams)) for share in list_shares(consumers)]
    return max(float(streams[part].sum()) for part in parts)


def consumers_needed(rates: Floats, reports_per_second: float) -> int:
    """Compute how many consumers it takes so that none gets too many reports to read, or keeps too many."""

    def is_enough(consumers: int) -> bool:
        busiest = reports_per_second * busiest_consumer_share(rates, consumers)
        return busiest < CONSUMER_REPORTS_PER_SECOND and busiest * STATE_BYTES_PER_SECOND < CONSUMER_STATE_BYTES

    return next(count for count in range(1, 65) if is_enough(count))


def fleet_false_raises_per_hour(level: Level, rates: Floats) -> float:
    """Compute how many windows of a quiet hour are hot by chance, in expectation, over all conversations.

    An upper bound of the raises: neighbouring windows share slots, so they are often hot together.
    """
    loads, counts = np.unique(np.round(rates[rates >= WATCHED_WCU], -1), return_counts=True)
    windows = (
        (SLOTS_PER_SECOND, THRESHOLDS.hot_at_once_wcu),
        (SUSTAINED_SLOTS, THRESHOLDS.hot_sustained_wcu * SUSTAINED_SECONDS),
    )
    hot_windows: float = sum(
        count * excess_odds(load, level.z, level.environments, slots=slots, limit_wcu=limit_wcu)
        for load, count in zip(loads.tolist(), counts.tolist(), strict=True)
        for slots, limit_wcu in windows
    )
    return hot_windows * 3_600 * SLOTS_PER_SECOND


def run_study(
    levels: Sequence[Level] = LEVELS,
    *,
    first_seed: int,
    pool: Executor,
    progress: Callable[[], object] = lambda: None,
) -> ScaleStudy:
    """Run all levels; the result does not depend on how many the pool runs at a time."""
    tasks = [(level, first_seed + index) for level in levels for index in range(level.seeds)]
    longest_first = sorted(tasks, key=lambda task: -task[0].writes_per_second)
    samples = {task: pool.submit(run_level, *task) for task in longest_first}
    for future in samples.values():
        future.add_done_callback(lambda _: progress())
    return ScaleStudy(
        first_seed=first_seed,
        assumptions=ASSUMPTIONS,
        levels=tuple(summarize(lv, [samples[task].result() for task in tasks if task[0] == lv]) for lv in levels),
    )


def _delay(rush: Rush) -> float | None:
    return None if rush.first_raise_ms is None else (rush.first_raise_ms - rush.onset_ms) / 1000


def _name(conversation: int) -> str:
    return f"conversation-{conversation:07d}"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


@lru_cache(maxsize=4096)
def slot_odds(rate_wcu: float, z: float, environments: int) -> Floats:
    """Compute how many crossings a fleet reports of one conversation in one slot.

    Its steady load, in writes of one unit, is shared evenly by the environments; `z` is the sampling distance, WCU.
    """
    return repeated(_cell_odds(rate_wcu * SLOT_MS / 1000 / environments, z), environments)


def excess_odds(rate_wcu: float, z: float, environments: int, *, slots: int, limit_wcu: float) -> float:
    """Compute the odds that the estimate of one window of `slots` is above a limit, in WCU (not per second)."""
    window = repeated(slot_odds(rate_wcu, z, environments), slots)
    return float(window[floor(limit_wcu / z + 1e-9) + 1 :].sum())


def relative_error(rate_wcu: float, z: float, environments: int) -> float:
    """Compute the standard deviation of (estimate - offered) / offered in a second, for writes of one unit.

    A count c of one environment and slot is reported as a number with mean c and variance z² f (1 - f), where f is the
    fractional part of c / z. Where every count is 0 or 1 this sums up to sqrt(R (z - 1)) WCU/s for R WCU/s in a second.
    """
    mean = rate_wcu * SLOT_MS / 1000 / environments
    counts = _poisson(mean)
    fractions = np.arange(len(counts)) / z % 1.0
    variance = float((counts * z * z * fractions * (1 - fractions)).sum())
    return sqrt(variance * environments * SLOTS_PER_SECOND) / rate_wcu


def lookups_per_second(rates: Floats, environments: int, *, ttl_seconds: float) -> float:
    """Compute how often a fleet asks the registry for routes, of conversations with these rates of requests.

    One (environment, conversation) pair with Poisson requests asks, then is served from its cache for a TTL, then
    asks with the next request: rate / (1 + rate x mean TTL). The mean TTL is shorter than `ttl_seconds` by half of the
    jitter. Early refreshes, which depend on how long Redis takes (a millisecond in a TTL of seconds), are left out.
    """
    pair_rates, mean_ttl = rates / environments, ttl_seconds * (1 - TTL_JITTER / 2)
    return float((environments * pair_rates / (1 + pair_rates * mean_ttl)).sum())


def stream_entry_bytes(report: WriteReport) -> int:
    """Compute what a report takes in a Redis stream."""
    return len(report.encode()) + STREAM_ENTRY_OVERHEAD_BYTES


def command_bytes(report: WriteReport, table_name: str) -> int:
    """Compute how many bytes the XADD of a report sends: the Redis protocol's array of lengths and texts, no TLS."""
    minid = str(report.position - STREAM_AGE_MS)
    parts = ["XADD", reports_key(table_name, 0), "MINID", "~", minid, "*", FIELD, report.encode()]
    return len(f"*{len(parts)}\r\n") + sum(len(f"${len(part)}\r\n{part}\r\n".encode()) for part in parts)


def six_digits(value: float) -> float:
    """Keep six digits: what is beyond says nothing, and could differ between machines."""
    return float(f"{value:.6g}")


def repeated(odds: Floats, times: int) -> Floats:
    """Add up independent numbers of one distribution; sums of positive terms, so that small odds stay exact."""
    total: Floats = np.ones(1)
    while times:
        if times % 2:
            total = _trimmed(np.convolve(total, odds))
        odds, times = _trimmed(np.convolve(odds, odds)), times // 2
    return total


def _cell_odds(mean: float, z: float) -> Floats:
    counts = _poisson(mean)
    shares = np.arange(len(counts)) / z
    sure = np.floor(shares + 1e-12).astype(int)
    more = np.clip(shares - sure, 0.0, 1.0)
    cell = np.zeros(ceil(len(counts) / z) + 2)
    np.add.at(cell, sure, counts * (1 - more))
    np.add.at(cell, sure + 1, counts * more)
    return _trimmed(cell)


def _poisson(mean: float) -> Floats:
    odds, term, count = [], exp(-mean), 0
    while count <= mean or term > NEGLIGIBLE:
        odds.append(term)
        count += 1
        term *= mean / count
    return np.array(odds)


def _trimmed(odds: Floats) -> Floats:
    return odds[: int(np.flatnonzero(odds >= NEGLIGIBLE)[-1]) + 1]


def carries(options: HotPartitionOptions, level: ScaleLevel) -> bool:
    """Say whether a size has room for what a simulated level asked of it."""
    registry = options.registry
    cpu = min(1.0, options.consumer.memory_mb / FULL_CPU_MB)
    commands = COMMANDS_PER_SECOND * COMMAND_SHARES[registry.node_type] * registry.shard_count
    return (
        level.busiest_consumer_reports_per_second <= CPU_REPORTS_PER_SECOND * cpu
        and level.consumers_needed <= options.consumers
        and level.redis_commands_per_second <= commands
        and level.stream_memory_bytes <= STREAM_BYTES[registry.node_type] * registry.shard_count
        and level.detection_seconds.missing == 0
        and (level.detection_seconds.highest or 0) <= DETECTED_SECONDS
    )


def find_largest(options: HotPartitionOptions, levels: Sequence[ScaleLevel]) -> int:
    """Find the largest load that a size carries, and every smaller one with it."""
    most = 0
    for level in sorted(levels, key=lambda each: each.writes_per_second):
        if not carries(options, level):
            break
        most = level.writes_per_second
    return most


def print_sizes(arguments: Sequence[str]) -> int:
    """Print the loads as JSON."""
    loads = tuple(int(text) for text in arguments) or LOADS
    with ProcessPoolExecutor(max_workers=1) as pool:
        study = run_study([Level(writes_per_second=load, rushes=5, seeds=1) for load in loads], first_seed=1, pool=pool)
    sizes: Mapping[str, HotPartitionOptions] = {"dev": DEV, "prod": PROD, "large": LARGE_ENVIRONMENT}
    found = {name: find_largest(size, study.levels) for name, size in sizes.items()}
    sys.stdout.write(json.dumps(found, indent=2) + "\n")
    return 0
