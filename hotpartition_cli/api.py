"""HTTP to a local run, or to a stack's messages API: signed with the caller's AWS credentials, or with their token."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import urllib3

from hotpartition_cli.errors import FailedError
from hotpartition_cli.sdk import CONNECT_SECONDS, parse_json

CONNECTIONS = 16
"""Requests that may be under way at the same time."""
TIMEOUT_SECONDS = 10.0

Authorize = Callable[[str, str, bytes, Mapping[str, str]], Mapping[str, str]]
"""Takes method, URL, body and headers, and returns the headers that authenticate the caller."""


@dataclass(frozen=True, slots=True)
class Response:
    """A response: its status, its JSON (None where it has none), and its headers."""

    status: int
    document: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the status, and the API's description of an error."""
        said = self.document if isinstance(self.document, dict) else {}
        detail = said.get("detail") or said.get("message")
        return f"{self.status} ({detail})" if detail and self.status >= 400 else f"{self.status}"


class Api:
    """Sends requests; for several threads."""

    def __init__(
        self, url: str, authorize: Authorize = lambda *_: {}, *, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        self.url = url.rstrip("/")
        self._authorize = authorize
        timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=timeout_seconds)
        self._http = urllib3.PoolManager(maxsize=CONNECTIONS, retries=False, timeout=timeout)

    def request(
        self, method: str, path: str, content: Mapping[str, object] | None = None, *, if_match: str | None = None
    ) -> Response:
        """Send a request once.

        Raises:
            FailedError: there was no response, or the address is no URL.
        """
        url = self.url + path
        if not is_url(url):
            raise FailedError(f"the API's address is no URL like https://HOST: {self.url!r}", kind="failed")
        body = b"" if content is None else json.dumps(content).encode()
        headers = {} if content is None else {"content-type": "application/json"}
        if if_match is not None:
            headers["if-match"] = if_match
        headers |= self._authorize(method, url, body, headers)
        try:
            response = self._http.request(method, url, body=body or None, headers=headers)
        except (urllib3.exceptions.HTTPError, UnicodeError) as error:
            raise FailedError(f"nothing responds at {self.url}: is it up?", kind="unreachable") from error
        return Response(response.status, parse_json(response.data), response.headers)


def messages_path(conversation_id: str, **query: object) -> str:
    """Build the path of a conversation's messages."""
    return _with_query(f"/conversations/{quote(conversation_id, safe='')}/messages", query)


def message_path(conversation_id: str, message_id: str, **query: object) -> str:
    """Build the path of one message."""
    return _with_query(f"{messages_path(conversation_id)}/{quote(message_id, safe='')}", query)


def _with_query(path: str, query: Mapping[str, object]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def is_url(text: str) -> bool:
    """Say whether a text is the address of a server."""
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, or half an address in brackets
        return False
