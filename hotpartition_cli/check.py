"""Tries a stack from end to end, step by step, with the expectation, the outcome and the time of each.

It leaves one raised conversation; its messages expire after a day.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from hotpartition_cli.callers import Response, Stack, message_path, messages_path
from hotpartition_cli.errors import Status, ToolError
from hotpartition_cli.outcomes import Outcome, seconds_between

SENDER = "hotpartition-check"
SHARD_COUNT = 4
"""N of the raise by hand."""
SHARD_MESSAGES = 8
CACHE_SECONDS = 2.5
"""Time after which writers know of a raise by hand (the setting `route_cache_seconds`, 2 s)."""
LATE_SECONDS = 180
"""A consumer starts each minute, up to 119 s apart."""
POLL_SECONDS = 0.5
PAGE_MESSAGES = 100
KEPT = timedelta(days=1)
"""TTL of the messages of a check."""
WRITE_UNITS_AT_MOST = 100
EDITED = "edited by hotpartition check"
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


class UnmetError(Exception):
    """The outcome was not the expected one; the message says which."""


class SkippedError(Exception):
    """The step cannot be tried; the message says why."""


def has_messages(stack: Stack) -> bool:
    """Say whether a stack is the messages application, with its API and functions, and not another one."""
    return "write_message" in stack.functions


def describe_costs(stack: Stack) -> str:
    """Say what a check writes, and what stays."""
    if not has_messages(stack):
        return f"raises a partition key of its own by hand in {stack.name}, which stays there"
    return (
        f"writes to {stack.name}: at most {WRITE_UNITS_AT_MOST} DynamoDB write units;"
        " one raised conversation stays there, and its messages for a day"
    )


def check(
    stack: Stack,
    progress: Callable[[str], None],
    *,
    wait_seconds: float,
    timer: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Outcome:
    """Try everything, and report it; a step that fails does not keep the others from being tried.

    `wait_seconds` bounds the wait for the first consumer after a deployment.
    """
    checking = _Check(stack, wait_seconds, progress, timer, sleep)
    started, at = timer(), datetime.now(UTC)
    steps = [checking.attempt(row) for row in _ROWS if row.belongs_to(stack)]
    passed = all(step["result"] != FAILED for step in steps)
    document = {
        "stack": stack.name,
        "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "passed": passed,
        "seconds": round(timer() - started, 1),
        "write_units_at_most": WRITE_UNITS_AT_MOST,
        "conversations": [checking.conversation],
        "steps": steps,
    }
    return Outcome(document, Status.FINE if passed else Status.FINDING)


@dataclass
class _Check:
    """What the steps share: the stack, and the messages that should be there."""

    stack: Stack
    _wait_seconds: float
    _progress: Callable[[str], None]
    _timer: Callable[[], float]
    _sleep: Callable[[float], None]

    def __post_init__(self) -> None:
        self.conversation = f"{SENDER}-{uuid.uuid4().hex[:12]}"
        expires_at = datetime.now(UTC) + KEPT
        self._members = {"sender": SENDER, "expires_at": expires_at.isoformat(timespec="seconds")}
        self._message: dict[str, Any] = {}
        self._expected: list[str] = []

    def attempt(self, row: _Row) -> dict[str, Any]:
        """Try one step, and report it."""
        self._progress(row.name)
        started = self._timer()
        try:
            came, result = row.attempt(self), PASSED
        except SkippedError as reason:
            came, result = str(reason), SKIPPED
        except (UnmetError, ToolError) as error:
            came, result = str(error), FAILED
        except KeyError as error:
            came, result = f"a response without {error}", FAILED
        except (AttributeError, TypeError, ValueError) as error:
            came, result = f"a response of another form: {error}", FAILED
        seconds = round(self._timer() - started, 3)
        return {"name": row.name, "expected": row.expected, "came": came, "result": result, "seconds": seconds}

    # The functions, called directly.

    def start_operate(self) -> str:
        self.stack.invoke("operate", {"command": "routes", "limit": 1})
        return "a list"

    def start_writer(self) -> str:
        return self._start("write_message", "POST", (400, 403))

    def start_reader(self) -> str:
        return self._start("read_messages", "GET", (200,))

    def start_consumer(self) -> str:
        response = self.stack.invoke("consume_reports", {"probe": True})
        if response != {"ready": True}:
            raise UnmetError(f"{response}")
        return "ready"

    # Messages, through the API.

    def write(self) -> str:
        content = {"body": "written by hotpartition check"}
        response = self._post(content)
        if response.status == 403 and "not-the-sender" in str(response.document):
            # The sender is the caller (`api.sender_claim`).
            del self._members["sender"]
            response = self._post(content)
        self._message = {**_expected(201, response), **content}
        self._expected.append(self._message["message_id"])
        return f"{response}"

    def repeat(self) -> str:
        message = self._written()
        response = self._post({"body": message["body"], "message_id": message["message_id"]})
        _expected(200, response)
        return f"{response}"

    def read(self) -> str:
        message = self._written()
        found = self._read_message()
        if (found["message_id"], found["body"]) != (message["message_id"], message["body"]):
            raise UnmetError(f"another message: {found}")
        return "200"

    def edit(self) -> str:
        path, api = self._path(), self.stack.api
        before = api.request("GET", f"{path}?consistency=strong")
        _expected(200, before)
        tag = before.headers.get("etag")
        _expected(200, api.request("PATCH", path, {"body": EDITED}, if_match=tag))
        stale = api.request("PATCH", path, {"body": "edited by somebody else"}, if_match=tag)
        if stale.status != 412:
            raise UnmetError(f"{stale} with the tag of before the edit")
        found = self._read_message()
        if found["body"] != EDITED:
            raise UnmetError(f"read another body: {found['body']}")
        return "200, 412"

    def delete(self) -> str:
        path, api = self._path(), self.stack.api
        statuses = [api.request("DELETE", path).status, api.request("GET", f"{path}?consistency=strong").status]
        if statuses != [204, 410]:
            raise UnmetError(f"{statuses[0]}, then {statuses[1]}")
        self._expected.remove(self._message["message_id"])
        self._expect_messages()
        return "204, 410"

    # A raise by hand, and what is written and read after it.

    def raise_by_hand(self) -> str:
        key = {"conversation_id": self.conversation}
        command = {"command": "raise", **key, "shard_count": SHARD_COUNT, "by": SENDER}
        done = self.stack.invoke("operate", command)
        if done["in_registry"] is False:
            raise UnmetError(f"N = {done['shard_count']} in the journal, but not in Redis")
        state = self.stack.invoke("operate", {"command": "route", **key})
        if (state["shard_count"], state["agreement"]) != (SHARD_COUNT, "equal"):
            raise UnmetError(f"N = {state['shard_count']}, registry against journal: {state['agreement']}")
        return f"N = {state['shard_count']}, {state['agreement']}"

    def read_shards(self) -> str:
        self._sleep(CACHE_SECONDS)
        for number in range(SHARD_MESSAGES):
            response = self._post({"body": f"message {number} after the raise"})
            self._expected.append(_expected(201, response)["message_id"])
        return f"{self._expect_messages()} messages"

    def find_consumer(self) -> str:
        deadline = self._timer() + self._wait_seconds
        while True:
            hot = self.stack.invoke("operate", {"command": "hot", "limit": 1})
            start = hot["consumer_started_at"]
            age = None if start is None else seconds_between(start, hot["at"])
            if age is not None and age <= LATE_SECONDS:
                return f"started {age:.0f} s ago"
            if self._timer() >= deadline:
                if hot["active"] is None:
                    raise UnmetError("Redis did not respond, so this is unknown")
                when = "never" if age is None else f"{age:.0f} s ago"
                raise UnmetError(f"last started {when}: is its schedule on, has it concurrency, does Redis let it in?")
            self._progress(f"waiting for the consumer, {deadline - self._timer():.0f} s at most")
            self._sleep(POLL_SECONDS)

    # Helpers that the steps share.

    def _start(self, function: str, method: str, statuses: tuple[int, ...]) -> str:
        """Call a function with a request without a body, as API Gateway would."""
        path = messages_path(self.conversation)
        event = {
            "version": "2.0",
            "routeKey": f"{method} /conversations/{{conversation_id}}/messages",
            "rawPath": path,
            "rawQueryString": "",
            "headers": {},
            "pathParameters": {"conversation_id": self.conversation},
            "requestContext": {"http": {"method": method, "path": path}, "requestId": SENDER, "stage": "$default"},
            "isBase64Encoded": False,
        }
        response = self.stack.invoke(function, event)
        if response.get("statusCode") not in statuses:
            raise UnmetError(f"{response.get('statusCode', response)}: {response.get('body', '')}")
        return f"{response['statusCode']}"

    def _post(self, content: Mapping[str, object]) -> Response:
        return self.stack.api.request("POST", messages_path(self.conversation), {**self._members, **content})

    def _written(self) -> dict[str, Any]:
        if not self._message:
            raise SkippedError("not tried: nothing was written")
        return self._message

    def _path(self) -> str:
        return message_path(self.conversation, self._written()["message_id"])

    def _read_message(self) -> dict[str, Any]:
        return _expected(200, self.stack.api.request("GET", f"{self._path()}?consistency=strong"))

    def _expect_messages(self) -> int:
        """Read every page, strongly consistent, oldest first: each message that should be there, and no other."""
        found: list[str] = []
        cursor: dict[str, str] = {}
        while True:
            query = {"consistency": "strong", "order": "oldest", "limit": PAGE_MESSAGES, **cursor}
            page = _expected(200, self.stack.api.request("GET", messages_path(self.conversation, **query)))
            found += [message["message_id"] for message in page["messages"]]
            if page["next_cursor"] is None:
                break
            cursor = {"cursor": page["next_cursor"]}
        if found != self._expected:
            raise UnmetError(f"{len(found)} messages instead of {len(self._expected)}, or in another order")
        return len(found)


class _Row(NamedTuple):
    """A step: the function that a stack has which can try it, and what it tries."""

    name: str
    expected: str
    function: str
    attempt: Callable[[_Check], str]

    def belongs_to(self, stack: Stack) -> bool:
        """Say whether a stack has what is tried. A construct has a consumer that it does not name."""
        return self.function in stack.functions or (self.attempt is _Check.find_consumer and not has_messages(stack))


_ROWS = (
    _Row("start operate", "a list of routes", "operate", _Check.start_operate),
    _Row("start write_message", "400 for an empty body, or 403 unsigned", "write_message", _Check.start_writer),
    _Row("start read_messages", "200 and an empty page", "read_messages", _Check.start_reader),
    _Row("start consume_reports", "ready", "consume_reports", _Check.start_consumer),
    _Row("write", "201", "write_message", _Check.write),
    _Row("repeat the write", "200", "write_message", _Check.repeat),
    _Row("read the message", "200 and what was written", "write_message", _Check.read),
    _Row("raise by hand", f"N = {SHARD_COUNT} wherever routes are kept", "operate", _Check.raise_by_hand),
    _Row("read all shards", "every message once, in order", "write_message", _Check.read_shards),
    _Row("edit the message", "200, and 412 with the tag of before", "write_message", _Check.edit),
    _Row("delete the message", "204, then 410, and no page has it", "write_message", _Check.delete),
    _Row("find the consumer", f"started within {LATE_SECONDS} s", "consume_reports", _Check.find_consumer),
)


def _expected(status: int, response: Response) -> dict[str, Any]:
    if response.status != status:
        hint = ""
        if response.status in {401, 403}:
            hint = ": does the API admit your AWS identity (execute-api:Invoke), or a token in HOTPARTITION_TOKEN?"
        raise UnmetError(f"{response}{hint}")
    document: dict[str, Any] = response.document
    return document
