"""The running stack as tests use it: the player's loads and reads, and the local run's control API.

It is long because each of them is a method, and because what only a busy machine did wrong is kept apart from failures
here.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import redis

from hotpartition.redis.cluster import route_key
from support.loop import Loop, opened
from tools.local.metering import TimelineRow
from tools.play.client import Client, HttpApi, Mint, Order, Recorder, open_session, play
from tools.play.read import read_log
from tools.play.stack import Control
from tools.play.stack import running_stack as running_local_run
from tools.play.verdict import count_busiest_second
from tools.play.workload import steady_load
from tools.world.scaling import scale_thresholds

WRITE_LIMIT_WCU = 20
"""One fiftieth of DynamoDB's own limit; the thresholds shrink with it."""
SETTINGS = scale_thresholds(WRITE_LIMIT_WCU / 1_000)
HOT_WCU = 2 * WRITE_LIMIT_WCU
"""Writes a second that make a conversation hot."""
SENDER = "ann"
CONNECTIONS = 24
SLOWLY = {name: {"timeout_seconds": 29} for name in ("writer", "reader")}
"""Options: a function that stood still with its machine may still respond; the gateway waits hardly longer."""
PATIENCE_SECONDS = 600.0
"""No message and no page is given up: how long a test may take is for its own timeout."""
ROUNDS_NEEDED = 20
LEAST_CHILDREN = 4
"""Redis, DynamoDB, and environments of the consumer and of another function."""
ROOT = Path(__file__).resolve().parents[2]
TIMED = {"onset to raise", "throttles fall", "newest page of what has cooled"}


class Stack:
    """The running stack."""

    def __init__(self, client: Client, control: Control, folder: Path, loop: Loop) -> None:
        self.api_url, self.control_url = control.status["api_url"].rstrip("/"), control.url.rstrip("/")
        self._client, self._control, self._folder, self._loop = client, control, folder, loop

    def log_lines(self, function: str, message: str) -> list[dict[str, Any]]:
        """The structured log lines of a function with this message."""
        lines = read_log(self._folder / "local" / "logs" / f"{function}.log")
        return [line for line in lines if line.get("message") == message]

    def status(self) -> Any:
        return self._loop.run(self._control.look())

    def timeline(self) -> tuple[TimelineRow, ...]:
        return self._loop.run(self._control.list_loads())

    def control(self, path: str, body: Any = None) -> Any:
        return self._loop.run(self._control.post(path, body))

    def set_faults(self, *rules: dict[str, Any]) -> None:
        """Replace the faults that DynamoDB shows; none ends them."""
        self.control("/dynamodb/faults", list(rules))

    def injected(self) -> Counter[str]:
        """How often each fault was chosen since the start."""
        return Counter(self._loop.run(self._control.get("/dynamodb/faults"))["injected"])

    def routing_item(self, conversation: str) -> Any:
        """The journal's item of a conversation, from the local DynamoDB itself."""
        return self._loop.run(self._control.routing_item(conversation))

    def kill(self, function: str) -> None:
        """Kill an environment of a function, a busy one if there is any."""
        assert wait_for(lambda: self.control(f"/functions/{function}/kill")["pid"])

    def offer(
        self,
        conversation: str,
        *,
        rate: float,
        seconds: float,
        during: Callable[[], None] | None = None,
        load: Recorder | None = None,
        mint: Mint | None = None,
    ) -> Recorder:
        """Offer a load for a while, open-loop; `during` runs beside it, and can look at the `load` that is given."""
        load = Recorder() if load is None else load
        offers = steady_load(conversation, rate=rate, seconds=seconds, sender=SENDER, first=load.counts["offered"])
        playing = self._loop.submit(play(replace(self._client, recorder=load, mint=mint), offers))
        try:
            if during:
                during()
        finally:
            playing.result()
        return load

    def offer_until(
        self, condition: Callable[[], Any], conversation: str, *, rate: float = HOT_WCU, load: Recorder | None = None
    ) -> Recorder:
        """Offer a load, second by second, until a condition holds that only a hot conversation meets.

        A machine that cannot offer that much has not made it hot: then nothing is judged.
        """
        load = Recorder() if load is None else load
        for number in count(1):
            self.offer(conversation, rate=rate, seconds=1, load=load)
            if condition():
                return load
            busiest = count_busiest_second(self.timeline(), conversation)
            if number >= ROUNDS_NEEDED and busiest <= WRITE_LIMIT_WCU:
                pytest.skip(f"not judged: this machine offered {busiest} writes a second at most")
        raise AssertionError("unreachable")

    def read_into(self, load: Recorder, conversation: str, *, order: Order, limit: int = 200) -> bool:
        """Read every page, strongly consistent, and record what came; say whether that was all."""
        client = replace(self._client, recorder=load)
        is_all: bool = self._loop.run(client.read(conversation, order=order, consistency="strong", limit=limit))
        return is_all


def show(
    command: list[str], folder: Path, has_all: Callable[[dict[str, Any]], bool] = lambda _: True
) -> tuple[str, dict[str, Any]]:
    """Run a demonstration that has to pass, and return what it says and its summary, which has all that is looked for.

    Again, where what depends on time failed and nothing else: no part of a busy machine keeps up all the time.
    """
    for _ in range(3):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        failed = set(re.findall(r"^MISSED +(.+?):", done.stdout, re.MULTILINE))
        failed = {name for name in failed if not name.endswith("s acknowledged")}
        assert not failed - TIMED, done.stdout[-4_000:]
        if done.returncode == 0 and has_all(summary := json.loads((folder / "summary.json").read_text())):
            return done.stdout, summary
    raise AssertionError(done.stdout[-4_000:] + done.stderr[-2_000:])


def children_of(pid: int) -> set[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return {int(child) for task in tasks for child in task.read_text().split()}


def is_running(pid: int) -> bool:
    """Say whether a process runs; zombies of a dead parent are init's to collect."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@asynccontextmanager
async def serve(folder: Path, *, is_killed: bool = False, **config: Any) -> AsyncIterator[tuple[Client, Control]]:
    """Run a local run, and open the ways to it. However it ends, no Redis, DynamoDB or environment outlives it."""
    async with running_local_run(folder, **config) as control, open_session() as session:
        client = Client(
            api=HttpApi(session, control.status["api_url"], CONNECTIONS),
            recorder=Recorder(),
            rng=random.Random(),
            now=time.time,
            replay_share=0.0,
            give_up_seconds=PATIENCE_SECONDS,
        )
        yield client, control
        children = children_of(control.process.pid)
        assert len(children) >= LEAST_CHILDREN
        if is_killed:
            control.process.kill()
            await control.process.wait()
    assert control.process.returncode == (-signal.SIGKILL if is_killed else 0), control.log_file.read_text()
    while any(map(is_running, children)):  # noqa: ASYNC110 - nothing says when
        await asyncio.sleep(0.02)


@contextmanager
def running_stack(assembly: Path, folder: Path, **config: Any) -> Iterator[Stack]:
    """Run the stack with further choices of a local run."""
    fixed = {"partition_write_limit": WRITE_LIMIT_WCU, "assembly": assembly, "max_environments": {"write_message": 6}}
    with opened(serve(folder, **fixed, **config)) as (loop, (client, control)):
        yield Stack(client, control, folder, loop)


def wait_for(condition: Callable[[], Any]) -> Any:
    """Wait until a condition holds, and return its value; how long that may take is for the test's timeout."""
    while not (value := condition()):
        time.sleep(0.05)
    return value


def assert_read_back(stack: Stack, conversation: str, load: Recorder, *, excused: str = "") -> None:
    """Every acknowledged message exactly once, in order, in both directions and in every read before.

    Each response was one that the API promises, but for those that end with what is `excused`.
    """
    assert [note for note in load.notes if not (excused and note.endswith(excused))] == []
    for order, limit in (("newest", 200), ("oldest", 35)):
        assert stack.read_into(load, conversation, order=order, limit=limit)
    verdict = load.judge()
    assert verdict.holds, verdict.examples
    assert verdict.acknowledged > 0


def read_meanwhile(stack: Stack, conversation: str, load: Recorder, *, seconds: float) -> None:
    """Read in both orders, again and again; `assert_read_back` judges what came."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        stack.read_into(load, conversation, order="newest")
        stack.read_into(load, conversation, order="oldest")
        time.sleep(0.1)


def route_in_redis(stack: Stack, registry: redis.Redis, conversation: str) -> set[str]:
    """A conversation's generations as Redis has them."""
    members: Any = registry.smembers(route_key(stack.status()["dynamodb"]["table"], conversation))
    return set(members)


def route_in_journal(stack: Stack, conversation: str) -> set[str]:
    """A conversation's generations as DynamoDB has them."""
    return set(stack.routing_item(conversation).get("generations", {}).get("SS", ()))
