"""One page of heat: the looks of the last ten minutes, served with `heat.html` on loopback."""

from __future__ import annotations

import json
import re
import threading
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from hotpartition.core.times import format_time
from hotpartition_cli.callers import UrlCaller
from hotpartition_cli.errors import ToolError
from hotpartition_cli.outcomes import Caller, find_gap, seconds_between

LOOPBACK = "127.0.0.1"
WINDOW_SECONDS = 600
MEAN_SECONDS = 5
COUNTED_SECONDS = 4
MOST_KEYS = 100
"""Keys of one look that the page keeps: ten minutes of more would fill the browser's memory."""
MOST_NAMED = 3
MINUTE_SECONDS = 60
ENOUGH_SECONDS = 50
"""Of the last minute: what looks cover is a little less than the time between the first and the last of them."""
NO_LOOK: Mapping[str, Any] = {"routes": [], "active": None, "is_complete": False, "is_all": False, "streams": 0}
REASONS = {
    "raised": "it had more load than its keys take",
    "still-warm": "it was still warm when a close was ahead",
    "by-hand": "by hand",
    "unlucky-partition": "some of its shards shared a partition",
    "registry-ahead-of-journal": "Redis knew of it, and the journal did not",
}
PAGE = (Path(__file__).parent / "heat.html").read_text(encoding="utf-8")


def build_policy(page: str) -> str:
    """Build the content security policy of a page: its own scripts and styles run, and it asks its own origin alone."""

    def hashes(tag: str) -> str:
        found = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        return " ".join(f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in found)

    own = f"script-src {hashes('script')}; style-src {hashes('style')}; connect-src 'self'"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


@dataclass(slots=True)
class Heat:
    """Looks at the hottest keys through a caller, and keeps what it saw in the last ten minutes.

    A look is the document of `watch --json`, with `gap`: what it did not see, in a sentence. A look that failed is kept
    as well, so that its time shows as not known.
    """

    call: Caller
    now: Callable[[], datetime]
    every: float = 2.0
    limit: int = 20
    looks: deque[Mapping[str, Any]] = field(default_factory=deque)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def look(self) -> None:
        """Look once."""
        try:
            with self._lock:
                document = self.call({"command": "hot", "limit": self.limit})
            look = {**document, "gap": find_gap(document), "is_all": _lists_all(document)}
        except ToolError as error:
            at = format_time(int(self.now().timestamp() * 1000))
            look = {**NO_LOOK, "at": at, "gap": f"The last look failed: {error}."}
        reach = max(MEAN_SECONDS, 1.5 * self.every)
        before: Mapping[str, Any] = self.looks[-1] if self.looks else {"number": 0}
        since = seconds_between(before["at"], look["at"]) if self.looks else reach
        self.looks.append({**look, "number": before["number"] + 1, "seconds": min(reach, max(0.0, since))})
        while seconds_between(self.looks[0]["at"], look["at"]) > WINDOW_SECONDS:
            self.looks.popleft()

    def feed(self, after: int = 0) -> Mapping[str, Any]:
        """Return the looks after the one with a number, and how to read them."""
        kept = tuple(self.looks)
        is_reported = any(look["streams"] for look in kept)
        whose = "the functions report" if is_reported else "writers count while DynamoDB refuses writes of raised keys"
        seconds = MEAN_SECONDS if is_reported else COUNTED_SECONDS
        return {
            "looks": [look for look in kept if look["number"] > after],
            "state": say_state(kept),
            "about": f"What {whose}: the mean of the last {seconds} seconds, looked at every {self.every:g} s.",
            "window_seconds": WINDOW_SECONDS,
            "every": self.every,
            "mean_seconds": MEAN_SECONDS,
        }

    def show_route(self, key: str) -> Mapping[str, Any]:
        """Return a key's route, and in a local run the loads of its shards; or why they are not known."""
        try:
            with self._lock:
                route = self.call({"command": "route", "conversation_id": key})
            shards = self.call.measure_shards(key) if isinstance(self.call, UrlCaller) else None
            return {**describe_route(route), "shards": shards, "over": "mean of the last 5 s"}
        except ToolError as error:
            return {"error": str(error)}


def say_state(looks: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Say what is hot, what was refused in the last minute, and what was not seen: sentences, each with a level.

    A level is `hot`, `unknown` or nothing. What is not known is never said to be nothing.
    """
    return [_say_hot(looks[-1]), _say_refused(looks), _say_seen(looks[-1])] if looks else []


def _say_hot(look: Mapping[str, Any]) -> tuple[str, str]:
    def describe(row: Mapping[str, Any]) -> str:
        spread = f" on {row['shard_count']} shards" if row["shard_count"] else ""
        return f"{row['conversation_id']} ({row['wcu_per_second']:,.0f} WCU/s{spread})"

    def is_hot(row: Mapping[str, Any]) -> bool:
        limit: float = row["capacity_wcu_per_second"] / max(1, row["shard_count"])
        return bool(row["wcu_per_second"] >= limit)

    loaded = [row for row in look["routes"] if row["wcu_per_second"]]
    hot = list(filter(is_hot, loaded))
    if hot:
        more = f" and {len(hot) - MOST_NAMED} more" if len(hot) > MOST_NAMED else ""
        named = ", ".join(describe(row) for row in hot[:MOST_NAMED])
        return "hot", f"{named}{more} {'is' if len(hot) == 1 else 'are'} hot. "
    if look["active"] is None:
        return "unknown", "What is hot is not known. "
    if not look["streams"]:
        return "", "No raised key is refused writes; the load of other keys is not known. "
    nothing = "Nothing is hot" if look["is_complete"] else "Nothing that was seen is hot"
    busiest = max(loaded, key=lambda row: row["wcu_per_second"], default=None)
    return "", f"{nothing}: {describe(busiest)} is the busiest key. " if busiest else f"{nothing}. "


def _say_refused(looks: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    at = looks[-1]["at"]
    recent = [look for look in looks if look["is_complete"] and seconds_between(look["at"], at) < MINUTE_SECONDS]
    seen = sum(look["seconds"] for look in recent)
    if not seen:
        return "unknown", "What was refused in the last minute is not known. "
    refused = sum(
        (row["wcu_per_second"] or 0.0) * (row["throttled_share"] or 0.0) * look["seconds"]
        for look in recent
        for row in look["routes"]
    )
    part = "" if seen > ENOUGH_SECONDS else f", of which {seen:.0f} s were seen"
    is_reported = looks[-1]["streams"]
    if refused < 0.5:
        return "", f"{'Nothing' if is_reported else 'No write of a raised key'} was refused in the last minute{part}. "
    whose = "" if is_reported else " of raised keys"
    return "", f"About {refused:,.0f} WCU{whose} were refused in the last minute{part}. "


def _say_seen(look: Mapping[str, Any]) -> tuple[str, str]:
    if look["gap"]:
        return "unknown", look["gap"]
    return "", "Every report was seen." if look["streams"] else "Every raised key was looked at."


def _lists_all(hot: Mapping[str, Any]) -> bool:
    """Say whether a key that is not in the list had no load."""
    loaded = sum(bool(row["wcu_per_second"] or row["rcu_per_second"]) for row in hot["routes"])
    return bool(hot["streams"] and hot["is_complete"] and hot["active"] <= loaded)


def describe_route(route: Mapping[str, Any]) -> Mapping[str, Any]:
    """Describe a route as the page shows it: its steps, and the latest decision in a sentence."""
    steps, decisions = [], [("", "")]
    for made in route["generations"]:
        n, reasons = made["shard_count"], "; ".join(map(_explain, made["raises"]))
        steps.append((_shorten(made["since"]), str(n), reasons or "not recorded"))
        decisions += [(record["decided_at"], f"Raised to {n}: {_explain(record)}.") for record in made["raises"]]
    for close in route["closes"]:
        step = "closed: it had cooled" if close["is_confirmed"] else "a close was announced"
        steps.append((_shorten(close["at"]), "0", step))
    return {"steps": sorted(steps), "decision": max(decisions)[1]}


def _shorten(time: str) -> str:
    return time[:19].replace("T", " ")


def _explain(record: Mapping[str, Any]) -> str:
    rate = f" ({record['rate_wcu_per_second']:,} WCU/s)" if record["rate_wcu_per_second"] else ""
    by = f", {record['by']}" if record["by"] else ""
    return f"{REASONS.get(record['reason'], record['reason'])}{rate}{by}"


class Server(ThreadingHTTPServer):
    """Serves the page and its feed on loopback."""

    daemon_threads = True

    def __init__(self, heat: Heat, port: int = 0) -> None:
        """Bind to the port, or raise OSError."""
        super().__init__((LOOPBACK, port), _Handler)
        self.heat = heat
        self.url = f"http://{LOOPBACK}:{self.server_port}"
        self.asked = threading.Event()
        self._ended = threading.Event()

    def start(self, *, at_once: bool = False) -> None:
        """Serve in threads of their own, and look regularly: at once, or from when the page is first asked for."""
        if at_once:
            self.asked.set()
        for work in (self.serve_forever, self._look_when_asked):
            threading.Thread(target=work, daemon=True).start()

    def stop(self) -> None:
        """Stop serving and looking."""
        self._ended.set()
        self.asked.set()
        self.shutdown()
        self.server_close()

    def _look_when_asked(self) -> None:
        self.asked.wait()
        while not self._ended.is_set():
            self.heat.look()
            self._ended.wait(self.heat.every)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    always: ClassVar[Mapping[str, str]] = {
        "Content-Security-Policy": build_policy(PAGE),
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-store",
    }

    def do_GET(self) -> None:
        """Serve the page, its feed, or a route; a request under another name than loopback's is refused."""
        names = {f"{name}:{self.server.server_port}" for name in (LOOPBACK, "localhost")}
        if self.headers.get("Host") not in names:
            # A page of another site could otherwise read this one: its own name may point at 127.0.0.1.
            self._respond(HTTPStatus.FORBIDDEN, "text/plain", f"Open http://{LOOPBACK}:{self.server.server_port}/")
            return
        url, heat = urlsplit(self.path), self.server.heat
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        match url.path:
            case "/":
                self.server.asked.set()
                self._respond(HTTPStatus.OK, "text/html", PAGE)
            case "/feed" if query.get("after", "").isdigit():
                self._respond(HTTPStatus.OK, "application/json", json.dumps(heat.feed(int(query["after"]))))
            case "/route" if "key" in query:
                self._respond(HTTPStatus.OK, "application/json", json.dumps(heat.show_route(query["key"])))
            case _:
                self._respond(HTTPStatus.NOT_FOUND, "text/plain", "There are /, /feed?after=0 and /route?key=")

    def _respond(self, status: HTTPStatus, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in self.always.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing of requests."""
