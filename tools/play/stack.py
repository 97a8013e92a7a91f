"""A local run as a child process, and what is seen of it from outside: the route in DynamoDB, what each key takes.

Raises are read from the routing item itself, the journal, and not from a log: what is stored is what counts.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp

from hotpartition.core.route import Close, Generation, Route
from hotpartition.dynamodb.table import JournalPlace
from tools.local.metering import TimelineRow
from tools.local.processes import LocalRunError, kill, send_signal, start_process

STOP_SECONDS = 60.0
POLL_SECONDS = 0.1
CONTROL_SECONDS = 200.0
ROUTE_POLL_SECONDS = 0.2


@dataclass(slots=True)
class Control:
    """A local run that serves: its control API, and its DynamoDB behind the functions' back.

    What does not respond as it should is a `LocalRunError`.
    """

    session: aiohttp.ClientSession
    url: str
    status: Mapping[str, Any] = field(default_factory=dict)
    """As it was at the last look."""
    process: asyncio.subprocess.Process = field(init=False)
    log_file: Path = field(init=False)

    async def get(self, path: str) -> Any:
        """Get a document."""
        return await self._request("GET", path)

    async def post(self, path: str, body: Any = None) -> Any:
        """Give an order, with a document if it needs one."""
        return await self._request("POST", path, body)

    async def watch(self) -> None:
        """Wait for the local run to end by itself, which is a `LocalRunError`."""
        await self.process.wait()
        raise LocalRunError(f"the local run ended by itself: {last_words(self.log_file)} (all of it: {self.log_file})")

    async def look(self) -> Mapping[str, Any]:
        """Look at the status."""
        self.status = await self.get("/status")
        return self.status

    async def list_loads(self, since_ms: float = 0) -> tuple[TimelineRow, ...]:
        """List what DynamoDB saw at each key, by time."""
        document = await self.get(f"/dynamodb/timeline?since_ms={since_ms:.0f}")
        return tuple(TimelineRow(**bucket) for bucket in document["buckets"])

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
            async with self.session.post(dynamodb["endpoint"], data=json.dumps(request), headers=headers) as response:
                found = await response.json(content_type=None) if response.status == 200 else {}
                return found.get("Item", {})  # type: ignore[no-any-return]
        return {}

    async def _request(self, method: str, path: str, body: Any = None) -> Any:
        try:
            async with self.session.request(method, self.url.rstrip("/") + path, json=body) as response:
                text = await response.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise LocalRunError(f"the local run does not respond {method} {path}: {error}") from error
        if response.status >= 300:
            raise LocalRunError(f"the local run answered {response.status} to {method} {path}: {text[:200]}")
        return json.loads(text) if text else {}


@asynccontextmanager
async def running_stack(
    out_dir: Path, say: Callable[[str], None] = lambda _: None, **config: Any
) -> AsyncIterator[Control]:
    """Start a local run, say what it is at until it serves, and end it after the block, whatever happens there.

    It dies with this process also when that is killed and has no time to end it (`local.processes`). Its files lie in
    `out_dir`. `config` has fields of `LocalConfig`. There is no limit to its start: it limits each of its own steps,
    and on a busy machine all of them together take long.

    Raises:
        LocalRunError: it ended; the text has its last line.
    """
    ready_file, log_file = out_dir / "ready.json", out_dir / "local.log"
    ready_file.unlink(missing_ok=True)
    log_file.parent.mkdir(parents=True, exist_ok=True)
    config |= {"work_dir": out_dir / "local", "ready_file": ready_file}
    command = (sys.executable, "-m", "tools.local", "up", "--more", json.dumps(config, default=str))
    with log_file.open("wb") as log:
        process = await start_process(command, log=log)
    try:
        said = last_words(log_file)
        while not ready_file.exists():
            if process.returncode is not None:
                raise LocalRunError(f"the local run did not start: {last_words(log_file)} (all of it: {log_file})")
            if (step := last_words(log_file)) != said:
                say(said := step)
            await asyncio.sleep(POLL_SECONDS)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=CONTROL_SECONDS)) as session:
            control = Control(session, json.loads(ready_file.read_text())["control_url"])
            control.process, control.log_file = process, log_file
            await control.look()
            yield control
    finally:
        if process.returncode is None:
            send_signal(process, signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), STOP_SECONDS)
            except TimeoutError:
                await kill(process)


def last_words(log_file: Path) -> str:
    """Return the last line that a local run printed."""
    lines = [line for line in log_file.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it printed nothing"


@dataclass(slots=True)
class Observations:
    """What the journal holds of one conversation's route, each with when it came, in seconds since the epoch."""

    raises: dict[Generation, float] = field(default_factory=dict)
    closes: dict[Close, float] = field(default_factory=dict)

    @property
    def shard_count(self) -> int:
        """The largest N that the journal holds; 0 before the first raise."""
        return max((generation.shard_count for generation in self.raises), default=0)


def read_route(item: Mapping[str, Any]) -> Route:
    """Read the route out of a routing item."""
    return Route.decode(item.get("generations", {}).get("SS", ()))


async def watch_route(
    control: Control, conversation_id: str, seen: Observations, *, now: Callable[[], float], stopped: asyncio.Event
) -> None:
    """Look at a conversation's routing item until stopped and record every raise and close.

    A raise came at the item's `updated_at` if that lies between two looks, else now.
    """
    previous = now()
    while not stopped.is_set():
        asked_at = now()
        item = await control.routing_item(conversation_id)
        route, seen_at = read_route(item), now()
        with suppress(KeyError, ValueError):
            updated_at = datetime.fromisoformat(item["updated_at"]["S"]).timestamp()
            seen_at = updated_at if previous <= updated_at <= seen_at else seen_at
        for generation in sorted(route.generations):
            seen.raises.setdefault(generation, seen_at)
        for close in route.closes:
            seen.closes.setdefault(close, now())
        previous = asked_at if item else previous
        await asyncio.sleep(ROUTE_POLL_SECONDS)


async def stopped_within(stopped: asyncio.Event, seconds: float) -> bool:
    """Wait for a time, or until stopped, and say whether it is."""
    with suppress(TimeoutError):
        await asyncio.wait_for(stopped.wait(), max(0.0, seconds))
    return stopped.is_set()
