"""N comes down again: a rush of a minute, twenty quiet minutes, a thousand more messages, and a second rush.

All times of the protocol are the product's own: ten minutes until a key counts as cool, a lease of ten minutes, margins
of one. Loads are a twentieth, with the partitions' limits and what counts as hot, and one stream takes all reports. One
conversation that was never hot gets the same messages at the same pace behind the rush; the newest page of both is read
at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from statistics import median

from hotpartition.core.metrics import MetricName
from hotpartition.runtime.settings import Settings
from hotpartition_messages.reading import PageRequest
from hotpartition_messages.settings import MessageSettings
from tools.figures import Bar, at_most
from tools.limits import Partitions
from tools.world.functions import FunctionConfig
from tools.world.run import MessageRun, Safety
from tools.world.scaling import scale_thresholds
from tools.world.scenario import HOT, NAMES, ProductSettings, Readers, Scenario
from tools.world.strategies import ours
from tools.world.workload import ConversationFlow, Workload, constant, name_for

SEEDS = 20
SCALE = 0.05
COLD = "quiet-room-{seed}"
RUSH_WCU = 2_000 * SCALE
RUSH_SECONDS, QUIET_SECONDS, SECOND_RUSH_SECONDS = 60.0, 1_200.0, 10.0
ONSET = 5.0
RUSH_ENDS = ONSET + RUSH_SECONDS
MORE_BEGINS = RUSH_ENDS + QUIET_SECONDS
MORE_PER_SECOND = 2.5
MORE_ENDS = MORE_BEGINS + 1_000 / MORE_PER_SECOND
PROBE_SECONDS = 5.0
SECOND_ONSET = MORE_ENDS + PROBE_SECONDS
PAGE_LIMIT = 50
PROBES = 3
"""The cheapest is taken: another client's page may be read at the same time."""
SETTLED_SECONDS = 10.0
"""How long after the rush the last of its requests have ended."""
BODY = (500, 500)
RAISED_SECONDS = 2.0
"""The bar of `make simulate-step`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoolingRun:
    """One seed; docs/simulation-summary.md says what the fields mean."""

    seed: int
    shard_count: int
    raised_seconds: float | None
    closed_seconds: float | None
    keys: int
    units: float
    cold_units: float
    failed: int
    raised_again_seconds: float | None
    safety: Safety


def _scenario() -> Scenario:
    flows = [
        ConversationFlow(conversation_id=name, shape=constant(wcu), body_bytes=BODY, start=start, end=end)
        for name, wcu, start, end in (
            (HOT, RUSH_WCU, ONSET, RUSH_ENDS),
            (HOT, 0.2, RUSH_ENDS, MORE_BEGINS),
            (HOT, MORE_PER_SECOND, MORE_BEGINS, MORE_ENDS),
            (COLD, MORE_PER_SECOND, MORE_BEGINS, MORE_ENDS),
            (HOT, RUSH_WCU, SECOND_ONSET, SECOND_ONSET + SECOND_RUSH_SECONDS),
        )
    ]
    scaled = scale_thresholds(SCALE)
    distance = {"sampling_distance_wcu": scaled.pop("sampling_distance_wcu")}
    stream = {**NAMES, "stream_partitions": 1}
    functions = FunctionConfig(concurrency=40, warm=20)
    return Scenario(
        name="cooling",
        workload=Workload(tuple(flows)),
        seconds=SECOND_ONSET + SECOND_RUSH_SECONDS,
        onset=ONSET,
        heat_end=RUSH_ENDS,
        table=Partitions(count=32, write_limit_wcu=1_000 * SCALE, read_limit_rcu=3_000 * SCALE),
        writers=functions,
        reading=functions,
        readers=Readers(per_second=0.2),
        settings=ProductSettings(
            writer=MessageSettings.defaults("write", **stream, **distance),
            consumer=Settings.defaults("consumer", **stream, **scaled, is_closing=True),
        ),
    )


class _Run(MessageRun):
    """A run that looks for the close, and probes what pages take."""

    def __init__(self, seed: int) -> None:
        super().__init__(_scenario(), seed, ours())
        self.hot, self.cold = self.scenario.hot_conversation, name_for(COLD, seed)
        self.closed_seconds: float | None = None
        self.probes: dict[str, tuple[int, float]] = {}

    def result(self) -> CoolingRun:
        """Let it happen, and sum it up."""
        engine, meter = self.engine, self.meter
        self.watch()
        self.start_clients()
        engine.at(RUSH_ENDS, self._look_for_close)
        engine.at(MORE_ENDS + PROBE_SECONDS / 2, lambda: engine.spawn(self._probe))
        engine.run_until(RUSH_ENDS + SETTLED_SECONDS)
        before = self._count_failures()
        engine.run_until(SECOND_ONSET)
        failed = self._count_failures() - before
        engine.run_until(self.end)
        keys, units = self.probes[self.hot]
        hot = [raised for raised in meter.raises if raised.conversation_id == self.hot]
        return CoolingRun(
            seed=self.seed,
            shard_count=max((raised.shard_count for raised in hot), default=0),
            raised_seconds=meter.raised_seconds(ONSET),
            closed_seconds=self.closed_seconds,
            keys=keys,
            units=units,
            cold_units=self.probes[self.cold][1],
            failed=failed,
            raised_again_seconds=meter.raised_seconds(SECOND_ONSET),
            safety=self.judge(),
        )

    def _count_failures(self) -> int:
        """Count requests that failed, and attempts that DynamoDB refused."""
        return self.meter.failed + self.meter.pages_failed + self.meter.throttled_attempts

    def _look_for_close(self) -> None:
        if self.world.counters[MetricName.CLOSES]:
            self.closed_seconds = round(self.engine.now - RUSH_ENDS, 1)
        else:
            self.engine.after(1.0, self._look_for_close)

    def _probe(self) -> None:
        """Read the newest page of both conversations."""
        for conversation_id in (self.hot, self.cold):
            found = []
            for _ in range(PROBES):
                before = replace(self.store.page_counts)
                self.reading.invoke(PageRequest(conversation_id, limit=PAGE_LIMIT))
                counts = self.store.page_counts
                found.append((counts.queries - before.queries, counts.rcu - before.rcu))
            self.probes[conversation_id] = min(found)


def run_cooling(seed: int) -> CoolingRun:
    """Run one seed."""
    run = _Run(seed)
    with closing(run.engine):
        return run.result()


def judge(runs: Sequence[CoolingRun]) -> list[Bar]:
    """Hold runs against the bars."""
    late = RUSH_SECONDS + QUIET_SECONDS
    first = [run.raised_seconds or late for run in runs]
    second = [run.raised_again_seconds or late for run in runs]
    closed = [run.closed_seconds or late for run in runs]
    over_cold = max(run.units / run.cold_units for run in runs)
    found = sum(sum(run.safety.found.values()) for run in runs)
    return [
        at_most("cooled: keys that the newest page queries", max(run.keys for run in runs), 1, "keys"),
        at_most("cooled: its units, over those of a conversation that was never hot", over_cold, 1.05, "times"),
        at_most("cooled: from the rush's end to its close", max(closed), 730.0, "s"),
        at_most("cooled: requests that failed between the rushes", sum(run.failed for run in runs), 0, "requests"),
        at_most("cooled: onset of the second rush to its raise", max(second), max(RAISED_SECONDS, *first), "s"),
        at_most("cooled: the same in the median", median(second), median(first) + 0.25, "s"),
        at_most("cooled: history checker's findings", found, 0, "messages"),
    ]
