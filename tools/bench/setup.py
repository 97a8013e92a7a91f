"""What a row is given, and what several share: the servers, the functions' environment, events, the rivals' client."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from types import ModuleType
from typing import Any

from redis import Redis

from hotpartition.redis.cluster import route_key
from tools.local.events import HttpRequest, Route, build_http_event

ROOT = Path(__file__).resolve().parents[2]
TABLE = "bench"
COLLECTION = "/conversations/{conversation_id}/messages"
LOAD_BATCH = 500
LAMBDAS = ROOT / "lambdas"
RIVALS = Path(__file__).resolve().parent / "rivals"
BODY = "x" * 1024
"""1 KB of text; with its ids and times the item takes two write units."""
HOT_CONVERSATION = "general"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One row's surroundings.

    `runs` is how often each side is measured; `effort` scales how much one run does (1.0: as published).
    """

    dynamodb_port: int
    redis_port: int
    runs: int
    effort: float

    def count(self, full: int) -> int:
        """Scale a number of repetitions."""
        return max(1, round(full * self.effort))

    def control(self, command: str, **request: Any) -> None:
        """Send the stand-in a command of `StandIn.control`."""
        connection = HTTPConnection("127.0.0.1", self.dynamodb_port)
        try:
            connection.request("POST", "/", json.dumps(request), {"X-Amz-Target": f"Bench.{command}"})
            connection.getresponse().read()
        finally:
            connection.close()

    def load(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Store items in the stand-in."""
        waiting: list[Mapping[str, Any]] = []
        for item in items:
            waiting.append(item)
            if len(waiting) == LOAD_BATCH:
                self.control("Load", items=waiting)
                waiting = []
        self.control("Load", items=waiting)


def prepare_hot_conversation(setup: Setup) -> None:
    """Raise the conversation that is written to, so that the measured writes are those to a shard."""
    setup.control("Configure", keeps_puts=False)
    with Redis(port=setup.redis_port) as redis:
        redis.sadd(route_key(TABLE, HOT_CONVERSATION), "16@1700000000000")


class Unasked:
    """Stands for a port of which a row asks nothing."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} should not be asked here")


def function_environment(dynamodb_port: int, redis_port: int) -> dict[str, str]:
    """Build the environment that our functions and the rivals' find, on top of what Lambda itself sets."""
    return {
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
        "AWS_SESSION_TOKEN": "token" * 200,  # a role's token is about 1 KB, and is signed with each request
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_REGION": "eu-central-1",
        "AWS_ENDPOINT_URL_DYNAMODB": f"http://127.0.0.1:{dynamodb_port}",
        "HOTPARTITION_TABLE_NAME": TABLE,
        "HOTPARTITION_REGISTRY_HOST": "127.0.0.1",
        "HOTPARTITION_REGISTRY_PORT": str(redis_port),
        "HOTPARTITION_REGISTRY_TLS": "false",
        # A shared machine halts for longer than the defaults wait; a cooldown would leave reports out.
        "HOTPARTITION_REGISTRY_CONNECT_TIMEOUT_MS": "2000",
        "HOTPARTITION_REGISTRY_COMMAND_TIMEOUT_MS": "2000",
        "POWERTOOLS_SERVICE_NAME": "bench",
        "POWERTOOLS_METRICS_NAMESPACE": "hotpartition",
        "POWERTOOLS_LOG_LEVEL": "INFO",
        "TABLE_NAME": TABLE,
    }


def load_function(folder: Path) -> Callable[[dict[str, Any], Any], dict[str, Any]]:
    """Import a function's `handler.py` under a name of its own, and return its handler."""
    name = f"{folder.parent.name}_{folder.name}_handler"
    specification = importlib.util.spec_from_file_location(name, folder / "handler.py")
    if specification is None or specification.loader is None:
        raise FileNotFoundError(folder / "handler.py")
    module: ModuleType = importlib.util.module_from_spec(specification)
    sys.modules[name] = module  # pydantic looks its models' annotations up there
    specification.loader.exec_module(module)
    handler: Callable[[dict[str, Any], Any], dict[str, Any]] = module.handler
    return handler


def write_event(conversation_id: str, body: str) -> dict[str, Any]:
    """Build the event of a write whose id the server mints."""
    content = json.dumps({"sender": "ann", "body": body}).encode()
    return _event("POST", conversation_id, (("Content-Type", "application/json"),), content)


def page_event(conversation_id: str) -> dict[str, Any]:
    """Build the event of a read of the newest page."""
    return _event("GET", conversation_id, (), b"")


def _event(method: str, conversation_id: str, headers: Sequence[tuple[str, str]], body: bytes) -> dict[str, Any]:
    request = HttpRequest(
        method=method,
        path=COLLECTION.format(conversation_id=conversation_id),
        query="",
        headers=(("Host", "example.execute-api.eu-central-1.amazonaws.com"), ("User-Agent", "curl/8"), *headers),
        body=body,
        source_ip="192.0.2.1",
    )
    route = Route.parse(f"{method} {COLLECTION}")
    parameters = {"conversation_id": conversation_id}
    return build_http_event(request, route, parameters, request_id="JKJaXmPLvHcESHA=", now_ms=1_800_000_000_000)
