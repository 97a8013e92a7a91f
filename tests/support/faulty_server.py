"""Servers on loopback ports that fail in every way in which servers do, connection by connection."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPMessage, parse_headers
from io import BytesIO
from threading import Lock, Thread

PATIENCE_SECONDS = 60.0
"""Where nothing is to time out, however busy the machine is."""
_ESTABLISHED, _FIN_WAIT1 = 1, 4
"""States of `tcp_states.h`."""


class Peer:
    """One connection, on the server's side."""

    def __init__(self, sock: socket.socket, number: int, log: list[tuple[int, int]]) -> None:
        self.path, self.headers, self.body = "", HTTPMessage(), b""
        self.sock = sock
        self.number = number
        self._log = log
        self._buffer = b""

    def receive(self) -> bool:
        """Read one request; False at the connection's end."""
        while b"\r\n\r\n" not in self._buffer:
            if not (data := self.sock.recv(65536)):
                return False
            self._buffer += data
        head, _, rest = self._buffer.partition(b"\r\n\r\n")
        line, _, lines = head.partition(b"\r\n")
        self.path = line.split()[1].decode()
        self.headers = parse_headers(BytesIO(lines + b"\r\n\r\n"))
        length = int(self.headers["Content-Length"])
        received = bytearray(rest)  # bytes would be copied with each piece of a large request
        while len(received) < length:
            if not (data := self.sock.recv(1 << 20)):
                return False
            received += data
        self.body, self._buffer = bytes(received[:length]), bytes(received[length:])
        return True

    def take(self) -> int | None:
        """Read a request whose table's name is its number, and return that; None at the connection's end."""
        if not self.receive():
            return None
        request = json.loads(self.body)
        number = int(request["TableName"][1:])
        self._log.append((self.number, number))
        self.text = request.get("KeyConditionExpression", "")
        return number

    def reply(self, content: object, *, status: int = 200, more: bytes = b"") -> None:
        self.sock.sendall(whole(content, status=status, more=more))

    def echo(self) -> None:
        """Echo every request, to the connection's end."""
        while (request := self.take()) is not None:
            self.reply({"Count": request, "Items": [{"text": {"S": self.text}}]})

    def finish(self) -> None:
        """Close, and wait until the other side's system knows."""
        self.sock.shutdown(socket.SHUT_WR)
        while self.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] in {_ESTABLISHED, _FIN_WAIT1}:
            time.sleep(0.001)
        self.sock.close()

    def reset(self) -> None:
        """Close so that the other side meets a reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


def whole(content: object, *, status: int = 200, more: bytes = b"") -> bytes:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nx-amz-crc32: {zlib.crc32(body)}\r\n"
    return head.encode() + more + b"\r\n" + body


class Server:
    """Serves each connection by what its number, from 0, is given to do; later ones by the last."""

    def __init__(self, behaviours: tuple[Callable[[Peer], object], ...], tls: ssl.SSLContext | None = None) -> None:
        self.log: list[tuple[int, int]] = []
        self.errors: list[BaseException] = []
        self.accepted = 0
        self._behaviours = behaviours
        self._tls = tls
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._peers: list[socket.socket] = []
        self._lock = Lock()
        self._threads = [Thread(target=self._accept)]
        self._threads[0].start()
        self.port: int = self._listening.getsockname()[1]

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listening.accept()
            except OSError:
                return
            with self._lock:
                number, self.accepted = self.accepted, self.accepted + 1
                self._peers.append(sock)
            thread = Thread(target=self._serve, args=(sock, number))
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket, number: int) -> None:
        behave = self._behaviours[min(number, len(self._behaviours) - 1)]
        with suppress(OSError):  # the client may break off
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True)
                with self._lock:
                    self._peers.append(sock)
            with sock:
                try:
                    behave(Peer(sock, number, self.log))
                except (AssertionError, ValueError, KeyError) as error:
                    self.errors.append(error)

    def connections(self) -> list[int]:
        """By which connection each request came."""
        return [number for number, _ in self.log]

    def connections_of(self, request: int) -> set[int]:
        """By which connections a request came."""
        return {number for number, asked in self.log if asked == request}

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        with self._lock:
            peers = list(self._peers)
        for sock in peers:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
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
def scripted_port(response: Callable[[bytes, int], bytes]) -> Iterator[int]:
    """A port where a function responds to each piece of data that arrives; it is given the port as well."""

    def serve(peer: Peer) -> None:
        while data := peer.sock.recv(65536):
            peer.sock.sendall(response(data, server.port))

    server = Server((serve,))
    try:
        yield server.port
    finally:
        server.close()
