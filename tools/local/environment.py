"""An execution environment of Lambda: a process with Lambda's runtime, and the Runtime API that it talks to."""

from __future__ import annotations

import asyncio
import compileall
import json
import shutil
import signal
import sys
import sysconfig
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from tools.local.events import REGION
from tools.local.processes import LocalRunError, kill, send_signal, start_process
from tools.local.template import FunctionSpec

PAYLOAD_LIMIT_BYTES = 6 * 1024 * 1024
"""Lambda's limit on a synchronous request or response."""
INIT_SECONDS = 120.0
"""Lambda gives 10 s; a laptop that starts many environments at once needs more."""
_PREFIX = "/2018-06-01/runtime"
_RUNTIME_PACKAGES = ("awslambdaric", "simplejson", "snapshot_restore_py.py")
_SDK_PACKAGES = ("boto3", "botocore", "dateutil", "jmespath", "s3transfer", "six.py", "urllib3")
"""What Lambda's Python brings with it, too, behind all layers."""


def install_runtime(folder: Path) -> None:
    """Put runtime client and AWS's SDK into a folder: functions find them there, and nothing else of this program's."""
    source = Path(sysconfig.get_paths()["platlib"])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    compiled = [path.name for path in source.glob("runtime_client*.so")] or ["runtime_client*.so"]
    for name in (*_RUNTIME_PACKAGES, *compiled):
        path = source / name
        if not path.exists():
            raise LocalRunError(f"the Lambda runtime client is incomplete: {name} is not installed")
        if path.is_dir():
            shutil.copytree(path, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(path, folder / name)
    shutil.copy2(Path(__file__).with_name("altered.py"), folder)
    compileall.compile_dir(folder, quiet=2)
    for name in _SDK_PACKAGES:
        (folder / name).symlink_to(source / name)  # 30 MB


def check_runtime(function: FunctionSpec) -> None:
    """Refuse a template that was made for another Python than this one."""
    running = f"python{sys.version_info.major}.{sys.version_info.minor}"
    if function.runtime != running:
        raise LocalRunError(f"function {function.name} wants {function.runtime}, this is {running}")


@dataclass(frozen=True, slots=True)
class Launcher:
    """Knows how the processes of one function are started; `altered` is what one after the other is altered by."""

    function: FunctionSpec
    runtime_dir: Path
    log_dir: Path
    dynamodb_endpoint: str
    altered: Sequence[Mapping[str, Any]] = ()

    @property
    def log_path(self) -> Path:
        """Where all its processes write."""
        return self.log_dir / f"{self.function.name}.log"

    async def start(self, api_port: int, number: int) -> asyncio.subprocess.Process:
        """Start one process, on the interpreter itself and not on this program's virtual environment."""
        function = self.function
        # Later layers cover earlier ones, as they do in /opt.
        layers = [str(folder / "python") for folder in reversed(function.layer_dirs)]
        environment = {
            **function.environment,
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_SESSION_TOKEN": "local",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL_DYNAMODB": self.dynamodb_endpoint,
            "AWS_EXECUTION_ENV": f"AWS_Lambda_{function.runtime}",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_mb),
            "AWS_LAMBDA_FUNCTION_NAME": function.arn.rpartition(":")[2],
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "AWS_LAMBDA_LOG_FORMAT": function.log_format,
            "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{function.name}",
            "AWS_LAMBDA_LOG_STREAM_NAME": f"local/[$LATEST]{number:08d}",
            "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{api_port}",
            "LAMBDA_TASK_ROOT": str(function.code_dir),
            "LANG": "en_US.UTF-8",
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": ":".join([str(function.code_dir), *layers, str(self.runtime_dir)]),
            "PYTHONDONTWRITEBYTECODE": "1",  # /opt and /var/task are read-only
            "TZ": ":UTC",
            "_HANDLER": function.handler,
        }
        client = ["awslambdaric"]
        if self.altered:
            client = ["altered", json.dumps(self.altered[number % len(self.altered)])]
        command = [str(getattr(sys, "_base_executable", sys.executable)), "-S", "-m", *client, function.handler]
        with self.log_path.open("ab") as log:
            return await start_process(command, log=log, cwd=function.code_dir, env=environment)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an invocation ended. `error` is None when the function returned; otherwise it is Lambda's error type."""

    payload: bytes
    error: str | None = None


def failure(type_: str, message: str) -> Outcome:
    """Build the outcome of a failed invocation as Lambda does."""
    return Outcome(json.dumps({"errorType": type_, "errorMessage": message}).encode(), type_)


def _future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


@dataclass(slots=True, eq=False)
class Invocation:
    """One event on its way: to the environment that takes it, and through it."""

    event: bytes
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    taken: asyncio.Future[ExecutionEnvironment] = field(default_factory=_future)
    outcome: asyncio.Future[Outcome] = field(default_factory=_future)

    def finish(self, outcome: Outcome) -> None:
        """Set the outcome unless there is one already (a timeout and a response can cross)."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class ExecutionEnvironment:
    """One process, and its Runtime API on a port of its own, which identifies it.

    The owner learns through `on_change` that it is free, or over.
    """

    def __init__(self, launcher: Launcher, number: int, on_change: Callable[[ExecutionEnvironment], None]) -> None:
        self.is_frozen = self.is_over = False
        self.init_error: Outcome | None = None
        self._launcher, self._number, self._on_change = launcher, number, on_change
        self._process: asyncio.subprocess.Process | None = None
        self._is_killed = False
        self._asked: asyncio.Future[Invocation] | None = None
        """What the process waits for, once it is initialized."""
        self._invocation: Invocation | None = None
        self._life = asyncio.create_task(self._live())

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    @property
    def is_free(self) -> bool:
        """It waits for an event."""
        return self._asked is not None and not self._asked.done()

    @property
    def is_busy(self) -> bool:
        """It has an event, and has not responded yet."""
        return self._invocation is not None and not self._invocation.outcome.done()

    def invoke(self, invocation: Invocation) -> None:
        """Continue the process and hand it an event. REQUIRES: it is free."""
        assert self._asked is not None  # noqa: S101 - so it became free
        self._invocation = invocation
        invocation.taken.set_result(self)
        self._freeze(is_frozen=False)
        self._asked.set_result(invocation)

    async def kill(self) -> None:
        """Kill the process, whatever it does, and wait until it is gone."""
        self._is_killed = True
        await kill(self._process)
        await asyncio.shield(self._life)

    def _freeze(self, *, is_frozen: bool) -> None:
        """Stop the process until the next event, or let it go on."""
        if self._process is not None:
            send_signal(self._process, signal.SIGSTOP if is_frozen else signal.SIGCONT)
            self.is_frozen = is_frozen

    # Its life.

    async def _live(self) -> None:
        runner = web.AppRunner(self._app(), access_log=None, shutdown_timeout=0.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self._process = await self._launcher.start(runner.addresses[0][1], self._number)
            await self._watch(self._process)
        except (LocalRunError, OSError) as error:
            self._fail_init(str(error))
        await runner.cleanup()
        self.is_over = True
        self._on_change(self)

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        """Wait until the process ends; what it has under way fails then."""
        if self._is_killed:
            await kill(process)
        asyncio.get_running_loop().call_later(INIT_SECONDS, self._give_up, process)
        status = await process.wait()
        if self._asked is None:
            self._fail_init(f"the process ended with status {status}")
        else:
            self._asked.cancel()
        if self._invocation is not None:
            message = f"RequestId: {self._invocation.request_id} Error: Runtime exited with status {status}"
            self._invocation.finish(failure("Runtime.ExitError", message))

    def _give_up(self, process: asyncio.subprocess.Process) -> None:
        if self._asked is None:
            self._fail_init(f"no initialization within {INIT_SECONDS:.0f} s")
            send_signal(process, signal.SIGKILL)

    def _fail_init(self, message: str) -> None:
        self.init_error = self.init_error or failure("Runtime.ExitError", message)

    # Its Runtime API.

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=PAYLOAD_LIMIT_BYTES * 2)
        app.router.add_get(f"{_PREFIX}/invocation/next", self._next)
        app.router.add_post(f"{_PREFIX}/invocation/{{request_id}}/response", self._response)
        app.router.add_post(f"{_PREFIX}/invocation/{{request_id}}/error", self._error)
        app.router.add_post(f"{_PREFIX}/init/error", self._init_error)
        return app

    async def _next(self, _: web.Request) -> web.Response:
        """Become free: initialization, or the previous invocation, is over."""
        self._invocation = None
        self._asked = _future()
        self._freeze(is_frozen=True)
        self._on_change(self)
        try:
            invocation = await self._asked
        except asyncio.CancelledError:
            return web.Response(status=410)
        deadline_ms = int((time.time() + self._launcher.function.timeout_seconds) * 1000)
        return web.Response(
            body=invocation.event,
            content_type="application/json",
            headers={
                "Lambda-Runtime-Aws-Request-Id": invocation.request_id,
                "Lambda-Runtime-Deadline-Ms": str(deadline_ms),
                "Lambda-Runtime-Invoked-Function-Arn": self._launcher.function.arn,
                "Lambda-Runtime-Trace-Id": f"Root=1-{deadline_ms // 1000:08x}-{'0' * 24};Sampled=0",
            },
        )

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
        self.init_error = Outcome(await request.read(), "Unhandled")
        return web.json_response({"status": "OK"}, status=202)

    def _finish(self, request: web.Request, outcome: Outcome, status: int = 202) -> web.Response:
        if self._invocation is None or request.match_info["request_id"] != self._invocation.request_id:
            return web.json_response({"errorType": "InvalidRequestID", "errorMessage": "unknown request"}, status=400)
        self._invocation.finish(outcome)
        return web.json_response({"status": "OK"}, status=status)
