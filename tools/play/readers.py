"""A rush of readers on one conversation: what they asked for, how old it was, and where the product had it from."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from hotpartition.core.metrics import MetricName
from hotpartition_messages.settings import MessageSettings
from tools.figures import nearest_rank
from tools.history import Page, join_pages
from tools.play.client import NO_RESPONSE, OK, REFUSED, HttpApi, Recorder, Response, seen_in

PATIENCE_SECONDS = 4.0
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

    @property
    def is_served(self) -> bool:
        """Whether a page came."""
        return self.read_at is not None

    @property
    def age_ms(self) -> float:
        """How old the page was when it came; 0 where none did."""
        return 0.0 if self.read_at is None else 1000 * (self.ended - self.read_at)


def describe_rush(asked: Sequence[Asked], origins: Counter[str]) -> dict[str, Any]:
    """Build the figures of a rush of readers: what they asked for, and where the product says its pages came from."""
    ages = [one.age_ms for one in asked if one.is_served]
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


def quantile_ms(values: list[float], share: float) -> float | None:
    """Return a quantile to a tenth, None where there are no values."""
    return round(nearest_rank(sorted(values), share), 1) if values else None


@dataclass(slots=True, kw_only=True)
class ReadRush:
    """Readers who ask for the newest page of one conversation, open-loop. What they got is judged with their history.

    Their history judges each `Age` as well: whatever was acknowledged that long before a page was asked for is on it.
    `now` is the wall clock in seconds since the epoch; `has_skew`: those of the functions may be wrong, so ages are
    taken from `Age`, in whole seconds.
    """

    api: HttpApi
    recorder: Recorder
    conversation_id: str
    now: Callable[[], float]
    has_skew: bool = False
    asked: list[Asked] = field(default_factory=list)
    _running: set[asyncio.Task[object]] = field(default_factory=set)

    async def go_on(self, per_second: float, work: Callable[[], Awaitable[object]] | None = None) -> None:
        """Begin to ask (or some other work) so often, until this is cancelled."""
        started = time.monotonic()
        for index in range(1_000_000):
            await asyncio.sleep(max(0.0, started + index / per_second - time.monotonic()))
            if len(self._running) >= MOST_UNDER_WAY:
                self.recorder.counts.left_out += 1
                continue
            task: asyncio.Task[object] = asyncio.ensure_future((work or self.ask)())
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def last(self, seconds: float, per_second: float) -> None:
        """Ask at a rate for a time, and wait a while for the responses; a request without one was not served."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.go_on(per_second), seconds)
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=PATIENCE_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def settle(self) -> None:
        """Wait for what is under way."""
        await asyncio.gather(*self._running)

    async def ask(self) -> None:
        """Ask for the newest page, and once more if the process that served it died."""
        if await self._ask_once() not in OK | REFUSED:
            await self._ask_once()

    async def _ask_once(self) -> int:
        began = self.now()
        try:
            response = await self.api.read(self.conversation_id, {})
        except asyncio.CancelledError:
            self.asked.append(Asked(began, self.now(), NO_RESPONSE.status))
            raise
        ended, read_at = self.now(), None
        if response.status in OK:
            read_at = self._read_at(response, began, ended)
            self._note(response, began, ended)
        refusal = str(response.body) if response.status in REFUSED else ""
        self.asked.append(Asked(began, ended, response.status, read_at, refusal))
        return response.status

    def _read_at(self, response: Response, began: float, ended: float) -> float:
        """Tell when a page was read, at the earliest."""
        if self.has_skew:
            return began if response.age_seconds is None else ended - response.age_seconds
        # What is settled counts from when a page was read.
        return datetime.fromisoformat(response.body["settled_until"]).timestamp() + READING.settle_seconds

    def _note(self, response: Response, began: float, ended: float) -> None:
        bound_seconds = READING.page_staleness_seconds
        page = Page(
            conversation_id=self.conversation_id,
            order="newest",
            consistency="eventual",
            started_at=began,
            messages=tuple(seen_in(message) for message in response.body["messages"]),
            cursor=None,
            next_cursor=response.body["next_cursor"],
            ended_at=ended,
            bound_seconds=bound_seconds if response.age_seconds is None else min(bound_seconds, response.age_seconds),
        )
        self.recorder.reads.append(join_pages([page]))
        self.recorder.counts.pages += 1


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
