"""`make read-trials`: a rush of readers on a sharded conversation, in which the process that reads for all is killed.

Writes `out/read-trials/summary.json`. The newest page of a conversation is asked for faster than its partitions, whose
read limit is small, can serve it, until it is found read-hot and comes from the page cache. Then, in each trial, the
process that holds the lease to read the page anew is killed (SIGKILL) at a random moment of that read, while the rush
goes on. Passes when no request fails from then on but the one that a killed process was serving, and most pages are
served; when nothing served is older than the staleness bound, or than its `Age` says, although the readers' clocks
differ by up to two minutes; and when the history checker finds nothing wrong with any page.
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
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import takewhile
from math import inf
from pathlib import Path
from typing import Any

from redis import Redis, RedisError

from hotpartition.core.freshness import LEASE_MS
from hotpartition.core.metrics import MetricName
from hotpartition.redis.cluster import lease_key, page_key, read_hot_key
from hotpartition_messages.reading import DEFAULT_LIMIT
from hotpartition_messages.settings import MessageSettings
from tools.figures import at_least, at_most, nearest_rank
from tools.limits import PARTITION_RCU
from tools.local.processes import LocalRunError
from tools.play.client import NO_RESPONSE, OK, REFUSED, Client, Response, begin_each, every, see_messages
from tools.play.run import Run
from tools.play.verdict import Judgement, conclude, promise_bars
from tools.play.workload import Offer
from tools.world.scaling import scale_reads, scale_thresholds

MOST_UNDER_WAY = 100
"""What a machine is behind with beyond this is not asked for: it would be asked for still when all else is over."""
READER = "read_messages"
READING = MessageSettings.defaults("read")
ORIGINS = {
    "l1": MetricName.PAGES_FROM_L1,
    "redis": MetricName.PAGES_FROM_REDIS,
    "dynamodb": MetricName.PAGES_FROM_DYNAMODB,
    "fills": MetricName.PAGE_FILLS,
}
"""What the read function counts; all but the last are where pages came from."""
SHARDS = 4
SCALE = 0.01
"""Of DynamoDB's read limit, and of what is read-hot."""
CLOCK_SKEWS_MS = (0, 1_000, -1_000, 0, 60_000, -20_000, 0, 7_000, -60_000)
"""By how much the clocks of the readers' environments are wrong, one after the other. Those of a third are right, so
enough reports are of the present for the conversation to be found read-hot."""
LOCAL_RUN: Mapping[str, Any] = {
    "settings": scale_thresholds(0.05) | scale_reads(SCALE),
    "partition_read_limit": PARTITION_RCU * SCALE,
    "min_environments": {"write_message": 4, READER: 6, "operate": 1},
    "max_environments": {"write_message": 4, READER: 10},
    "clock_skews_ms": {READER: CLOCK_SKEWS_MS},
}
PAGES_PER_SECOND, WRITES_PER_SECOND = 60.0, 4.0
WRITTEN_FIRST = 80
BODY = "x" * 700
FILL_MS = 120
"""How long DynamoDB takes for each query during the trials, so that there is a process to be killed."""
LATEST_KILL_SECONDS = 0.1
RECOVERY_SECONDS = 1.0
QUIET_SECONDS = 30.0
"""After how long without a command Redis is taken for dead."""
LOOK_SECONDS = 0.004
SLACK_SECONDS = 0.1
"""Less than what lies between two leases, and more than what clocks and looks are apart."""
FOUND_SECONDS = 15.0
LEARNT_SECONDS = 2.5
"""How long after the flag was set all environments know of it: the TTL of their routes, and a request under way."""
VARIANT = f"newest-{DEFAULT_LIMIT}"
LATE = "DynamoDB did not respond"
"""Why a page was refused: no fault here takes longer than it is waited for, so this machine did."""
LEAST_SERVED = 0.5
"""Of the pages: those that this machine was late with are not judged, and all of them would show nothing."""
MOST_MISSES = 0.5
"""Of the kills, as many may come when the read is stored already; these trials are made again."""
STALENESS_MS = {"p50": 0.5, "p99": 0.99, "longest": 1.0}


@dataclass(frozen=True, slots=True)
class Asked:
    """One request for the newest page; times are seconds since the epoch.

    `read_at` is when what it got was read; `refusal` the response that it got instead.
    """

    began: float
    ended: float
    status: int
    read_at: float | None = None
    refusal: str = ""


@dataclass(slots=True, kw_only=True)
class ReadRush:
    """Readers that ask for the newest page of one conversation. What they got is judged with their history.

    Their history judges each `Age` as well: whatever was acknowledged that long before a page was asked for is on it.
    """

    client: Client
    conversation_id: str
    are_clocks_right: bool = True
    """Else a page was read when its `Age` says, in whole seconds."""
    asked: list[Asked] = field(default_factory=list)
    _free: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_UNDER_WAY))

    async def ask(self) -> None:
        """Ask for the newest page, and once more if the process that served it died."""
        if self._free.locked():
            self.client.recorder.counts["left_out"] += 1
            return
        async with self._free:
            if await self._ask_once() not in OK | REFUSED:
                await self._ask_once()

    async def _ask_once(self) -> int:
        """Ask; a request that is cancelled got no response."""
        began, response = self.client.now(), NO_RESPONSE
        try:
            response = await self.client.api.read(self.conversation_id, {})
        finally:
            self.asked.append(self._note(response, began, self.client.now()))
        return response.status

    def _note(self, response: Response, began: float, ended: float) -> Asked:
        if response.status not in OK:
            return Asked(began, ended, response.status, None, str(response.body) if response.body else "")
        bound_seconds = READING.page_staleness_seconds
        self.client.recorder.counts["pages"] += 1
        self.client.recorder.note_whole_read(
            self.conversation_id,
            see_messages(response),
            began,
            ended,
            is_strong=False,
            newest_first=True,
            complete=response.body["next_cursor"] is None,
            bound_seconds=bound_seconds if response.age_seconds is None else min(bound_seconds, response.age_seconds),
        )
        read_at = began if response.age_seconds is None else ended - response.age_seconds
        if self.are_clocks_right:  # what is settled counts from when the page was read
            settled_until = datetime.fromisoformat(response.body["settled_until"]).timestamp()
            read_at = settled_until + READING.settle_seconds
        return Asked(began, ended, response.status, read_at)


def list_ages_ms(asked: Sequence[Asked]) -> list[float]:
    """List how old each page was when it came."""
    return [1000 * (one.ended - one.read_at) for one in asked if one.read_at is not None]


def quantile_ms(values: list[float], share: float) -> float | None:
    """Return a quantile to a tenth, None where there are no values."""
    return round(nearest_rank(sorted(values), share), 1) if values else None


def describe_rush(asked: Sequence[Asked], work_dir: Path) -> dict[str, Any]:
    """Build the figures of a rush of readers: what they asked for, and where the product says its pages came from."""
    ages = list_ages_ms(asked)
    origins = count_origins(work_dir, asked[0].began) if asked else Counter()
    return {
        "rush_pages": len(asked),
        "rush_refused": len(asked) - len(ages),
        "rush_from_l1": origins["l1"],
        "rush_from_redis": origins["redis"],
        "rush_from_dynamodb": max(0, len(ages) - origins["l1"] - origins["redis"]),
        "rush_age_p50_ms": quantile_ms(ages, 0.5),
        "rush_age_p99_ms": quantile_ms(ages, 0.99),
        "rush_oldest_ms": quantile_ms(ages, 1.0),
    }


def count_origins(work_dir: Path, since: float) -> Counter[str]:
    """Sum up what the read function's invocations counted of where pages came from, and of fills, from a time on.

    `work_dir` is the local run's. A process that was killed has not logged its last invocation.
    """
    (log,) = work_dir.rglob(f"{READER}.log")
    counts: Counter[str] = Counter()
    for counted in read_log(log):
        if "_aws" in counted and counted["_aws"]["Timestamp"] / 1000 >= since:
            counts.update({name: int(sum(counted.get(metric, ()))) for name, metric in ORIGINS.items()})
    return counts


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in the log of a function.

    Its environments share the file, and write a line's end apart from the line: one line may hold several objects.
    """
    for line in path.read_text(errors="replace").splitlines():
        at = line.find("{")
        while at >= 0:
            try:
                found, end = json.JSONDecoder().raw_decode(line, at)
            except json.JSONDecodeError:
                end = at + 1
            else:
                yield found
            at = line.find("{", end)


@dataclass(frozen=True, slots=True)
class Kill:
    """The lease's holder was killed `after_seconds` with the lease; `hit_holder`: before its read was stored."""

    at: float
    after_seconds: float
    hit_holder: bool


@dataclass(kw_only=True)
class ReadTrials(Run):
    """Readers and writers of one conversation, open-loop; whichever holds the lease is killed time and again."""

    trials: int
    rush: ReadRush = field(init=False)
    redis: Redis = field(init=False)
    place: tuple[str, str] = field(init=False)
    """Table and conversation."""
    began: float = 0.0
    found: float = inf
    """When the conversation was found read-hot."""
    copies: int = 0
    kills: list[Kill] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The conversation."""
        return f"read-{self.seed}"

    @property
    def found_after(self) -> float | None:
        """How long it took until the conversation was found read-hot."""
        return None if self.found == inf else round(self.found - self.began, 3)

    @property
    def holders_killed(self) -> int:
        """How many of those killed had the lease."""
        return sum(kill.hit_holder for kill in self.kills)

    def configure(self) -> Mapping[str, Any]:
        """Choose a small read limit, and readers whose clocks are wrong."""
        return LOCAL_RUN

    async def perform(self) -> None:
        """Raise the conversation, write a few pages, begin the rush, and make the trials in it, a line for each."""
        self.rush = ReadRush(client=self.reader, conversation_id=self.name, are_clocks_right=False)
        self.place = self.control.status["dynamodb"]["table"], self.name
        raise_ = {"command": "raise", "conversation_id": self.name, "shard_count": SHARDS}
        await self.control.post("/functions/operate/invoke", raise_)
        for _ in range(WRITTEN_FIRST):
            await self._write()
        with Redis(port=self.control.status["redis"]["port"], decode_responses=True) as self.redis:
            self.began = self.now()
            async with self._going_on():
                await self._wait_until_found()
                if self.found < inf:
                    await asyncio.sleep(LEARNT_SECONDS)
                    await self._kill_holders()
                self.copies = int(str(self.redis.get(read_hot_key(*self.place)) or 0))
        await self.reader.read(self.name, order="newest", consistency="strong", limit=200)

    async def _write(self) -> None:
        """Write one message, again while it is refused."""
        body = f"{self.recorder.counts['offered']} {BODY}"
        await self.writer.write(Offer(0.0, self.name, "trial", body))

    @asynccontextmanager
    async def _going_on(self) -> AsyncIterator[None]:
        """Read and write beside a block; then wait for what is under way."""
        is_over = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for work, per_second in ((self.rush.ask, PAGES_PER_SECOND), (self._write, WRITES_PER_SECOND)):
                due = takewhile(lambda _: not is_over.is_set(), every(1 / per_second, work))
                tasks.create_task(begin_each(due, []))
            try:
                yield
            finally:
                is_over.set()

    async def _wait_until_found(self) -> None:
        while self.found == inf and self.now() < self.began + FOUND_SECONDS:
            await asyncio.sleep(LOOK_SECONDS)
            self.found = inf if self.redis.get(read_hot_key(*self.place)) is None else self.now()
        self.say("never read-hot" if self.found == inf else f"read-hot after {self.found_after} s")

    async def _kill_holders(self) -> None:
        """Make DynamoDB slow, and kill one holder after the other while the rush goes on."""
        slow = {"operation": "Query", "fault": "delay", "delay_ms": FILL_MS}
        await self.control.post("/dynamodb/faults", [slow])
        rng = random.Random(self.seed)
        while self.holders_killed < self.trials and len(self.kills) < self.trials * (1 + MOST_MISSES):
            kill = await self._kill_holder(rng.uniform(0.0, LATEST_KILL_SECONDS))
            self.kills.append(kill)
            ended = "its read was not stored" if kill.hit_holder else "too late"
            self.say(f"{len(self.kills):3d}  killed {1000 * kill.after_seconds:.0f} ms after its lease: {ended}")
            await asyncio.sleep(max(0.0, kill.at + RECOVERY_SECONDS - self.now()))
        await self.control.post("/dynamodb/faults", [])

    async def _kill_holder(self, after_seconds: float) -> Kill:
        """Wait for the next lease, kill the process that takes it, and see whether its read was ever stored."""
        port = self.control.status["redis"]["port"]
        processes = await asyncio.to_thread(find_processes, port)  # takes as long as a read: so it is done before
        taken, client_port = await asyncio.to_thread(wait_for_holder, port, lease_key(*self.place, VARIANT))
        pid = processes.get(client_port) or find_processes(port).get(client_port)
        await asyncio.sleep(max(0.0, taken + after_seconds - self.now()))
        killed = self.now()
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # A read is stored with the time of its lease.
        stored_at = 0.0
        while stored_at < taken - SLACK_SECONDS and self.now() < killed + RECOVERY_SECONDS:
            await asyncio.sleep(LOOK_SECONDS)
            stored_at = self._stored_at()
        return Kill(killed, killed - taken, hit_holder=pid is not None and abs(stored_at - taken) > SLACK_SECONDS)

    def _stored_at(self) -> float:
        """Look up when the lease was taken whose holder stored the page."""
        stored: Any = self.redis.hget(page_key(*self.place, VARIANT, 0), "page")
        return int(stored.split(" ", 2)[1]) / 1000 if stored else 0.0

    @cached_property
    def since(self) -> list[Asked]:
        """The requests that began when all environments knew that the conversation is read-hot."""
        return [asked for asked in self.rush.asked if asked.began >= self.found + LEARNT_SECONDS]

    @property
    def died(self) -> int:
        """How many of these requests ended with the process that served them."""
        return sum(asked.status not in OK | REFUSED for asked in self.since)

    def judge(self) -> Judgement:
        """Hold what came from when the conversation was found read-hot against the bars."""
        refused = [asked for asked in self.since if asked.status in REFUSED and LATE not in asked.refusal]
        # From when it was asked for: what the response took on its way here is the machine's.
        oldest = max((asked.began - asked.read_at for asked in self.since if asked.read_at is not None), default=0.0)
        served = sum(asked.status in OK for asked in self.since)
        bars = [
            at_most("found read-hot", self.found_after, FOUND_SECONDS, "s"),
            at_least("holders killed", self.holders_killed, self.trials, f"of {len(self.kills)} kills"),
            at_most("requests that died", self.died, len(self.kills), "processes that were killed with one each"),
            at_most("the oldest page", oldest, READING.page_staleness_seconds, "s"),
            at_least("pages served", served, LEAST_SERVED * len(self.since), f"of {len(self.since)} asked for"),
            *promise_bars(self.history, self.recorder.notes),
        ]
        timed = [at_most("pages refused", len(refused), 0, f"pages {refused[:1]}")]
        return conclude(bars, timed, kept_up=not self.recorder.counts["left_out"])

    def summarize(self) -> Mapping[str, Any]:
        """Build the summary of the trials."""
        before = [asked for asked in self.rush.asked if asked.ended < self.found]
        ages, verdict = list_ages_ms(self.since), self.history
        origins = count_origins(self.out_dir / "local", self.found + LEARNT_SECONDS)
        return {
            "trials": self.trials,
            "seed": self.seed,
            "pages_per_second": PAGES_PER_SECOND,
            "shard_count": SHARDS,
            "copies": self.copies,
            "found_after_seconds": self.found_after,
            "before": {"asked": len(before), "refused": sum(asked.status not in OK for asked in before)},
            "asked": len(self.since),
            "served": len(ages),
            "refused": sum(asked.status in REFUSED for asked in self.since),
            "died_with_their_process": self.died,
            "pages": {name: origins[name] for name in ORIGINS if name != "fills"},
            "fills": origins["fills"],
            "staleness_ms": {name: quantile_ms(ages, share) for name, share in STALENESS_MS.items()},
            "bound_ms": READING.page_staleness_seconds * 1000,
            "kills": [asdict(kill) for kill in self.kills],
            "holders_killed": self.holders_killed,
            "history": {name: value for name, value in vars(verdict).items() if name != "examples"},
            "examples": [asdict(finding) for finding in verdict.examples],
            "notes": self.recorder.notes,
            "faults": [bar.name for bar in self.judgement.bars if not bar.holds],
            "verdict": self.judgement.verdict,
        }


def wait_for_holder(redis_port: int, lease: str) -> tuple[float, int]:
    """Wait until a process takes the lease; return when that was (Unix time), and the port that it asks Redis from."""
    free_at = time.time() + LEASE_MS / 1000  # a process may have it already
    redis = Redis(port=redis_port, socket_timeout=QUIET_SECONDS)
    with suppress(RedisError), redis.monitor() as monitor:  # type: ignore[no-untyped-call]
        for seen in monitor.listen():
            if seen["command"].startswith(f"HSETEX {lease} "):
                if seen["time"] >= free_at:
                    return float(seen["time"]), int(seen["client_port"])
                free_at = seen["time"] + LEASE_MS / 1000  # so may one that has just tried
    raise LocalRunError("Redis ended")


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


async def run(options: argparse.Namespace) -> int:
    """Run the rush and the trials in it."""
    return await ReadTrials(out_dir=options.out, seed=options.seed, trials=options.trials).present()
