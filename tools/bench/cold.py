"""`cold-write`, `cold-read`, `cold-write-lite`: from a start of the real runtime client to its first response."""

from __future__ import annotations

import asyncio
import compileall
import hashlib
import json
import os
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from hotpartition_cdk.bundle import LIBRARY, LOCK, DependencyBundle, SourceBundle, find_interpreter, run_uv
from hotpartition_cdk.configuration import Host
from hotpartition_messages import Message
from hotpartition_messages.message_ids import mint_message_id
from infra.bundle import CACHE, MESSAGES
from infra.environments import choose_environment
from tools.bench.measure import Measured, interleave
from tools.bench.setup import (
    HOT_CONVERSATION,
    LAMBDAS,
    RIVAL,
    ROOT,
    function_environment,
    load,
    page_event,
    prepare_hot_conversation,
    write_event,
)
from tools.local.environment import Launcher, install_runtime
from tools.local.functions import FunctionPool
from tools.local.template import FunctionSpec

STARTS = 3
"""Cold starts of each side in a run; a run's figure is their fastest: what disturbs a start only lengthens it."""
WORK_DIR = ROOT / "out" / "bench" / "cold"
RESPONSE_SECONDS = 60.0
START_MS = 1_800_000_000_000


def measure_write() -> Measured:
    """Write one message to a conversation that was raised."""
    prepare_hot_conversation()
    return measure_cold("write_message", write_event(HOT_CONVERSATION))


def measure_write_lite() -> Measured:
    """Write one message with the function of a stack without Redis; the rival is that of `cold-write`."""
    return measure_cold("write_message", write_event("quiet"), has_redis=False, at_most=0.6)


def measure_read() -> Measured:
    """Read a page of a conversation that was never hot: one query on both sides."""
    ids = [mint_message_id(START_MS + index, lambda _: 0) for index in range(2 * 50)]
    load(Message("quiet", message_id, "ann", "x" * 200).to_item("quiet") for message_id in ids)
    return measure_cold("read_messages", page_event("quiet"))


def measure_cold(function: str, event: Mapping[str, Any], *, has_redis: bool = True, at_most: float = 0.7) -> Measured:
    """Measure the cold starts of one function and of its rival."""
    install_runtime(WORK_DIR / "runtime")
    variables = {name: os.environ[name] for name in function_environment(0, 0)}
    if not has_redis:
        variables = {name: value for name, value in variables.items() if "_REGISTRY_" not in name}

    def fastest_ms(launcher: Launcher) -> float:
        """Start a function some times, one after the other."""
        return min(asyncio.run(_start(launcher, event)) for _ in range(STARTS)) * 1000

    ours = _launcher("ours", LAMBDAS / function, build_layers(), variables)
    rival = _launcher("rival", RIVAL, (install_plain(),), variables)
    return Measured(
        unit="ms",
        rival="boto3, redis, Powertools and pydantic imported plainly: tools/bench/rivals",
        samples=interleave(partial(fastest_ms, ours), partial(fastest_ms, rival)),
        at_most={"ratio": at_most},
        conditions="wall time from a request, for which a process of the runtime starts, to its response; files are "
        "cached; our layers with the bytecode they ship, the rival with all of it; "
        f"fastest of {STARTS} starts a run",
    )


def _launcher(name: str, folder: Path, layers: tuple[Path, ...], variables: Mapping[str, str]) -> Launcher:
    """Describe a function as Lambda starts it, with an empty log; its own code is compiled, layers are as they are."""
    compileall.compile_dir(folder, quiet=2)
    function = FunctionSpec(
        name=name,
        arn="arn:aws:lambda:eu-central-1:123456789012:function:function",
        handler="handler.handler",
        runtime="python",
        timeout_seconds=RESPONSE_SECONDS,
        memory_mb=1769,
        code_dir=folder,
        layer_dirs=layers,
        environment=variables,
    )
    endpoint = variables["AWS_ENDPOINT_URL_DYNAMODB"]
    launcher = Launcher(function, runtime_dir=WORK_DIR / "runtime", log_dir=WORK_DIR, dynamodb_endpoint=endpoint)
    launcher.log_path.unlink(missing_ok=True)
    return launcher


async def _start(launcher: Launcher, event: Mapping[str, Any]) -> float:
    """Start a process as Lambda does, hand it an event, and return how long its response takes.

    Raises:
        ValueError: the function failed, and is not timed.
    """
    pool = FunctionPool(
        launcher=launcher, min_environments=0, max_environments=1, rng=Random(1), queue_seconds=RESPONSE_SECONDS
    )
    try:
        started = time.perf_counter()
        outcome = await pool.invoke(json.dumps(event).encode())
        elapsed = time.perf_counter() - started
    finally:
        await pool.stop()
    if json.loads(outcome.payload).get("statusCode") not in {200, 201}:
        said = outcome.payload.decode(errors="replace")
        log = await asyncio.to_thread(launcher.log_path.read_text)
        raise ValueError(f"the function returned {said}; its log ends with: {log[-2000:]}")
    return elapsed


def build_layers() -> tuple[Path, ...]:
    """Build the layers of the API's functions for this machine, with the bytecode that is deployed, as in /opt."""
    target = choose_environment("local", Host.current()).target
    how: Any = {"cache": CACHE, "interpreter": find_interpreter(target.python_version)}
    dependencies = DependencyBundle(lock=LOCK, target=target, **how).build(run_uv)
    return dependencies, *(SourceBundle(package=package, **how).build() for package in (MESSAGES, LIBRARY))


def install_plain() -> Path:
    """Install boto3, redis, Powertools and pydantic, with all they need and all they bring; once for each lock file."""
    key = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:16]
    folder = ROOT / "build" / "bench" / f"plain-{key}"
    done = folder / ".complete"
    if not done.exists():
        arguments = ["pip", "install", "--quiet", "--compile-bytecode", "--require-hashes", "--python", sys.executable]
        run_uv([*arguments, "--target", str(folder / "python"), "--requirement", str(LOCK)])
        done.touch()
    return folder
