"""The running stack as tests use it: single requests, the load generator's loads, and the local run's control API.

It is long because each request and each control is a method, and because what only a busy machine did wrong is kept
apart from failures here.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import redis
import urllib3
from aiohttp import ClientSession

from hotpartition.redis.cluster import route_key
from hotpartition_cli.callers import messages_path
from support.loop import Loop
from tools.local.metering import TimelineRow
from tools.play.client import Client, HttpApi, Mint, Order, Recorder, open_session, play
from tools.play.readers import read_log
from tools.play.stack import Stack as LocalRun
from tools.play.stack import environment_options
from tools.play.verdict import count_busiest_second
from tools.play.watch import Control, open_control
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
MOST_ATTEMPTS = 10
ROOT = Path(__file__).resolve().parents[2]
TIMED = {"onset to raise", "throttles fall", "newest page of what has cooled"}

Response = urllib3.BaseHTTPResponse


class Stack:
    """The running stack."""

    def __init__(self, api_url: str, control: Control, work_dir: Path, loop: Loop) -> None:
        self.api_url, self.control_url = api_url.rstrip("/"), control.url.rstrip("/")
        self.late = 0
        """Responses that said that something did not respond in time."""
        self._work_dir = work_dir
        self._loop, self._control = loop, control
        self._http = urllib3.PoolManager(maxsize=32, retries=False, timeout=urllib3.Timeout(connect=20, read=60))

    def log_lines(self, function: str, message: str) -> list[dict[str, Any]]:
        """The structured log lines of a function with this message."""
        lines = read_log(self._work_dir / "logs" / f"{function}.log")
        return [line for line in lines if line.get("message") == message]

    def write(self, conversation: str, body: Any) -> Response:
        return self._request("POST", messages_path(conversation), json.dumps(body).encode())

    def read(self, conversation: str, **query: Any) -> Response:
        return self._request("GET", messages_path(conversation, **query))

    def _request(self, method: str, path: str, body: bytes | None = None) -> Response:
        response = self._http.request(method, self.api_url + path, body=body)
        self.late += response.status >= 500
        return response

    def read_all(self, conversation: str, **query: Any) -> list[dict[str, Any]]:
        """Read page by page; what is throttled is asked for again."""
        messages: list[dict[str, Any]] = []
        while query.get("cursor", "") is not None:
            response = self.read(conversation, **query)
            if response.status == 503:
                time.sleep(0.2)
                continue
            assert response.status == 200, response.data
            page = response.json()
            messages += page["messages"]
            query["cursor"] = page["next_cursor"]
        return messages

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
        playing = self._loop.submit(self._play(load, conversation, rate, seconds, mint))
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
        is_all: bool = self._loop.run(self._read(load, conversation, order, limit))
        return is_all

    async def _play(self, load: Recorder, conversation: str, rate: float, seconds: float, mint: Mint | None) -> None:
        offers = steady_load(conversation, rate=rate, seconds=seconds, sender=SENDER, first=load.counts["offered"])
        async with open_session() as session:
            await play(self._client(session, load, mint), offers)

    async def _read(self, load: Recorder, conversation: str, order: Order, limit: int) -> bool:
        async with open_session() as session:
            client = self._client(session, load)
            return await client.read(conversation, order=order, consistency="strong", limit=limit)

    def _client(self, session: ClientSession, load: Recorder, mint: Mint | None = None) -> Client:
        return Client(
            api=HttpApi(session, self.api_url, connections=CONNECTIONS),
            recorder=load,
            rng=random.Random(),
            now=time.time,
            mint=mint,
            replay_share=0.0,
            give_up_seconds=PATIENCE_SECONDS,
        )


def undisturbed(test: Callable[..., None]) -> Callable[..., None]:
    """Make a test again, with fresh names, where it failed and something did not respond in time meanwhile."""

    @wraps(test)
    def run(**fixtures: Any) -> None:
        stack = next(each for each in fixtures.values() if isinstance(each, Stack))
        for attempt in range(MOST_ATTEMPTS):
            stack.late = 0
            names = {name: f"{value}:{attempt}" for name, value in fixtures.items() if isinstance(value, str)}
            try:
                test(**{**fixtures, **names})
            except (AssertionError, KeyError):
                if not stack.late or attempt == MOST_ATTEMPTS - 1:
                    raise
            else:
                return

    return run


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


@contextmanager
def running_stack(assembly: Path, folder: Path, *options: str) -> Iterator[Stack]:
    """Run the stack with further options of `python -m tools.local up`; it has to end as it should."""
    loop = Loop()
    local_run = LocalRun(
        folder,
        *("--partition-write-limit", str(WRITE_LIMIT_WCU), "--assembly", str(assembly)),
        *environment_options("max", {"write_message": 6}),
        *options,
    )
    try:
        loop.run(local_run.__aenter__())
        try:
            ready = loop.run(local_run.ready())
            opened = open_control(ready["control_url"])
            control = loop.run(opened.__aenter__())
            yield Stack(ready["api_url"], control, local_run.work_dir, loop)
            loop.run(opened.__aexit__(None, None, None))
        finally:
            loop.run(local_run.__aexit__())
    finally:
        loop.close()
    assert local_run.returncode == 0, (folder / "local.log").read_text()


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
