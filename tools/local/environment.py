"""An execution environment of Lambda: one process, stopped between requests, and the Runtime API that it talks to."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum

from aiohttp import web

from tools.local.processes import LocalRunError, kill, send_signal

PAYLOAD_LIMIT_BYTES = 6 * 1024 * 1024
"""Lambda's limit on a synchronous request or response."""
INIT_SECONDS = 120.0
"""Lambda gives 10 s; a laptop that starts many environments at once needs more."""
_PREFIX = "/2018-06-01/runtime"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an invocation ended. `error` is None when the function returned; otherwise it is Lambda's error type."""

    payload: bytes
    error: str | None = None


def failure(type_: str, message: str) -> Outcome:
    """Build the outcome of a failed invocation as Lambda does."""
    return Outcome(json.dumps({"errorType": type_, "errorMessage": message}).encode(), type_)


@dataclass(slots=True, eq=False)
class Invocation:
    """One event on its way through an environment."""

    request_id: str
    event: bytes
    deadline_ms: int
    outcome: asyncio.Future[Outcome] = field(repr=False)

    def finish(self, outcome: Outcome) -> None:
        """Set the outcome unless there is one already (a timeout and a response can cross)."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class State(StrEnum):
    """What an environment is doing."""

    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    DEAD = "dead"


class ExecutionEnvironment:
    """One process, and its Runtime API on a port of its own, which identifies it.

    `start` starts the process, given that port. The owner learns through `on_change` that it is free, or dead.
    """

    def __init__(
        self,
        function_arn: str,
        start: Callable[[int], Awaitable[asyncio.subprocess.Process]],
        on_change: Callable[[ExecutionEnvironment], None],
    ) -> None:
        self.state = State.STARTING
        self.is_frozen = False
        self.init_error: str | None = None
        self._function_arn = function_arn
        self._start = start
        self._on_change = on_change
        self._process: asyncio.subprocess.Process | None = None
        self._invocation: Invocation | None = None
        self._asked: asyncio.Future[Invocation] | None = None
        self._started = asyncio.create_task(self._launch())
        self._watcher: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process id, or None before the start."""
        return None if self._process is None else self._process.pid

    @property
    def is_coming(self) -> bool:
        """It will ask for an event in a moment: it starts, or has just responded."""
        has_responded = self._invocation is not None and self._invocation.outcome.done()
        return self.state is State.STARTING or has_responded

    def invoke(self, invocation: Invocation) -> None:
        """Continue the process and hand it an event. REQUIRES: it is idle."""
        assert self._asked is not None  # noqa: S101 - so it became idle
        self._invocation = invocation
        self.state = State.BUSY
        self.freeze(is_frozen=False)
        self._asked.set_result(invocation)

    def freeze(self, *, is_frozen: bool = True) -> None:
        """Stop the process until the next event, or let it go on."""
        if self._process is not None and self.is_frozen is not is_frozen:
            send_signal(self._process, signal.SIGSTOP if is_frozen else signal.SIGCONT)
            self.is_frozen = is_frozen

    async def kill(self) -> None:
        """Kill the process, whatever it does, and wait until it is gone."""
        await asyncio.shield(self._started)
        await kill(self._process)
        if self._watcher is not None:
            await asyncio.shield(self._watcher)

    # Its life.

    async def _launch(self) -> None:
        runner = web.AppRunner(self._app(), access_log=None, shutdown_timeout=0.0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            self._process = await self._start(runner.addresses[0][1])
        except LocalRunError as error:
            self.init_error = str(error)
            await self._end(runner)
        else:
            self._watcher = asyncio.create_task(self._watch(self._process, runner))

    async def _watch(self, process: asyncio.subprocess.Process, runner: web.AppRunner) -> None:
        ended = asyncio.create_task(process.wait())
        await asyncio.wait([ended], timeout=INIT_SECONDS)
        if self.state is State.STARTING and not ended.done():
            self.init_error = f"no initialization within {INIT_SECONDS:.0f} s"
            await kill(process)
        status = await ended
        if self.state is State.STARTING and self.init_error is None:
            self.init_error = f"the process ended with status {status}"
        if self._invocation is not None:
            message = f"RequestId: {self._invocation.request_id} Error: Runtime exited with status {status}"
            self._invocation.finish(failure("Runtime.ExitError", message))
            self._invocation = None
        await self._end(runner)

    async def _end(self, runner: web.AppRunner) -> None:
        self.state = State.DEAD
        if self._asked is not None:
            self._asked.cancel()
        await runner.cleanup()
        self._on_change(self)

    # Its Runtime API.

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=PAYLOAD_LIMIT_BYTES * 2)
        app.router.add_get(f"{_PREFIX}/invocation/next", self._next)
        app.router.add_post(f"{_PREFIX}/invocation/{{request_id}}/response", self._response)
        app.router.add_post(f"{_PREFIX}/invocation/{{request_id}}/error", self._error)
        app.router.add_post(f"{_PREFIX}/init/error", self._init_error)
        return app

    async def _next(self, _: web.Request) -> web.Response:
        """Become idle: initialization, or the previous invocation, is over."""
        self._invocation = None
        self._asked = asyncio.get_running_loop().create_future()
        self.state = State.IDLE
        self._on_change(self)
        with contextlib.suppress(asyncio.CancelledError):
            invocation = await self._asked
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
            return self._finish(request, failure("Function.ResponseSizeTooLarge", message), status=413)
        return self._finish(request, Outcome(body))

    async def _error(self, request: web.Request) -> web.Response:
        type_ = request.headers.get("Lambda-Runtime-Function-Error-Type", "Unhandled")
        return self._finish(request, Outcome(await request.read(), type_))

    async def _init_error(self, request: web.Request) -> web.Response:
        """Keep why the handler could not be imported. The process ends by itself afterwards."""
        self.init_error = (await request.read()).decode(errors="replace")
        return web.json_response({"status": "OK"}, status=202)

    def _finish(self, request: web.Request, outcome: Outcome, status: int = 202) -> web.Response:
        if self._invocation is None or request.match_info["request_id"] != self._invocation.request_id:
            return web.json_response({"errorType": "InvalidRequestID", "errorMessage": "unknown request"}, status=400)
        self._invocation.finish(outcome)
        return web.json_response({"status": "OK"}, status=status)
