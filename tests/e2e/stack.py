"""A client of the running stack: its API as clients use it, and the local run's control API."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Literal
from urllib.parse import quote, urlencode

import redis
import urllib3

from tools.history_checker import Acknowledged, History, Page, Read, Seen, check_history, content_digest, join_pages
from tools.local.logs import read_log
from tools.scaling import scale_thresholds

WRITE_LIMIT_WCU = 20
"""One fiftieth of DynamoDB's own limit; the thresholds shrink with it."""
SETTINGS = {**scale_thresholds(WRITE_LIMIT_WCU / 1_000), "registry_rest_ms": 500}


LOAD_TIMES = float(os.environ.get("LOAD_TIMES", "1"))
"""How many times longer than usual every load lasts; `make fault-trials` sets it."""


SENDER = "ann"


@dataclass(frozen=True)
class Response:
    """One HTTP response."""

    status: int
    content_type: str
    headers: dict[str, str]
    body: Any


@dataclass
class Load:
    """What a load offered, what became of it, and what was read of it."""

    acknowledged: dict[str, str] = field(default_factory=dict)
    acknowledged_at: dict[str, float] = field(default_factory=dict)
    statuses: Counter[int] = field(default_factory=Counter)
    reads: list[Read] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def take(self, response: Response, text: str) -> bool:
        """Take in how a write ended; whether it is stored."""
        is_stored = response.status in {200, 201}
        with self._lock:
            self.statuses[response.status] += 1
            if is_stored:
                self.acknowledged[response.body["message_id"]] = text
                self.acknowledged_at[response.body["message_id"]] = time.monotonic()
        return is_stored

    def history(self, conversation: str) -> History:
        """Everything in the words of the history check."""
        acknowledged = tuple(
            Acknowledged(
                conversation_id=conversation,
                message_id=message_id,
                digest=content_digest(conversation, SENDER, text),
                acknowledged_at=self.acknowledged_at[message_id],
            )
            for message_id, text in self.acknowledged.items()
        )
        return History(acknowledged=acknowledged, unresolved=(), reads=tuple(self.reads))


class Stack:
    """The running stack."""

    def __init__(self, api_url: str, control_url: str, work_dir: Path = Path("out/local")) -> None:
        self.api_url, self.control_url = api_url.rstrip("/"), control_url.rstrip("/")
        self._work_dir = work_dir
        self._http = urllib3.PoolManager(maxsize=32, retries=False, timeout=urllib3.Timeout(connect=2, read=15))

    @classmethod
    def from_ready_file(cls, path: Path, work_dir: Path) -> Stack:
        facts = json.loads(path.read_text())
        return cls(facts["api_url"], facts["control_url"], work_dir)

    def log_lines(self, function: str, message: str) -> list[dict[str, Any]]:
        """The structured log lines of a function with this message."""
        lines = read_log(self._work_dir / "logs" / f"{function}.log")
        return [line for line in lines if line.get("message") == message]

    def request(self, method: str, url: str, body: Any = None, headers: dict[str, str] | None = None) -> Response:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        response = self._http.request(method, url, body=data, headers=headers or {})
        content_type = response.headers.get("content-type", "")
        is_json = "json" in content_type
        return Response(
            response.status,
            content_type,
            {k.lower(): v for k, v in response.headers.items()},
            json.loads(response.data) if is_json and response.data else response.data,
        )

    def write(self, conversation: str, body: Any) -> Response:
        return self.request("POST", f"{self.api_url}/conversations/{quote(conversation, safe='')}/messages", body)

    def read(self, conversation: str, **query: Any) -> Response:
        path = f"{self.api_url}/conversations/{quote(conversation, safe='')}/messages"
        return self.request("GET", f"{path}?{urlencode(query)}" if query else path)

    def read_one(self, conversation: str, message_id: str, **query: Any) -> Response:
        path = f"{self.api_url}/conversations/{quote(conversation, safe='')}/messages/{quote(message_id, safe='')}"
        return self.request("GET", f"{path}?{urlencode(query)}" if query else path)

    def change(self, method: str, conversation: str, message_id: str, body: Any = None, **headers: str) -> Response:
        """Edit (`PATCH`) or delete (`DELETE`) a message."""
        path = f"{self.api_url}/conversations/{quote(conversation, safe='')}/messages/{quote(message_id, safe='')}"
        return self.request(method, path, body, {name.replace("_", "-"): text for name, text in headers.items()})

    def add(self, counter: str, body: Any) -> Response:
        """Add to a counter."""
        return self.request("POST", f"{self.api_url}/counters/{quote(counter, safe='')}", body)

    def count(self, counter: str, **query: Any) -> int:
        """Read a counter."""
        path = f"{self.api_url}/counters/{quote(counter, safe='')}"
        response = self.request("GET", f"{path}?{urlencode(query)}" if query else path)
        assert response.status == 200, response
        value: int = response.body["value"]
        return value

    def read_all(self, conversation: str, **query: Any) -> list[dict[str, Any]]:
        """Read every page; what is throttled is asked for again."""
        return [message for page, _ in self.pages(conversation, query) for message in page["messages"]]

    def read_into(self, load: Load, conversation: str, *, order: Literal["newest", "oldest"], limit: int = 200) -> None:
        """Read every page, strongly consistent, and record what came."""
        started_at = time.monotonic()
        query = {"consistency": "strong", "order": order, "limit": limit}
        pages = (
            Page(
                conversation_id=conversation,
                order=order,
                consistency="strong",
                started_at=started_at,
                messages=tuple(_seen(message) for message in page["messages"]),
                cursor=cursor,
                next_cursor=page["next_cursor"],
            )
            for page, cursor in self.pages(conversation, query)
        )
        load.reads.append(join_pages(pages))

    def pages(self, conversation: str, query: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str | None]]:
        """Read page by page: each as it came, with the cursor that asked for it."""
        cursor: str | None = None
        while True:
            response = self.read(conversation, **query, **({"cursor": cursor} if cursor else {}))
            if response.status == 503:
                time.sleep(0.2)
                continue
            assert response.status == 200, response
            yield response.body, cursor
            cursor = response.body["next_cursor"]
            if cursor is None:
                return

    def status(self) -> dict[str, Any]:
        return self.request("GET", f"{self.control_url}/status").body

    def timeline(self) -> list[dict[str, Any]]:
        return self.request("GET", f"{self.control_url}/dynamodb/timeline").body["buckets"]

    def control(self, path: str, body: Any = None) -> Response:
        response = self.request("POST", f"{self.control_url}{path}", body)
        assert response.status == 200, response
        return response

    def set_faults(self, *rules: dict[str, Any]) -> None:
        """Replace the faults that DynamoDB shows; none ends them."""
        self.control("/dynamodb/faults", list(rules))

    def injected(self) -> Counter[str]:
        """How often each fault was chosen since the start."""
        return Counter(self.request("GET", f"{self.control_url}/dynamodb/faults").body["injected"])

    def dynamodb(self, operation: str, **request: Any) -> dict[str, Any]:
        """Ask the local DynamoDB itself, behind the functions' back."""
        facts = self.status()["dynamodb"]
        headers = {"X-Amz-Target": f"DynamoDB_20120810.{operation}", "Content-Type": "application/x-amz-json-1.0"}
        body = {"TableName": facts["table"], **request}
        response = self._http.request("POST", facts["endpoint"], body=json.dumps(body).encode(), headers=headers)
        assert response.status == 200, response.data
        result: dict[str, Any] = json.loads(response.data)
        return result

    def routing_item(self, conversation: str) -> dict[str, Any] | None:
        """The journal's item of a conversation."""
        key = {"pk": {"S": conversation}, "sk": {"S": "r#"}}
        return self.dynamodb("GetItem", Key=key, ConsistentRead=True).get("Item")

    def invoke_and_leave(self, function: str, event: Any = None) -> None:
        """Start a function that takes long, and do not wait for it."""
        url = f"{self.control_url}/functions/{function}/invoke"
        with suppress(urllib3.exceptions.ReadTimeoutError):
            self._http.request(
                "POST", url, body=json.dumps(event or {}).encode(), timeout=urllib3.Timeout(connect=2, read=0.1)
            )

    def write_until_stored(
        self, conversation: str, text: str, load: Load, mint_id: Callable[[], str] | None = None
    ) -> None:
        """Write as a careful client does: a refused message is repeated with its id."""
        body: dict[str, Any] = {"sender": SENDER, "body": text}
        if mint_id is not None:
            body["message_id"] = mint_id()
        for attempt in range(60):
            response = self.write(conversation, body)
            if load.take(response, text):
                return
            assert response.status in {500, 502, 503, 504}, response
            if isinstance(response.body, dict) and response.body.get("message_id"):
                body["message_id"] = response.body["message_id"]
            time.sleep(min(1.0, 0.05 * 2**attempt))
        raise AssertionError(f"never stored: {text}")

    def offer(
        self,
        conversation: str,
        *,
        rate: float,
        seconds: float,
        during: Callable[[], None] | None = None,
        first: int = 0,
        load: Load | None = None,
        mint_id: Callable[[], str] | None = None,
    ) -> Load:
        """Offer a load for a while, open-loop; `during` runs beside it, and can look at the `load` that is given."""
        load = Load() if load is None else load
        with ThreadPoolExecutor(max_workers=24) as pool:
            side = pool.submit(during) if during else None
            futures = [
                pool.submit(self.write_until_stored, conversation, f"message {first + i}", load, mint_id)
                for i in _paced(rate, seconds * LOAD_TIMES)
            ]
            for future in futures:
                future.result()
            if side:
                side.result()
        return load


def _paced(rate: float, seconds: float) -> Iterator[int]:
    started = time.monotonic()
    for i in range(int(rate * seconds)):
        delay = started + i / rate - time.monotonic()
        if delay > 0:
            time.sleep(delay)
        yield i


def wait_for(condition: Callable[[], Any], *, seconds: float) -> Any:
    """Poll until a condition holds; its value, or the last one that did not."""
    deadline = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return value


def assert_read_back(stack: Stack, conversation: str, load: Load, *, statuses: Iterable[int] = (200, 201, 503)) -> None:
    """Every acknowledged message exactly once, in order, in both directions and in every read before.

    No write ended otherwise than it may.
    """
    assert set(load.statuses) <= set(statuses)
    stack.read_into(load, conversation, order="newest")
    stack.read_into(load, conversation, order="oldest", limit=35)
    verdict = check_history(load.history(conversation))
    assert verdict.holds, verdict.examples
    # Nothing else is there either: what was refused for good or killed was repeated with its id.
    assert {len(read.messages) for read in load.reads[-2:]} == {len(load.acknowledged)}


def read_meanwhile(stack: Stack, conversation: str, load: Load, *, seconds: float) -> None:
    """Read in both orders, again and again; `assert_read_back` judges what came."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        stack.read_into(load, conversation, order="newest")
        stack.read_into(load, conversation, order="oldest")
        time.sleep(0.1)


def _seen(message: dict[str, Any]) -> Seen:
    content = (message["conversation_id"], message["sender"], message["body"], message["attributes"])
    return Seen(message["message_id"], content_digest(*content))


def route_in_redis(stack: Stack, registry: redis.Redis, conversation: str) -> set[str]:
    """A conversation's generations as Redis has them."""
    members: Any = registry.smembers(f"hp:{stack.status()['dynamodb']['table']}:route:{{{conversation}}}")
    return set(members)


def route_in_journal(stack: Stack, conversation: str) -> set[str]:
    """A conversation's generations as DynamoDB has them."""
    item = stack.routing_item(conversation)
    return set(item["generations"]["SS"]) if item else set()
