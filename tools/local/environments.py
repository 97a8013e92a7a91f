"""Execution environments: one process each, one request at a time, stopped in between, as Lambda does it."""

from __future__ import annotations

import asyncio
import compileall
import json
import shutil
import signal
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from tools.local.events import REGION
from tools.local.processes import LocalRunError, kill, send_signal, start_process
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
        self.thaw()
        self._api.deliver(invocation)

    def freeze(self) -> None:
        """Stop the process until the next event."""
        if self._process is not None and not self.is_frozen:
            send_signal(self._process, signal.SIGSTOP)
            self.is_frozen = True

    def thaw(self) -> None:
        """Continue a stopped process."""
        if self._process is not None and self.is_frozen:
            send_signal(self._process, signal.SIGCONT)
            self.is_frozen = False

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
