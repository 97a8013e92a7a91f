"""`make read-trials`: a rush of readers on a sharded conversation, in which the process that reads for all is killed.

Writes `out/read-trials/summary.json`. The newest page of a conversation is asked for faster than its partitions, whose
read limit is small, can serve it, until it is found read-hot and comes from the page cache. Then, in each trial, the
process that holds the lease to read the page anew is killed (SIGKILL) at a random moment of that read, while the rush
goes on. Passes when no request fails from then on but the one that a killed process was serving; when nothing served is
older than the staleness bound, or than its `Age` says, although the readers' clocks differ by up to two minutes; and
when the history checker finds nothing wrong with any page.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from math import inf
from pathlib import Path
from typing import Any

from redis import Redis

from hotpartition.core.freshness import LEASE_MS
from hotpartition.redis.cluster import lease_key, page_key, read_hot_key
from hotpartition_messages.reading import DEFAULT_LIMIT
from tools.figures import Bar, at_least, at_most
from tools.limits import PARTITION_RCU
from tools.play.client import OK, REFUSED, Client, Recorder, Response, begin_each, every
from tools.play.detect import SETTINGS, Rig, conclude, running_rig
from tools.play.readers import ORIGINS, READER, READING, Asked, ReadRush, count_origins, list_ages_ms, quantile_ms
from tools.play.stack import StackError, environment_options
from tools.play.workload import Offer
from tools.world.scaling import scale_reads

READERS, MOST_READERS = 6, 10
CLOCK_SKEWS_MS = (0, 1_000, -1_000, 0, 60_000, -20_000, 0, 7_000, -60_000)
"""By how much the clocks of the readers' environments are wrong, one after the other. Those of a third are right, so
enough reports are of the present for the conversation to be found read-hot."""
SHARDS = 4
SCALE = 0.01
"""Of DynamoDB's read limit, and of what is read-hot."""
PAGES_PER_SECOND, WRITES_PER_SECOND = 60.0, 4.0
WRITTEN_FIRST = 80
BODY = "x" * 700
FILL_MS = 120
"""How long DynamoDB takes for each query during the trials, so that there is a process to be killed."""
LATEST_KILL_SECONDS = 0.1
LOOK_SECONDS = 0.004
CALM_SECONDS = 0.5
"""How long a trial waits, at most, before it looks for the next holder."""
RECOVERY_SECONDS = 1.0
QUIET_SECONDS = 30.0
"""After how long without a command Redis is taken for dead."""
FOUND_SECONDS = 15.0
LEARNT_SECONDS = 2.5
"""How long after the flag was set all environments know of it: the TTL of their routes, and a request under way."""
VARIANT = f"newest-{DEFAULT_LIMIT}"
NO_RESPONSE = "DynamoDB did not respond"
"""Why a page was refused: no fault here takes longer than it is waited for, so this machine did."""
MOST_MISSES = 0.5
"""Of the kills, as many may come when the read is stored already; these trials are made again."""


@dataclass(frozen=True, slots=True)
class Kill:
    """The lease's holder was killed `after_seconds` with the lease; `hit_holder`: before its read was stored."""

    at: float
    after_seconds: float
    hit_holder: bool


@dataclass(slots=True, kw_only=True)
class Rush(ReadRush):
    """Readers and writers of one conversation, open-loop, and what became of their requests."""

    began: float = 0.0
    found: float = inf
    """When the conversation was found read-hot."""
    copies: int = 0
    kills: list[Kill] = field(default_factory=list)
    origins: Counter[str] = field(default_factory=Counter)

    def read_at(self, response: Response, began: float, ended: float) -> float:
        """Return when a page was read by its `Age`, in whole seconds: the functions' clocks may be wrong."""
        return began if response.age_seconds is None else ended - response.age_seconds

    @property
    def found_after(self) -> float | None:
        """How long it took until the conversation was found read-hot."""
        return None if self.found == inf else round(self.found - self.began, 3)

    @property
    def holders_killed(self) -> int:
        """How many of those killed had the lease."""
        return sum(kill.hit_holder for kill in self.kills)

    def since(self) -> list[Asked]:
        """List the requests that began when all environments knew that the conversation is read-hot."""
        return [asked for asked in self.asked if asked.began >= self.found + LEARNT_SECONDS]

    async def write(self) -> None:
        """Write one message, again while it is refused."""
        body = f"{self.client.recorder.counts['offered']} {BODY}"
        await self.client.write(Offer(0.0, self.conversation_id, "trial", body))

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Read and write beside a block; then wait for what is under way, and read everything, strongly consistent."""
        is_over = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for work, per_second in ((self.ask, PAGES_PER_SECOND), (self.write, WRITES_PER_SECOND)):
                due = takewhile(lambda _: not is_over.is_set(), every(1 / per_second, work))
                tasks.create_task(begin_each(due, []))
            try:
                yield
            finally:
                is_over.set()
        await self.client.read(self.conversation_id, order="newest", consistency="strong", limit=200)


async def kill_holders(rig: Rig, rush: Rush, trials: int, rng: random.Random) -> None:
    """Make DynamoDB slow, and kill one holder after the other while the rush goes on."""
    await rig.control.post("/dynamodb/faults", [{"operation": "Query", "fault": "delay", "delay_ms": FILL_MS}])
    while rush.holders_killed < trials and len(rush.kills) < trials * (1 + MOST_MISSES):
        kill = await kill_holder(rig, rush.conversation_id, rng)
        rush.kills.append(kill)
        ended = "its read was not stored" if kill.hit_holder else "too late"
        print(f"{len(rush.kills):3d}  killed {1000 * kill.after_seconds:.0f} ms after its lease: {ended}", flush=True)
        await asyncio.sleep(max(0.0, kill.at + RECOVERY_SECONDS - time.time()))
    await rig.control.post("/dynamodb/faults", [])


async def kill_holder(rig: Rig, conversation_id: str, rng: random.Random) -> Kill:
    """Wait for the process that takes the next lease, kill it, and see whether its read was ever stored."""
    place, port = (rig.table, conversation_id, VARIANT), rig.control.status["redis"]["port"]
    await asyncio.sleep(rng.uniform(0.0, CALM_SECONDS))
    processes = await asyncio.to_thread(find_processes, port)  # takes as long as a read: so it is done before
    taken, client_port = await asyncio.to_thread(wait_for_holder, port, lease_key(*place))
    pid = processes.get(client_port) or find_processes(port).get(client_port)
    await asyncio.sleep(max(0.0, taken + rng.uniform(0.0, LATEST_KILL_SECONDS) - time.time()))
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    killed = time.time()
    # The holder's read would have been stored with the time at which it began: about when it took the lease.
    stored_at, began = 0.0, taken - FILL_MS / 1000
    while stored_at < began and time.time() < killed + RECOVERY_SECONDS:
        await asyncio.sleep(LOOK_SECONDS)
        stored: Any = rig.redis.hget(page_key(*place, 0), "page")
        stored_at = int(stored.split(" ", 2)[1]) / 1000 if stored else 0.0
    return Kill(killed, killed - taken, hit_holder=pid is not None and not began <= stored_at <= killed)


def wait_for_holder(redis_port: int, lease: str) -> tuple[float, int]:
    """Wait until a process takes the lease; return when that was (Unix time), and the port that it asks Redis from."""
    free_at = time.time() + LEASE_MS / 1000  # a process may have it already
    with Redis(port=redis_port, socket_timeout=QUIET_SECONDS).monitor() as monitor:  # type: ignore[no-untyped-call]
        for seen in monitor.listen():
            if seen["command"].startswith(f"HSETEX {lease} ") and seen["time"] >= free_at:
                return float(seen["time"]), int(seen["client_port"])
    raise StackError("Redis ended")


def find_processes(redis_port: int) -> dict[int, int]:
    """Find the processes that are connected to Redis, by the port that each asks from. Linux only."""
    ports: dict[str, int] = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, *rest = line.split()
        if int(remote.rpartition(":")[2], 16) == redis_port:
            ports[f"socket:[{rest[6]}]"] = int(local.rpartition(":")[2], 16)
    found: dict[int, int] = {}
    for handle in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if (port := ports.get(str(handle.readlink()))) is not None:
                found[port] = int(handle.parts[2])
    return found


def summarize(rush: Rush) -> dict[str, object]:
    """Build the summary of the trials."""
    before = [asked for asked in rush.asked if asked.ended < rush.found]
    since, recorder, verdict = rush.since(), rush.client.recorder, rush.client.recorder.judge()
    ages = list_ages_ms(since)
    quantiles = {"p50": 0.5, "p99": 0.99, "longest": 1.0}
    return {
        "pages_per_second": PAGES_PER_SECOND,
        "shard_count": SHARDS,
        "copies": rush.copies,
        "found_after_seconds": rush.found_after,
        "before": {"asked": len(before), "refused": sum(asked.status not in OK for asked in before)},
        "asked": len(since),
        "served": len(ages),
        "refused": sum(asked.status in REFUSED for asked in since),
        "died_with_their_process": _count_died(since),
        "pages": {name: rush.origins[name] for name in ORIGINS if name != "fills"},
        "fills": rush.origins["fills"],
        "staleness_ms": {name: quantile_ms(ages, share) for name, share in quantiles.items()},
        "bound_ms": READING.page_staleness_seconds * 1000,
        "kills": [asdict(kill) for kill in rush.kills],
        "holders_killed": rush.holders_killed,
        "history": {name: value for name, value in vars(verdict).items() if name != "examples"},
        "examples": [asdict(finding) for finding in verdict.examples],
        "notes": recorder.notes,
    }


def _count_died(asked: list[Asked]) -> int:
    """Count the requests that ended with the process that served them."""
    return sum(one.status not in OK | REFUSED for one in asked)


def judge(rush: Rush, trials: int) -> list[Bar]:
    """Hold what came from when the conversation was found read-hot against the bars."""
    since, recorder = rush.since(), rush.client.recorder
    refused = [asked for asked in since if asked.status in REFUSED and NO_RESPONSE not in asked.refusal]
    # From when it was asked for: what the response took on its way here is the machine's.
    oldest = max((asked.began - asked.read_at for asked in since if asked.read_at is not None), default=0.0)
    breaches = [f"{finding.fault}: {finding.message_id}: {finding.detail}" for finding in recorder.judge().examples]
    return [
        at_most("found read-hot", rush.found_after, FOUND_SECONDS, "s"),
        at_least("holders killed", rush.holders_killed, trials, f"of {len(rush.kills)} kills"),
        # Else the machine was behind with asking, and refusals are not judged.
        *([] if recorder.counts["left_out"] else [at_most("pages refused", len(refused), 0, f"pages {refused[:1]}")]),
        at_most("requests that died", _count_died(since), len(rush.kills), "processes that were killed with one each"),
        at_most("the oldest page", oldest, READING.page_staleness_seconds, "s"),
        at_most("breaches of the promise", len(breaches), 0, f"breaches {breaches}"),
    ]


async def run(options: argparse.Namespace) -> int:
    """Run the rush and the trials in it, a line for each."""
    trials, seed = options.trials, options.seed
    rng, conversation = random.Random(seed), f"read-{seed}"
    more = (
        *("--settings", json.dumps(SETTINGS | scale_reads(SCALE))),
        *("--partition-read-limit", f"{PARTITION_RCU * SCALE:g}"),
        *environment_options("min", {READER: READERS, "operate": 1}),
        *environment_options("max", {READER: MOST_READERS}),
        *("--more", json.dumps({"clock_skews_ms": {READER: CLOCK_SKEWS_MS}})),
    )
    async with running_rig(options.out, writers=4, seed=seed, more=more) as rig:
        client = Client(api=rig.api, recorder=Recorder(), rng=rng, now=time.time)
        rush, flag = Rush(client=client, conversation_id=conversation), read_hot_key(rig.table, conversation)
        raise_ = {"command": "raise", "conversation_id": conversation, "shard_count": SHARDS}
        await rig.control.post("/functions/operate/invoke", raise_)
        for _ in range(WRITTEN_FIRST):
            await rush.write()
        rush.began = time.time()
        async with rush.going_on():
            while rush.found == inf and time.time() < rush.began + FOUND_SECONDS:
                await asyncio.sleep(LOOK_SECONDS)
                rush.found = inf if rig.redis.get(flag) is None else time.time()
            print("never read-hot" if rush.found == inf else f"read-hot after {rush.found_after} s", flush=True)
            if rush.found < inf:
                await asyncio.sleep(LEARNT_SECONDS)
                await kill_holders(rig, rush, trials, rng)
            rush.copies = int(str(rig.redis.get(flag) or 0))
        rush.origins = count_origins(options.out / "local", rush.found + LEARNT_SECONDS)
    bars = judge(rush, trials)
    faults = [bar.name for bar in bars if not bar.holds]
    document = {"trials": trials, "seed": seed, **summarize(rush), "faults": faults}
    return conclude({**document, "verdict": "fail" if faults else "pass"}, bars, options.out)
