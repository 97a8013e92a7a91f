"""Reads HTTP/1.1 answers out of the bytes of a connection. Pure: no sockets here.

As much of RFC 9112 as a client needs that sends one POST at a time: lengths, chunks, and bodies that end with the
connection. Whatever is unclear is an error, never a guess: the connection is then given up, and the request may be
repeated.
"""

from __future__ import annotations

from typing import NamedTuple

MAX_HEAD_BYTES = 65_536
MAX_BODY_BYTES = 64 * 1024 * 1024
"""DynamoDB's largest answer is 16 MB."""

MAX_LENGTH_DIGITS = 12

_FIRST_FINAL_STATUS = 200
_WITHOUT_BODY = frozenset({204, 304})


class BadAnswerError(Exception):
    """What came is no answer, or not all of one."""


class HttpAnswer(NamedTuple):
    """A whole answer. Header names are in lower case; `is_last`: the connection cannot be used again."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes
    is_last: bool


class AnswerParser:
    """Takes in bytes until they are one whole answer."""

    __slots__ = ("_body", "_buffer", "_headers", "_is_last", "_length", "_place", "_status")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._headers: dict[bytes, bytes] | None = None
        self._status = 0
        self._is_last = False
        self._length: int | None = None
        """Of the body; None where chunks or the connection's end bound it."""
        self._body: bytearray | None = None
        """What the chunks held so far; None without chunks."""
        self._place = 0
        """Where in the buffer the body, or the next chunk, begins."""

    @property
    def has_begun(self) -> bool:
        """Something has come."""
        return bool(self._buffer)

    def feed(self, data: bytes) -> HttpAnswer | None:
        """Take in what came; return the answer once it is whole.

        Raises:
            BadAnswerError: it is none.
        """
        self._buffer += data
        while self._headers is None:
            if not self._take_head():
                return None
        if self._body is not None:
            return self._take_chunks(self._body)
        if self._length is None:
            self._check_size(len(self._buffer) - self._place)
            return None
        end = self._place + self._length
        if len(self._buffer) < end:
            return None
        return self._finish(bytes(self._buffer[self._place : end]), has_more=len(self._buffer) > end)

    def end(self) -> HttpAnswer:
        """Take in that the other side closed the connection; return the answer if that was its end.

        Raises:
            BadAnswerError: something is missing.
        """
        if self._headers is None or self._body is not None or self._length is not None:
            raise BadAnswerError("the connection was closed in the middle of the answer")
        self._is_last = True
        return self._finish(bytes(self._buffer[self._place :]), has_more=False)

    def _finish(self, body: bytes, *, has_more: bool) -> HttpAnswer:
        # Nobody asked for what comes after the answer: whatever it is, the connection is out of step.
        return HttpAnswer(self._status, self._headers or {}, body, self._is_last or has_more)

    def _take_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n", self._place)
        if (end if end >= 0 else len(self._buffer)) - self._place > MAX_HEAD_BYTES:
            raise BadAnswerError("the answer's head is too long")
        if end < 0:
            if not b"HTTP/1.".startswith(bytes(self._buffer[self._place : self._place + 7])):
                raise BadAnswerError("the answer is not HTTP")
            return False
        lines = bytes(self._buffer[self._place : end]).split(b"\r\n")
        self._place = end + 4
        version, self._status = _parse_status(lines[0])
        if self._status < _FIRST_FINAL_STATUS:
            return True  # "100 Continue" and the like: the answer itself follows
        self._headers = headers = _parse_headers(lines[1:])
        connection = headers.get(b"connection", b"").lower()
        self._is_last = b"close" in connection or (version == b"HTTP/1.0" and b"keep-alive" not in connection)
        self._measure(headers)
        return True

    def _measure(self, headers: dict[bytes, bytes]) -> None:
        """Work out where the body ends."""
        if self._status in _WITHOUT_BODY:
            self._length = 0
        elif coding := headers.get(b"transfer-encoding"):
            if coding.lower() != b"chunked":
                raise BadAnswerError(f"the answer's transfer encoding is {coding!r}")
            self._body = bytearray()
        elif (length := headers.get(b"content-length")) is not None:
            if not length.isdigit() or len(length) > MAX_LENGTH_DIGITS:
                raise BadAnswerError(f"the answer's length is {length!r}")
            self._length = int(length)
            self._check_size(self._length)

    def _take_chunks(self, body: bytearray) -> HttpAnswer | None:
        while (line_end := self._buffer.find(b"\r\n", self._place)) >= 0:
            size = _parse_chunk_size(bytes(self._buffer[self._place : line_end]))
            if size == 0:
                return self._take_trailers(body, line_end)
            self._check_size(len(body) + size)
            end = line_end + 2 + size
            if len(self._buffer) < end + 2:
                return None
            if self._buffer[end : end + 2] != b"\r\n":
                raise BadAnswerError("a chunk of the answer is longer than it says")
            body += self._buffer[line_end + 2 : end]
            self._place = end + 2
        if len(self._buffer) - self._place > MAX_HEAD_BYTES:
            raise BadAnswerError("a chunk's head is too long")
        return None

    def _take_trailers(self, body: bytearray, line_end: int) -> HttpAnswer | None:
        """Skip what may follow the last chunk, up to an empty line."""
        end = self._buffer.find(b"\r\n\r\n", line_end)
        if end < 0:
            self._check_size(len(self._buffer))
            return None
        return self._finish(bytes(body), has_more=len(self._buffer) > end + 4)

    @staticmethod
    def _check_size(size: int) -> None:
        if size > MAX_BODY_BYTES:
            raise BadAnswerError("the answer is too long")


def _parse_status(line: bytes) -> tuple[bytes, int]:
    version, _, rest = line.partition(b" ")
    code = rest[:3]
    if not version.startswith(b"HTTP/1.") or len(code) != 3 or not code.isdigit():
        raise BadAnswerError(f"the answer begins with {line[:40]!r}")
    return version, int(code)


def _parse_headers(lines: list[bytes]) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        name, value = name.lower(), value.strip()
        if not colon:
            raise BadAnswerError(f"the answer's header {line[:40]!r} has no colon")
        if name == b"content-length" and headers.get(name, value) != value:
            raise BadAnswerError("the answer has two lengths")
        headers[name] = value
    return headers


def _parse_chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    try:
        if digits.isalnum():  # int() would take signs and underscores
            return int(digits, 16)
    except ValueError:
        pass
    raise BadAnswerError(f"a chunk's size is {line[:40]!r}")
