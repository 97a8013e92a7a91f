"""Lambda's part: environments of one process each, one request at a time, stopped in between; and pools of them."""

from __future__ import annotations

import asyncio
import compileall
import json
import random
import shutil
import signal
import sys
import sysconfig
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from tools.local.events import REGION
from tools.local.processes import LocalRunError, kill, log_tail, send_signal, start_process
from tools.local.runtime_api import Invocation, Outcome, RuntimeApi, error_payload
from tools.local.template import FunctionSpec

INIT_SECONDS = 120.0
"""Lambda gives 10 s; a laptop that starts many environments at once needs more."""

_RUNTIME_PACKAGES = ("awslambdaric", "simplejson", "snapshot_restore_py.py")
_SDK_PACKAGES = ("boto3", "botocore", "dateutil", "jmespath", "s3transfer", "six.py", "urllib3")
"""What Lambda's Python brings with it, too, behind all layers."""


class State(StrEnum):
    """What an environment is doing."""

    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    DEAD = "dead"


def install_runtime(folder: Path) -> None:
    """Put runtime client and AWS's SDK into a folder: functions find them there, and nothing else of this program's."""
    source = Path(sysconfig.get_paths()["platlib"])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    compiled = [path.name for path in source.glob("runtime_client*.so")]
    for name in (*_RUNTIME_PACKAGES, *compiled):
        path = source / name
        if path.is_dir():
            shutil.copytree(path, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif path.is_file():
            shutil.copy2(path, folder / name)
        else:
            raise LocalRunError(f"the Lambda runtime client is incomplete: {name} is not installed")
    if not compiled:
        raise LocalRunError("the Lambda runtime client is incomplete: its compiled part is not installed")
    shutil.copy2(Path(__file__).with_name("altered.py"), folder)
    compileall.compile_dir(folder, quiet=2)
    for name in _SDK_PACKAGES:
        (folder / name).symlink_to(source / name)  # 30 MB


def check_runtime(function: FunctionSpec) -> None:
    """Refuse a template that was made for another Python than this one."""
    running = f"python{sys.version_info.major}.{sys.version_info.minor}"
    if function.runtime != running:
        raise LocalRunError(f"function {function.name} wants {function.runtime}, this is {running}")


class Launcher:
    """Knows how the processes of one function are started; `altered` is what one after the other is altered by."""

    def __init__(
        self,
        function: FunctionSpec,
        *,
        runtime_dir: Path,
        log_dir: Path,
        dynamodb_endpoint: str,
        altered: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.function = function
        self._altered = altered
        self.log_path = log_dir / f"{function.name}.log"
        # Later layers cover earlier ones, as they do in /opt.
        layers = [str(folder / "python") for folder in reversed(function.layer_dirs)]
        self._environment = {
            **function.environment,
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_SESSION_TOKEN": "local",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL_DYNAMODB": dynamodb_endpoint,
            "AWS_EXECUTION_ENV": f"AWS_Lambda_{function.runtime}",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_mb),
            "AWS_LAMBDA_FUNCTION_NAME": function.arn.rpartition(":")[2],
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "AWS_LAMBDA_LOG_FORMAT": function.log_format,
            "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{function.name}",
            "LAMBDA_TASK_ROOT": str(function.code_dir),
            "LANG": "en_US.UTF-8",
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": ":".join([str(function.code_dir), *layers, str(runtime_dir)]),
            "PYTHONDONTWRITEBYTECODE": "1",  # /opt and /var/task are read-only
            "TZ": ":UTC",
            "_HANDLER": function.handler,
        }

    async def start(self, api_port: int, number: int) -> asyncio.subprocess.Process:
        """Start one process, on the interpreter itself and not on this program's virtual environment."""
        environment = {
            **self._environment,
            "AWS_LAMBDA_LOG_STREAM_NAME": f"local/[$LATEST]{number:08d}",
            "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{api_port}",
        }
        interpreter = str(getattr(sys, "_base_executable", sys.executable))
        client = ["awslambdaric"]
        if self._altered:
            client = ["altered", json.dumps(self._altered[number % len(self._altered)])]
        command = [interpreter, "-S", "-m", *client, self.function.handler]
        with self.log_path.open("ab") as log:
            return await start_process(command, log=log, cwd=self.function.code_dir, env=environment)


class ExecutionEnvironment:
    """One process and its Runtime API. Its owner learns of every change of state through `on_change`."""

    def __init__(self, launcher: Launcher, number: int, on_change: Callable[[ExecutionEnvironment], None]) -> None:
        self.number = number
        self.state = State.STARTING
        self.is_frozen = False
        self.init_error: str | None = None
        self._launcher = launcher
        self._on_change = on_change
        self._api = RuntimeApi(launcher.function.arn, self.on_next, self.on_init_error)
        self._process: asyncio.subprocess.Process | None = None
        self._invocation: Invocation | None = None
        self._watcher: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process id, or None before the start."""
        return None if self._process is None else self._process.pid

    @property
    def is_finishing(self) -> bool:
        """It has responded and will ask for the next event in a moment."""
        return self._invocation is not None and self._invocation.outcome.done()

    async def start(self) -> None:
        """Start the process; `on_change` follows when it is initialized, or has failed."""
        port = await self._api.start()
        self._process = await self._launcher.start(port, self.number)
        self._watcher = asyncio.create_task(self._watch(self._process))

    def invoke(self, invocation: Invocation) -> None:
        """Continue the process and hand it an event. REQUIRES: it is idle."""
        self._invocation = invocation
        self.state = State.BUSY
        self.freeze(is_frozen=False)
        self._api.deliver(invocation)

    def freeze(self, *, is_frozen: bool = True) -> None:
        """Stop the process until the next event, or let it go on."""
        if self._process is not None and self.is_frozen is not is_frozen:
            send_signal(self._process, signal.SIGSTOP if is_frozen else signal.SIGCONT)
            self.is_frozen = is_frozen

    async def kill(self) -> None:
        """Kill the process, whatever it does, and wait until it is gone."""
        await kill(self._process)
        if self._watcher is not None:
            await asyncio.shield(self._watcher)

    def on_next(self) -> None:
        """Become idle: the runtime waits for an event."""
        self._invocation = None
        self.state = State.IDLE
        self._on_change(self)

    def on_init_error(self, report: bytes) -> None:
        """Keep why the handler could not be imported. The process ends by itself afterwards."""
        self.init_error = report.decode(errors="replace")

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        ended = asyncio.create_task(process.wait())
        await asyncio.wait([ended], timeout=INIT_SECONDS)
        if self.state is State.STARTING and not ended.done():
            self.init_error = f"no initialization within {INIT_SECONDS:.0f} s"
            await kill(process)
        status = await ended
        was_starting = self.state is State.STARTING
        self.state = State.DEAD
        if was_starting and self.init_error is None:
            self.init_error = f"the process ended with status {status}"
        if self._invocation is not None:
            message = f"RequestId: {self._invocation.request_id} Error: Runtime exited with status {status}"
            self._invocation.finish(Outcome(error_payload("Runtime.ExitError", message), "Runtime.ExitError"))
            self._invocation = None
        await self._api.stop()
        self._on_change(self)


class ThrottledInvocationError(Exception):
    """Lambda would respond with TooManyRequestsException: no environment within the time or concurrency allowed."""


class _InitError(Exception):
    """The function cannot be initialized; `payload` says why, as Lambda does."""

    def __init__(self, report: str) -> None:
        super().__init__(report)
        is_report = report.startswith("{")
        self.payload = report.encode() if is_report else error_payload("Runtime.ExitError", report)


@dataclass(slots=True)
class PoolCounts:
    """What happened to one function since the start."""

    started: int = 0
    killed: int = 0
    invocations: int = 0
    errors: int = 0
    init_errors: int = 0
    throttled: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class FunctionPool:
    """Invokes one function, in an idle environment that is drawn at random."""

    launcher: Launcher
    min_environments: int
    max_environments: int
    rng: random.Random
    queue_seconds: float = 25.0
    counts: PoolCounts = field(default_factory=PoolCounts)
    _environments: list[ExecutionEnvironment] = field(default_factory=list)
    _idle: list[ExecutionEnvironment] = field(default_factory=list)
    _waiting: deque[asyncio.Future[ExecutionEnvironment]] = field(default_factory=deque)
    _in_flight: int = 0
    _is_closed: bool = False
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _prepared: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """Keep both limits within the function's reserved concurrency."""
        reserved = self.launcher.function.reserved_concurrency
        if reserved is not None:
            self.max_environments = min(self.max_environments, reserved)
        self.min_environments = min(self.min_environments, self.max_environments)

    async def start(self) -> None:
        """Start the least number of environments and wait until they are initialized."""
        for _ in range(self.min_environments):
            self._start_environment()
        while not self.counts.init_errors and len(self._idle) < self.min_environments:
            self._prepared.clear()
            await self._prepared.wait()
        if self.counts.init_errors:
            name, log = self.launcher.function.name, self.launcher.log_path
            raise LocalRunError(f"function {name} cannot be initialized:{log_tail(log)}")

    async def stop(self) -> None:
        """Kill every environment."""
        self._is_closed = True
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(environment.kill() for environment in list(self._environments)))

    async def invoke(self, event: bytes) -> Outcome:
        """Run the function on an event.

        Raises:
            ThrottledInvocationError: when the reserved concurrency is used up, or no environment gets free in time.
        """
        function = self.launcher.function
        limit = 0 if self.max_environments == 0 else function.reserved_concurrency
        if limit is not None and self._in_flight >= limit:
            self.counts.throttled += 1
            raise ThrottledInvocationError(f"the reserved concurrency of {function.name} is used up")
        self._in_flight += 1
        try:
            environment = await self._acquire()
            while environment.state is not State.IDLE:  # it was killed on the way here
                environment = await self._acquire()
            return await self._run(environment, event)
        except _InitError as error:
            self.counts.errors += 1
            return Outcome(error.payload, "Unhandled")
        finally:
            self._in_flight -= 1

    async def kill_one(self) -> int | None:
        """Kill one environment, a busy one if there is any, and return its process id."""
        alive = [e for e in self._environments if e.state is not State.DEAD and e.pid is not None]
        victim = next((e for e in alive if e.state is State.BUSY), alive[0] if alive else None)
        if victim is None:
            return None
        self.counts.killed += 1
        await victim.kill()
        return victim.pid

    def status(self) -> dict[str, int]:
        """Describe the pool in numbers."""
        return {
            "environments": len(self._environments),
            "busy": sum(e.state is State.BUSY for e in self._environments),
            "frozen": sum(e.is_frozen for e in self._environments),
            **asdict(self.counts),
        }

    async def _run(self, environment: ExecutionEnvironment, event: bytes) -> Outcome:
        function = self.launcher.function
        invocation = Invocation(
            request_id=str(uuid.uuid4()),
            event=event,
            outcome=asyncio.get_running_loop().create_future(),
            deadline_ms=int((time.time() + function.timeout_seconds) * 1000),
        )
        self.counts.invocations += 1
        environment.invoke(invocation)
        try:
            async with asyncio.timeout(function.timeout_seconds):
                outcome = await asyncio.shield(invocation.outcome)
        except TimeoutError:
            message = f"{invocation.request_id} Task timed out after {function.timeout_seconds:.2f} seconds"
            invocation.finish(Outcome(error_payload("Sandbox.Timedout", message), "Sandbox.Timedout"))
            await environment.kill()
            outcome = invocation.outcome.result()
        if outcome.error is not None:
            self.counts.errors += 1
        return outcome

    async def _acquire(self) -> ExecutionEnvironment:
        if self._idle:
            return self._idle.pop(self.rng.randrange(len(self._idle)))
        future: asyncio.Future[ExecutionEnvironment] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._start_what_is_missing()
        try:
            async with asyncio.timeout(self.queue_seconds):
                return await asyncio.shield(future)
        except (TimeoutError, asyncio.CancelledError) as error:
            self._give_up(future)
            if isinstance(error, asyncio.CancelledError):
                raise
            self.counts.throttled += 1
            raise ThrottledInvocationError(f"no environment of {self.launcher.function.name} got free") from None

    def _give_up(self, future: asyncio.Future[ExecutionEnvironment]) -> None:
        """Leave the queue; an environment that came at the last moment goes to the next in line."""
        if future in self._waiting:
            self._waiting.remove(future)
        if not future.cancel() and future.exception() is None and future.result().state is State.IDLE:
            self._on_idle(future.result())

    def _start_what_is_missing(self) -> None:
        # One that has just responded is free sooner than a new one could be.
        coming = sum(e.state is State.STARTING or e.is_finishing for e in self._environments)
        if coming < len(self._waiting) and len(self._environments) < self.max_environments:
            self._start_environment()

    def _start_environment(self) -> None:
        self.counts.started += 1
        environment = ExecutionEnvironment(self.launcher, self.counts.started, self._on_change)
        self._environments.append(environment)
        task = asyncio.create_task(self._launch(environment))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _launch(self, environment: ExecutionEnvironment) -> None:
        try:
            await environment.start()
        except LocalRunError as error:
            environment.init_error = str(error)
            environment.state = State.DEAD
            self._on_change(environment)

    def _on_change(self, environment: ExecutionEnvironment) -> None:
        """Give a free environment to the request that waits longest, or freeze it; forget a dead one."""
        self._prepared.set()
        if environment.state is State.IDLE:
            self._on_idle(environment)
            return
        self._environments.remove(environment)
        if environment in self._idle:
            self._idle.remove(environment)
        if environment.init_error is not None and not self._is_closed:
            self.counts.init_errors += 1
            if (future := self._next_in_line()) is not None:
                future.set_exception(_InitError(environment.init_error))
        elif not self._is_closed:
            self._start_what_is_missing()

    def _on_idle(self, environment: ExecutionEnvironment) -> None:
        if (future := self._next_in_line()) is not None:
            # Nothing else may take it before the waiting request runs.
            future.set_result(environment)
            return
        self._idle.append(environment)
        environment.freeze()

    def _next_in_line(self) -> asyncio.Future[ExecutionEnvironment] | None:
        while self._waiting:
            if not (future := self._waiting.popleft()).done():
                return future
        return None
