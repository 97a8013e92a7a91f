"""`make detect-trials`: one conversation after another gets hot, spread thinly over many environments.

Writes `out/detect/summary.json`. Passes when at least 95 % of the trials are raised within 2 s of onset and at least
90 % take one raise, while no environment by itself offers more than a tenth of the threshold. The stack of these trials
(`running_rig`), and how they end, are `make read-trials`' as well.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from redis.cluster import RedisCluster

from hotpartition.core.reports import Report, stream_partition_of
from hotpartition.redis.cluster import reports_key
from hotpartition.redis.report_streams import FIELD
from hotpartition.runtime.settings import Settings
from tools.figures import MISSED, Bar, at_least, at_most, say_bars
from tools.play.client import Client, HttpApi, Recorder, open_session, play
from tools.play.stack import Stack, environment_options
from tools.play.watch import Control, Observations, open_control, watch_route
from tools.play.workload import steady_load
from tools.world.scaling import scale_thresholds

SETTINGS = scale_thresholds(0.05)
WRITERS = 50
"""Execution environments that share the load; a request goes to a random idle one."""
OFFERED_WCU = 80.0
DETECTED_WITHIN_SECONDS = 2.0
LEAST_DETECTED = 0.95
LEAST_ONE_RAISE = 0.90
LARGEST_SHARE = 0.10
HOT_SECONDS = 4.0
PATIENCE_SECONDS = 3.0
PAUSE_SECONDS = 1.0


class Rig(NamedTuple):
    """A running stack and the ways to look into it."""

    api: HttpApi
    control: Control
    redis: RedisCluster
    table: str


@asynccontextmanager
async def running_rig(out_dir: Path, *, writers: int, seed: int, more: Sequence[str] = ()) -> AsyncIterator[Rig]:
    """Start the stack with that many write environments, and stop it at the end.

    The partition limit stays at DynamoDB's own 1,000 WCU/s, so that nothing is throttled and what is offered is exactly
    what was meant. `more` are further arguments of `python -m tools.local up`; of those given twice, the later count.
    """
    up_options = (
        *("--settings", json.dumps(SETTINGS), "--more", json.dumps({"seed": seed})),
        *environment_options("min", {"write_message": writers, "read_messages": 1}),
        *environment_options("max", {"write_message": writers}),
        *more,
    )
    async with Stack(out_dir, *up_options) as stack:
        ready = await stack.ready()
        async with open_session() as session, open_control(ready["control_url"]) as control:
            redis = RedisCluster(host="127.0.0.1", port=control.status["redis"]["port"], decode_responses=True)
            api = HttpApi(session, ready["api_url"], connections=writers)
            yield Rig(api, control, redis, control.status["dynamodb"]["table"])


def conclude(summary: Mapping[str, object], bars: Sequence[Bar], out_dir: Path) -> int:
    """Write the summary of trials, say their bars, and return the exit status."""
    file, passed = out_dir / "summary.json", all(bar.holds for bar in bars)
    file.write_text(json.dumps(summary, indent=2) + "\n")
    say_bars(bars)
    print(f"verdict: {'pass' if passed else 'fail'}; {file}")
    return 0 if passed else MISSED


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
        raised_after_seconds=min(seen.raises.values()) - onset if seen.raises else None,
        shard_counts=tuple(sorted(generation.shard_count for generation in seen.raises)),
        environments=len(shares),
        largest_share=max(shares.values(), default=0.0) / HOT_SECONDS / SETTINGS["hot_at_once_wcu"],
    )


def offered_by_environment(reports: Iterable[Report]) -> dict[str, float]:
    """Estimate what each environment offered, in WCU: the sum of the largest value that it reported in each slot."""
    largest: dict[tuple[str, int], float] = {}
    for report in sorted(reports, key=lambda report: report.value):
        largest[report.source, report.slot] = report.value
    shares: defaultdict[str, float] = defaultdict(float)
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
