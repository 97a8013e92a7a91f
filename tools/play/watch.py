"""Watches a run from outside, and shows it: the route in DynamoDB, what each physical key takes, the parts' state.

Raises are read from the routing item itself, the journal, and not from a log: what is stored is what counts.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import aiohttp
from rich.console import Console

from hotpartition.core.route import Close, Generation, Route
from hotpartition.dynamodb.table import JournalPlace
from tools.local.metering import TimelineRow
from tools.play.client import Counts, Recorder

CONTROL_SECONDS = 200.0
ROUTE_POLL_SECONDS = 0.2
STATUS_POLL_SECONDS = 1.0
LINE_SECONDS = 2.0


class ControlError(Exception):
    """The local run's control API did not do what it was asked."""


@dataclass(frozen=True, slots=True, order=True)
class Raise:
    """A generation that appeared in the journal: `seen_at` is when, in seconds since the epoch."""

    seen_at: float
    shard_count: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a person watching would want to know, at seconds since the epoch."""

    at: float
    text: str


@dataclass(slots=True)
class Observations:
    """What was seen so far."""

    raises: list[Raise] = field(default_factory=list)
    closes: dict[Close, float] = field(default_factory=dict)
    """The closes in the journal, each with when it was first seen, in seconds since the epoch."""
    buckets: dict[tuple[int, str, str], TimelineRow] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)
    most_environments: int = 0
    events: list[Event] = field(default_factory=list)

    @property
    def shard_count(self) -> int:
        """The largest N that the journal holds; 0 before the first raise."""
        return max((raised.shard_count for raised in self.raises), default=0)

    def timeline(self) -> tuple[TimelineRow, ...]:
        """List all loads by time and key."""
        return tuple(self.buckets[key] for key in sorted(self.buckets))


class Control:
    """The local run's control API, and its DynamoDB behind the functions' back."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.status: Mapping[str, Any] = {}
        """As it was at the last look."""
        self._session = session
        self._url = url.rstrip("/")

    async def get(self, path: str) -> Any:
        """Get a document, or raise `ControlError`."""
        return await self._request("GET", path)

    async def post(self, path: str, body: Any = None) -> Any:
        """Give an order, with a document if it needs one, or raise `ControlError`."""
        return await self._request("POST", path, body)

    async def look(self) -> Mapping[str, Any]:
        """Look at the status."""
        self.status = await self.get("/status")
        return self.status

    async def routing_item(self, conversation_id: str) -> Mapping[str, Any]:
        """Read a conversation's routing item from DynamoDB, in its JSON form. REQUIRES: one table has routes.

        It is empty when there is none, or DynamoDB refuses just now.
        """
        dynamodb = self.status["dynamodb"]
        (place,) = (JournalPlace(**place) for place in dynamodb["tables"].values() if place is not None)
        operation, request = place.build_get(conversation_id, is_strong=False)
        # DynamoDB asks for a signature as well; the local run checks none.
        headers = {"X-Amz-Target": f"DynamoDB_20120810.{operation}", "Content-Type": "application/x-amz-json-1.0"}
        with suppress(aiohttp.ClientError, TimeoutError):
            async with self._session.post(dynamodb["endpoint"], data=json.dumps(request), headers=headers) as response:
                found = await response.json(content_type=None) if response.status == 200 else {}
                return found.get("Item", {})  # type: ignore[no-any-return]
        return {}

    async def _request(self, method: str, path: str, body: Any = None) -> Any:
        try:
            async with self._session.request(method, self._url + path, json=body) as response:
                text = await response.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ControlError(f"the local run does not respond {method} {path}: {error}") from error
        if response.status >= 300:
            raise ControlError(f"the local run answered {response.status} to {method} {path}: {text[:200]}")
        return json.loads(text) if text else {}


@asynccontextmanager
async def open_control(url: str) -> AsyncIterator[Control]:
    """Open the control API, and look at the status once."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=CONTROL_SECONDS)) as session:
        control = Control(session, url)
        await control.look()
        yield control


def new_raises(item: Mapping[str, Any], known: Iterable[Raise], *, now: float, previous: float) -> tuple[Raise, ...]:
    """Find the generations of a routing item that are not known yet.

    The item's `updated_at` says when they were added, if it lies between the previous look and this one; else this
    look is the best that is known.
    """
    had = {Generation(since_ms=raised.since_ms, shard_count=raised.shard_count) for raised in known}
    updated_at = _parse_moment(item.get("updated_at", {}).get("S", ""))
    seen_at = updated_at if updated_at is not None and previous <= updated_at <= now else now
    return tuple(sorted(Raise(seen_at, new.shard_count, new.since_ms) for new in read_route(item).generations - had))


def read_route(item: Mapping[str, Any]) -> Route:
    """Read the route out of a routing item."""
    return Route.decode(item.get("generations", {}).get("SS", ()))


def key_loads(document: Mapping[str, Any]) -> dict[tuple[int, str, str], TimelineRow]:
    """Read the buckets of the control API's timeline; a bucket asked for again replaces the one that was still open."""
    rows = (TimelineRow(**bucket) for bucket in document["buckets"])
    return {(row.at_ms, row.key, row.table): row for row in rows}


async def watch_route(
    control: Control,
    conversation_id: str,
    observations: Observations,
    *,
    now: Callable[[], float],
    stopped: asyncio.Event,
) -> None:
    """Look at a conversation's routing item until stopped and record every raise and close."""
    previous = now()
    while not stopped.is_set():
        asked_at = now()
        item = await control.routing_item(conversation_id)
        for raised in new_raises(item, observations.raises, now=now(), previous=previous):
            observations.raises.append(raised)
            text = f"{conversation_id}: N raised to {raised.shard_count}"
            observations.events.append(Event(raised.seen_at, text))
        for close in read_route(item).closes:
            observations.closes.setdefault(close, now())
        previous = asked_at if item else previous
        await asyncio.sleep(ROUTE_POLL_SECONDS)


async def watch_parts(
    control: Control, observations: Observations, *, now: Callable[[], float], stopped: asyncio.Event
) -> None:
    """Look at the status and the timeline until stopped."""
    while not stopped.is_set():
        await look_at_parts(control, observations, now=now)
        await asyncio.sleep(STATUS_POLL_SECONDS)


async def look_at_parts(control: Control, observations: Observations, *, now: Callable[[], float]) -> None:
    """Look at the status and the timeline once."""
    latest = max((at_ms for at_ms, _, _ in observations.buckets), default=0)
    # Buckets may have been open at the last look, so the last two seconds are asked for again.
    timeline = await control.get(f"/dynamodb/timeline?since_ms={max(0, latest - 2000)}")
    observations.buckets.update(key_loads(timeline))
    status = await control.look()
    observations.events += _changes(observations.status, status, at=now())
    observations.status = status
    environments = sum(int(function["environments"]) for function in status["functions"].values())
    observations.most_environments = max(observations.most_environments, environments)


async def stopped_within(stopped: asyncio.Event, seconds: float) -> bool:
    """Wait for a time, or until stopped, and say whether it is."""
    with suppress(TimeoutError):
        await asyncio.wait_for(stopped.wait(), max(0.0, seconds))
    return stopped.is_set()


def _changes(before: Mapping[str, Any], after: Mapping[str, Any], *, at: float) -> list[Event]:
    """Find what has changed between two looks at the status, in words."""
    events = []
    if before:
        was, runs = before.get("redis", {}).get("running"), after.get("redis", {}).get("running")
        if was != runs:
            events.append(Event(at, "Redis is back" if runs else "Redis is down"))
        for name, function in after.get("functions", {}).items():
            past = before.get("functions", {}).get(name, {})
            for count, words in (("errors", "failed"), ("init_errors", "failed to start"), ("killed", "was killed")):
                more = function.get(count, 0) - past.get(count, 0)
                if more > 0:
                    events.append(Event(at, f"{name} {words} ({more})"))
    return events


def _parse_moment(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


class View:
    """What is new of a run each time that it is looked at."""

    def __init__(
        self, recorder: Recorder, observations: Observations, *, now: Callable[[], float], started_at: float
    ) -> None:
        self._recorder = recorder
        self._observations = observations
        self._now = now
        self._started_at = self._last_at = started_at
        self._last: Counts = replace(recorder.counts)
        self._shown = 0
        self.phase = "starting"

    def new_events(self) -> Iterator[str]:
        """Yield the events since the last look."""
        events = self._observations.events[self._shown :]
        self._shown += len(events)
        for event in events:
            yield f"{event.at - self._started_at:6.1f} s  * {event.text}"

    def figures(self) -> str:
        """Give the figures of this moment; rates are those since the last look."""
        now, counts, last = self._now(), replace(self._recorder.counts), self._last
        past = max(1e-6, now - self._last_at)
        self._last_at, self._last = now, counts
        # A message that is acknowledged once more counts once, as it does in the verdict.
        acknowledged = counts.acknowledged - counts.replays
        waiting = max(0, counts.offered - counts.unresolved - acknowledged)
        return (
            f"{now - self._started_at:6.1f} s  {self.phase:<9} "
            f"{(counts.acknowledged - last.acknowledged) / past:6.1f} writes/s "
            f"{(counts.throttled - last.throttled) / past:6.1f} throttles/s "
            f"{(counts.pages - last.pages) / past:6.1f} reads/s  "
            f"N {self._observations.shard_count}  environments {self._observations.most_environments}  "
            f"acknowledged {acknowledged}  waiting {waiting}"
        )


async def keep_showing(view: View, console: Console, *, stopped: asyncio.Event) -> None:
    """Show the view now and then until stopped, and once at the end."""
    is_last = False
    while not is_last:
        is_last = stopped.is_set()
        for line in (*view.new_events(), view.figures()):
            console.print(line)
        await stopped_within(stopped, LINE_SECONDS)
