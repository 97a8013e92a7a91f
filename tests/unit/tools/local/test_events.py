from __future__ import annotations

from tools.local.events import HttpRequest, Route, build_http_event

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
