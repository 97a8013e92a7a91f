"""`cold-write`, `cold-read`, `cold-write-lite`: from a start of the real runtime client to its first response.

`layer-size`: what is unzipped at a cold start, against the same packages as pip installs them.
"""

from __future__ import annotations

import asyncio
import compileall
import hashlib
import json
import os
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotpartition_cdk.bundle import LIBRARY, LOCK, DependencyBundle, SourceBundle, run_pip
from hotpartition_cdk.bytecode import find_interpreter
from hotpartition_cdk.configuration import Host
from hotpartition_messages import Message
from hotpartition_messages.message_ids import mint_message_id
from infra.bundle import CACHE, MESSAGES
from infra.environments import choose_environment
from tools.benchmarks.measuring import MILLISECONDS, Bar, Measured, Samples, interleave
from tools.benchmarks.setup import (
    BODY,
    HOT_CONVERSATION,
    LAMBDAS,
    RIVALS,
    ROOT,
    Setup,
    function_environment,
    page_event,
    prepare_hot_conversation,
    write_event,
)
from tools.local.environments import install_runtime
from tools.local.processes import kill, start_process
from tools.local.runtime_api import Invocation, Outcome, RuntimeApi

STARTS = 3
"""Cold starts of each side in a run; a run's figure is their fastest: what disturbs a start only lengthens it."""
SOURCE_RUNS = 2
"""Starts without bytecode are for comparison, and take three times as long."""
WORK_DIR = ROOT / "out" / "bench" / "cold"
_RESPONSE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Deployment:
    """A function and its layers as they lie on a disk, in the order in which they are searched."""

    name: str
    folders: tuple[Path, ...]


def measure_cold(
    setup: Setup, function: str, event: Mapping[str, Any], *, has_redis: bool = True, at_most: float = 0.7
) -> Measured:
    """Measure the cold starts of one function of ours and of its rival, with shipped bytecode and without."""
    runtime = WORK_DIR / "runtime"
    install_runtime(runtime)
    layers = tuple(layer / "python" for layer in build_layers())
    our_folders, rival_folders = (LAMBDAS / function, *layers), (RIVALS / function, install_plain())
    starter = _Starter(setup, runtime, event, has_redis=has_redis)
    figures: dict[bool, Any] = {}
    for has_bytecode in (True, False):
        ours_at = _lay_out("ours", our_folders, has_bytecode=has_bytecode, shipped=layers)
        rival_at = _lay_out("rival", rival_folders, has_bytecode=has_bytecode)

        def ours() -> float:
            return starter.fastest_ms(ours_at)  # noqa: B023 - called in this very round

        def rival() -> float:
            return starter.fastest_ms(rival_at)  # noqa: B023 - as above

        figures[has_bytecode] = interleave(ours, rival, setup.runs if has_bytecode else SOURCE_RUNS, warms_up=True)
    from_source = Measured(unit="", rival="", samples=figures[False], bars=(), conditions="")
    return Measured(
        unit="ms",
        rival=f"boto3, redis, Powertools and pydantic imported plainly: tools/benchmarks/rivals/{function}",
        samples=figures[True],
        details={
            "without_bytecode_ms": from_source.value,
            "rival_without_bytecode_ms": from_source.rival_value,
            "ratio_without_bytecode": from_source.ratio,
        },
        bars=(Bar("ratio", at_most=at_most),),
        conditions="wall time from the start of the runtime's process to its first response; files are cached; "
        f"our layers with the bytecode they ship, the rival with all of it; fastest of {starter.starts} starts a run",
    )


class _Starter:
    """Starts processes as Lambda does, and hands each one event."""

    def __init__(self, setup: Setup, runtime: Path, event: Mapping[str, Any], *, has_redis: bool) -> None:
        self.starts = setup.count(STARTS)
        self._runtime = runtime
        self._event = json.dumps(event).encode()
        variables = function_environment(setup.dynamodb_port, setup.redis_port)
        if not has_redis:
            variables = {name: value for name, value in variables.items() if "_REGISTRY_" not in name}
        self._environment = {
            **variables,
            "AWS_EXECUTION_ENV": "AWS_Lambda_python",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "1769",
            "AWS_LAMBDA_FUNCTION_NAME": "function",
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "AWS_LAMBDA_LOG_GROUP_NAME": "/aws/lambda/function",
            "AWS_LAMBDA_LOG_STREAM_NAME": "stream",
            "LANG": "en_US.UTF-8",
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "PYTHONDONTWRITEBYTECODE": "1",  # /opt and /var/task are read-only
            "TZ": ":UTC",
            "_HANDLER": "handler.handler",
        }

    def fastest_ms(self, deployment: Deployment) -> float:
        """Start a function so many times, one after the other."""
        return min(asyncio.run(self._start(deployment)) for _ in range(self.starts)) * MILLISECONDS

    async def _start(self, deployment: Deployment) -> float:
        invocation = Invocation(str(uuid.uuid4()), self._event, asyncio.get_running_loop().create_future())
        invocation.deadline_ms = time.time_ns() // 1_000_000 + 10_000
        api = RuntimeApi(
            "arn:aws:lambda:eu-central-1:123456789012:function:function", _Events(lambda: api.deliver(invocation))
        )
        environment = {
            **self._environment,
            "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{await api.start()}",
            "LAMBDA_TASK_ROOT": str(deployment.folders[0]),
            "PYTHONPATH": ":".join(str(folder) for folder in (*deployment.folders, self._runtime)),
        }
        interpreter = str(getattr(sys, "_base_executable", sys.executable))
        log_path = WORK_DIR / f"{deployment.name}.log"
        with log_path.open("wb") as log:
            started = time.perf_counter()
            process = await start_process(
                [interpreter, "-S", "-m", "awslambdaric", "handler.handler"],
                log=log,
                cwd=deployment.folders[0],
                env=environment,
            )
            try:
                outcome = await asyncio.wait_for(_response_or_end(invocation, process), _RESPONSE_SECONDS)
                elapsed = time.perf_counter() - started
            finally:
                await kill(process)
                await api.stop()
        _check(outcome, log_path)
        return elapsed


@dataclass(frozen=True, slots=True)
class _Events:
    """`RuntimeEvents`: hands the one event over when it is asked for; the runtime's next request is left waiting."""

    deliver: Callable[[], None]

    def on_next(self) -> None:
        # After the response the runtime asks again: there is nothing more for it.
        asyncio.get_running_loop().call_soon(self.deliver)

    def on_init_error(self, report: bytes) -> None:
        raise RuntimeError(report.decode(errors="replace"))


async def _response_or_end(invocation: Invocation, process: asyncio.subprocess.Process) -> Outcome | None:
    ended = asyncio.ensure_future(process.wait())
    ended.add_done_callback(lambda _: invocation.outcome.cancel())
    try:
        return await invocation.outcome
    except asyncio.CancelledError:
        if ended.done():
            return None
        raise
    finally:
        ended.cancel()


def _check(outcome: Outcome | None, log_path: Path) -> None:
    """Refuse to time a function that failed."""
    status = json.loads(outcome.payload).get("statusCode") if outcome else None
    if status not in {200, 201}:
        said = outcome.payload.decode(errors="replace") if outcome else "nothing"
        raise ValueError(f"the function returned {said}; its log ends with: {log_path.read_text()[-2000:]}")


def _lay_out(name: str, folders: tuple[Path, ...], *, has_bytecode: bool, shipped: tuple[Path, ...] = ()) -> Deployment:
    """Copy folders to a place where their bytecode is just what is wanted: none, or all of it.

    Those that are shipped with bytecode keep what they have, instead of all.
    """
    name = f"{name}-{'bytecode' if has_bytecode else 'source'}"
    copies: list[Path] = []
    for index, folder in enumerate(folders):
        copy = WORK_DIR / name / str(index)
        shutil.rmtree(copy, ignore_errors=True)
        keeps_its_own = has_bytecode and folder in shipped
        shutil.copytree(folder, copy, ignore=None if keeps_its_own else shutil.ignore_patterns("__pycache__"))
        if has_bytecode and not keeps_its_own:
            compileall.compile_dir(copy, quiet=2)
        copies.append(copy)
    return Deployment(name, tuple(copies))


def measure_write(setup: Setup) -> Measured:
    """Write one message to a conversation that was raised."""
    prepare_hot_conversation(setup)
    return measure_cold(setup, "write_message", write_event(HOT_CONVERSATION, BODY))


def measure_write_lite(setup: Setup) -> Measured:
    """Write one message with the function of a stack without Redis; the rival is that of `cold-write`."""
    setup.control("Configure", keeps_puts=False)
    return measure_cold(setup, "write_message", write_event("quiet", BODY), has_redis=False, at_most=0.6)


START_MS = 1_800_000_000_000


def measure_read(setup: Setup) -> Measured:
    """Read a page of a conversation that was never hot: one query on both sides."""
    ids = [mint_message_id(START_MS + index, lambda _: 0) for index in range(2 * 50)]
    setup.load(Message("quiet", message_id, "ann", "x" * 200).to_item("quiet") for message_id in ids)
    return measure_cold(setup, "read_messages", page_event("quiet"))


MEGABYTES = 1e-6


def measure_layers(_: Setup) -> Measured:
    """Sum the files of all layers as they are built for this machine. Nothing is timed."""
    layers = build_layers()
    plain = install_plain()
    ours = sum(map(size_bytes, layers)) * MEGABYTES
    our_source = sum(size_bytes(layer, with_bytecode=False) for layer in layers) * MEGABYTES
    rival = size_bytes(plain) * MEGABYTES
    rival_source = size_bytes(plain, with_bytecode=False) * MEGABYTES
    return Measured(
        unit="MB",
        rival="libcurl, boto3, redis, Powertools and pydantic as pip installs them",
        samples=Samples((ours,), (rival,)),
        details={
            "without_bytecode_mb": our_source,
            "rival_without_bytecode_mb": rival_source,
            "ratio_without_bytecode": our_source / rival_source,
        },
        bars=(Bar("ratio", at_most=0.65),),
        conditions="bytes of all files; ours with the bytecode that is deployed, pip's with all, as is its default",
    )


def build_layers() -> tuple[Path, ...]:
    """Build the layers of the API's functions for this machine, with the bytecode that is deployed."""
    target = choose_environment("local", Host.current()).target
    interpreter = find_interpreter(target.python_version, os.environ)
    ours = [
        SourceBundle(package=package, cache=CACHE, interpreter=interpreter).build() for package in (LIBRARY, MESSAGES)
    ]
    return *ours, DependencyBundle(lock=LOCK, target=target, cache=CACHE, interpreter=interpreter).build(run_pip)


def install_plain() -> Path:
    """Install boto3, redis, Powertools and pydantic, with all they need and all they bring; once for each lock file."""
    key = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:16]
    folder = ROOT / "build" / "bench" / f"plain-{key}"
    done = folder / ".complete"
    if not done.exists():
        arguments = ["install", "--quiet", "--disable-pip-version-check", "--no-input", "--upgrade", "--require-hashes"]
        run_pip([*arguments, "--target", str(folder / "python"), "--requirement", str(LOCK)])
        done.touch()
    return folder / "python"


def size_bytes(folder: Path, *, with_bytecode: bool = True) -> int:
    """Sum up the files of a folder."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files if with_bytecode or path.suffix != ".pyc")
