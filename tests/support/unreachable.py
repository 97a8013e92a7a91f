"""Loopback ports that fail in the ways in which servers fail."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress


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

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):  # the client may break off
            while data := connection.recv(65536):
                connection.sendall(response(data, port))

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            if is_over.is_set():
                connection.close()
                return
            thread = threading.Thread(target=serve, args=(connection,), daemon=True)
            thread.start()

    is_over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield port
        finally:
            is_over.set()
            socket.create_connection(("127.0.0.1", port)).close()
            accepting.join()
