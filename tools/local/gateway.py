"""What calls the functions: the HTTP API's routes on loopback, without authorization, and the schedules."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime

from aiohttp import web
from multidict import CIMultiDict

from tools.local.environment import PAYLOAD_LIMIT_BYTES
from tools.local.events import HttpRequest, build_http_event, build_schedule_event, find_route
from tools.local.functions import FunctionPool, ThrottledInvocationError
from tools.local.template import ScheduleSpec

GATEWAY_BODY_LIMIT_BYTES = 10 * 1024 * 1024
INTEGRATION_SECONDS = 30.0
_CONNECTION_HEADERS = frozenset({"connection", "content-length", "transfer-encoding", "keep-alive", "date", "server"})
_SCHEDULED_TIME = "<aws.scheduler.scheduled-time>"
"""The one of the Scheduler's context attributes that is in use."""


class Gateway:
    """Turns HTTP requests into invocations; `functions` are the pools behind the route keys."""

    def __init__(self, functions: Mapping[str, FunctionPool]) -> None:
        self._functions = functions

    def app(self) -> web.Application:
        """Build the server."""
        app = web.Application(client_max_size=GATEWAY_BODY_LIMIT_BYTES)
        app.router.add_route("*", "/{path:(?s:.*)}", self._serve)  # a path may hold an encoded end of line
        return app

    async def _serve(self, request: web.Request) -> web.Response:
        # The target as it was sent: aiohttp's own path is normalized and decoded.
        path, _, query = request.raw_path.partition("?")
        found = find_route(self._functions, request.method, path)
        if found is None:
            return _say(404, "Not Found")
        route_key, parameters = found
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            return _say(413, "Request Entity Too Large")
        received = HttpRequest(
            request.method, path, query, tuple(request.headers.items()), body, request.remote or "127.0.0.1"
        )
        event = build_http_event(
            received, route_key, parameters, request_id=uuid.uuid4().hex[:16], now_ms=time.time_ns() // 1_000_000
        )
        payload = json.dumps(event).encode()
        if len(payload) > PAYLOAD_LIMIT_BYTES:
            return _say(413, "Request Entity Too Large")
        return await _invoke(self._functions[route_key], payload)


async def _invoke(pool: FunctionPool, payload: bytes) -> web.Response:
    """Invoke and translate what went wrong: 503 where Lambda throttles or is too slow, 500 where the function fails."""
    try:
        async with asyncio.timeout(INTEGRATION_SECONDS):
            outcome = await pool.invoke(payload)
    except (ThrottledInvocationError, TimeoutError):
        return _say(503, "Service Unavailable")
    try:
        if outcome.error is None:
            return _read_response(outcome.payload)
    except (ValueError, TypeError, AttributeError):
        pass  # a response that cannot be read is the function's failure
    return _say(500, "Internal Server Error")


def _say(status: int, message: str) -> web.Response:
    """Respond for the gateway itself."""
    return web.json_response({"message": message}, status=status)


def _read_response(payload: bytes) -> web.Response:
    """Turn what a function returned, in format 2.0, into an HTTP response.

    Without `statusCode` all of it is the body (API Gateway's shorthand).
    """
    response = json.loads(payload)
    if not isinstance(response, dict) or "statusCode" not in response:
        text = response if isinstance(response, str) else json.dumps(response)
        return web.Response(text=text, content_type="application/json")
    body = response.get("body") or ""
    raw = base64.b64decode(body, validate=True) if response.get("isBase64Encoded") else str(body).encode()
    given = [*(response.get("headers") or {}).items()]
    given += [("Set-Cookie", cookie) for cookie in response.get("cookies") or ()]
    headers = CIMultiDict((name, str(value)) for name, value in given if name.lower() not in _CONNECTION_HEADERS)
    headers.setdefault("Content-Type", "text/plain; charset=utf-8")
    return web.Response(status=int(response["statusCode"]), body=raw, headers=headers)


async def fire(schedule: ScheduleSpec, pool: FunctionPool) -> None:
    """Fire a schedule until cancelled. Runs overlap; one that the reserved concurrency refuses is left out.

    The first run starts at once, where the real one may take up to a minute and a half.
    """
    due = asyncio.get_running_loop().time()
    async with asyncio.TaskGroup() as runs:
        while True:
            runs.create_task(_run(schedule, pool))
            due += schedule.every_seconds
            await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))


async def _run(schedule: ScheduleSpec, pool: FunctionPool) -> None:
    event = build_schedule_event(schedule.name, event_id=str(uuid.uuid4()), now=datetime.now(UTC))
    payload = schedule.payload
    payload = json.dumps(event) if payload is None else payload.replace(_SCHEDULED_TIME, event["time"])
    # A refusal is counted by the pool; the next run is near.
    with contextlib.suppress(ThrottledInvocationError):
        await pool.invoke(payload.encode())
