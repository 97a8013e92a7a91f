"""N comes down again: a rush of a minute, twenty quiet minutes, a thousand more messages, and a second rush.

All times of the protocol are the product's own: ten minutes until a key counts as cool, a lease of ten minutes, margins
of one. Loads are a twentieth, with the partitions' limits and what counts as hot, and one stream takes all reports. One
conversation that was never hot gets the same messages at the same pace behind the rush; the newest page of both is read
at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from statistics import median

from hotpartition.core.metrics import MetricName
from hotpartition_messages.reading import PageRequest
from tools.figures import Bar, Outcome, at_most
from tools.limits import Partitions
from tools.scenarios.seeds import total
from tools.world.functions import FunctionConfig
from tools.world.network import READER
from tools.world.run import MessageRun
from tools.world.scaling import scale_thresholds
from tools.world.scenario import HOT, Readers, Scenario
from tools.world.strategies import ours
from tools.world.workload import ConversationFlow, constant, name_for

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
    functions = FunctionConfig(concurrency=40, warm=20)
    return Scenario(
        name="cooling",
        flows=tuple(flows),
        seconds=SECOND_ONSET + SECOND_RUSH_SECONDS,
        onset=ONSET,
        heat_end=RUSH_ENDS,
        table=Partitions(count=32, write_limit_wcu=1_000 * SCALE, read_limit_rcu=3_000 * SCALE),
        writers=functions,
        reading=functions,
        readers=Readers(per_second=0.2),
        settings={**scale_thresholds(SCALE), "stream_partitions": 1},
    )


def run_cooling(seed: int) -> Outcome:
    """Run one seed, look for the close, and probe what pages take."""
    with MessageRun(seed, _scenario(), ours()) as run:
        engine, meter, hot, cold = run.engine, run.meter, run.scenario.hot_conversation, name_for(COLD, seed)
        probes: dict[str, tuple[int, float]] = {}

        def count_failures() -> int:
            """Count requests that failed, and attempts that DynamoDB refused."""
            return meter.failed + meter.pages_failed + meter.throttled_attempts

        def probe() -> None:
            probes.update((each, _count_page(run, each)) for each in (hot, cold))

        run.start()
        engine.at(MORE_ENDS + PROBE_SECONDS / 2, partial(engine.spawn, probe))
        engine.run_until(RUSH_ENDS + SETTLED_SECONDS)
        before = count_failures()
        engine.run_until(SECOND_ONSET)
        failed = count_failures() - before
        engine.run_until(run.end)
        closed_at = meter.first_at.get(MetricName.CLOSES)
        return Outcome(
            seed=seed,
            shard_count=max(meter.shard_counts(), default=0),
            raised_seconds=meter.raised_seconds(ONSET),
            closed_seconds=None if closed_at is None else round(closed_at - RUSH_ENDS, 1),
            keys=probes[hot][0],
            units=probes[hot][1],
            cold_units=probes[cold][1],
            failed=failed,
            raised_again_seconds=meter.raised_seconds(SECOND_ONSET),
            safety=run.judge(),
        )


def _count_page(run: MessageRun, conversation_id: str) -> tuple[int, float]:
    """Read the newest page `PROBES` times; return the queries and units of the cheapest."""
    counts, newest, found = run.store.counts_of(READER), PageRequest(conversation_id, limit=PAGE_LIMIT), []
    for _ in range(PROBES):
        before = replace(counts)
        run.reading.invoke(lambda reader: reader.read_page(newest))
        found.append((counts.queries - before.queries, counts.rcu - before.rcu))
    return min(found)


def judge(runs: Sequence[Outcome]) -> list[Bar]:
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
        at_most("cooled: requests that failed between the rushes", total(runs, "failed"), 0, "requests"),
        at_most("cooled: onset of the second rush to its raise", max(second), max(RAISED_SECONDS, *first), "s"),
        at_most("cooled: the same in the median", median(second), median(first) + 0.25, "s"),
        at_most("cooled: history checker's findings", found, 0, "messages"),
    ]
