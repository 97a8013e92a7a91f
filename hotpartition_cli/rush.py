"""Makes a conversation hot by a steady load for some seconds, to see how the stack reacts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus

from hotpartition.core.errors import InvalidRequestError
from hotpartition_cli.callers import CONNECTIONS, Api, UrlCaller, messages_path
from hotpartition_cli.errors import FailedError, UsageError
from hotpartition_cli.outcomes import MESSAGE_WCU, Caller, Outcome, Progress
from hotpartition_messages.keys import parse_conversation_id

_RESULTS: Mapping[int, str] = {
    HTTPStatus.CREATED: "stored",
    HTTPStatus.SERVICE_UNAVAILABLE: "throttled",
    HTTPStatus.TOO_MANY_REQUESTS: "throttled",
}


def make_rush(call: Caller, progress: Progress, conversation_id: str, wcu_per_second: float, seconds: float) -> Outcome:
    """Make a conversation of a local run hot, and say what its route is afterwards.

    Raises:
        UsageError: it is not a local run of the messages application, or no conversation has this id.
        FailedError: its API does not respond.
    """
    if not isinstance(call, UrlCaller):
        raise UsageError("rush is for a local run (--url): it signs nothing, and such a load costs money on AWS")
    status = call.status()
    if "write_message" not in status["functions"]:
        raise UsageError("rush writes messages, and this local run has no function write_message")
    try:
        path = messages_path(parse_conversation_id(conversation_id))
    except InvalidRequestError as error:
        raise UsageError(str(error), kind="invalid-request") from error
    api = Api(status["api_url"])
    messages = max(1, round(wcu_per_second * seconds / MESSAGE_WCU))
    started = time.monotonic()
    counts = send_messages(api, path, messages, seconds / messages, progress)
    document = {
        "conversation_id": conversation_id,
        "offered_wcu_per_second": wcu_per_second,
        "seconds": round(time.monotonic() - started, 1),
        "stored": counts["stored"],
        "throttled": counts["throttled"],
        "failed": counts["failed"] + counts["unheard"],
        "shard_count": call({"command": "route", "conversation_id": conversation_id})["shard_count"],
    }
    return Outcome(document)


def send_messages(api: Api, path: str, messages: int, pause_seconds: float, progress: Progress) -> Counter[str]:
    """Send messages, evenly spread over time, and count what became of them; a slow stack gets them later.

    Raises:
        FailedError: none of them had a response.
    """
    content = {"sender": "rush", "body": "x" * (1024 * MESSAGE_WCU - 512)}

    def send() -> str:
        try:
            return _RESULTS.get(api.request("POST", path, content).status, "failed")
        except FailedError:
            return "unheard"

    started = time.monotonic()
    sent: list[Future[str]] = []
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for index in range(messages):
            time.sleep(max(0.0, started + index * pause_seconds - time.monotonic()))
            sent.append(pool.submit(send))
            progress(f"{len(sent):,} of {messages:,} messages")
    counts = Counter(future.result() for future in sent)
    if counts["unheard"] == messages:
        raise FailedError(f"nothing responds at {api.url}", kind="unreachable")
    return counts
