"""A rush of readers on one conversation: what they asked for, how old it was, and where the product had it from."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from hotpartition.core.metrics import MetricName
from hotpartition_messages.settings import MessageSettings
from tools.figures import nearest_rank
from tools.play.client import NO_RESPONSE, OK, REFUSED, Client, Response, see_messages

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


@dataclass(slots=True, kw_only=True)
class ReadRush:
    """Readers that ask for the newest page of one conversation. What they got is judged with their history.

    Their history judges each `Age` as well: whatever was acknowledged that long before a page was asked for is on it.
    """

    client: Client
    conversation_id: str
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
        return Asked(began, ended, response.status, self.read_at(response, began, ended))

    def read_at(self, response: Response, began: float, ended: float) -> float:
        """Return when a page was read, at the earliest: what is settled counts from then."""
        del began, ended
        return datetime.fromisoformat(response.body["settled_until"]).timestamp() + READING.settle_seconds


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
