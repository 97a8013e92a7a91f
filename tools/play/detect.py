"""`make detect-trials`: one conversation after another gets hot, spread thinly over many environments.

Writes `out/detect/summary.json`. Passes when at least 95 % of the trials are raised within 2 s of onset and at least
90 % take one raise, while no environment by itself offers more than a tenth of the threshold.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hotpartition.core.reports import Report, stream_partition_of
from hotpartition.redis.cluster import reports_key
from hotpartition.redis.report_streams import FIELD
from hotpartition.runtime.settings import Settings
from tools.figures import Bar, at_least, at_most
from tools.play.client import Client, Recorder, play
from tools.play.trials import SETTINGS, Rig, conclude, running_rig
from tools.play.watch import Observations, watch_route
from tools.play.workload import steady_load

WRITERS = 50
"""Execution environments that share the load; a request goes to a random idle one."""
OFFERED_WCU = 80.0
HOT_AT_ONCE_WCU = SETTINGS["hot_at_once_wcu"]
DETECTED_WITHIN_SECONDS = 2.0
LEAST_DETECTED = 0.95
LEAST_ONE_RAISE = 0.90
LARGEST_SHARE = 0.10
HOT_SECONDS = 4.0
PATIENCE_SECONDS = 3.0
PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """What became of one hot conversation.

    `raised_after_seconds` is None when it was not raised; `shard_counts` are those of its generations.
    `largest_share` is the load of the busiest environment, as a share of the threshold, estimated from its reports.
    """

    raised_after_seconds: float | None
    shard_counts: tuple[int, ...]
    environments: int
    largest_share: float

    @property
    def is_in_time(self) -> bool:
        """Whether it was raised in time."""
        return self.raised_after_seconds is not None and self.raised_after_seconds <= DETECTED_WITHIN_SECONDS


async def offer(rig: Rig, conversation_id: str, *, rate: float) -> None:
    """Offer writes of one unit each, open-loop."""
    client = Client(api=rig.api, recorder=Recorder(), rng=random.Random(1), now=time.time, replay_share=0.0)
    await play(client, steady_load(conversation_id, rate=rate, seconds=HOT_SECONDS))


async def heat(rig: Rig, conversation_id: str) -> Heat:
    """Make a conversation hot for a while and see what becomes of it."""
    seen, stopped, onset = Observations(), asyncio.Event(), time.time()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(watch_route(rig.control, conversation_id, seen, now=time.time, stopped=stopped))
        await offer(rig, conversation_id, rate=OFFERED_WCU)
        await asyncio.sleep(0 if seen.raises else PATIENCE_SECONDS)
        stopped.set()
    partition = stream_partition_of(conversation_id, Settings.defaults("write").stream_partitions)
    entries: Any = rig.redis.xrange(reports_key(rig.table, partition))
    reports = (Report.decode(fields[FIELD]) for _, fields in entries)
    shares = offered_by_environment(report for report in reports if report.collection == conversation_id)
    return Heat(
        raised_after_seconds=min(seen.raises).seen_at - onset if seen.raises else None,
        shard_counts=tuple(sorted(raised.shard_count for raised in seen.raises)),
        environments=len(shares),
        largest_share=max(shares.values(), default=0.0) / HOT_SECONDS / HOT_AT_ONCE_WCU,
    )


def offered_by_environment(reports: Iterable[Report]) -> dict[str, float]:
    """Estimate what each environment offered, in WCU: the sum of the largest value that it reported in each slot."""
    largest: dict[tuple[str, int], float] = {}
    for report in reports:
        place = report.source, report.slot
        largest[place] = max(largest.get(place, 0.0), report.value)
    shares: dict[str, float] = defaultdict(float)
    for (source, _), value in largest.items():
        shares[source] += value
    return shares


def summarize(heats: Sequence[Heat]) -> dict[str, object]:
    """Build the summary of the trials."""
    times = [None if h.raised_after_seconds is None else round(h.raised_after_seconds, 3) for h in heats]
    return {
        "trials": len(heats),
        "detected": sum(h.is_in_time for h in heats),
        "environments": min(h.environments for h in heats),
        "onset_to_raise_seconds": times,
        "raises": [len(h.shard_counts) for h in heats],
        "max_n": [max(h.shard_counts, default=0) for h in heats],
        "largest_share_of_threshold": [round(h.largest_share, 3) for h in heats],
    }


def judge(heats: Sequence[Heat]) -> list[Bar]:
    """Hold all trials against the bars."""
    detected, one_raise = sum(h.is_in_time for h in heats), sum(len(h.shard_counts) == 1 for h in heats)
    within, unit = f"raised within {DETECTED_WITHIN_SECONDS:g} s", f"of {len(heats)} trials"
    largest = max(h.largest_share for h in heats)
    return [
        at_least(within, detected, LEAST_DETECTED * len(heats), unit),
        at_least("took one raise", one_raise, LEAST_ONE_RAISE * len(heats), unit),
        at_most("offered by one environment", largest, LARGEST_SHARE, "of the threshold"),
    ]


async def run(options: argparse.Namespace) -> int:
    """Run the trials, a line for each."""
    heats: list[Heat] = []
    async with running_rig(options.out, writers=WRITERS, seed=options.seed) as rig:
        await offer(rig, "warm-up", rate=OFFERED_WCU / 4)
        for trial in range(options.trials):
            seen = await heat(rig, f"trial-{options.seed}-{trial}")
            heats.append(seen)
            print(f"{trial + 1:3d}  {seen}", flush=True)
            await asyncio.sleep(PAUSE_SECONDS)
    return conclude(summarize(heats), judge(heats), options.out)
