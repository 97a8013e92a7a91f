"""Connections to one HTTP endpoint that never block: opened, written and read as far as they will go just now.

Whoever uses them waits with `poll` for what `wants` names, and then calls `advance`. TLS is verified against the
machine's certificates, or those that `AWS_CA_BUNDLE` names.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from hotpartition.aws.endpoints import Endpoint
from hotpartition.dynamodb.http_answers import AnswerParser, BadAnswerError, HttpAnswer

if TYPE_CHECKING:
    import ssl

MAX_IDLE_SECONDS = 60.0
"""A connection that was idle for longer is not used again: servers, and what lies between, forget such silently. The
AWS SDK for Java waits as long."""
ADDRESS_LIFE_SECONDS = 5.0
"""How long the addresses of the endpoint's name are used before they are looked up again."""
MAX_DRAINING = 4
"""Connections whose answer nobody waits for any more, and which may serve again once it has come."""

_PIECE_BYTES = 65_536
_READ_OR_WRITE = select.POLLIN | select.POLLOUT


Address = tuple[int, Any]
"""A family, and an address of its kind, as `socket` takes them."""


class Timeouts(NamedTuple):
    """In seconds: until a connection is open, TLS included; and from the request on, until its answer is whole."""

    connect: float
    answer: float


class Tls(NamedTuple):
    """How a socket becomes a secure one, and what a secure one raises when it would have to wait."""

    wrap: Callable[[socket.socket, Any], Any]
    wants_read: type[OSError]
    wants_write: type[OSError]


class Connection:
    """One connection, and the one request on it. For one thread at a time."""

    __slots__ = (
        "_answer_seconds",
        "_is_connected",
        "_parser",
        "_quiet",
        "_rest",
        "_session",
        "_tls",
        "deadline",
        "idle_since",
        "is_open",
        "is_reused",
        "sock",
        "wants",
    )

    def __init__(
        self, address: Address, *, timeouts: Timeouts, now: float, tls: Tls | None = None, session: Any = None
    ) -> None:
        """Begin to open it.

        Args:
            address: of the other side.
            timeouts: how long each part may take.
            now: monotonic time.
            tls: None for plain text.
            session: of an earlier connection, which spares TLS some work.

        Raises:
            OSError: it cannot even begin.
        """
        self._answer_seconds = timeouts.answer
        self._tls = tls
        self._session = session
        self._is_connected = False
        self._parser = AnswerParser()
        self._rest: bytes | memoryview = b""
        self.deadline = now + timeouts.connect
        """When to give up: on opening it, then on the answer."""
        self.idle_since = 0.0
        self.is_open = False
        self.is_reused = False
        """It has served before: should it fail before any answer, it may only have been closed in between."""
        self.wants = select.POLLOUT
        self.sock: Any = socket.socket(address[0], socket.SOCK_STREAM)
        try:
            self.sock.setblocking(False)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            _connect(self.sock, address[1])
        except OSError:
            self.sock.close()
            raise
        self._quiet = select.poll()
        self._quiet.register(self.sock.fileno(), select.POLLIN)

    @property
    def has_answer_begun(self) -> bool:
        """Some of the answer has come, so that the request has certainly arrived."""
        return self._parser.has_begun

    @property
    def awaits_answer(self) -> bool:
        """The whole request is on its way."""
        return self.is_open and not self._rest

    def send(self, request: bytes, now: float) -> None:
        """Send a request, or as much of it as can be sent now. REQUIRES: no other one is under way.

        Raises:
            OSError: the connection failed.
        """
        self._rest = request
        self._parser = AnswerParser()
        if self.is_open:
            self._begin_request(now)

    def advance(self, now: float) -> HttpAnswer | None:
        """Go on as far as possible; return the answer once it is whole.

        Raises:
            OSError: the connection failed (`ssl.SSLError` is one of these).
            BadAnswerError: what came is no answer, or only a part of one.
        """
        if self.is_open:
            if self._rest:
                self._write()
        elif self._finish_opening():
            self.is_open = True
            self._begin_request(now)
        else:
            return None
        return self._read()

    def is_quiet(self) -> bool:
        """Say whether nothing has come since the last answer: neither an end nor bytes that nobody asked for."""
        return not self._quiet.poll(0) and not (self._tls and self.sock.pending())

    def take_session(self) -> Any:
        """Return what lets the next connection begin faster, None without TLS; only the first time after opening."""
        if self._tls is None or self.is_reused:
            return None
        return self.sock.session

    def close(self) -> None:
        """Close it, whatever it is doing."""
        self.sock.close()

    def _finish_opening(self) -> bool:
        """Go on connecting; return whether that is done."""
        if not self._is_connected:
            error = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, os.strerror(error))
            self._is_connected = True
            if self._tls:
                self.sock = self._tls.wrap(self.sock, self._session)
        if self._tls is None:
            return True
        try:
            self.sock.do_handshake()
        except self._tls.wants_read:
            self.wants = select.POLLIN
            return False
        except self._tls.wants_write:
            self.wants = select.POLLOUT
            return False
        return True

    def _begin_request(self, now: float) -> None:
        self.deadline = now + self._answer_seconds
        self._write()

    def _write(self) -> None:
        """Write what is left of the request, as far as it goes."""
        self.wants = _READ_OR_WRITE
        while self._rest:
            try:
                sent = self.sock.send(self._rest)
            except OSError as error:
                if not self._would_block(error):
                    raise
                return
            self._rest = memoryview(self._rest)[sent:] if sent < len(self._rest) else b""
        self.wants = select.POLLIN

    def _read(self) -> HttpAnswer | None:
        while True:
            try:
                data = self.sock.recv(_PIECE_BYTES)
            except OSError as error:
                if not self._would_block(error):
                    raise
                return None
            if not data:
                if not self._parser.has_begun:
                    raise ConnectionResetError("the connection was closed before an answer came")
                return self._parser.end()
            answer = self._parser.feed(data)
            if answer is not None:
                # An answer that came before the whole request was written: the rest would be taken for the next one.
                return answer._replace(is_last=True) if self._rest else answer
            if self._tls is None:
                return None
            # TLS may hold decrypted bytes of which no `poll` tells.

    def _would_block(self, error: OSError) -> bool:
        if isinstance(error, BlockingIOError):
            return True
        return self._tls is not None and isinstance(error, self._tls.wants_read | self._tls.wants_write)


def _connect(sock: socket.socket, address: Any) -> None:
    try:
        sock.connect(address)
    except BlockingIOError:
        return


class ConnectionPool:
    """Connections to one endpoint, kept for the next request. For several threads."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        size: int,
        timeouts: Timeouts,
        timer: Callable[[], float],
        now_seconds: Callable[[], float],
        ca_file: str = "",
        resolve: Callable[[str, int], Sequence[Address]] | None = None,
    ) -> None:
        """Open nothing yet.

        Args:
            endpoint: the other side.
            size: how many idle connections are kept.
            timeouts: how long each part of a request may take.
            timer: a monotonic clock in seconds.
            now_seconds: wall clock, for how long a connection was idle: the other one stands still in a frozen
                environment.
            ca_file: certificates (PEM) that the endpoint's own must descend from; empty: the machine's.
            resolve: finds the addresses of a host and port; raises OSError. The machine's own way if none is given.
        """
        self._endpoint = endpoint
        self._size = size
        self._timeouts = timeouts
        self._timer = timer
        self._now_seconds = now_seconds
        self._ca_file = ca_file
        self._lock = Lock()
        self._idle: list[Connection] = []
        self._draining: list[Connection] = []
        self._resolve = resolve or find_addresses
        self._addresses: Sequence[Address] = ()
        self._resolved_at = 0.0
        self._tls: Tls | None = None
        self._session: Any = None

    def take(self) -> Connection:
        """Return a connection that is ready for a request, or one that is being opened.

        Raises:
            OSError: none can be opened.
        """
        while (connection := self._pop_idle()) is not None:
            if 0 <= self._now_seconds() - connection.idle_since <= MAX_IDLE_SECONDS and connection.is_quiet():
                return connection
            connection.close()  # closed by the other side, or nobody knows: writing would cost a request
        return self._take_drained() or self.open()

    def open(self, *, skip: int = 0) -> Connection:
        """Open a connection.

        Args:
            skip: how many of the endpoint's addresses were tried already.

        Raises:
            OSError: none can be opened, or no address is left.
        """
        addresses = self._find_addresses()
        tls = self._find_tls() if self._endpoint.is_tls else None
        failure = OSError("no address is left to try")
        for address in addresses[skip:]:
            try:
                return Connection(address, timeouts=self._timeouts, now=self._timer(), tls=tls, session=self._session)
            except OSError as error:
                failure = error
        raise failure

    def give_back(self, connection: Connection) -> None:
        """Keep a connection whose answer was taken for the next request."""
        if (session := connection.take_session()) is not None:
            self._session = session
        connection.is_reused = True
        connection.idle_since = self._now_seconds()
        with self._lock:
            self._idle.append(connection)
            surplus = self._idle.pop(0) if len(self._idle) > self._size else None
        if surplus is not None:
            surplus.close()

    def leave(self, connection: Connection) -> None:
        """Take back a connection whose answer nobody waits for any more: it serves again only after that has come."""
        if not connection.awaits_answer:
            connection.close()
            return
        with self._lock:
            self._draining.append(connection)
            surplus = self._draining.pop(0) if len(self._draining) > MAX_DRAINING else None
        if surplus is not None:
            surplus.close()

    def close(self) -> None:
        """Close what is kept."""
        with self._lock:
            kept = [*self._idle, *self._draining]
            self._idle.clear()
            self._draining.clear()
        for connection in kept:
            connection.close()

    def _pop_idle(self) -> Connection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _take_drained(self) -> Connection | None:
        """Look whether an answer that nobody waits for has come by now, and its connection is free again."""
        with self._lock:
            waiting, self._draining = self._draining, []
        free: list[Connection] = []
        now = self._timer()
        for connection in waiting:
            try:
                answer = connection.advance(now)
            except (OSError, BadAnswerError):
                connection.close()
                continue
            if answer is None and now < connection.deadline:
                self.leave(connection)
            elif answer is None or answer.is_last:
                connection.close()
            else:
                free.append(connection)
        for connection in free[1:]:
            self.give_back(connection)
        if not free:
            return None
        free[0].is_reused = True
        return free[0]

    def _find_addresses(self) -> Sequence[Address]:
        now = self._timer()
        if not self._addresses or now - self._resolved_at > ADDRESS_LIFE_SECONDS:
            self._addresses = self._resolve(self._endpoint.host, self._endpoint.port)
            self._resolved_at = now
        return self._addresses

    def _find_tls(self) -> Tls:
        with self._lock:
            if self._tls is None:
                self._tls = build_tls(self._endpoint.host, self._ca_file)
            return self._tls


def find_addresses(host: str, port: int) -> Sequence[Address]:
    """Ask the machine for a host's addresses.

    Raises:
        OSError: it knows none.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in found]


def build_tls(host: str, ca_file: str) -> Tls:
    """Build what secures connections to a host.

    Raises:
        OSError: the certificates cannot be read.
    """
    import ssl  # noqa: PLC0415 - takes 10 ms that an endpoint without TLS need not spend

    context = build_context(ca_file)

    def wrap(sock: socket.socket, session: ssl.SSLSession | None) -> ssl.SSLSocket:
        return context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False, session=session)

    return Tls(wrap, ssl.SSLWantReadError, ssl.SSLWantWriteError)


def build_context(ca_file: str) -> ssl.SSLContext:
    """Build what verifies certificates: against a file's authorities, or the machine's.

    Raises:
        OSError: the file cannot be read.
    """
    import ssl  # noqa: PLC0415 - as above

    context = ssl.create_default_context(cafile=ca_file or None)
    if not ca_file and not _has_certificates(context):
        _add_sdk_certificates(context)
    return context


def _has_certificates(context: ssl.SSLContext) -> bool:
    """Say whether the machine has certificates where Python's OpenSSL looks."""
    import ssl  # noqa: PLC0415 - as above
    from pathlib import Path  # noqa: PLC0415 - as above

    if context.cert_store_stats()["x509_ca"]:
        return True
    # Those of a folder are read when they are needed, by the hashes of their subjects.
    folder = ssl.get_default_verify_paths().capath
    return folder is not None and any(Path(folder).glob("*.0"))


def _add_sdk_certificates(context: ssl.SSLContext) -> None:
    """Trust the certificates that botocore ships, found without importing it: some small images have no others."""
    from importlib.util import find_spec  # noqa: PLC0415 - as above
    from pathlib import Path  # noqa: PLC0415 - as above

    found = find_spec("botocore")
    if found is not None and found.origin is not None:
        context.load_verify_locations(cafile=str(Path(found.origin).with_name("cacert.pem")))
