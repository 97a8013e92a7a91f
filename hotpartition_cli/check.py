"""Tries a stack from end to end, step by step, with the expectation, the outcome and the time of each.

It leaves two raised conversations; their messages expire after a day.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from statistics import median
from typing import Any

from hotpartition_cli.api import CONNECTIONS, Response, message_path, messages_path
from hotpartition_cli.commands import Outcome
from hotpartition_cli.errors import Status, ToolError
from hotpartition_cli.rush import MESSAGE_WCU, Rush, Rushed, make_rush
from hotpartition_cli.stacks import LogLine, Stack

SENDER = "hotpartition-check"
SHARD_COUNT = 4
"""N of the raise by hand."""
SHARD_MESSAGES = 8
CACHE_SECONDS = 2.5
"""Time after which writers know of a raise by hand (the setting `route_cache_seconds`, 2 s)."""
DEFAULT_HOT_WCU = 800.0
LOAD_FACTOR = 2.5
"""The load, as a multiple of `hot_sustained_wcu` (hot over five seconds): more than enough to be hot at once."""
LOAD_MESSAGES_PER_SECOND = 80
"""Within the rate that `dev` admits; each message is as large as the load needs."""
LEAST_LOAD = 0.6
"""Of the load that was to be offered: with less, nothing need be raised, so a raise that is missing is not judged."""
OTHER_EXECUTIONS = 6
"""Free concurrency of the account that the load leaves to consumers, readers and the operations function."""
LATE_SECONDS = 180
"""A consumer starts each minute, up to 119 s apart."""
POLL_SECONDS = 0.5
CONNECTS_SECONDS = 3_600
"""Connections of the last hour are looked at: environments that are warm open none."""
MAX_CONNECT_SHARE = 0.5
"""Of its limit, for the median: single ones are slower where a machine or a node is busy."""
MAX_FAILED_CONNECTS = 0.1
PAGE_MESSAGES = 100
KEPT = timedelta(days=1)
"""TTL of the messages of a check."""
MAX_LISTED = 3


class Result(StrEnum):
    """How a step ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the report."""

    name: str
    expected: str
    came: str
    result: Result
    seconds: float


class UnmetError(Exception):
    """The outcome was not the expected one; the message says which."""


class SkippedError(Exception):
    """The step cannot be tried; the message says why."""


def has_messages(stack: Stack) -> bool:
    """Say whether a stack is the messages application, with its API and functions, and not another one."""
    return "write_message" in stack.functions


def has_redis(stack: Stack) -> bool:
    """Say whether a stack has Redis and a consumer; else its writers find hot conversations themselves.

    Every construct has; it names the operations function alone.
    """
    return not has_messages(stack) or "consume_reports" in stack.functions


def write_units_at_most(load_seconds: float, hot_wcu: float = DEFAULT_HOT_WCU) -> int:
    """Bound the DynamoDB write units of a check: the load's, and some for all else."""
    return round(LOAD_FACTOR * hot_wcu * load_seconds) + 100


def check(
    stack: Stack,
    progress: Callable[[str], None],
    *,
    load_seconds: float,
    wait_seconds: float,
    timer: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Outcome:
    """Try everything, and report it; a step that fails does not keep the others from being tried.

    `load_seconds` bounds the load, and `wait_seconds` the wait for the first consumer after a deployment.
    """
    checking = _Check(stack, load_seconds, wait_seconds, progress, timer, sleep)
    started = timer()
    at = datetime.now(UTC)
    steps = checking.run()
    passed = all(step.result is not Result.FAILED for step in steps)
    document = {
        "stack": stack.name,
        "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "passed": passed,
        "seconds": round(timer() - started, 1),
        "write_units_at_most": write_units_at_most(load_seconds, checking.hot_wcu),
        "conversations": [checking.raised, checking.loaded],
        "steps": [asdict(replace(step, seconds=round(step.seconds, 3))) for step in steps],
    }
    return Outcome(document, Status.FINE if passed else Status.FINDING)


@dataclass
class _Check:
    _stack: Stack
    _load_seconds: float
    _wait_seconds: float
    _progress: Callable[[str], None]
    _timer: Callable[[], float]
    _sleep: Callable[[float], None]

    def __post_init__(self) -> None:
        self._started_ms = time.time_ns() // 1_000_000
        name = f"{SENDER}-{uuid.uuid4().hex[:12]}"
        self.raised, self.loaded = f"{name}-by-hand", f"{name}-by-load"
        self.hot_wcu = DEFAULT_HOT_WCU
        expires_at = datetime.now(UTC) + KEPT
        self._members = {"sender": SENDER, "expires_at": expires_at.isoformat(timespec="seconds")}
        self._message: dict[str, Any] = {}
        self._expected: list[str] = []
        self._load: Rushed | None = None
        self._is_consumer_found = False

    def run(self) -> list[Step]:
        return [self._try(name, expected, attempt) for name, expected, attempt in self._list_steps()]

    def _list_steps(self) -> Iterable[tuple[str, str, Callable[[], str]]]:
        starts = {
            "operate": ("a list of routes", self._start_operate),
            "write_message": ("400 for an empty body, or 403 for an unsigned request", self._start_writer),
            "read_messages": ("200 and an empty page", self._start_reader),
            "consume_reports": ("ready", self._start_consumer),
        }
        for function in self._stack.functions:
            yield f"start {function}", *starts[function]
        if has_messages(self._stack):
            yield "write", "201", self._write
            yield "repeat the write", "200", self._repeat
            yield "read the message", "200 and what was written", self._read_message
            yield "read the page", "200 and only that message", self._read_page
        places = "journal and Redis" if has_redis(self._stack) else "the journal"
        yield "raise by hand", f"N = {SHARD_COUNT} in {places}", self._raise
        if has_messages(self._stack):
            yield from self._list_steps_of_messages()
        else:
            yield "find the consumer", f"started within {LATE_SECONDS} s", self._find_consumer
        yield "look for refusals", "none in the logs", self._look_for_refusals
        if has_redis(self._stack):
            yield "look at connects to Redis", "half of them within half of the limit", self._look_at_connects

    def _list_steps_of_messages(self) -> Iterable[tuple[str, str, Callable[[], str]]]:
        yield "write to the shards", f"201, {SHARD_MESSAGES} times", self._write_shards
        yield "read all shards", "every message once, in order", self._read_shards
        yield "edit the message", "200, and 412 with the tag of before", self._edit
        yield "delete the message", "204, then 410, and no page has it", self._delete
        if has_redis(self._stack):
            yield "find the consumer", f"started within {LATE_SECONDS} s", self._find_consumer
        yield "raise by load", f"raised within {self._load_seconds:g} s", self._raise_by_load
        yield "read the load", "every stored message once", self._read_load

    def _try(self, name: str, expected: str, attempt: Callable[[], str]) -> Step:
        self._progress(name)
        started = self._timer()
        try:
            came, result = attempt(), Result.PASSED
        except SkippedError as reason:
            came, result = str(reason), Result.SKIPPED
        except (UnmetError, ToolError) as error:
            came, result = str(error), Result.FAILED
        return Step(name, expected, came, result, self._timer() - started)

    # The functions, called directly.

    def _start_operate(self) -> str:
        self._stack.invoke("operate", {"command": "routes", "limit": 1})
        return "a list"

    def _start_writer(self) -> str:
        event = http_event("POST /conversations/{conversation_id}/messages", self.raised)
        return self._expect_status((400, 403), self._stack.invoke("write_message", event))

    def _start_reader(self) -> str:
        event = http_event("GET /conversations/{conversation_id}/messages", self.raised)
        return self._expect_status((200,), self._stack.invoke("read_messages", event))

    def _start_consumer(self) -> str:
        response = self._stack.invoke("consume_reports", {"probe": True})
        if response != {"ready": True}:
            raise UnmetError(f"{response}")
        return "ready"

    @staticmethod
    def _expect_status(statuses: Collection[int], response: Mapping[str, Any]) -> str:
        if response.get("statusCode") not in statuses:
            raise UnmetError(f"{response.get('statusCode', response)}: {response.get('body', '')}")
        return f"{response['statusCode']}"

    # Messages, through the API.

    def _write(self) -> str:
        content = {"body": "written by hotpartition check"}
        response = self._post(self.raised, content)
        if response.status == 403 and "not-the-sender" in str(response.document):
            # The sender is the caller (`api.sender_claim`).
            del self._members["sender"]
            response = self._post(self.raised, content)
        self._message = {**_expected(201, response), **content}
        self._expected.append(self._message["message_id"])
        return f"{response}"

    def _repeat(self) -> str:
        message = self._written()
        response = self._post(self.raised, {"body": message["body"], "message_id": message["message_id"]})
        _expected(200, response)
        return f"{response}"

    def _read_message(self) -> str:
        message = self._written()
        path = message_path(self.raised, message["message_id"])
        found = _expected(200, self._stack.api.request("GET", f"{path}?consistency=strong"))
        if (found["message_id"], found["body"]) != (message["message_id"], message["body"]):
            raise UnmetError(f"another message: {found}")
        return "200"

    def _read_page(self) -> str:
        self._written()
        return f"{self._expect_messages(self.raised, self._expected)} message"

    # A raise by hand.

    def _raise(self) -> str:
        command = {"command": "raise", "conversation_id": self.raised, "shard_count": SHARD_COUNT, "by": SENDER}
        done = self._stack.invoke("operate", command)
        if done["in_registry"] is False:
            raise UnmetError(f"N = {done['shard_count']} in the journal, but not in Redis")
        state = self._route(self.raised)
        if (state["shard_count"], state["agreement"]) != (SHARD_COUNT, "equal"):
            raise UnmetError(f"N = {state['shard_count']}, registry against journal: {state['agreement']}")
        return f"N = {state['shard_count']}, {state['agreement']}"

    def _write_shards(self) -> str:
        self._sleep(CACHE_SECONDS)
        for number in range(SHARD_MESSAGES):
            response = self._post(self.raised, {"body": f"message {number} after the raise"})
            self._expected.append(_expected(201, response)["message_id"])
        return f"201, {SHARD_MESSAGES} times"

    def _read_shards(self) -> str:
        if len(self._expected) <= 1:
            raise SkippedError("nothing was written after the raise")
        return f"{self._expect_messages(self.raised, self._expected)} messages"

    # Edits and deletes, of messages written before the raise.

    def _edit(self) -> str:
        path = message_path(self.raised, self._written()["message_id"])
        api = self._stack.api
        read = api.request("GET", f"{path}?consistency=strong")
        _expected(200, read)
        _expected(200, api.request("PATCH", path, {"body": "edited by hotpartition check"}, if_match=read.etag))
        stale = api.request("PATCH", path, {"body": "edited by somebody else"}, if_match=read.etag)
        if stale.status != 412:
            raise UnmetError(f"{stale} with the tag of before the edit")
        found = _expected(200, api.request("GET", f"{path}?consistency=strong"))
        if found["body"] != "edited by hotpartition check":
            raise UnmetError(f"read another body: {found['body']}")
        return "200, 412"

    def _delete(self) -> str:
        path = message_path(self.raised, self._written()["message_id"])
        statuses = [
            self._stack.api.request(method, path + query).status
            for method, query in (("DELETE", ""), ("GET", "?consistency=strong"))
        ]
        if statuses != [204, 410]:
            raise UnmetError(f"{statuses[0]}, then {statuses[1]}")
        self._expected.remove(self._message["message_id"])
        self._expect_messages(self.raised, self._expected)
        return "204, 410"

    # A raise by load.

    def _find_consumer(self) -> str:
        deadline = self._timer() + self._wait_seconds
        while True:
            hot = self._list_hot()
            age = _age_seconds(hot)
            if age is not None and age <= LATE_SECONDS:
                break
            if self._timer() >= deadline:
                if hot["active"] is None:
                    raise UnmetError("Redis did not respond, so this is unknown")
                when = "never" if age is None else f"{age:.0f} s ago"
                raise UnmetError(f"last started {when}: is its schedule on, has it concurrency, does Redis let it in?")
            self._progress(f"waiting for the consumer, {deadline - self._timer():.0f} s at most")
            self._sleep(POLL_SECONDS)
        self._is_consumer_found = True
        return f"started {age:.0f} s ago"

    def _list_hot(self) -> dict[str, Any]:
        """List the hot keys, and learn from the raise by hand how much one key serves."""
        hot = self._stack.invoke("operate", {"command": "hot", "limit": 1_000})
        own = [row for row in hot["routes"] if row["conversation_id"] == self.raised and row["shard_count"]]
        if own:
            self.hot_wcu = own[0]["capacity_wcu_per_second"] / own[0]["shard_count"]
        return hot

    def _raise_by_load(self) -> str:
        if not has_redis(self._stack):
            self._list_hot()
        elif not self._is_consumer_found:
            raise SkippedError("not tried: there is no consumer")
        rate = LOAD_FACTOR * self.hot_wcu
        size = min(MESSAGE_WCU, max(1, round(rate / LOAD_MESSAGES_PER_SECOND)))
        rush = Rush(self.loaded, rate, self._load_seconds, size, self._members)
        started = self._timer()
        with ThreadPoolExecutor(1) as watcher:
            raised = watcher.submit(self._await_raise, started)
            free = self._stack.find_concurrency()
            senders = CONNECTIONS if free is None else max(1, min(CONNECTIONS, free - OTHER_EXECUTIONS))
            made = self._load = make_rush(rush, self._stack.api, self._progress, is_over=raised.done, senders=senders)
            state = raised.result()
        return judge_load(made, rush, state, senders=senders, free=free)

    def _await_raise(self, started: float) -> dict[str, Any] | None:
        """Ask for the route until it has a generation, or a little longer than the load lasts."""
        deadline = started + self._load_seconds + CACHE_SECONDS
        while self._timer() < deadline:
            state = self._route(self.loaded)
            if state["shard_count"]:
                return {**state, "after_seconds": self._timer() - started}
            self._sleep(POLL_SECONDS)
        return None

    def _read_load(self) -> str:
        if self._load is None or not self._load.stored:
            raise SkippedError("not tried: nothing was stored")
        found = self._read_all(self.loaded)
        missing = set(self._load.stored) - set(found)
        doubled = len(found) - len(set(found))
        if missing or doubled:
            raise UnmetError(f"{len(missing)} missing, {doubled} doubled, of {len(self._load.stored):,}")
        return f"{len(self._load.stored):,} messages"

    # The functions' log lines.

    def _look_for_refusals(self) -> str:
        self._sleep(self._stack.log_delay_seconds)
        found: dict[str, None] = {}
        for function in self._stack.functions:
            for line in self._stack.read_log(function, self._started_ms):
                if text := _refusal(line):
                    found[f"{function}: {text}"] = None
        if found:
            more = f"; and {len(found) - MAX_LISTED} more" if len(found) > MAX_LISTED else ""
            raise UnmetError("; ".join(list(found)[:MAX_LISTED]) + more)
        return "none"

    def _look_at_connects(self) -> str:
        times: list[float] = []
        shares: list[float] = []
        failures: list[str] = []
        for function in self._stack.functions:
            for line in self._stack.read_log(function, self._started_ms - CONNECTS_SECONDS * 1000):
                if line.get("message") == "connected to Redis":
                    times.append(line["connect_ms"])
                    shares.append(line["connect_ms"] / line["limit_ms"])
                elif line.get("message") == "no connection to Redis":
                    failures.append(f"{function}: {line['reason']}")
        attempts = len(times) + len(failures)
        if not attempts:
            raise SkippedError("no connection was opened in the last hour")
        came = f"{len(times)} connects"
        if times:
            came += f", median {median(times):.0f} ms, slowest {max(times):.0f} ms"
        if failures:
            came += f"; {len(failures)} failed, the last one with {failures[-1]}"
        if len(failures) > MAX_FAILED_CONNECTS * attempts:
            raise UnmetError(came)
        if median(shares) > MAX_CONNECT_SHARE:
            raise UnmetError(f"{came}: raise registry_connect_timeout_ms")
        return came

    # Helpers that the steps share.

    def _post(self, conversation_id: str, content: Mapping[str, object]) -> Response:
        return self._stack.api.request("POST", messages_path(conversation_id), {**self._members, **content})

    def _written(self) -> dict[str, Any]:
        if not self._message:
            raise SkippedError("not tried: nothing was written")
        return self._message

    def _route(self, conversation_id: str) -> dict[str, Any]:
        return self._stack.invoke("operate", {"command": "route", "conversation_id": conversation_id})

    def _expect_messages(self, conversation_id: str, expected: list[str]) -> int:
        found = self._read_all(conversation_id)
        if found != expected:
            raise UnmetError(f"{len(found)} messages instead of {len(expected)}, or in another order")
        return len(found)

    def _read_all(self, conversation_id: str) -> list[str]:
        """Read every page, strongly consistent, oldest first."""
        found: list[str] = []
        cursor: dict[str, str] = {}
        while True:
            query = {"consistency": "strong", "order": "oldest", "limit": PAGE_MESSAGES, **cursor}
            page = _expected(200, self._stack.api.request("GET", messages_path(conversation_id, **query)))
            found += [message["message_id"] for message in page["messages"]]
            if page["next_cursor"] is None:
                return found
            cursor = {"cursor": page["next_cursor"]}


def judge_load(made: Rushed, rush: Rush, state: Mapping[str, Any] | None, *, senders: int, free: int | None) -> str:
    """Report the outcome of a load; `state` is the route that it raised, if it did.

    Raises:
        UnmetError: writes failed, or the load was not raised.
        SkippedError: too little of it arrived to be raised; the message names the limit that it met.
    """
    offered = (len(made.stored) + made.throttled) * rush.message_wcu / made.seconds
    counts = f"{offered:,.0f} WCU/s offered, {len(made.stored):,} stored, {made.throttled:,} throttled"
    if made.failed or made.unheard:
        raise UnmetError(f"{made.failed + made.unheard:,} of {made.total:,} writes failed ({counts})")
    if state is not None:
        return f"N = {state['shard_count']} after {state['after_seconds']:.1f} s ({counts})"
    if offered >= rush.wcu_per_second * LEAST_LOAD:
        raise UnmetError(f"not raised ({counts})")
    limit = f"the way from here, with {senders} requests at a time, carries no more"
    if made.capped:
        allowed = "" if free is None else f": {free} executions are free in this account"
        limit = f"Lambda's concurrency or the API's rate refused {made.capped:,} of {made.total:,}{allowed}"
    raise SkippedError(f"not judged: {rush.wcu_per_second:,.0f} WCU/s were to be offered ({counts}); {limit}")


def http_event(route: str, conversation_id: str) -> dict[str, object]:
    """Build the event of an API request without a body, as API Gateway would for this route."""
    method, _, path = route.partition(" ")
    return {
        "version": "2.0",
        "routeKey": route,
        "rawPath": path.replace("{conversation_id}", conversation_id),
        "rawQueryString": "",
        "headers": {},
        "pathParameters": {"conversation_id": conversation_id},
        "requestContext": {"http": {"method": method, "path": path}, "requestId": SENDER, "stage": "$default"},
        "isBase64Encoded": False,
    }


def _expected(status: int, response: Response) -> dict[str, Any]:
    if response.status != status:
        hint = ""
        if response.status in {401, 403}:
            hint = ": does the API admit your AWS identity (execute-api:Invoke), or a token in HOTPARTITION_TOKEN?"
        raise UnmetError(f"{response}{hint}")
    document: dict[str, Any] = response.document
    return document


def _age_seconds(hot: Mapping[str, Any]) -> float | None:
    """Say how long ago the consumer started that started longest ago; None where one never did."""
    starts = hot["consumers_started_at"]
    if None in starts:
        return None
    at = datetime.fromisoformat(hot["at"])
    return max((at - datetime.fromisoformat(start)).total_seconds() for start in starts)


def _refusal(line: LogLine) -> str:
    """Return what a line says of a refusal or an error; empty for any other line."""
    if line.get("message") == "registry refuses this function":
        return f"{line.get('reason')} (user {line.get('user')})"
    if line.get("errorType"):
        return f"{line['errorType']}: {line.get('errorMessage', '')}"
    return ""
