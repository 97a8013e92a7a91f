"""DynamoDB through libcurl: the client `curl`.

libcurl signs requests (SigV4), keeps connections, verifies TLS, follows the proxies that its environment variables
name, and bounds how long a request may take. Here a request becomes JSON, and a response is decoded or becomes one of
the errors of `errors.py`. Several requests share one thread, which waits for all of them at once; a single one has a
handle, and so a connection, of its own, which takes less CPU.

**Repetitions.** A server may close an idle connection while a request is on its way to it. libcurl sends a request
again, on another connection, when one that had served before failed without a line of a response. That is safe
whatever became of the first: reads change nothing, our puts are conditional on a key that holds the message's id (the
second finds what the first stored, and says so), and our updates add to sets. Nothing else is repeated here; the jobs
do that within their budgets.

**Checks.** libcurl checks that a response is whole. Its CRC-32, as DynamoDB gives it, and its JSON are
checked here. A response that fails any of these is unusable (`StoreUnavailableError`).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, NamedTuple

import pycurl  # type: ignore[import-untyped]

from hotpartition.core.access import Certificates, Credentials, CredentialSource
from hotpartition.core.errors import HotPartitionError, RetryLaterError, StoreUnavailableError
from hotpartition.core.hedging import HEDGE_CONNECTIONS, Attempt, HedgePolicy, run_round
from hotpartition.dynamodb.calls import Call, Outcome, Response, Round, StaleSignatureError, build_error

MAX_IDLE_SECONDS = 60
"""A connection that was idle for longer is not used again: servers, and what lies between, forget such silently. The
AWS SDK for Java waits as long."""
ADDRESS_SECONDS = 5
"""How long the addresses of the endpoint's name are used before they are looked up again."""

_DEAD = (pycurl.E_SEND_ERROR, pycurl.E_RECV_ERROR)
_OK = 200
_MS = 1000
_encode = json.JSONEncoder(separators=(",", ":")).encode


class Target(NamedTuple):
    """Where requests go, and how long they may take."""

    endpoint: str
    region: str
    certificates: Certificates
    connect_timeout_seconds: float
    """Until a connection is open, TLS and the name's look-up included."""
    timeout_seconds: float
    """From the call to the whole response, connecting included."""
    is_verified: bool = True
    """Whether the server's certificate is checked."""
    proxy: str = ""
    """Empty: as libcurl's environment variables say."""


class HttpResponse(NamedTuple):
    """A whole response, not decoded. The names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Result = HttpResponse | StoreUnavailableError
"""The outcome of a request."""


class CurlCalls:
    """`DynamoDBCalls` over libcurl."""

    def __init__(
        self,
        target: Target,
        credentials: CredentialSource,
        *,
        timer: Callable[[], float],
        now_seconds: Callable[[], float],
        parallel: int = 1,
        policy: HedgePolicy | None = None,
    ) -> None:
        """Open nothing yet.

        `now_seconds` is the wall clock, for how long connections were idle: the monotonic `timer` stands still in a
        frozen environment. Hedges come on top of the `parallel` calls of a round that run at the same time.
        """
        self._target = target
        self._credentials = credentials
        self._timer = timer
        self._now_seconds = now_seconds
        self._parallel = parallel
        self._policy = policy
        self._lock = Lock()
        self._idle: list[_Transfers] = []

    def call(self, operation: str, request: Mapping[str, Any]) -> Response:
        """Implement `DynamoDBCalls.call`."""
        (result,) = self.exchange([Call(operation, request)])
        outcome = self._read(result)
        if isinstance(outcome, RetryLaterError):
            raise outcome
        if isinstance(result, HttpResponse):
            # Where boto3 has them.
            outcome["ResponseMetadata"] = {"HTTPHeaders": result.headers}
        return outcome

    def call_many(self, calls: Sequence[Call], *, is_hedged: bool) -> Round:
        """Implement `DynamoDBCalls.call_many`."""
        policy = self._policy if is_hedged else None
        try:
            credentials = self._credentials.get()
        except StoreUnavailableError as error:
            return Round([error for _ in calls])
        transfers = self._take()
        try:
            current = _CurlRound(transfers, calls, credentials, self._read)
            return Round(*run_round(len(calls), current, timer=self._timer, parallel=self._parallel, policy=policy))
        finally:
            self._give_back(transfers)

    def exchange(self, calls: Sequence[Call]) -> list[Result]:
        """Send requests at the same time, and return their results, errors among them."""
        credentials = self._credentials.get()
        transfers = self._take()
        try:
            if len(calls) == 1:
                return [transfers.send(*calls[0], credentials)]
            handles = [transfers.start(*call, credentials) for call in calls]
            came: dict[_Handle, Result] = {}
            while len(came) < len(handles):
                came |= {handle: result for handle, result in transfers.wait(None) if handle in handles}
            return [came[handle] for handle in handles]
        finally:
            self._give_back(transfers)

    def close(self) -> None:
        """Implement `DynamoDBCalls.close`."""
        with self._lock:
            idle, self._idle = self._idle, []
        for transfers in idle:
            transfers.close()

    def _take(self) -> _Transfers:
        """Return handles for this thread alone; their connections served lately, or are new."""
        now = self._now_seconds()
        with self._lock:
            transfers = self._idle.pop() if self._idle else None
        if transfers is not None:
            if 0 <= now - transfers.idle_since <= MAX_IDLE_SECONDS:
                return transfers
            transfers.close()
        return _Transfers(self._target, connections=self._parallel + HEDGE_CONNECTIONS)

    def _give_back(self, transfers: _Transfers) -> None:
        if transfers.met_dead_connections:
            transfers.close()
            return
        transfers.idle_since = self._now_seconds()
        with self._lock:
            self._idle.append(transfers)

    def _read(self, result: Result) -> Outcome:
        """Read a result; errors worth repeating are returned, all others raised."""
        if isinstance(result, StoreUnavailableError):
            return result
        try:
            return read_response(result)
        except RetryLaterError as error:
            if isinstance(error, StaleSignatureError):
                self._credentials.forget()
            return error


def read_response(response: HttpResponse) -> Response:
    """Read a response of DynamoDB's.

    Raises:
        RetryLaterError: DynamoDB throttles, failed, or sent something that cannot be read.
        StoreRefusedError: DynamoDB calls the request wrong.
    """
    content = read_content(response)
    if response.status == _OK:
        return content
    raise _build_error(response.status, content)


def read_content(response: HttpResponse) -> Response:
    """Decode a response, or what an error of DynamoDB's says of itself; nothing where that is not JSON.

    Raises:
        StoreUnavailableError: it was damaged on its way, or is a success that is not JSON.
    """
    checksum = response.headers.get("x-amz-crc32")
    if checksum is not None and checksum != str(zlib.crc32(response.body)):
        raise StoreUnavailableError("DynamoDB's response was damaged on its way (CRC-32)")
    try:
        content = json.loads(response.body.decode())
    except (ValueError, RecursionError):
        content = None
    if isinstance(content, dict):
        return content
    if response.status == _OK:
        raise StoreUnavailableError("DynamoDB's response is not JSON")
    return {}


def _build_error(status: int, content: Mapping[str, Any]) -> HotPartitionError:
    """Build the error that a response names, as boto3 reads it: `namespace#code:address`, or else the status."""
    code = str(content.get("__type") or status).partition(":")[0].rpartition("#")[2]
    explanation = str(content.get("message") or content.get("Message") or "")
    return build_error(code, status=status, explanation=explanation, facts=content)


class _CurlRound:
    """The `Transport` of one round."""

    def __init__(
        self,
        transfers: _Transfers,
        calls: Sequence[Call],
        credentials: Credentials,
        read: Callable[[Result], Outcome],
    ) -> None:
        self._transfers = transfers
        self._calls = calls
        self._credentials = credentials
        self._read = read
        self._attempts: dict[_Handle, Attempt] = {}

    def start(self, attempt: Attempt) -> None:
        self._attempts[self._transfers.start(*self._calls[attempt.call], self._credentials)] = attempt

    def wait(self, timeout_seconds: float | None) -> list[tuple[Attempt, Outcome]]:
        ended = self._transfers.wait(timeout_seconds)
        mine = [(self._attempts.pop(handle), result) for handle, result in ended if handle in self._attempts]
        return [(attempt, self._read(result)) for attempt, result in mine]

    def abandon(self, attempt: Attempt) -> None:
        """Leave the transfer to end by itself, while later rounds run: to break it off would close its connection."""
        for handle in [handle for handle, other in self._attempts.items() if other == attempt]:
            del self._attempts[handle]


class _Handle:
    """An easy handle, and its response so far."""

    __slots__ = ("body", "curl", "headers")

    def __init__(self, target: Target) -> None:
        self.body: list[bytes] = []
        self.headers: list[bytes] = []
        self.curl = curl = pycurl.Curl()
        curl.setopt(pycurl.URL, target.endpoint)
        curl.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1)
        curl.setopt(pycurl.AWS_SIGV4, f"aws:amz:{target.region}:dynamodb")
        curl.setopt(pycurl.USERAGENT, "hotpartition")
        curl.setopt(pycurl.CONNECTTIMEOUT_MS, round(target.connect_timeout_seconds * _MS))
        curl.setopt(pycurl.TIMEOUT_MS, round(target.timeout_seconds * _MS))
        curl.setopt(pycurl.NOSIGNAL, 1)
        curl.setopt(pycurl.TCP_KEEPALIVE, 1)
        curl.setopt(pycurl.MAXAGE_CONN, MAX_IDLE_SECONDS)
        curl.setopt(pycurl.DNS_CACHE_TIMEOUT, ADDRESS_SECONDS)
        if target.certificates.file:
            curl.setopt(pycurl.CAINFO, target.certificates.file)
        if target.certificates.folder:
            curl.setopt(pycurl.CAPATH, target.certificates.folder)
        if not target.is_verified:
            curl.setopt(pycurl.SSL_VERIFYPEER, 0)
            curl.setopt(pycurl.SSL_VERIFYHOST, 0)
        if target.proxy:
            curl.setopt(pycurl.PROXY, target.proxy)
        curl.setopt(pycurl.WRITEFUNCTION, self.body.append)
        curl.setopt(pycurl.HEADERFUNCTION, self.headers.append)

    def prepare(self, operation: str, request: Mapping[str, Any], credentials: Credentials) -> None:
        """Take the next request. REQUIRES: the last one has ended."""
        self.body.clear()
        self.headers.clear()
        headers = [
            "Content-Type: application/x-amz-json-1.0",
            f"X-Amz-Target: DynamoDB_20120810.{operation}",
            "Accept:",  # libcurl's own headers that the protocol has no use for
            "Expect:",
        ]
        if credentials.token:
            headers.append(f"X-Amz-Security-Token: {credentials.token}")
        self.curl.setopt(pycurl.HTTPHEADER, headers)
        self.curl.setopt(pycurl.USERNAME, credentials.access_key)
        self.curl.setopt(pycurl.PASSWORD, credentials.secret_key)
        self.curl.setopt(pycurl.POSTFIELDS, _encode(request).encode())

    def response(self) -> HttpResponse:
        """Return the response. REQUIRES: the request succeeded."""
        lines = [line.partition(":") for line in b"".join(self.headers).decode("latin-1").split("\n")]
        headers = {name.lower(): value.strip() for name, separator, value in lines if separator and " " not in name}
        return HttpResponse(self.curl.getinfo(pycurl.RESPONSE_CODE), headers, b"".join(self.body))


class _Transfers:
    """A handle for single requests, and a multi handle with easy ones for rounds. For one thread at a time."""

    def __init__(self, target: Target, *, connections: int) -> None:
        self._target = target
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_MAXCONNECTS, connections)
        self._single: _Handle | None = None
        self._free: list[_Handle] = []
        self._running: dict[pycurl.Curl, _Handle] = {}
        self.idle_since = 0.0
        self.met_dead_connections = False
        """libcurl gave up after several connections that were closed meanwhile: the others are hardly better."""

    def send(self, operation: str, request: Mapping[str, Any], credentials: Credentials) -> Result:
        """Send a single request, and wait until it ends: on a connection of its own, for less CPU than a round."""
        if self._single is None:
            self._single = _Handle(self._target)
        self._single.prepare(operation, request, credentials)
        try:
            self._single.curl.perform()
        except pycurl.error as error:
            return self._fail(*error.args)
        return self._single.response()

    def start(self, operation: str, request: Mapping[str, Any], credentials: Credentials) -> _Handle:
        """Begin to send a request."""
        handle = self._free.pop() if self._free else _Handle(self._target)
        handle.prepare(operation, request, credentials)
        self._multi.add_handle(handle.curl)
        self._running[handle.curl] = handle
        return handle

    def wait(self, timeout_seconds: float | None) -> list[tuple[_Handle, Result]]:
        """Wait until a request ends, or for about this long; the results include those of abandoned requests.

        It may return earlier, with nothing. `timeout_seconds` None: as long as the requests may take.
        """
        self._multi.perform()
        ended = self._take_ended()
        if ended:
            return ended
        own_ms = self._multi.timeout()  # libcurl's own next step; -1 for none
        limits = [limit for limit in (timeout_seconds, own_ms / _MS) if limit is not None and limit >= 0]
        self._multi.select(min(limits, default=self._target.timeout_seconds))
        self._multi.perform()
        return self._take_ended()

    def close(self) -> None:
        """Close all connections, and the requests on them."""
        for curl in self._running:
            self._multi.remove_handle(curl)
        self._multi.close()
        if self._single is not None:
            self._single.curl.close()

    def _take_ended(self) -> list[tuple[_Handle, Result]]:
        _, succeeded, failed = self._multi.info_read()
        ended: list[tuple[_Handle, Result]] = []
        for curl in succeeded:
            handle = self._free_handle(curl)
            ended.append((handle, handle.response()))
        ended += [(self._free_handle(curl), self._fail(code, explanation)) for curl, code, explanation in failed]
        return ended

    def _fail(self, code: int, explanation: str) -> StoreUnavailableError:
        self.met_dead_connections |= code in _DEAD
        # Clients of the API read this: the details are in the cause.
        unavailable = StoreUnavailableError(f"DynamoDB did not respond (curl error {code})")
        unavailable.__cause__ = pycurl.error(code, explanation)
        return unavailable

    def _free_handle(self, curl: pycurl.Curl) -> _Handle:
        self._multi.remove_handle(curl)
        handle = self._running.pop(curl)
        self._free.append(handle)
        return handle
