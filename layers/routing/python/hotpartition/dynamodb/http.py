"""DynamoDB over plain sockets, with the standard library alone: the client `lean`.

An SDK's request costs about 1 ms of CPU, most of it in layers that this project does not use (models, validation,
hooks, retries). Here a request is a JSON text behind a head that is prepared once a second, and an answer goes through
a JSON parser (`docs/decisions/0025-a-lean-client-for-dynamodb.md`). Several requests share one thread, which waits
for all of them at once and asks those that are slow to come a second time.

**What is repeated.** A server may close an idle connection while a request is on its way to it. So a request that
fails on a connection that has served before, without a byte of an answer, is sent once more, on a new one. That is safe
whatever became of the first: reads change nothing, our puts are conditional on a key that holds the message's id (the
second finds what the first stored, and says so), and our updates add to sets. Nothing else is repeated here; the
jobs do that within their budgets.

**What is checked.** TLS as the machine does it; that an answer is whole; its CRC-32 as DynamoDB gives it; that it is
JSON. What fails any of these is no answer (`StoreUnavailableError`), and its connection is closed.
"""

from __future__ import annotations

import json
import select
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hotpartition.aws.credentials import CredentialSource
from hotpartition.aws.signing import JsonRequestSigner
from hotpartition.core.hedging import HedgePolicy, RoundState
from hotpartition.dynamodb.calls import Answer, Call, Round, StaleSignatureError, build_error
from hotpartition.dynamodb.http_answers import BadAnswerError, HttpAnswer
from hotpartition.dynamodb.http_connections import Connection, ConnectionPool
from hotpartition.errors import HotPartitionError, RetryLaterError, StoreUnavailableError

TARGET = "DynamoDB_20120810."
_OK = 200
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_encode_ascii = json.JSONEncoder(separators=(",", ":")).encode

Outcome = Answer | RetryLaterError


class HttpCalls:
    """`DynamoDBCalls` over a pool of connections."""

    def __init__(
        self,
        pool: ConnectionPool,
        signer: JsonRequestSigner,
        credentials: CredentialSource,
        *,
        timer: Callable[[], float],
        now_seconds: Callable[[], float],
        parallel: int = 1,
        policy: HedgePolicy | None = None,
    ) -> None:
        """Put it together; nothing is opened yet.

        Args:
            pool: connections to DynamoDB.
            signer: signs requests for it.
            credentials: what with.
            timer: a monotonic clock in seconds.
            now_seconds: wall clock, for signatures.
            parallel: how many calls of a round run at the same time; hedges come on top.
            policy: when to ask again; None for never.
        """
        self._pool = pool
        self._signer = signer
        self._credentials = credentials
        self._timer = timer
        self._now_seconds = now_seconds
        self._parallel = parallel
        self._policy = policy

    def call(self, operation: str, request: Mapping[str, Any]) -> Answer:
        """See `DynamoDBCalls.call`."""
        ((outcome,), _) = self._run([Call(operation, request)], None)
        if isinstance(outcome, RetryLaterError):
            raise outcome
        return outcome

    def call_many(self, calls: Sequence[Call], *, is_hedged: bool) -> Round:
        """See `DynamoDBCalls.call_many`."""
        return self._run(calls, self._policy if is_hedged else None)

    def close(self) -> None:
        """See `DynamoDBCalls.close`."""
        self._pool.close()

    def _run(self, calls: Sequence[Call], policy: HedgePolicy | None) -> Round:
        try:
            credentials = self._credentials.get()
        except StoreUnavailableError as error:
            return Round([error for _ in calls])

        def build(index: int) -> bytes:
            operation, request = calls[index]
            return self._signer.build(operation, _dump(request), credentials, self._now_seconds())

        state: RoundState[Outcome] = RoundState(len(calls), policy)
        return _FanOut(self._pool, self._timer, build, self._read, state, self._parallel).run(len(calls))

    def _read(self, answer: HttpAnswer) -> Outcome:
        """Read an answer that came whole; what is worth repeating is returned, all else raised."""
        try:
            return read_answer(answer)
        except RetryLaterError as error:
            if isinstance(error, StaleSignatureError):
                self._credentials.forget()
            return error


def read_answer(answer: HttpAnswer) -> Answer:
    """Read an answer of DynamoDB's.

    Raises:
        RetryLaterError: DynamoDB throttles, failed, or sent something that cannot be read.
        StoreRefusedError: DynamoDB calls the request wrong.
    """
    checksum = answer.headers.get(b"x-amz-crc32")
    if checksum is not None and checksum != b"%d" % zlib.crc32(answer.body):
        raise StoreUnavailableError("DynamoDB's answer was damaged on its way (CRC-32)")
    try:
        content = json.loads(answer.body.decode())
    except (ValueError, RecursionError):
        content = None
    if answer.status == _OK:
        if isinstance(content, dict):
            return content
        raise StoreUnavailableError("DynamoDB's answer is not JSON")
    raise _build_error(answer.status, content if isinstance(content, dict) else {})


def _build_error(status: int, content: Mapping[str, Any]) -> HotPartitionError:
    """Build the error that an answer names, as boto3 reads it: `namespace#code:address`, or else the status."""
    code = str(content.get("__type") or status).partition(":")[0].rpartition("#")[2]
    explanation = str(content.get("message") or content.get("Message") or "")
    return build_error(code, status=status, explanation=explanation, facts=content)


def _dump(request: Mapping[str, Any]) -> bytes:
    try:
        return _encode(request).encode()
    except UnicodeEncodeError:  # half of a surrogate pair: DynamoDB shall say what it thinks of it
        return _encode_ascii(request).encode()


class _Attempt:
    """One call on its way through one connection, or through the next one if that fails before it could be used."""

    __slots__ = ("began", "connection", "index", "request", "tried")

    def __init__(self, index: int, request: bytes, connection: Connection, began: float) -> None:
        self.index = index
        self.request = request
        self.connection = connection
        self.began = began
        self.tried = 0
        """Addresses of the endpoint that did not let us in."""


class _FanOut:
    """Sends the requests of a round and waits for their answers, all on the calling thread."""

    def __init__(
        self,
        pool: ConnectionPool,
        timer: Callable[[], float],
        build: Callable[[int], bytes],
        read: Callable[[HttpAnswer], Outcome],
        state: RoundState[Outcome],
        parallel: int,
    ) -> None:
        self._pool = pool
        self._timer = timer
        self._build = build
        self._read = read
        self._state = state
        self._parallel = parallel
        self._poll = select.poll()
        self._attempts: dict[int, _Attempt] = {}
        """By the number of their connection's file."""

    def run(self, count: int) -> Round:
        """Run a round of so many calls to its end."""
        waiting = deque(range(count))
        try:
            while True:
                while waiting and len(self._attempts) < self._parallel:
                    self._start(waiting.popleft())
                if self._state.is_complete:
                    return Round(self._state.results(), self._state.hedged)
                if not self._attempts:
                    continue
                # An answer may have come while this thread was busy: hedges are sent, one by one, when nothing is left
                # to read.
                if not self._wait() and (hedged := self._state.take_hedge(self._timer())) is not None:
                    self._start(hedged)
        finally:
            for attempt in self._attempts.values():
                self._pool.leave(attempt.connection)

    def _start(self, index: int) -> None:
        request = self._build(index)
        now = self._timer()
        self._state.begin(index, now)
        try:
            connection = self._pool.take()
        except OSError as error:
            self._state.end(index, _unreachable(error), is_failure=True, seconds=0.0)
            return
        self._send(_Attempt(index, request, connection, now))

    def _send(self, attempt: _Attempt) -> None:
        connection = attempt.connection
        try:
            connection.send(attempt.request, self._timer())
        except OSError as error:
            self._fail(attempt, error)
            return
        fd = connection.sock.fileno()
        self._attempts[fd] = attempt
        self._poll.register(fd, connection.wants)

    def _wait(self) -> bool:
        """Wait for the next thing to happen, and go on with all connections to which something did, if any."""
        now = self._timer()
        until = min(attempt.connection.deadline for attempt in self._attempts.values())
        due = self._state.next_due()
        if due is not None:
            until = min(until, due)
        happened = self._poll.poll(max(0.0, (until - now) * 1000))
        now = self._timer()
        # What one of them leads to may end another one, and its file's number may then be a new connection's.
        for fd, attempt in [(fd, self._attempts[fd]) for fd, _ in happened]:
            if self._attempts.get(fd) is attempt:
                self._advance(fd, attempt)
        if not happened or now >= until:
            for fd, attempt in list(self._attempts.items()):
                if attempt.connection.deadline <= now and self._attempts.get(fd) is attempt:
                    self._detach(fd)
                    self._fail(attempt, TimeoutError("no answer in time"))
        return bool(happened)

    def _advance(self, fd: int, attempt: _Attempt) -> None:
        connection = attempt.connection
        wanted = connection.wants
        try:
            answer = connection.advance(self._timer())
        except (OSError, BadAnswerError) as error:
            self._detach(fd)
            self._fail(attempt, error)
            return
        if answer is not None:
            self._detach(fd)
            self._take(attempt, answer)
        elif connection.wants != wanted:
            self._poll.modify(fd, connection.wants)

    def _take(self, attempt: _Attempt, answer: HttpAnswer) -> None:
        seconds = self._timer() - attempt.began
        if answer.is_last:
            attempt.connection.close()
        else:
            self._pool.give_back(attempt.connection)
        outcome = self._read(answer)
        self._end(attempt, outcome, seconds)

    def _fail(self, attempt: _Attempt, error: Exception) -> None:
        """Give a connection up; go on with another one where that is safe, else end the attempt."""
        connection = attempt.connection
        connection.close()
        if not connection.is_open:
            attempt.tried += 1
            is_sent_again = self._reopen(attempt, skip=attempt.tried)
        else:
            # See this module's docstring. Once only: what is opened now has not served before.
            is_stale = connection.is_reused and not connection.has_answer_begun and not isinstance(error, TimeoutError)
            is_sent_again = is_stale and self._reopen(attempt, skip=0)
        if not is_sent_again:
            self._end(attempt, _unreachable(error), self._timer() - attempt.began)

    def _reopen(self, attempt: _Attempt, *, skip: int) -> bool:
        try:
            attempt.connection = self._pool.open(skip=skip)
        except OSError:
            return False
        self._send(attempt)
        return True

    def _end(self, attempt: _Attempt, outcome: Outcome, seconds: float) -> None:
        is_failure = isinstance(outcome, RetryLaterError)
        self._state.end(attempt.index, outcome, is_failure=is_failure, seconds=seconds)
        if self._state.is_settled(attempt.index):
            self._abandon_others(attempt.index)

    def _abandon_others(self, index: int) -> None:
        """Stop waiting for what is not needed any more."""
        if not self._state.hedged:
            return
        for fd, other in [(fd, other) for fd, other in self._attempts.items() if other.index == index]:
            self._detach(fd)
            self._state.abandon(index, seconds=self._timer() - other.began)
            self._pool.leave(other.connection)

    def _detach(self, fd: int) -> None:
        self._poll.unregister(fd)
        del self._attempts[fd]


def _unreachable(error: Exception) -> StoreUnavailableError:
    # Clients of the API read this: what exactly happened is in the cause.
    unavailable = StoreUnavailableError(f"DynamoDB did not answer ({type(error).__name__})")
    unavailable.__cause__ = error
    return unavailable
