"""The Lambda Runtime API of one execution environment, on a port of its own, which identifies it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web

PAYLOAD_LIMIT_BYTES = 6 * 1024 * 1024
"""Lambda's limit on a synchronous request or response."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an invocation ended. `error` is None when the function returned; otherwise it is Lambda's error type."""

    payload: bytes
    error: str | None = None


@dataclass(slots=True, eq=False)
class Invocation:
    """One event on its way through an environment."""

    request_id: str
    event: bytes
    outcome: asyncio.Future[Outcome] = field(repr=False)
    deadline_ms: int

    def finish(self, outcome: Outcome) -> None:
        """Set the outcome unless there is one already (a timeout and a response can cross)."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)


def error_payload(type_: str, message: str) -> bytes:
    """Build the payload of a failed invocation as Lambda does."""
    return json.dumps({"errorType": type_, "errorMessage": message}).encode()


class RuntimeApi:
    """Hands one invocation at a time to the runtime.

    `on_next`: the runtime asks for an event, so initialization, or the previous invocation, is over. `on_init_error`:
    the handler could not be imported.
    """

    def __init__(self, function_arn: str, on_next: Callable[[], None], on_init_error: Callable[[bytes], None]) -> None:
        self._function_arn = function_arn
        self._on_next = on_next
        self._on_init_error = on_init_error
        self._waiting: asyncio.Future[Invocation] | None = None
        self._current: Invocation | None = None
        self._runner: web.AppRunner | None = None

    async def start(self) -> int:
        """Listen on a free port and return it."""
        app = web.Application(client_max_size=PAYLOAD_LIMIT_BYTES * 2)
        prefix = "/2018-06-01/runtime"
        app.router.add_get(f"{prefix}/invocation/next", self._next)
        app.router.add_post(f"{prefix}/invocation/{{request_id}}/response", self._response)
        app.router.add_post(f"{prefix}/invocation/{{request_id}}/error", self._error)
        app.router.add_post(f"{prefix}/init/error", self._init_error)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        port: int = self._runner.addresses[0][1]
        return port

    async def stop(self) -> None:
        """Stop listening; a waiting runtime is let go."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.cancel()
        if self._runner is not None:
            await self._runner.cleanup()

    def deliver(self, invocation: Invocation) -> None:
        """Respond to the runtime's waiting `next`. REQUIRES: `on_next` was called, and nothing delivered since."""
        if self._waiting is None:
            raise RuntimeError("the runtime has not asked for an event")
        self._current = invocation
        self._waiting.set_result(invocation)

    async def _next(self, _: web.Request) -> web.Response:
        self._current = None
        self._waiting = asyncio.get_running_loop().create_future()
        self._on_next()
        with contextlib.suppress(asyncio.CancelledError):
            invocation = await self._waiting
            return web.Response(
                body=invocation.event,
                content_type="application/json",
                headers={
                    "Lambda-Runtime-Aws-Request-Id": invocation.request_id,
                    "Lambda-Runtime-Deadline-Ms": str(invocation.deadline_ms),
                    "Lambda-Runtime-Invoked-Function-Arn": self._function_arn,
                    "Lambda-Runtime-Trace-Id": f"Root=1-{invocation.deadline_ms // 1000:08x}-{'0' * 24};Sampled=0",
                },
            )
        return web.Response(status=410)

    async def _response(self, request: web.Request) -> web.Response:
        body = await request.read()
        if len(body) > PAYLOAD_LIMIT_BYTES:
            message = f"Response payload size exceeded maximum allowed payload size ({PAYLOAD_LIMIT_BYTES} bytes)."
            type_ = "Function.ResponseSizeTooLarge"
            return self._finish(request, Outcome(error_payload(type_, message), type_), status=413)
        return self._finish(request, Outcome(body))

    async def _error(self, request: web.Request) -> web.Response:
        type_ = request.headers.get("Lambda-Runtime-Function-Error-Type", "Unhandled")
        return self._finish(request, Outcome(await request.read(), type_))

    async def _init_error(self, request: web.Request) -> web.Response:
        self._on_init_error(await request.read())
        return web.json_response({"status": "OK"}, status=202)

    def _finish(self, request: web.Request, outcome: Outcome, status: int = 202) -> web.Response:
        if self._current is None or request.match_info["request_id"] != self._current.request_id:
            return web.json_response({"errorType": "InvalidRequestID", "errorMessage": "unknown request"}, status=400)
        self._current.finish(outcome)
        return web.json_response({"status": "OK"}, status=status)
