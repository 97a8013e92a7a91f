"""What rows share: the functions' environment, their events, the stand-in for DynamoDB, and Redis."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from runpy import run_path
from typing import Any

import urllib3
from redis import Redis

from hotpartition.redis.cluster import route_key
from tools.local.events import HttpRequest, build_http_event

ROOT = Path(__file__).resolve().parents[2]
LAMBDAS = ROOT / "lambdas"
RIVAL = Path(__file__).resolve().parent / "rivals"
TABLE = "bench"
COLLECTION = "/conversations/{conversation_id}/messages"
BODY = "x" * 1024
"""1 KB of text; with its ids and times the item takes two write units."""
HOT_CONVERSATION = "general"


def function_environment(dynamodb_port: int, redis_port: int) -> dict[str, str]:
    """Build the environment that our functions and the rival find, on top of what Lambda itself sets."""
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


def control(command: str, **request: Any) -> None:
    """Send the stand-in a command of `StandIn.control`."""
    headers = {"X-Amz-Target": f"Bench.{command}"}
    urllib3.request("POST", os.environ["AWS_ENDPOINT_URL_DYNAMODB"], json=request, headers=headers)


def load(items: Iterable[Mapping[str, Any]]) -> None:
    """Store items in the stand-in."""
    control("Load", items=list(items))


def open_redis() -> Redis:
    """Open the row's Redis."""
    return Redis(port=int(os.environ["HOTPARTITION_REGISTRY_PORT"]))


def prepare_hot_conversation() -> None:
    """Raise the conversation that is written to, so that the measured writes are those to a shard."""
    with open_redis() as redis:
        redis.sadd(route_key(TABLE, HOT_CONVERSATION), "16@1700000000000")


class Unasked:
    """Stands for a port of which a row asks nothing."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} should not be asked here")


def load_function(folder: Path) -> Callable[[dict[str, Any], Any], dict[str, Any]]:
    """Run a function's `handler.py`, and return its handler."""
    handler: Callable[[dict[str, Any], Any], dict[str, Any]] = run_path(str(folder / "handler.py"))["handler"]
    return handler


def write_event(conversation_id: str) -> dict[str, Any]:
    """Build the event of a write whose id the server mints."""
    return _event("POST", conversation_id, {"sender": "ann", "body": BODY})


def page_event(conversation_id: str) -> dict[str, Any]:
    """Build the event of a read of the newest page."""
    return _event("GET", conversation_id)


def _event(method: str, conversation_id: str, content: object = None) -> dict[str, Any]:
    host = ("Host", "example.execute-api.eu-central-1.amazonaws.com")
    request = HttpRequest(
        method=method,
        path=COLLECTION.format(conversation_id=conversation_id),
        query="",
        headers=(host, ("User-Agent", "curl/8"), *([("Content-Type", "application/json")] if content else [])),
        body=json.dumps(content).encode() if content else b"",
        source_ip="192.0.2.1",
    )
    route, parameters = f"{method} {COLLECTION}", {"conversation_id": conversation_id}
    return build_http_event(request, route, parameters, request_id="JKJaXmPLvHcESHA=", now_ms=1_800_000_000_000)
