"""Makes a conversation hot by a steady load for some seconds, to see how the stack reacts."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus

from hotpartition_cli.api import CONNECTIONS, Api, Response, messages_path
from hotpartition_cli.callers import UrlCaller
from hotpartition_cli.errors import FailedError, UsageError
from hotpartition_cli.outcomes import MESSAGE_WCU, Caller, Outcome


@dataclass(frozen=True, slots=True)
class Rush:
    """A requested load, in WCU/s on one conversation for a number of seconds."""

    conversation_id: str
    wcu_per_second: float
    seconds: float

    @property
    def messages(self) -> int:
        """How many messages that takes."""
        return max(1, round(self.wcu_per_second * self.seconds / MESSAGE_WCU))


@dataclass(slots=True)
class Rushed:
    """The outcome of the messages: `throttled` were refused until later, `unheard` got no response."""

    stored: list[str] = field(default_factory=list)
    throttled: int = 0
    failed: int = 0
    unheard: int = 0
    seconds: float = 0.0

    @property
    def total(self) -> int:
        """How many were sent."""
        return len(self.stored) + self.throttled + self.failed + self.unheard

    def note(self, response: Response | None) -> None:
        """Count one."""
        if response is None:
            self.unheard += 1
        elif response.status == HTTPStatus.CREATED:
            self.stored.append(response.document["message_id"])
        elif response.status in {HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS}:
            self.throttled += 1
        else:
            self.failed += 1


def make_rush(rush: Rush, api: Api, progress: Callable[[str], None]) -> Rushed:
    """Send the messages, evenly spread over the time; a stack that is too slow gets them later."""
    content = {"sender": "rush", "body": "x" * (1024 * MESSAGE_WCU - 512)}
    made = Rushed()

    def send() -> Response | None:
        try:
            return api.request("POST", messages_path(rush.conversation_id), content)
        except FailedError:
            return None

    started = time.monotonic()
    sent: list[Future[Response | None]] = []
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for index in range(rush.messages):
            due = started + index * rush.seconds / rush.messages
            time.sleep(max(0.0, due - time.monotonic()))
            sent.append(pool.submit(send))
            progress(f"{len(sent):,} of {rush.messages:,} messages")
    for future in sent:
        made.note(future.result())
    made.seconds = time.monotonic() - started
    if made.unheard == made.total:
        raise FailedError(f"nothing responds at {api.url}", kind="unreachable")
    return made


def run_rush(rush: Rush, call: Caller, progress: Callable[[str], None]) -> Outcome:
    """Make a conversation of a local run hot, and say what its route is afterwards.

    Raises:
        UsageError: it is not a local run of the messages application.
    """
    if not isinstance(call, UrlCaller):
        raise UsageError("rush is for a local run (--url): it signs nothing, and such a load costs money on AWS")
    status = call.status()
    if "write_message" not in status["functions"]:
        raise UsageError("rush writes messages, and this local run has no function write_message")
    made = make_rush(rush, Api(status["api_url"]), progress)
    document = {
        "conversation_id": rush.conversation_id,
        "offered_wcu_per_second": rush.wcu_per_second,
        "seconds": round(made.seconds, 1),
        "stored": len(made.stored),
        "throttled": made.throttled,
        "failed": made.failed + made.unheard,
        "shard_count": call({"command": "route", "conversation_id": rush.conversation_id})["shard_count"],
    }
    return Outcome(document)
