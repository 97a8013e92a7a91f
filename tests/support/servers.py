"""Servers on loopback ports: one that lies, connection by connection; moto's DynamoDB, scripted; ports without one.

It is long because each way to misbehave is written by hand, down to sockets: resets, ports that are closed, silent or
full, and responses that moto never gives.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import sys
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from email.utils import formatdate
from http.client import HTTPMessage, parse_headers
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Lock, Thread
from typing import Any

from moto.dynamodb.responses import DynamoHandler

from tools.local.dynamodb import build_request

PATIENCE_SECONDS = 60.0
"""Where nothing is to time out, however busy the machine is."""
UNWATCHED = "/unwatched"
"""The path at which tests look into the table of a `DynamoDBServer`: nothing is counted or scripted there."""


class Peer:
    """One connection, on the server's side."""

    def __init__(self, sock: socket.socket, number: int, log: list[tuple[int, int]]) -> None:
        self.sock, self.stream = sock, sock.makefile("rb")
        self.number = number
        self.request = 0
        """The number of the last request."""
        self.path, self.headers, self.body = "", HTTPMessage(), b""
        self._log = log

    def receive(self) -> bool:
        """Read one request; False at the connection's end."""
        line = b"" if self.stream.closed else self.stream.readline()
        if not line.endswith(b"\n"):
            return False
        self.path = line.split()[1].decode()
        self.headers = parse_headers(self.stream)
        length = int(self.headers.get("Content-Length", -1))
        self.body = self.stream.read(max(length, 0))
        return len(self.body) == length

    def take(self) -> bool:
        """Read a request whose table's name is its number; False at the connection's end."""
        if not self.receive():
            return False
        self.request = int(json.loads(self.body)["TableName"][1:])
        self._log.append((self.number, self.request))
        return True

    def reply(self, content: object, *, status: int = 200, more: bytes = b"") -> None:
        self.sock.sendall(whole(content, status=status, more=more))

    def echo(self) -> None:
        """Reply with the number of the request."""
        self.reply({"Count": self.request})

    def close(self) -> None:
        self.stream.close()
        self.sock.close()

    def reset(self) -> None:
        """Close so that the other side meets a reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()


Step = Callable[[Peer], object]
"""What a server does with one request, or with one connection."""


def by_number(named: Mapping[int, Step] | None = None, other: Step = Peer.echo) -> Step:
    """Serve a connection: do with each request what is named for its number, or else the other thing."""

    def serve(peer: Peer) -> None:
        while peer.take():
            (named or {}).get(peer.request, other)(peer)

    return serve


def whole(content: object, *, status: int = 200, more: bytes = b"") -> bytes:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nx-amz-crc32: {zlib.crc32(body)}\r\n"
    return head.encode() + more + b"\r\n" + body


class Server(ThreadingTCPServer):
    """Does with each connection, from 0, what it is given to do, and with later ones the last; ends with its block."""

    request_queue_size = 64

    def __init__(self, *behaviours: Step, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), BaseRequestHandler)
        self.port: int = self.server_address[1]
        self.log: list[tuple[int, int]] = []
        """By which connection each request came."""
        self.errors: list[BaseException | None] = []
        self._behaviours, self._tls = behaviours, tls
        self._peers: list[socket.socket] = []
        self._loop = Thread(target=self.serve_forever, args=(0.01,))
        self._loop.start()

    @property
    def accepted(self) -> int:
        return len(self._peers)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give a connection its number, and a thread."""
        self._peers.append(request)
        super().process_request(request, len(self._peers) - 1)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection."""
        sock, number = request, client_address
        if self._tls is not None:
            sock = self._peers[number] = self._tls.wrap_socket(sock, server_side=True)
        peer = Peer(sock, number, self.log)
        with sock, peer.stream:
            self._behaviours[min(number, len(self._behaviours) - 1)](peer)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Remember what is wrong with a behaviour; the client may break off."""
        if not isinstance(sys.exception(), OSError):
            self.errors.append(sys.exception())

    def connections(self) -> list[int]:
        return [number for number, _ in self.log]

    def connections_of(self, request: int) -> set[int]:
        return {number for number, asked in self.log if asked == request}

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        for sock in self._peers:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._loop.join()
        self.server_close()
        assert self.errors == []


@contextmanager
def closed_port() -> Iterator[int]:
    """A port that refuses connections: it is held, without a listener."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@contextmanager
def silent_port() -> Iterator[int]:
    """A port that takes connections and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@contextmanager
def full_port() -> Iterator[int]:
    """A port whose queue of connections is full, so that further ones get no response at all."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        yield listening.getsockname()[1]


@contextmanager
def scripted_port(response: Callable[[bytes, int], bytes], tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """A port where a function responds to each piece of data that arrives; it is given the port as well."""

    def serve(peer: Peer) -> None:
        while data := peer.sock.recv(65536):
            peer.sock.sendall(response(data, server.port))

    with Server(serve, tls=tls) as server:
        yield server.port


Scripted = tuple[int, Any]
"""A response instead of moto's: its status and its content."""


def error(code: str, status: int = 400, **facts: Any) -> Scripted:
    """Build an error as DynamoDB sends it."""
    return status, {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "scripted", **facts}


class DynamoDBServer:
    """moto's DynamoDB for clients that are no boto3; what moto never does can be scripted."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        """Operations and requests that arrived."""
        self.script: deque[Scripted] = deque()
        """Responses for the next requests, in their order."""
        self.intervene: Callable[[str, dict[str, Any]], Scripted | None] = lambda *_: None
        """Asked about each request, which it may change as well; what it returns is the response."""
        self._lock = Lock()

    @property
    def operations(self) -> Counter[str]:
        return Counter(operation for operation, _ in self.asked)

    def respond(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """Serve one request; moto handles one at a time."""
        operation = headers["X-Amz-Target"].rpartition(".")[2]
        with self._lock:
            if path == UNWATCHED:
                return _ask_moto(operation, body)
            request = json.loads(body)
            self.asked.append((operation, request))
            scripted = self.script.popleft() if self.script else self.intervene(operation, request)
            if scripted is not None:
                status, content = scripted
                return status, json.dumps(content).encode()
            return _ask_moto(operation, json.dumps(request).encode())


@contextmanager
def running(dynamodb: DynamoDBServer) -> Iterator[str]:
    """Serve on a free port; yields its address. Connections are kept, as DynamoDB keeps them."""

    def serve(peer: Peer) -> None:
        while peer.receive():
            status, response = dynamodb.respond(peer.path, peer.headers, peer.body)
            peer.reply(response, status=status, more=f"Date: {formatdate(usegmt=True)}\r\n".encode())

    with Server(serve) as server:
        yield f"http://127.0.0.1:{server.port}"


def _ask_moto(operation: str, body: bytes) -> tuple[int, bytes]:
    request = build_request(operation, body)
    status, _, payload = DynamoHandler.dispatch(request, "http://127.0.0.1/", request.headers)
    return status, payload if isinstance(payload, bytes) else str(payload).encode()
