"""moto's DynamoDB on a loopback port, for clients that are no boto3; what moto never does can be scripted."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from email.utils import formatdate
from threading import Lock
from typing import Any, NamedTuple

from moto.dynamodb.responses import DynamoHandler

from support.faulty_server import Peer, Server
from tools.local.dynamodb import build_request

UNWATCHED = "/unwatched"
"""The path at which tests look into the table: nothing is counted or scripted there."""


class Scripted(NamedTuple):
    """A response instead of moto's."""

    status: int
    content: Mapping[str, Any]


def error(code: str, status: int = 400, **facts: Any) -> Scripted:
    """Build an error as DynamoDB sends it."""
    return Scripted(status, {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "scripted", **facts})


class Exchange(NamedTuple):
    """A request and its response."""

    operation: str
    request: Mapping[str, Any]
    status: int
    response: Mapping[str, Any]


class DynamoDBServer:
    """Counts the requests that arrive, by operation, and remembers every partition key that one names."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self.script: deque[Scripted] = deque()
        """Responses for the next requests, in their order."""
        self.intervene: Callable[[str, dict[str, Any]], Scripted | None] = lambda *_: None
        """Asked about each request, which it may change as well; what it returns is the response."""
        self._lock = Lock()

    @property
    def operations(self) -> Counter[str]:
        return Counter(exchange.operation for exchange in self.exchanges)

    @property
    def keys(self) -> set[str]:
        return {key for exchange in self.exchanges for key in _partition_keys(exchange.request)}

    def clear(self) -> None:
        """Forget what was counted."""
        self.exchanges.clear()

    def response(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """Serve one request; moto handles one at a time."""
        operation = headers["X-Amz-Target"].rpartition(".")[2]
        request = json.loads(body)
        with self._lock:
            if path == UNWATCHED:
                return _ask_moto(operation, body)
            scripted = self.script.popleft() if self.script else self.intervene(operation, request)
            if scripted is None:
                status, response = _ask_moto(operation, json.dumps(request).encode())
            else:
                status, response = scripted.status, json.dumps(scripted.content).encode()
            self.exchanges.append(Exchange(operation, request, status, json.loads(response)))
            return status, response


@contextmanager
def running(server: DynamoDBServer) -> Iterator[str]:
    """Serve on a free port; yields its address. Connections are kept, as DynamoDB keeps them."""

    def serve(peer: Peer) -> None:
        while peer.receive():
            status, response = server.response(peer.path, peer.headers, peer.body)
            peer.reply(response, status=status, more=f"Date: {formatdate(usegmt=True)}\r\n".encode())

    http = Server((serve,))
    try:
        yield f"http://127.0.0.1:{http.port}"
    finally:
        http.close()


def _ask_moto(operation: str, body: bytes) -> tuple[int, bytes]:
    request = build_request(operation, body)
    status, _, payload = DynamoHandler.dispatch(request, "http://127.0.0.1/", request.headers)
    return status, payload if isinstance(payload, bytes) else str(payload).encode()


def _partition_keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, content in value.items():
            if name in {"pk", ":pk"}:
                yield content["S"]
            else:
                yield from _partition_keys(content)
    elif isinstance(value, list):
        for element in value:
            yield from _partition_keys(element)
