"""Makes a conversation hot, to see what the stack does about it: large messages, at a steady rate, for a while."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import urllib3

from hotpartition_cli.errors import FailedError, UsageError

MESSAGE_WCU = 25
"""Write units of one message: a machine that cannot send 1,000 messages a second still offers 1,000 WCU/s."""
SENDERS = 16
TIMEOUT_SECONDS = 10.0
_CREATED = 201
_LATER = 503


@dataclass(frozen=True, slots=True)
class Rush:
    """What is asked for: a load in WCU/s on one conversation, for so many seconds."""

    conversation_id: str
    wcu_per_second: float
    seconds: float

    @property
    def messages(self) -> int:
        """How many messages that takes."""
        return max(1, round(self.wcu_per_second * self.seconds / MESSAGE_WCU))


def make_rush(rush: Rush, api_url: str, progress: Callable[[str], None]) -> dict[str, Any]:
    """Send the messages, evenly spread over the time; a stack that is too slow gets them later.

    Returns what became of them: `stored`, `throttled` (the stack said: later) and `failed`, and `seconds`.
    """
    url = f"{api_url}/conversations/{quote(rush.conversation_id, safe='')}/messages"
    body = json.dumps({"sender": "rush", "body": "x" * (1024 * MESSAGE_WCU - 512)}).encode()
    pool = urllib3.PoolManager(maxsize=SENDERS, retries=False, timeout=TIMEOUT_SECONDS)
    outcomes: Counter[int | None] = Counter()

    def send() -> int | None:
        try:
            return pool.request("POST", url, body=body, headers={"content-type": "application/json"}).status
        except urllib3.exceptions.HTTPError:
            return None

    def note(future: Future[int | None]) -> None:
        outcomes[future.result()] += 1

    started = time.monotonic()
    with ThreadPoolExecutor(SENDERS) as senders:
        for index in range(rush.messages):
            due = started + index * rush.seconds / rush.messages
            time.sleep(max(0.0, due - time.monotonic()))
            senders.submit(send).add_done_callback(note)
            progress(f"{outcomes.total():,} of {rush.messages:,} messages")
    if outcomes[None] == rush.messages:
        raise FailedError(f"nobody responds at {api_url}", kind="unreachable")
    return {
        "conversation_id": rush.conversation_id,
        "offered_wcu_per_second": rush.wcu_per_second,
        "seconds": round(time.monotonic() - started, 1),
        "stored": outcomes[_CREATED],
        "throttled": outcomes[_LATER],
        "failed": outcomes.total() - outcomes[_CREATED] - outcomes[_LATER],
    }


def parse_rush(conversation_id: str, wcu_per_second: float, seconds: float) -> Rush:
    """Check what is asked for; the error says what is wrong and what is allowed."""
    if not MESSAGE_WCU <= wcu_per_second <= 20_000:
        raise UsageError(f"--wcu should be from {MESSAGE_WCU} to 20000 WCU/s, not {wcu_per_second:g}")
    if not 1 <= seconds <= 600:
        raise UsageError(f"--seconds should be from 1 to 600, not {seconds:g}")
    return Rush(conversation_id, wcu_per_second, seconds)
