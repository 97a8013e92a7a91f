"""Events as the functions get them from API Gateway and EventBridge Scheduler. Pure."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, unquote

ACCOUNT = "123456789012"
REGION = "eu-central-1"
API_ID = "local"
_TEXT_TYPES = ("text/", "application/json", "application/javascript", "application/xml", "application/problem+json")


@dataclass(frozen=True)
class Context:
    """What the functions and Powertools use of Lambda's context, for calls of a handler in this process."""

    remaining_ms: int = 10_000
    function_name: str = "function"
    function_version: str = "$LATEST"
    memory_limit_in_mb: int = 1769
    invoked_function_arn: str = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:function"
    aws_request_id: str = "00000000-0000-0000-0000-000000000000"

    def get_remaining_time_in_millis(self) -> int:
        """Return how much time the request has left."""
        return self.remaining_ms


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """An HTTP request as the gateway received it; `path` is still percent-encoded."""

    method: str
    path: str
    query: str
    headers: Sequence[tuple[str, str]]
    body: bytes
    source_ip: str


def find_route(route_keys: Iterable[str], method: str, path: str) -> tuple[str, dict[str, str]] | None:
    """Find the most specific of `GET /a/{b}`, `ANY /{proxy+}`, `$default`, and the path parameters, decoded."""
    for route_key in sorted(route_keys, key=_breadth):
        wanted, _, template = route_key.partition(" ")
        found = re.fullmatch(_pattern(template), path)
        if found and wanted in (method, "ANY", "$default"):
            return route_key, {name: unquote(value) for name, value in found.groupdict().items()}
    return None


def _breadth(route_key: str) -> tuple[bool, int, int, bool]:
    """Say how much a route takes, for the order in which routes are tried."""
    return route_key == "$default", route_key.count("+}"), route_key.count("{"), route_key.startswith("ANY")


def _pattern(template: str) -> str:
    """Build what a path has to match; `{b}` may be empty, since the function says what is wrong with an empty id."""
    greedy = re.sub(r"\\{(\w+)\\\+\\}", r"(?P<\1>.+)", re.escape(template))
    return re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]*)", greedy) or ".*"


def build_http_event(
    request: HttpRequest, route_key: str, parameters: Mapping[str, str], *, request_id: str, now_ms: int
) -> dict[str, Any]:
    """Build the payload of format 2.0. As on AWS, `rawPath` is decoded and `rawQueryString` is not."""
    received = [(name.lower(), value) for name, value in request.headers]
    headers = _join((name, value) for name, value in received if name != "cookie")
    path = unquote(request.path)
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": route_key,
        "rawPath": path,
        "rawQueryString": request.query,
        "headers": headers,
        "requestContext": {
            "accountId": ACCOUNT,
            "apiId": API_ID,
            "domainName": headers.get("host", "127.0.0.1"),
            "domainPrefix": API_ID,
            "http": {
                "method": request.method,
                "path": path,
                "protocol": "HTTP/1.1",
                "sourceIp": request.source_ip,
                "userAgent": headers.get("user-agent", ""),
            },
            "requestId": request_id,
            "routeKey": route_key,
            "stage": "$default",
            "time": datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%d/%b/%Y:%H:%M:%S +0000"),
            "timeEpoch": now_ms,
        },
        "isBase64Encoded": False,
    }
    given = {
        "cookies": [each.strip() for name, value in received if name == "cookie" for each in value.split(";")],
        "pathParameters": dict(parameters),
        "queryStringParameters": _join(parse_qsl(request.query, keep_blank_values=True)),
    }
    event |= {name: value for name, value in given.items() if value}
    if request.body:
        event["body"], event["isBase64Encoded"] = _encode_body(request.body, headers.get("content-type", ""))
    return event


def build_schedule_event(name: str, *, event_id: str, now: datetime) -> dict[str, Any]:
    """Build what EventBridge Scheduler sends when the schedule names no input."""
    return {
        "version": "0",
        "id": event_id,
        "detail-type": "Scheduled Event",
        "source": "aws.scheduler",
        "account": ACCOUNT,
        "time": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": REGION,
        "resources": [f"arn:aws:scheduler:{REGION}:{ACCOUNT}:schedule/default/{name}"],
        "detail": "{}",
    }


def _join(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Join the values of each name by commas."""
    joined: dict[str, str] = {}
    for name, value in pairs:
        joined[name] = f"{joined[name]},{value}" if name in joined else value
    return joined


def _encode_body(body: bytes, content_type: str) -> tuple[str, bool]:
    if not content_type or content_type.startswith(_TEXT_TYPES) or "+json" in content_type:
        try:
            return body.decode(), False
        except UnicodeDecodeError:
            pass
    return base64.b64encode(body).decode(), True
