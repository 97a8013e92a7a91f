"""EventBridge Scheduler's part: starts a function at once and then at the template's rate."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from datetime import UTC, datetime

from tools.local.events import build_schedule_event
from tools.local.pool import FunctionPool, ThrottledInvocationError
from tools.local.template import ScheduleSpec

_SCHEDULED_TIME = "<aws.scheduler.scheduled-time>"
"""The one of the Scheduler's context attributes that is in use."""


class Scheduler:
    """Fires one schedule. Runs overlap; one that the reserved concurrency refuses is left out and counted as throttled.

    The first run starts at once, where the real one may take up to a minute and a half.
    """

    def __init__(self, schedule: ScheduleSpec, pool: FunctionPool) -> None:
        self._schedule = schedule
        self._pool = pool
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start firing."""
        self._keep(asyncio.create_task(self._fire_for_ever()))

    async def stop(self) -> None:
        """Stop firing; what runs is left to its pool."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _fire_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            self._keep(asyncio.create_task(self._fire()))
            due += self._schedule.every_seconds
            await asyncio.sleep(max(0.0, due - loop.time()))

    async def _fire(self) -> None:
        event = build_schedule_event(self._schedule.name, event_id=str(uuid.uuid4()), now=datetime.now(UTC))
        payload = self._schedule.payload
        payload = json.dumps(event) if payload is None else payload.replace(_SCHEDULED_TIME, event["time"])
        # A refusal is counted by the pool; the next run is near.
        with contextlib.suppress(ThrottledInvocationError):
            await self._pool.invoke(payload.encode())

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
