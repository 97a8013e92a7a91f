"""`make detect-trials`: one conversation after another gets hot, spread thinly over many environments.

Writes `out/detect/summary.json`. Passes when at least 95 % of the trials are raised within 2 s of onset and at least
90 % take one raise, while no environment by itself offers more than a tenth of the threshold.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotpartition.core.reports import Report, stream_partition_of
from hotpartition.redis.cluster import reports_key
from hotpartition.redis.report_streams import FIELD
from hotpartition.runtime.settings import Settings
from tools.figures import Bar, at_least, at_most
from tools.play.client import Client, Recorder, play
from tools.play.trials import SETTINGS, Rig, perform, running_rig, trial_parser
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
POLL_SECONDS = 0.05


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


async def offer(rig: Rig, conversation_id: str, *, rate: float, seconds: float) -> None:
    """Offer writes of one unit each, open-loop."""
    client = Client(api=rig.api, recorder=Recorder(), rng=random.Random(1), now=time.time, replay_share=0.0)
    await play(client, steady_load(conversation_id, rate=rate, seconds=seconds))


async def heat(rig: Rig, conversation_id: str) -> Heat:
    """Make a conversation hot for a while and see what becomes of it."""
    seen, stopped, onset = Observations(), asyncio.Event(), time.time()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(watch_route(rig.control, conversation_id, seen, now=time.time, stopped=stopped))
        await offer(rig, conversation_id, rate=OFFERED_WCU, seconds=HOT_SECONDS)
        for _ in range(round(PATIENCE_SECONDS / POLL_SECONDS)):
            if not seen.raises:
                await asyncio.sleep(POLL_SECONDS)
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


def count_detected(heats: Sequence[Heat]) -> int:
    """Count those that were raised in time."""
    times = (h.raised_after_seconds for h in heats)
    return sum(seconds is not None and seconds <= DETECTED_WITHIN_SECONDS for seconds in times)


def summarize(heats: Sequence[Heat]) -> dict[str, object]:
    """Build the summary of the trials."""
    times = [None if h.raised_after_seconds is None else round(h.raised_after_seconds, 3) for h in heats]
    return {
        "trials": len(heats),
        "detected": count_detected(heats),
        "environments": min(h.environments for h in heats),
        "onset_to_raise_seconds": times,
        "raises": [len(h.shard_counts) for h in heats],
        "max_n": [max(h.shard_counts, default=0) for h in heats],
        "largest_share_of_threshold": [round(h.largest_share, 3) for h in heats],
    }


def judge(heats: Sequence[Heat]) -> list[Bar]:
    """Hold all trials against the bars."""
    count, one_raise = len(heats), sum(len(h.shard_counts) == 1 for h in heats)
    within, share = f"raised within {DETECTED_WITHIN_SECONDS:g} s", "of the threshold"
    return [
        at_least(within, count_detected(heats), LEAST_DETECTED * count, f"of {count} trials"),
        at_least("took one raise", one_raise, LEAST_ONE_RAISE * count, f"of {count} trials"),
        at_most("offered by one environment", max(h.largest_share for h in heats), LARGEST_SHARE, share),
    ]


async def run(trials: int, writers: int, seed: int, out_dir: Path) -> list[Heat]:
    """Run the trials, a line for each."""
    heats: list[Heat] = []
    async with running_rig(out_dir, writers=writers, seed=seed) as rig:
        await offer(rig, "warm-up", rate=OFFERED_WCU / 4, seconds=4.0)
        for trial in range(trials):
            seen = await heat(rig, f"trial-{seed}-{trial}")
            heats.append(seen)
            print(f"{trial + 1:3d}  {seen}", flush=True)
            await asyncio.sleep(PAUSE_SECONDS)
    return heats


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = trial_parser("detect", __doc__, trials=20, out=Path("out/detect"))
    parser.add_argument("--writers", type=int, default=WRITERS)
    options = parser.parse_args(arguments)
    trials = run(options.trials, options.writers, options.seed, options.out)
    return perform(trials, options.out, lambda heats: (summarize(heats), judge(heats)))
