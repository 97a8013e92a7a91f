"""What the trials share: a stack with many writers, an exact load on one conversation, and what became of it."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from redis.cluster import RedisCluster

from hotpartition.core.reports import WriteReport, stream_partition_of
from hotpartition.core.route import Route
from hotpartition.redis.cluster import reports_key
from hotpartition.redis.report_streams import FIELD
from hotpartition.runtime.settings import Settings
from tools.play.client import Client, HttpApi, Recorder, open_session, play
from tools.play.stack import Stack, StackError, environment_options
from tools.play.watch import Control, ControlError, read_routing_item
from tools.play.workload import steady_load
from tools.world.scaling import scale_thresholds

ResultT = TypeVar("ResultT")

WRITERS = 50
"""Execution environments that share the load; a request goes to a random idle one."""
OFFERED_WCU = 80.0
SETTINGS = scale_thresholds(0.05)
HOT_AT_ONCE_WCU = SETTINGS["hot_at_once_wcu"]
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

    @property
    def max_n(self) -> int:
        """The largest N of the route; 0 before the first raise."""
        return max(self.shard_counts, default=0)

    @property
    def raised(self) -> str:
        """When it was raised, in words."""
        return "never" if self.raised_after_seconds is None else f"after {self.raised_after_seconds:.2f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """A running stack and the ways to look into it."""

    api: HttpApi
    control: Control
    watching: aiohttp.ClientSession
    status: Mapping[str, Any]
    redis: RedisCluster

    async def offer(self, conversation_id: str, *, rate: float, seconds: float) -> None:
        """Offer writes of one unit each, open-loop."""
        client = Client(api=self.api, recorder=Recorder(), rng=random.Random(1), now=time.time, replay_share=0.0)
        await play(client, steady_load(conversation_id, rate=rate, seconds=seconds))

    async def route(self, conversation_id: str) -> tuple[Route, float | None]:
        """Read a conversation's route and when it last grew (seconds since the epoch)."""
        item = await read_routing_item(self.watching, self.status["dynamodb"], conversation_id)
        if item is None:
            return Route(), None
        raised_at = datetime.fromisoformat(item["updated_at"]["S"]).timestamp()
        return Route.decode(item["generations"]["SS"]), raised_at

    async def heat(self, conversation_id: str, *, seconds: float, patience_seconds: float) -> Heat:
        """Make a conversation hot for a while and see what becomes of it."""
        onset = time.time()
        load = asyncio.create_task(self.offer(conversation_id, rate=OFFERED_WCU, seconds=seconds))
        first_raise: float | None = None
        while first_raise is None and time.time() < onset + seconds + patience_seconds:
            await asyncio.sleep(POLL_SECONDS)
            _, first_raise = await self.route(conversation_id)
        await load
        route, _ = await self.route(conversation_id)
        shares = self._shares(conversation_id)
        return Heat(
            raised_after_seconds=None if first_raise is None else first_raise - onset,
            shard_counts=tuple(sorted(g.shard_count for g in route.generations)),
            environments=len(shares),
            largest_share=max(shares.values(), default=0.0) / seconds / HOT_AT_ONCE_WCU,
        )

    def _shares(self, conversation_id: str) -> dict[str, float]:
        """Estimate what each environment offered, in WCU, from its reports: the largest value of each slot."""
        table = self.status["dynamodb"]["table"]
        partitions = Settings.defaults("write").stream_partitions
        entries: Any = self.redis.xrange(reports_key(table, stream_partition_of(conversation_id, partitions)))
        largest: dict[tuple[str, int], float] = {}
        for _, fields in entries:
            report = WriteReport.decode(fields[FIELD])
            if report.collection == conversation_id:
                place = (report.source, report.slot)
                largest[place] = max(largest.get(place, 0.0), report.value_wcu)
        shares: dict[str, float] = {}
        for (source, _), value in largest.items():
            shares[source] = shares.get(source, 0.0) + value
        return shares


@asynccontextmanager
async def running_rig(
    out_dir: Path,
    *,
    writers: int,
    seed: int,
    options: Mapping[str, int] | None = None,
    more: Sequence[str] = (),
) -> AsyncIterator[Rig]:
    """Start the stack with so many write environments, and stop it at the end.

    The partition limit stays at DynamoDB's own 1,000 WCU/s, so that nothing is throttled and what is offered is exactly
    what was meant. `more` are further arguments of `python -m tools.local up`; of those given twice, the later count.
    """
    up_options = (
        *("--settings", json.dumps(SETTINGS), "--more", json.dumps({"seed": seed})),
        *("--options", json.dumps(options or {})),
        *environment_options("min", {"write_message": writers, "read_messages": 1}),
        *environment_options("max", {"write_message": writers}),
        *more,
    )
    async with Stack(out_dir, *up_options) as stack:
        ready = await stack.ready()
        async with open_rig(ready["api_url"], ready["control_url"], connections=writers) as rig:
            yield rig


@asynccontextmanager
async def open_rig(api_url: str, control_url: str, *, connections: int) -> AsyncIterator[Rig]:
    """Open the ways to look into a running stack."""
    async with (
        open_session(connections=connections) as writing,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=200.0)) as watching,
    ):
        control = Control(watching, control_url)
        status = await control.get("/status")
        redis = RedisCluster(host="127.0.0.1", port=status["redis"]["port"], decode_responses=True)
        yield Rig(api=HttpApi(writing, api_url), control=control, watching=watching, status=status, redis=redis)


def trial_parser(name: str, description: str | None, *, trials: int) -> argparse.ArgumentParser:
    """Build the command line that all trials have."""
    parser = argparse.ArgumentParser(prog=f"python -m tools.play.{name}", description=description)
    parser.add_argument("--trials", type=int, default=trials)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("out") / name)
    return parser


def perform(
    trials: Coroutine[Any, Any, list[ResultT]],
    out_dir: Path,
    conclude: Callable[[list[ResultT]], tuple[Mapping[str, object], Sequence[str]]],
) -> int:
    """Run trials, write the summary that `conclude` gives, say what falls short, and return the exit status."""
    out_dir.mkdir(parents=True, exist_ok=True)
    try:
        summary, faults = conclude(asyncio.run(trials))
    except (StackError, ControlError) as error:
        print(f"the trials could not be run: {error}", file=sys.stderr)
        return 2
    (out_dir / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    print("\n".join(faults) or "verdict: pass")
    print(out_dir / "summary.json")
    return 1 if faults else 0
