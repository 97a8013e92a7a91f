"""Whatever is sent to the API, its response is one that `docs/openapi.json` describes, and never 500."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from support.described import check_described
from tools.openapi.document import DOCUMENT_FILE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LEAST_CASES = 1000
PAGE = "GET /conversations/{conversation_id}/messages"
POST = "POST /conversations/{conversation_id}/messages"
CHECKS = (
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "ensure_resource_availability",
)
"""Not `positive_data_acceptance`: no schema can say that an id lies 5 s ahead at most, or that a cursor was issued.

Nor `not_a_server_error`: on a busy machine the local DynamoDB may respond too late, which is a 503, as the test allows.
"""


@pytest.fixture(scope="session")
def unsigned(tmp_path_factory) -> Path:
    """The document without signatures, which the local run does not check."""
    document = json.loads(DOCUMENT_FILE.read_text(encoding="utf-8"))
    del document["security"], document["components"]["securitySchemes"]
    file = tmp_path_factory.mktemp("fuzz") / "openapi.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    return file


def test_generated_requests_get_described_responses(stack, unsigned):
    """Right and wrong requests of every shape, alone and in sequences along the links, the same ones in each run."""
    report = unsigned.parent / "report.ndjson"
    command = [
        *(str(Path(sys.executable).with_name("schemathesis")), "run", str(unsigned), "--url", stack.api_url),
        *("--checks", ",".join(CHECKS), "--phases", "examples,coverage,fuzzing,stateful"),
        *("--seed", "1", "--generation-deterministic", "--max-examples", "160"),
        *("--continue-on-failure", "--no-color", "--report", "ndjson", "--report-ndjson-path", str(report)),
    ]
    finished = subprocess.run(command, cwd=unsigned.parent, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout[-6_000:] + finished.stderr[-2_000:]
    statuses: Counter[int] = Counter()
    for line in report.read_text(encoding="utf-8").splitlines():
        scenario = json.loads(line).get("ScenarioFinished")
        for interaction in _interactions(scenario):
            statuses[interaction["response"]["status_code"]] += 1
    assert statuses.total() >= LEAST_CASES, statuses
    # Both sides were tried: what is refused, and what is taken.
    assert min(statuses[201], statuses[200], statuses[400], statuses[404]) >= 10, statuses
    assert statuses.keys() <= {200, 201, 204, 400, 404, 409, 410, 412, 413, 503}


def _interactions(scenario: dict[str, Any] | None) -> list[dict[str, Any]]:
    return list(scenario["recorder"].get("interactions", {}).values()) if scenario else []


def exchange(stack, head: bytes, body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
    """Send bytes as they are; no library corrects them."""
    address = urlsplit(stack.api_url)
    length = f"Content-Length: {len(body)}\r\n".encode() if body else b""
    with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
        connection.sendall(head + b"\r\nHost: localhost\r\nConnection: close\r\n" + length + b"\r\n" + body)
        received = b"".join(iter(lambda: connection.recv(65_536), b""))
    top, _, content = received.partition(b"\r\n\r\n")
    first, *lines = top.decode("latin-1").split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    if headers.get("Transfer-Encoding") == "chunked":
        content = content.partition(b"\r\n")[2].rpartition(b"\r\n0\r\n")[0]
    return int(first.split()[1]), headers, content


@pytest.mark.parametrize(
    "query",
    [
        *("limit=1&limit=2", "limit=1,2", "limit=", "limit", "limit=%31", "limit=1e1", "limit=+5", "limit=0x10"),
        *("limit=" + "9" * 4_000, "limit=%00", "limit=%FF%FE", "limit=\xc3\xa9", "limit=1%26order=oldest"),
        *("order=newest&order=oldest", "order=newest,newest", "order[]=newest", "ORDER=newest", "%6Frder=oldest"),
        *("after=2026-02-30T00:00:00Z", "after=0000-01-01T00:00:00Z", "after=9999-12-31T23:59:60Z", "after=1"),
        *("before=2026-01-01T00:00:00%2B99:99", "after=2026-01-01T00:00:00+00:00", "cursor=" + "A" * 50),
        *("cursor=" + "%" * 50, "cursor=" + "A" * 6_000, "consistency=strong;order=newest", "&&&==&=", "a" * 6_000),
        *("%", "%zz=1", "limit=50#fragment", "cursor=%ED%A0%80" * 14, "limit=%F0%9F%92%A9", "=limit"),
    ],
)
def test_odd_queries_get_described_responses(stack, query):
    """Repeated, empty, joined, encoded twice, far too long: a page or 400."""
    target = f"GET /conversations/fuzz/messages?{query} HTTP/1.1".encode("latin-1")
    status, headers, body = exchange(stack, target)
    assert status in {200, 400}
    if headers["Content-Type"] == "application/problem+json" or status == 200:
        check_described(PAGE, status, headers, body)


@pytest.mark.parametrize(
    "segment",
    [
        *("%00", "%0A", "%FF", "%ED%A0%80", "%F0%9F%92%A9", "a%2Fb", "%2E", "%2E%2E", "a%23", "%25", "%", "%zz"),
        "%C0%80",
        *("a" * 257, "a" * 6_000, "a;b", "a+b", "a%20b", "~", "a,b", "(a)", "null%0d%0aX: 1", "\xe9", "a%3Fb"),
    ],
)
def test_odd_conversation_ids_get_described_responses(stack, segment):
    """Encodings that are none, control characters, paths of thousands of characters: 400, read or written."""
    for route, head, sent in (
        (PAGE, f"GET /conversations/{segment}/messages HTTP/1.1", b""),
        (POST, f"POST /conversations/{segment}/messages HTTP/1.1", b'{"sender": "a", "body": "b"}'),
    ):
        status, headers, body = exchange(stack, head.encode("latin-1"), sent)
        if headers["Content-Type"] == "application/problem+json":
            check_described(route, status, headers, body)
        assert status in {400, 404}, (status, body)


GOOD = '{"sender": "a", "body": "b"}'


@pytest.mark.parametrize(
    "content_type",
    [
        *("", "text/plain", "application/json; charset=utf-16", "application/octet-stream", "image/png", "*/*", "x"),
        *("multipart/form-data", "application/x-www-form-urlencoded", "application/json;" * 200),
    ],
)
@pytest.mark.parametrize(
    ("body", "statuses"),
    [
        (GOOD.encode(), {201}),
        (b"\xef\xbb\xbf" + GOOD.encode(), {400}),
        (GOOD.encode("utf-16"), {400}),
        (GOOD.encode("utf-32-le"), {400}),
        (b'{"sender": "\xff", "body": "b"}', {400}),
        (b'{"sender": "a", "body": "\x00"}', {400}),
        (b'{"sender": "a", "body": "b", "sender": "c"}', {201}),
        (b'{"sender": "a", "body": "b", "attributes": {"n": ' + b"9" * 40_000 + b"}}", {400}),
        (b'{"sender": "a", "body": "b", "attributes": {"n": 1e400}}', {400}),
        (b'{"sender": "a", "body": "b", "attributes": {"n": -0e-400}}', {201}),
        (b'{"a":' * 3_000, {400}),
        (b"[" * 50_000, {400}),
        (b"\x1f\x8b\x08\x00", {400}),
    ],
)
def test_odd_bodies_get_described_responses(stack, content_type, body, statuses):
    """In other encodings and types, cut off, deeply nested, with endless numbers; it is JSON whatever its label."""
    head = f"POST /conversations/fuzz/messages HTTP/1.1\r\nContent-Type: {content_type}".encode()
    status, headers, response = exchange(stack, head, body)
    assert status in statuses, response
    check_described(POST, status, headers, response)
