"""HTTP to a stack's messages API: signed with the caller's AWS credentials, with their token, or with neither."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import urllib3

from hotpartition_cli.errors import FailedError

CONNECTIONS = 16
"""Requests that may be under way at the same time."""
TIMEOUT_SECONDS = 10.0

Authorize = Callable[[str, str, bytes, Mapping[str, str]], Mapping[str, str]]
"""Takes method, URL, body and headers, and returns the headers that authenticate the caller."""


@dataclass(frozen=True, slots=True)
class Response:
    """A response of the API: its status, its JSON (None where it has none), and its entity tag."""

    status: int
    document: Any = None
    etag: str | None = None

    def __str__(self) -> str:
        """Return the status, and the API's description of an error."""
        said = self.document if isinstance(self.document, dict) else {}
        detail = said.get("detail") or said.get("message")
        return f"{self.status} ({detail})" if detail and self.status >= 400 else f"{self.status}"


class Api:
    """Sends requests; for several threads."""

    def __init__(self, url: str, authorize: Authorize = lambda *_: {}) -> None:
        self.url = url.rstrip("/")
        self._authorize = authorize
        self._http = urllib3.PoolManager(maxsize=CONNECTIONS, retries=False, timeout=TIMEOUT_SECONDS)

    def request(
        self, method: str, path: str, content: Mapping[str, object] | None = None, *, if_match: str | None = None
    ) -> Response:
        """Send a request once.

        Raises:
            FailedError: there was no response, or the address is no URL.
        """
        url = self.url + path
        if not _is_url(url):
            raise FailedError(f"the API's address is no URL like https://HOST: {self.url!r}", kind="failed")
        body = b"" if content is None else json.dumps(content).encode()
        headers = {} if content is None else {"content-type": "application/json"}
        if if_match is not None:
            headers["if-match"] = if_match
        headers |= self._authorize(method, url, body, headers)
        try:
            response = self._http.request(method, url, body=body or None, headers=headers)
        except urllib3.exceptions.HTTPError as error:
            raise FailedError(f"nothing responds at {self.url}", kind="unreachable") from error
        return Response(response.status, _parse(response.data), response.headers.get("etag"))


def messages_path(conversation_id: str, **query: object) -> str:
    """Build the path of a conversation's messages."""
    return _with_query(f"/conversations/{quote(conversation_id, safe='')}/messages", query)


def message_path(conversation_id: str, message_id: str, **query: object) -> str:
    """Build the path of one message."""
    return _with_query(f"{messages_path(conversation_id)}/{quote(message_id, safe='')}", query)


def _with_query(path: str, query: Mapping[str, object]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, or half an address in brackets
        return False


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None
