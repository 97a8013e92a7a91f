"""Loopback ports that fail in the ways in which servers fail."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from support.faulty_server import Peer, Server


@contextmanager
def closed_port() -> Iterator[int]:
    """A port that refuses connections: it is held, and nobody listens."""
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
