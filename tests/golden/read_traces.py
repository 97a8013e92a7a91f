"""The input traces of reads, how they are run, and how a run reads as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from random import Random

from golden.stage import ONSET_MS, Actor, Deliver, Stage, deliver_soon, deliver_twice_and_in_disorder, in_seconds
from hotpartition.core.sampler import ReadSampler, slot_of
from support.fleet import START_MS, Arrival

ENVIRONMENTS = 100
SAMPLING_DISTANCE_RCU = 100.0
COLLECTION = "room"


@dataclass(frozen=True, kw_only=True)
class ReadTrace:
    """One input trace: `rate` is in pages/s as a function of ms since onset, `page_rcu` what each page takes."""

    name: str
    about: str
    seconds: int
    rate: Callable[[int], float]
    page_rcu: float = 8.5
    seed: int = 1
    deliver: Deliver = deliver_soon
    lives_ms: tuple[tuple[int, int | None], ...] = ((0, None),)
    """The consumers: when each starts and is killed, in ms since the trace began."""


class ReadingFleet:
    """Environments that share a conversation's pages at random, each through a real counter."""

    def __init__(self, trace: ReadTrace) -> None:
        self.trace = trace
        self.pages = 0
        self.sent = 0
        self._now_ms, self._due = START_MS, 0.0
        # One source of chance for each concern: what is delivered how must not change who reads what.
        self._random, self._delivery = Random(trace.seed), Random(f"{trace.seed}-delivery")
        self._counters = [
            ReadSampler(
                environment_id=f"e{index}", sampling_distance_rcu=SAMPLING_DISTANCE_RCU, random=self._random.random
            )
            for index in range(ENVIRONMENTS)
        ]

    def advance(self, to_ms: int) -> Iterable[Arrival]:
        """See `Fleet.advance`."""
        arrivals: list[Arrival] = []
        for now_ms in range(self._now_ms, to_ms):
            self._due += self.trace.rate(now_ms - START_MS - ONSET_MS) / 1000
            while self._due >= 1:
                self._due -= 1
                self.pages += 1
                report = self._random.choice(self._counters).record(COLLECTION, self.trace.page_rcu, now_ms)
                if report is not None:
                    arrivals += self.trace.deliver(self._delivery, report, now_ms)
        self.sent += len(arrivals)
        self._now_ms = max(self._now_ms, to_ms)
        return arrivals


@dataclass(kw_only=True)
class ReadRun:
    """What came of a trace."""

    trace: ReadTrace
    decisions: list[tuple[int, dict[str, object]]]
    marks: list[tuple[int, str, int]]
    fleet: ReadingFleet
    consumers: list[Actor]

    def since_onset(self, time_ms: int) -> int:
        return time_ms - START_MS - ONSET_MS


def _rush(offset: int) -> float:
    return 0.0 if offset < 0 else 5_000.0


def _ramp(offset: int) -> float:
    """Up by 4,000 pages/s each second for 12 s, then down as fast."""
    return max(0.0, min(offset, 24_000 - offset) * 4.0)


def _around_the_threshold(offset: int) -> float:
    """1,020 RCU/s for 8 s, then 700 for 10 s, then 250."""
    return (1_020.0 if offset < 8_000 else 700.0 if offset < 18_000 else 250.0) / 8.5


def _visits(offset: int) -> float:
    """A second of 3,000 RCU/s every six seconds."""
    return 3_000 / 8.5 if offset >= 0 and offset % 6_000 < 1_000 else 0.0


READ_TRACES = {
    trace.name: trace
    for trace in (
        ReadTrace(
            name="rush",
            about="Nothing, and from onset on 5,000 pages/s with N = 16.",
            seconds=9,
            rate=_rush,
        ),
        ReadTrace(
            name="ramp",
            about="Pages of a conversation on its base key, up to 48,000/s within 12 s and down again.",
            seconds=44,
            rate=_ramp,
            page_rcu=0.5,
            seed=2,
        ),
        ReadTrace(
            name="around-the-threshold",
            about="Just above the threshold, then between it and the lower one, then below both.",
            seconds=45,
            rate=_around_the_threshold,
            seed=3,
        ),
        ReadTrace(
            name="warm",
            about="700 RCU/s, which is below the threshold and above the lower one: never read-hot.",
            seconds=60,
            rate=lambda _: 700 / 8.5,
            seed=4,
        ),
        ReadTrace(
            name="visits",
            about="A second of 3,000 RCU/s every six seconds.",
            seconds=60,
            rate=_visits,
            seed=5,
        ),
        ReadTrace(
            name="handover",
            about="`around-the-threshold`; the consumer is killed while the load is between both thresholds, and two"
            " seconds later the next one starts.",
            seconds=45,
            rate=_around_the_threshold,
            seed=3,
            lives_ms=((0, ONSET_MS + 14_000), (ONSET_MS + 16_000, None)),
        ),
        ReadTrace(
            name="duplicated-and-reordered",
            about="The reports of `rush`, each up to three times and in disorder.",
            seconds=9,
            rate=_rush,
            deliver=deliver_twice_and_in_disorder,
        ),
    )
}


@cache
def run_read_trace(name: str) -> ReadRun:
    """Run a trace with its consumers."""
    trace, stage = READ_TRACES[name], Stage()
    fleet = stage.fleet = ReadingFleet(trace)
    consumers = [
        stage.start_consumer(
            at_ms=START_MS + start_ms,
            run_ms=trace.seconds * 1000 - start_ms,
            kill_ms=None if kill_ms is None else START_MS + kill_ms,
        )
        for start_ms, kill_ms in trace.lives_ms
    ]
    stage.run(START_MS + trace.seconds * 1000 + 1_000)
    decisions = [decision for consumer in consumers for decision in consumer.telemetry.read_decisions]
    return ReadRun(trace=trace, decisions=decisions, marks=stage.registry.marks, fleet=fleet, consumers=consumers)


def render_reads(name: str) -> str:
    """Write a trace's run as text: what went in, the decision log, what was marked."""
    run = run_read_trace(name)
    trace = run.trace
    lines = [f"{trace.name}: {trace.about}", ""]
    lines.append(
        f"seed {trace.seed}, {ENVIRONMENTS} environments, z = {SAMPLING_DISTANCE_RCU:g} RCU, {trace.page_rcu:g} RCU a"
        f" page, {trace.seconds} s on the virtual clock, onset {ONSET_MS / 1000:g} s after its start"
    )
    lines += ["", "Decision log (times in s from onset, parts in RCU by slot from onset's slot on)"]
    lines.append("  at       reason    copies trigger       RCU/s  pages/s  parts")
    lines += [_line(run, at_ms, facts) for at_ms, facts in run.decisions]
    lines += [] if run.decisions else ["  (nothing but below-threshold)"]
    marks = [f"{copies} at {in_seconds(run.since_onset(at_ms))}" for at_ms, _, copies in run.marks]
    lines += ["", f"Copies as marked: {', '.join(marks) or 'none'}"]
    lines.append(f"{run.fleet.pages:,} pages, {run.fleet.sent:,} reports")
    return "\n".join(lines) + "\n"


def _line(run: ReadRun, at_ms: int, facts: Mapping[str, object]) -> str:
    parts = facts["per_slot_rcu"]
    assert isinstance(parts, list)
    first = slot_of(at_ms) - len(parts) + 1 - slot_of(START_MS + ONSET_MS)
    return (
        f"  {in_seconds(run.since_onset(at_ms)):8} {facts['reason']:9} {facts['copies']:6} {facts['trigger'] or '-':10}"
        f"{facts['rcu_per_second']:9,.0f}{facts['pages_per_second']:9,.0f}"
        f"  {first:+d}: {' '.join(f'{rcu:g}' for rcu in parts)}"
    )
