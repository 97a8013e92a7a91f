"""`make detect-trials`: one conversation after another gets hot, spread thinly over many environments.

Writes `out/detect/summary.json`. Passes when at least 95 % of the trials are raised within 2 s of onset and at least
90 % take one raise, while no environment by itself offers more than a tenth of the threshold. The partition limit stays
at DynamoDB's own 1,000 WCU/s, so that nothing is throttled and what is offered is exactly what was meant.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from redis import Redis

from hotpartition.core.reports import Report, stream_partition_of
from hotpartition.redis.cluster import reports_key
from hotpartition.redis.report_streams import FIELD
from hotpartition.runtime.settings import Settings
from tools.figures import at_least, at_most
from tools.play.client import play
from tools.play.run import Run
from tools.play.stack import Observations, watch_route
from tools.play.verdict import Judgement, conclude
from tools.play.workload import steady_load
from tools.world.scaling import scale_thresholds

SETTINGS = scale_thresholds(0.05)
ENVIRONMENTS = {"write_message": 50, "read_messages": 1}
"""Those that write share the load; a request goes to a random idle one."""
OFFERED_WCU = 80.0
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


@dataclass(kw_only=True)
class Detection(Run):
    """Trials, one after the other, each with a conversation of its own."""

    trials: int
    heats: list[Heat] = field(default_factory=list)

    def configure(self) -> Mapping[str, Any]:
        """Choose many environments that write."""
        return {"settings": SETTINGS, "min_environments": ENVIRONMENTS, "max_environments": ENVIRONMENTS}

    async def perform(self) -> None:
        """Run the trials, a line for each."""
        await self._offer("warm-up", rate=OFFERED_WCU / 4)
        for trial in range(self.trials):
            heat = await self._heat(f"trial-{self.seed}-{trial}")
            self.heats.append(heat)
            self.say(f"{trial + 1:3d}  {heat}")
            await asyncio.sleep(PAUSE_SECONDS)

    async def _offer(self, conversation_id: str, *, rate: float) -> None:
        """Offer writes of one unit each, open-loop."""
        await play(replace(self.writer, replay_share=0.0), steady_load(conversation_id, rate=rate, seconds=HOT_SECONDS))

    async def _heat(self, conversation_id: str) -> Heat:
        """Make a conversation hot for a while and see what becomes of it."""
        seen, stopped, onset = Observations(), asyncio.Event(), self.now()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(watch_route(self.control, conversation_id, seen, now=self.now, stopped=stopped))
            await self._offer(conversation_id, rate=OFFERED_WCU)
            await asyncio.sleep(0 if seen.raises else PATIENCE_SECONDS)
            stopped.set()
        shares = offered_by_environment(self._list_reports(conversation_id))
        return Heat(
            raised_after_seconds=min(seen.raises.values()) - onset if seen.raises else None,
            shard_counts=tuple(sorted(generation.shard_count for generation in seen.raises)),
            environments=len(shares),
            largest_share=max(shares.values(), default=0.0) / HOT_SECONDS / SETTINGS["hot_at_once_wcu"],
        )

    def _list_reports(self, conversation_id: str) -> list[Report]:
        """List what was reported of a conversation in the last minute."""
        status = self.control.status
        partition = stream_partition_of(conversation_id, Settings.defaults("write").stream_partitions)
        with Redis(port=status["redis"]["port"], decode_responses=True) as redis:
            entries: Any = redis.xrange(reports_key(status["dynamodb"]["table"], partition))
        reports = (Report.decode(fields[FIELD]) for _, fields in entries)
        return [report for report in reports if report.collection == conversation_id]

    def judge(self) -> Judgement:
        """Hold all trials against the bars."""
        heats = self.heats
        detected, one_raise = sum(h.is_in_time for h in heats), sum(len(h.shard_counts) == 1 for h in heats)
        within, unit = f"raised within {DETECTED_WITHIN_SECONDS:g} s", f"of {len(heats)} trials"
        largest = max(h.largest_share for h in heats)
        return conclude(
            [
                at_least(within, detected, LEAST_DETECTED * len(heats), unit),
                at_least("took one raise", one_raise, LEAST_ONE_RAISE * len(heats), unit),
                at_most("offered by one environment", largest, LARGEST_SHARE, "of the threshold"),
            ]
        )

    def explain(self) -> Iterable[str]:
        """Say nothing: what was written is not read, so no promise is judged."""
        return ()

    def summarize(self) -> Mapping[str, Any]:
        """Build the summary of the trials."""
        heats = self.heats
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


def offered_by_environment(reports: Iterable[Report]) -> dict[str, float]:
    """Estimate what each environment offered, in WCU: the sum of the largest value that it reported in each slot."""
    largest: dict[tuple[str, int], float] = {}
    for report in sorted(reports, key=lambda report: report.value):
        largest[report.source, report.slot] = report.value
    shares: defaultdict[str, float] = defaultdict(float)
    for (source, _), value in largest.items():
        shares[source] += value
    return shares


async def run(options: argparse.Namespace) -> int:
    """Run the trials."""
    return await Detection(out_dir=options.out, seed=options.seed, trials=options.trials).present()
