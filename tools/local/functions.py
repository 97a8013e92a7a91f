"""Lambda's part: how a function's environments are started, and pools that run one request at a time in each."""

from __future__ import annotations

import asyncio
import compileall
import json
import random
import shutil
import sys
import sysconfig
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tools.local.environment import ExecutionEnvironment, Invocation, Outcome, State, failure
from tools.local.events import REGION
from tools.local.processes import LocalRunError, log_tail, start_process
from tools.local.template import FunctionSpec

_RUNTIME_PACKAGES = ("awslambdaric", "simplejson", "snapshot_restore_py.py")
_SDK_PACKAGES = ("boto3", "botocore", "dateutil", "jmespath", "s3transfer", "six.py", "urllib3")
"""What Lambda's Python brings with it, too, behind all layers."""
_COUNTED = ("started", "killed", "invocations", "errors", "init_errors", "throttled")
"""What a pool counts since its start."""


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


class ThrottledInvocationError(Exception):
    """Lambda would respond with TooManyRequestsException: no environment within the time or concurrency allowed."""


@dataclass(slots=True, kw_only=True, eq=False)
class FunctionPool:
    """Invokes one function, in an idle environment that is drawn at random."""

    launcher: Launcher
    min_environments: int
    max_environments: int
    rng: random.Random
    queue_seconds: float = 25.0
    counts: Counter[str] = field(default_factory=Counter)
    _environments: list[ExecutionEnvironment] = field(default_factory=list)
    _idle: list[ExecutionEnvironment] = field(default_factory=list)
    """Those that the semaphore counts; one that was killed meanwhile is found dead, and passed over."""
    _free: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    _waiting: int = 0
    _in_flight: int = 0
    _is_closed: bool = False
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
        while not self.counts["init_errors"] and len(self._idle) < self.min_environments:
            self._prepared.clear()
            await self._prepared.wait()
        if self.counts["init_errors"]:
            name, log = self.launcher.function.name, self.launcher.log_path
            raise LocalRunError(f"function {name} cannot be initialized:{log_tail(log)}")

    async def stop(self) -> None:
        """Kill every environment."""
        self._is_closed = True
        await asyncio.gather(*(environment.kill() for environment in list(self._environments)))

    async def invoke(self, event: bytes) -> Outcome:
        """Run the function on an event.

        Raises:
            ThrottledInvocationError: when the reserved concurrency is used up, or no environment gets free in time.
        """
        function = self.launcher.function
        limit = 0 if self.max_environments == 0 else function.reserved_concurrency
        if limit is not None and self._in_flight >= limit:
            self.counts["throttled"] += 1
            raise ThrottledInvocationError(f"the reserved concurrency of {function.name} is used up")
        self._in_flight += 1
        try:
            environment = await self._acquire()
            while environment.state is State.DEAD and environment.init_error is None:  # it was killed on the way here
                environment = await self._acquire()
            outcome = await self._run(environment, event)
        finally:
            self._in_flight -= 1
        self.counts["errors"] += outcome.error is not None
        return outcome

    async def kill_one(self) -> int | None:
        """Kill one environment, a busy one if there is any, and return its process id."""
        alive = [e for e in self._environments if e.state is not State.DEAD and e.pid is not None]
        victim = next((e for e in alive if e.state is State.BUSY), alive[0] if alive else None)
        if victim is None:
            return None
        self.counts["killed"] += 1
        await victim.kill()
        return victim.pid

    def status(self) -> dict[str, int]:
        """Describe the pool in numbers."""
        return {
            "environments": len(self._environments),
            "busy": sum(e.state is State.BUSY for e in self._environments),
            "frozen": sum(e.is_frozen for e in self._environments),
            **{name: self.counts[name] for name in _COUNTED},
        }

    async def _run(self, environment: ExecutionEnvironment, event: bytes) -> Outcome:
        if environment.init_error is not None:
            report = environment.init_error
            is_payload = report.startswith("{")
            return Outcome(report.encode(), "Unhandled") if is_payload else failure("Runtime.ExitError", report)
        seconds = self.launcher.function.timeout_seconds
        invocation = Invocation(
            request_id=str(uuid.uuid4()),
            event=event,
            deadline_ms=int((time.time() + seconds) * 1000),
            outcome=asyncio.get_running_loop().create_future(),
        )
        self.counts["invocations"] += 1
        environment.invoke(invocation)
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(invocation.outcome)
        except TimeoutError:
            message = f"{invocation.request_id} Task timed out after {seconds:.2f} seconds"
            invocation.finish(failure("Sandbox.Timedout", message))
            await environment.kill()
            return invocation.outcome.result()

    async def _acquire(self) -> ExecutionEnvironment:
        """Take a free environment, or wait for one in the order of requests; a new one may be started for this."""
        self._waiting += 1
        self._start_what_is_missing()
        try:
            async with asyncio.timeout(self.queue_seconds):
                await self._free.acquire()
        except TimeoutError:
            self.counts["throttled"] += 1
            raise ThrottledInvocationError(f"no environment of {self.launcher.function.name} got free") from None
        finally:
            self._waiting -= 1
        return self._idle.pop(self.rng.randrange(len(self._idle)))

    def _start_what_is_missing(self) -> None:
        # One that has just responded is free sooner than a new one could be.
        coming = len(self._idle) + sum(environment.is_coming for environment in self._environments)
        if coming < self._waiting and len(self._environments) < self.max_environments:
            self._start_environment()

    def _start_environment(self) -> None:
        self.counts["started"] += 1
        start = partial(self.launcher.start, number=self.counts["started"])
        self._environments.append(ExecutionEnvironment(self.launcher.function.arn, start, self._on_change))

    def _on_change(self, environment: ExecutionEnvironment) -> None:
        """Freeze a free environment until a request takes it; forget a dead one.

        One that could not be initialized goes to the request that waits longest, which then fails.
        """
        self._prepared.set()
        if environment.state is State.IDLE:
            environment.freeze()
            self._offer(environment)
            return
        self._environments.remove(environment)
        if self._is_closed:
            return
        if environment.init_error is None:
            self._start_what_is_missing()
        else:
            self.counts["init_errors"] += 1
            if self._waiting:
                self._offer(environment)

    def _offer(self, environment: ExecutionEnvironment) -> None:
        self._idle.append(environment)
        self._free.release()
