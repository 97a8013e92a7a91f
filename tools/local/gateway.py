"""What calls the functions: the HTTP API's routes on loopback, without authorization, and the schedules."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from aiohttp import web
from multidict import CIMultiDict

from tools.local.events import (
    HttpRequest,
    HttpResponse,
    Route,
    build_http_event,
    build_schedule_event,
    find_route,
    message_response,
    read_http_response,
)
from tools.local.functions import FunctionPool, ThrottledInvocationError
from tools.local.runtime_api import PAYLOAD_LIMIT_BYTES
from tools.local.template import RouteSpec, ScheduleSpec

GATEWAY_BODY_LIMIT_BYTES = 10 * 1024 * 1024
INTEGRATION_SECONDS = 30.0
_CONNECTION_HEADERS = frozenset({"connection", "content-length", "transfer-encoding", "keep-alive", "date", "server"})


class Gateway:
    """Turns HTTP requests into invocations."""

    def __init__(self, routes: Sequence[RouteSpec], pools: Mapping[str, FunctionPool]) -> None:
        self._routes = {Route.parse(route.route_key): pools[route.function] for route in routes}

    def app(self) -> web.Application:
        """Build the server."""
        app = web.Application(client_max_size=GATEWAY_BODY_LIMIT_BYTES)
        app.router.add_route("*", "/{path:(?s:.*)}", self._serve)  # a path may hold an encoded end of line
        return app

    async def _serve(self, request: web.Request) -> web.Response:
        # The target as it was sent: aiohttp's own path is normalized and decoded.
        path, _, query = request.raw_path.partition("?")
        found = find_route(self._routes, request.method, path)
        if found is None:
            return _send(message_response(404, "Not Found"))
        route, parameters = found
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            return _send(message_response(413, "Request Entity Too Large"))
        received = HttpRequest(
            request.method, path, query, tuple(request.headers.items()), body, request.remote or "127.0.0.1"
        )
        event = build_http_event(
            received, route, parameters, request_id=uuid.uuid4().hex[:16], now_ms=time.time_ns() // 1_000_000
        )
        payload = json.dumps(event).encode()
        if len(payload) > PAYLOAD_LIMIT_BYTES:
            return _send(message_response(413, "Request Entity Too Large"))
        return _send(await _invoke(self._routes[route], payload))


async def _invoke(pool: FunctionPool, payload: bytes) -> HttpResponse:
    """Invoke and translate what went wrong: 503 where Lambda throttles or is too slow, 500 where the function fails."""
    try:
        async with asyncio.timeout(INTEGRATION_SECONDS):
            outcome = await pool.invoke(payload)
    except (ThrottledInvocationError, TimeoutError):
        return message_response(503, "Service Unavailable")
    if outcome.error is not None:
        return message_response(500, "Internal Server Error")
    return read_http_response(outcome.payload)


def _send(response: HttpResponse) -> web.Response:
    headers = CIMultiDict((name, value) for name, value in response.headers if name.lower() not in _CONNECTION_HEADERS)
    return web.Response(status=response.status, body=response.body, headers=headers)


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
