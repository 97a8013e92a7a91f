from __future__ import annotations

import json

import pytest

from tools.local.events import HttpRequest, HttpResponse, Route, build_http_event, read_http_response

LIST = Route.parse("GET /conversations/{conversation_id}/messages")
HEADERS = (("Host", "h"), ("X-A", "1"), ("x-a", "2"), ("Cookie", "a=1; b=2"), ("User-Agent", "u"))


def test_an_event_has_payload_format_2() -> None:
    """Headers are lowercased and joined, cookies apart, query values joined, parameters decoded."""
    request = HttpRequest("GET", "/conversations/a%23/messages", "x=1&x=2&y=%20", HEADERS, b"", "127.0.0.1")
    event = build_http_event(request, LIST, {"conversation_id": "a#"}, request_id="id", now_ms=1_584_036_238_000)
    assert event == {
        "version": "2.0",
        "routeKey": "GET /conversations/{conversation_id}/messages",
        "rawPath": "/conversations/a#/messages",
        "rawQueryString": "x=1&x=2&y=%20",
        "cookies": ["a=1", "b=2"],
        "headers": {"host": "h", "x-a": "1,2", "user-agent": "u"},
        "queryStringParameters": {"x": "1,2", "y": " "},
        "pathParameters": {"conversation_id": "a#"},
        "requestContext": {
            "accountId": "123456789012",
            "apiId": "local",
            "domainName": "h",
            "domainPrefix": "local",
            "http": {
                "method": "GET",
                "path": "/conversations/a#/messages",
                "protocol": "HTTP/1.1",
                "sourceIp": "127.0.0.1",
                "userAgent": "u",
            },
            "requestId": "id",
            "routeKey": "GET /conversations/{conversation_id}/messages",
            "stage": "$default",
            "time": "12/Mar/2020:18:03:58 +0000",
            "timeEpoch": 1_584_036_238_000,
        },
        "isBase64Encoded": False,
    }


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("application/json", b'{"a": 1}', ('{"a": 1}', False)),
        ("application/octet-stream", b"ab", ("YWI=", True)),
        ("application/json", b"\xff", ("/w==", True)),
    ],
)
def test_bodies_that_are_no_text_are_base64(content_type: str, body: bytes, expected: tuple[str, bool]) -> None:
    """Text goes as it is, everything else encoded and marked."""
    request = HttpRequest("GET", "/", "", (("Content-Type", content_type),), body, "127.0.0.1")
    event = build_http_event(request, LIST, {}, request_id="id", now_ms=0)
    assert (event["body"], event["isBase64Encoded"]) == expected


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (
            {"statusCode": 201, "body": "x", "headers": {"A": "b"}, "cookies": ["c=1", "d=2"]},
            HttpResponse(
                201,
                b"x",
                [
                    ("A", "b"),
                    ("Set-Cookie", "c=1"),
                    ("Set-Cookie", "d=2"),
                    ("Content-Type", "text/plain; charset=utf-8"),
                ],
            ),
        ),
        (
            {"statusCode": 200, "body": "YWI=", "isBase64Encoded": True, "headers": {"content-type": "a/b"}},
            HttpResponse(200, b"ab", [("content-type", "a/b")]),
        ),
        ({"a": 1}, HttpResponse(200, b'{"a": 1}', (("Content-Type", "application/json"),))),
        ("text", HttpResponse(200, b"text", (("Content-Type", "application/json"),))),
    ],
)
def test_responses_of_format_2(response: object, expected: HttpResponse) -> None:
    """Status, headers, cookies and encoding are taken over; a response without status is the body."""
    assert read_http_response(json.dumps(response).encode()) == expected


@pytest.mark.parametrize("payload", [b"no json", b'{"statusCode": "x"}', b'{"statusCode": 200, "headers": []}'])
def test_a_response_that_cannot_be_read_is_a_500(payload: bytes) -> None:
    """As API Gateway, the client learns nothing of it; an empty list of headers is no mistake."""
    assert read_http_response(payload).status == (200 if b"[]" in payload else 500)
