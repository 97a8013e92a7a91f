"""API Gateway events (HTTP API, payload 2.0) as the local gateway builds them, their context, and the functions.

It is long because each kind of request has a builder, so that a test names only what is odd about its own.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from functools import cache
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any
from urllib.parse import quote, urlencode

from tools.local.events import Context, HttpRequest, build_http_event

FakeContext = Context
ROOT = Path(__file__).resolve().parents[2]

COLLECTION = "/conversations/{conversation_id}/messages"
ELEMENT = COLLECTION + "/{message_id}"
_LOADING = Lock()

os.environ.setdefault("POWERTOOLS_METRICS_NAMESPACE", "hotpartition")  # before anything counts


def _http_event(
    method: str,
    conversation_id: str,
    message_id: str | None = None,
    *,
    query: dict[str, str] | None = None,
    body: object = None,
    if_match: str | None = None,
    is_base64: bool = False,
    content_type: str | None = "application/json",
    authorizer: dict[str, Any] | None = None,
    received_ms: int | None = None,
) -> dict[str, Any]:
    """Build an event; path and query parameters are given as the gateway hands them over, decoded.

    `body` is text as sent, or what is to be sent as JSON. `received_ms`: when the gateway got it, by its clock; without
    it the event does not say.
    """
    route, names = COLLECTION, {"conversation_id": conversation_id}
    if message_id is not None:
        route, names = ELEMENT, {**names, "message_id": message_id}
    path = route.format(**{name: quote(value, safe="", errors="replace") for name, value in names.items()})
    headers = [("Host", "example.execute-api.eu-central-1.amazonaws.com"), ("User-Agent", "curl/8")]
    if method in {"POST", "PATCH"} and content_type is not None:
        headers.append(("Content-Type", content_type))
    request = HttpRequest(method, path, urlencode(query or {}, errors="replace"), headers, b"", "192.0.2.1")
    event = build_http_event(
        request, f"{method} {route}", names, request_id="JKJaXmPLvHcESHA=", now_ms=received_ms or 0
    )
    if received_ms is None:
        del event["requestContext"]["timeEpoch"]
    event["isBase64Encoded"] = is_base64
    if authorizer is not None:
        event["requestContext"]["authorizer"] = authorizer
    if query:
        event["queryStringParameters"] = query
    if body is not None:
        event["body"] = body if isinstance(body, str) else json.dumps(body)
    if if_match is not None:
        event["headers"]["if-match"] = if_match
    return event


def post_event(conversation_id: str, body: object, **options: Any) -> dict[str, Any]:
    """Build a write."""
    return _http_event("POST", conversation_id, body=body, **options)


def edit_event(conversation_id: str, message_id: str, body: object, **options: Any) -> dict[str, Any]:
    """Build the request that edits a message."""
    return _http_event("PATCH", conversation_id, message_id, body=body, **options)


def delete_event(conversation_id: str, message_id: str, **options: Any) -> dict[str, Any]:
    """Build the request that deletes a message."""
    return _http_event("DELETE", conversation_id, message_id, **options)


def page_event(conversation_id: str, **query: Any) -> dict[str, Any]:
    """Build the request for a page."""
    return _http_event("GET", conversation_id, query={name: str(value) for name, value in query.items()})


def message_event(conversation_id: str, message_id: str, **query: str) -> dict[str, Any]:
    """Build the request for one message."""
    return _http_event("GET", conversation_id, message_id, query=query)


def find_function(function: str) -> Path:
    """Find the folder of a function's code."""
    return ROOT / "lambdas" / function


def load_handler(function: str) -> ModuleType:
    """Load a function's module, once, as its environment would with the variables that a stack with Redis sets."""
    with _LOADING:  # else a second thread would find it half loaded
        return _load(function)


@cache
def _load(function: str) -> ModuleType:
    name = f"{function}_handler"
    os.environ.setdefault("POWERTOOLS_SERVICE_NAME", function)
    spec = importlib.util.spec_from_file_location(name, find_function(function) / "handler.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    os.environ["HOTPARTITION_REGISTRY_HOST"] = "-"
    spec.loader.exec_module(module)
    del os.environ["HOTPARTITION_REGISTRY_HOST"]
    return module
