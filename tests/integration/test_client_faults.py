"""What a client of DynamoDB must do, for both of them: signatures, errors, and servers that fail in every way.

What is stored and read through a client is in `test_contracts.py`. What libcurl does by itself is not repeated here.
"""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Barrier, Event, Lock, Thread

import boto3
import pytest
import trustme
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as SdkCredentials
from botocore.exceptions import ParamValidationError

from hotpartition.core.access import Certificates, Credentials
from hotpartition.core.errors import (
    ConditionFailedError,
    CredentialsError,
    HotPartitionError,
    RetryLaterError,
    StoreRefusedError,
    StoreUnavailableError,
    ThrottledError,
)
from hotpartition.core.hedging import MIN_LATENCIES, HedgePolicy
from hotpartition.dynamodb.calls import Call, DynamoDBCalls, StaleSignatureError
from hotpartition.dynamodb.curl import MAX_IDLE_SECONDS, CurlCalls, Target, _Transfers
from hotpartition.runtime.credentials import FixedCredentials
from support.faulty_server import PATIENCE_SECONDS, Peer, closed_port, full_port, whole

READ_TIMEOUT_SECONDS = 0.4


@pytest.fixture
def connect(aws_environment, client_name, open_calls, monkeypatch) -> Callable[..., DynamoDBCalls]:
    """Builds clients of a port."""

    def build(
        port: int,
        *,
        response_seconds: float = PATIENCE_SECONDS,
        connect_seconds: float = PATIENCE_SECONDS,
        host: str = "127.0.0.1",
        is_tls: bool = False,
        ca_file: str = "",
        **options,
    ) -> DynamoDBCalls:
        monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", f"http{'s' if is_tls else ''}://{host}:{port}")
        monkeypatch.setenv("AWS_CA_BUNDLE", ca_file)
        timeouts = {"connect_timeout_seconds": connect_seconds, "read_timeout_seconds": response_seconds}
        return open_calls(client_name, **timeouts, **options)

    return build


def request(number: int, **members) -> dict:
    """One that both clients take; its table's name is its number."""
    return {"TableName": f"n{number}", **members}


def queries(numbers) -> list[Call]:
    return [Call("Query", request(n)) for n in numbers]


def ask(calls: DynamoDBCalls, number: int = 0) -> int | None:
    return calls.call("Query", request(number)).get("Count")


def eventually(call):
    """Repeat a call with tight limits until the busy machine lets it through."""
    while True:
        with suppress(StoreUnavailableError):
            return call()


def counts(outcomes) -> list:
    """What the responses say, and the types of what is no response."""
    return [outcome["Count"] if isinstance(outcome, dict) else type(outcome) for outcome in outcomes]


CLOSED = ("Empty reply from server", "Recv failure", "closed before we received")
LATE = ("timed out", "Timeout", "timeout")
"""What libcurl and boto3 say of a connection that ends before a response, and of a response that is late."""

only_curl = pytest.mark.parametrize("client_name", ["curl"])
"""boto3 repeats nothing here, limits single reads, and takes what came before a connection ended for a response."""


@contextmanager
def unavailable(*reasons: str) -> Iterator[None]:
    """What the body does fails, and may be repeated; an operator can learn why, whoever asked does not."""
    with pytest.raises(StoreUnavailableError, match=r"^DynamoDB did not respond \((curl error \d+|\w+)\)$") as raised:
        yield
    cause = repr(raised.value.__cause__)
    assert any(reason in cause for reason in reasons), cause


def once(peer: Peer) -> None:
    """Serve one request, and close."""
    assert peer.take() is not None
    peer.reply({})


def once_then(end: Callable[[Peer], object]) -> Callable[[Peer], None]:
    """Serve one request, take another one, and end."""

    def serve_one(peer: Peer) -> None:
        once(peer)
        assert peer.take() is not None
        end(peer)

    return serve_one


NAMESPACE = "com.amazonaws.dynamodb.v20120810#"
REASON = "TableWriteKeyRangeThroughputExceeded"
REASONS = [{"reason": REASON, "resource": "arn:aws:dynamodb:eu-central-1:1:table/t"}]
ITEM = {"pk": {"S": "c"}}
FAILED = NAMESPACE + "ConditionalCheckFailedException"
STALE = "The security token included in the request is expired"
EXPIRED = "Signature expired: 20261121T000000Z is now earlier than 20261121T001000Z"
EARLY = "Signature not yet current: 20261121T001000Z is still later than 2026"

ERRORS = [
    ("ProvisionedThroughputExceededException", 400, {"ThrottlingReasons": REASONS}, ThrottledError, REASON),
    ("RequestLimitExceeded", 400, {"ThrottlingReasons": REASONS}, ThrottledError, REASON),
    ("ThrottlingException", 400, {"throttlingReasons": REASONS}, ThrottledError, REASON),
    ("ProvisionedThroughputExceededException", 400, {"ThrottlingReasons": [{}]}, ThrottledError, ""),
    ("ThrottlingException", 400, {}, ThrottledError, ""),
    ("InternalServerError", 500, {}, StoreUnavailableError, "InternalServerError"),
    ("ServiceUnavailable", 503, {}, StoreUnavailableError, "ServiceUnavailable"),
    ("SomethingNew", 500, {}, StoreUnavailableError, "SomethingNew"),
    ("ExpiredTokenException", 400, {"message": STALE}, StaleSignatureError, STALE),
    ("InvalidSignatureException", 400, {"message": EXPIRED}, StaleSignatureError, EXPIRED),
    ("InvalidSignatureException", 400, {"message": EARLY}, StaleSignatureError, EARLY),
    ("InvalidSignatureException", 400, {"message": "does not match"}, StoreRefusedError, "does not match"),
    ("ValidationException", 400, {"message": "wrong"}, StoreRefusedError, "ValidationException: wrong"),
    ("AccessDeniedException", 400, {"Message": "no right"}, StoreRefusedError, "AccessDeniedException: no right"),
    ("ResourceNotFoundException", 400, {"message": "no table"}, StoreRefusedError, "no table"),
    ("UnrecognizedClientException", 400, {}, StoreRefusedError, "UnrecognizedClientException"),
    ("ConditionalCheckFailedException", 400, {"Item": ITEM}, ConditionFailedError, ""),
    ("ConditionalCheckFailedException", 400, {}, ConditionFailedError, ""),
]
ON_THE_WAY = [
    (502, b"<h1>Bad Gateway</h1>", StoreUnavailableError),
    (503, b"", StoreUnavailableError),
    (504, b"{}", StoreUnavailableError),
    (429, b"slow down", StoreUnavailableError),
    (408, b"", StoreUnavailableError),
    (403, b"<html>", StoreRefusedError),
]


@pytest.fixture
def refuse(serve, connect):
    """Get the error of a call, and of a round."""

    def ask_for(status, content):
        def send(peer):
            while peer.take() is not None:
                peer.reply(content, status=status)

        server = serve(send)
        calls = connect(server.port)
        with pytest.raises(HotPartitionError) as raised:
            ask(calls)
        if isinstance(raised.value, RetryLaterError):
            (outcome,) = calls.call_many(queries([1]), is_hedged=False).outcomes
            assert type(outcome) is type(raised.value)
        else:
            with pytest.raises(type(raised.value)):
                calls.call_many(queries([1]), is_hedged=False)
        assert len(server.log) == 2  # one attempt each
        return raised.value

    return ask_for


@pytest.mark.parametrize(("code", "status", "facts", "kind", "words"), ERRORS)
def test_an_error_of_dynamodb(refuse, code, status, facts, kind, words):
    """Its kind, DynamoDB's words, and what else it brings."""
    error = refuse(status, {"__type": NAMESPACE + code, **facts})
    assert type(error) is kind
    match error:
        case ThrottledError():
            assert (error.reasons, error.is_key_range) == ((words,) if words else (), bool(words))
        case ConditionFailedError():
            assert error.item == facts.get("Item")
        case StoreRefusedError():
            assert error.code == code
            assert words in str(error)
        case _:
            assert words in str(error)


@only_curl
def test_credentials_that_dynamodb_calls_stale_are_asked_for_again(serve, connect):
    """boto3 does so by itself."""
    source = FixedCredentials(Credentials("A", "S"))
    forgotten = []
    source.forget = lambda: forgotten.append(True)
    calls = connect(serve(lambda peer: (peer.take(), peer.reply({"__type": "#ExpiredToken"}, status=400))).port)
    calls._credentials = source
    with pytest.raises(StaleSignatureError):
        ask(calls)
    assert forgotten == [True]


@pytest.mark.parametrize(("status", "body", "kind"), ON_THE_WAY)
def test_an_error_that_is_not_dynamodbs(refuse, status, body, kind):
    """Something on the way failed, or the address is something else's: the status says which."""
    error = refuse(status, body)
    assert type(error) is kind
    assert str(status) in str(error)


def test_missing_credentials_are_a_wrong_deployment(connect, monkeypatch):
    """Waiting for better credentials is no retry."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/nonexistent")
    # boto3 keeps a session, and in it the credentials that other tests had.
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    with closed_port() as port, pytest.raises(CredentialsError):
        ask(connect(port))


SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"  # noqa: S105 - AWS's example
ALWAYS_SIGNED = {"content-type", "host", "x-amz-date", "x-amz-target"}


@pytest.mark.parametrize(
    ("credentials", "region", "text", "path"),
    [
        (Credentials("AKIDEXAMPLE", SECRET, ""), "eu-central-1", "", "/"),
        (Credentials("AKIDEXAMPLE", SECRET, "FwoGZXIvYXdzE+/=" * 60), "cn-north-1", "x" * 1_100_000, "/"),
        (Credentials("AKIDEXAMPLE", "with:colon/and+more=", "T"), "eu-central-1", "é\x00\n", "/a%20b/~c"),
    ],
)
def test_libcurls_signatures_are_those_of_the_sdk(serve, credentials, region, text, path):
    """For the host and every header that begins with x-amz-; none is sent that the protocol has no use for."""
    asked = []

    def note(peer):
        while peer.receive():
            asked.append((peer.path, {name.lower(): value for name, value in peer.headers.items()}, peer.body))
            peer.reply({})

    address = f"http://127.0.0.1:{serve(note).port}"
    target = Target(address + path, region, Certificates(), PATIENCE_SECONDS, PATIENCE_SECONDS)
    calls = CurlCalls(target, FixedCredentials(credentials), timer=lambda: 0.0, now_seconds=lambda: 0.0)
    calls.call("PutItem", {"text": text})
    calls.close()
    ((sent, headers, body),) = asked
    names = headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    signed = ALWAYS_SIGNED | ({"x-amz-security-token"} if credentials.token else set())
    assert (sent, names) == (path, sorted(signed))
    assert set(headers) == signed | {"authorization", "content-length", "user-agent"}
    assert headers["x-amz-target"] == "DynamoDB_20120810.PutItem"
    assert headers["content-type"] == "application/x-amz-json-1.0"
    assert headers.get("x-amz-security-token", "") == credentials.token
    request = AWSRequest("POST", address + path, headers={name: headers[name] for name in names}, data=body)
    request.context["timestamp"] = headers["x-amz-date"]
    auth = SigV4Auth(SdkCredentials(*credentials), "dynamodb", region)
    signature = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
    assert headers["authorization"].endswith(f"Signature={signature}")


def test_a_connection_is_kept(serve, connect):
    """Requests follow one another on it, also after one that is no JSON, which is never sent."""
    server = serve(Peer.echo)
    calls = connect(server.port)
    assert [ask(calls, n) for n in range(3)] == [0, 1, 2]
    with pytest.raises((TypeError, ParamValidationError)):
        calls.call("Query", request(1, Limit=object()))
    assert ask(calls, 4) == 4
    assert server.connections() == [0] * 4


@only_curl
@pytest.mark.parametrize("operation", ["Query", "PutItem", "UpdateItem"])
@pytest.mark.parametrize("end", [Peer.reset, lambda peer: peer.sock.close()], ids=["reset", "closed"])
def test_one_that_closes_on_a_request_is_replaced_once(serve, connect, operation, end):
    """Before a line of the response: the request goes again, on a new connection. What fails there is a failure."""
    server = serve(once_then(end), Peer.echo)
    calls = connect(server.port)
    ask(calls)
    assert calls.call(operation, request(1))["Count"] == 1
    assert server.log == [(0, 0), (0, 1), (1, 1)]
    server = serve(once_then(end), Peer.take)
    calls = connect(server.port)
    ask(calls)
    with unavailable(*CLOSED):
        calls.call(operation, request(1))
    assert server.connections() == [0, 0, 1]


def test_a_new_connection_that_closes_is_a_failure(serve, connect):
    """It was not idle: the server means it."""
    server = serve(Peer.take)
    with unavailable(*CLOSED):
        ask(connect(server.port))
    assert server.connections() == [0]


@only_curl
@pytest.mark.parametrize("is_reused", [False, True])
@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\nContent-Le",
        whole({"a": 1})[:-1],
        b"SSH-2.0-OpenSSH_9\r\n",
        whole({"a": 1}).replace(b'"a"', b'"b"'),
        whole(b"<html>nothing here</html>"),
    ],
    ids=["half a head", "half a body", "other protocol", "wrong checksum", "no JSON"],
)
def test_what_is_no_response_is_a_failure(serve, connect, response, is_reused):
    """The request has arrived: it is not sent again behind its caller's back. The next one finds all in order."""

    def break_off(peer):
        if is_reused:
            once(peer)
        assert peer.take() is not None
        peer.sock.sendall(response)

    server = serve(break_off, Peer.echo)
    calls = connect(server.port)
    if is_reused:
        ask(calls)
    with pytest.raises(StoreUnavailableError):
        ask(calls, 1)
    assert server.connections() == [0] * (1 + is_reused)
    assert ask(calls, 2) == 2


@pytest.mark.parametrize("is_reused", [False, True])
def test_a_response_that_does_not_come_in_time_is_a_failure(serve, connect, is_reused):
    """It is not repeated, and its connection never serves again: the response may still come."""
    late = Event()

    def response_late(peer):
        while (number := peer.take()) is not None:
            if number == 1:
                late.wait(PATIENCE_SECONDS)
            peer.reply({"Count": number})

    server = serve(response_late)
    calls = connect(server.port, response_seconds=READ_TIMEOUT_SECONDS)
    if is_reused:
        assert eventually(lambda: ask(calls)) == 0
    with unavailable(*LATE):
        ask(calls, 1)
    late.set()
    assert eventually(lambda: ask(calls, 2)) == 2
    assert not server.connections_of(1) & server.connections_of(2)
    assert server.connections_of(1) <= server.connections_of(0) or not is_reused


@only_curl
def test_a_round_waits_without_being_busy(serve, connect, monkeypatch):
    """For responses that do not come."""
    looks, wait = [], _Transfers.wait
    monkeypatch.setattr(_Transfers, "wait", lambda self, seconds: looks.append(seconds) or wait(self, seconds))
    release = Event()
    server = serve(lambda peer: (peer.take(), release.wait(PATIENCE_SECONDS)))
    calls = connect(server.port, response_seconds=READ_TIMEOUT_SECONDS, parallel=4)
    outcomes = calls.call_many(queries(range(4)), is_hedged=False).outcomes
    release.set()
    assert counts(outcomes) == [StoreUnavailableError] * 4
    assert len(looks) < 500


def test_the_time_of_a_response_is_where_boto3_has_it(serve, connect):
    """What finds hot keys in band follows DynamoDB's clock."""
    date = "Mon, 23 Nov 2026 00:36:33 GMT"

    def response(peer):
        while peer.take() is not None:
            peer.reply({}, more=f"Date: {date}\r\n".encode())

    given = connect(serve(response).port).call("Query", request(0))
    assert given["ResponseMetadata"]["HTTPHeaders"]["date"] == date


@only_curl
def test_a_connection_that_was_idle_for_long_is_given_up(serve, connect):
    """Its environment was frozen, perhaps: it does not know of the other side's end."""
    now = [1000.0]
    server = serve(Peer.echo)
    calls = connect(server.port)
    calls._now_seconds = lambda: now[0]
    for step in (0.0, MAX_IDLE_SECONDS, MAX_IDLE_SECONDS + 1, -5000.0):
        now[0] += step
        ask(calls)
    assert server.connections() == [0, 0, 1, 2]


def test_a_connection_that_cannot_be_opened_is_a_failure(connect):
    """At once where it is refused; long before the response would be where it opens too slowly."""
    with closed_port() as port, unavailable("onnect to"):
        ask(connect(port))
    began = time.monotonic()
    with full_port() as port, unavailable(*LATE):
        ask(connect(port, connect_seconds=READ_TIMEOUT_SECONDS))
    assert time.monotonic() - began < PATIENCE_SECONDS / 2


@pytest.fixture
def secure(serve, connect, tmp_path):
    """Builds a server with a certificate for a name, and a client that trusts its authority, or a file."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))

    def build(behaviour, name="localhost", ca_file=str(tmp_path / "ca.pem"), **options):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(name).configure_cert(context)
        server = serve(behaviour, tls=context)
        return server, connect(server.port, is_tls=True, host="localhost", ca_file=ca_file, **options)

    return build


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("other.example", {}, ("certificate", "does not match", "doesn't match")),
        ("localhost", {"ca_file": ""}, ("certificate",)),
        ("localhost", {"ca_file": "/nonexistent"}, ("/nonexistent", "No such file")),
    ],
    ids=["another name", "another authority", "no certificates"],
)
def test_a_stranger_is_not_spoken_to(secure, name, options, words):
    """No request leaves."""
    server, calls = secure(Peer.echo, name, **options)
    with unavailable(*words):
        ask(calls)
    assert server.log == []


def test_secure_connections_are_opened_at_the_same_time(secure):
    """All handshakes run side by side, on one thread: none ends before all have begun. They are kept."""
    barrier = Barrier(4)

    def meet(peer):
        barrier.wait(PATIENCE_SECONDS)
        peer.echo()

    server, calls = secure(meet, parallel=4)
    for _ in range(2):
        assert counts(calls.call_many(queries(range(4)), is_hedged=False).outcomes) == [0, 1, 2, 3]
    assert server.accepted == 4


def test_failures_stay_with_their_requests(serve, connect):
    """The others' responses are all there."""

    def fail_some(peer):
        while (request := peer.take()) is not None:
            if request == 1:
                return
            if request == 2:
                peer.reply({"__type": "#InternalServerError"}, status=500)
            else:
                peer.reply({"Count": request})

    calls = connect(serve(fail_some).port, parallel=4)
    outcomes, _ = calls.call_many(queries(range(4)), is_hedged=False)
    assert [type(outcome) for outcome in outcomes] == [dict, StoreUnavailableError, StoreUnavailableError, dict]


@only_curl
def test_after_many_stale_connections_none_is_tried_again(serve, connect):
    """Libcurl gives up after five; whoever repeats the request then meets new ones only."""
    all_open = Barrier(13)

    def close_on_second(peer):
        assert peer.take() is not None
        all_open.wait(PATIENCE_SECONDS)
        peer.reply({})
        if peer.take() is not None:
            peer.reset()

    server = serve(*[close_on_second] * 13, Peer.echo)
    calls = connect(server.port, parallel=13)
    calls.call_many(queries(range(13)), is_hedged=False)
    (outcome,) = calls.call_many(queries([20]), is_hedged=False).outcomes
    assert isinstance(outcome, StoreUnavailableError)
    with unavailable("Connection died", "Recv failure"):
        raise outcome
    assert counts(calls.call_many(queries([21]), is_hedged=False).outcomes) == [21]
    assert server.accepted == 14


def test_a_refusal_is_raised_and_the_others_are_left_in_order(serve, connect):
    """A bug is not hidden; what was under way is not taken for the next request's response."""
    release = Event()

    def refuse_one(peer):
        while (request := peer.take()) is not None:
            if request == 1:
                peer.reply({"__type": "#AccessDeniedException"}, status=400)
            else:
                if request < 10:
                    release.wait(PATIENCE_SECONDS)
                peer.reply({"Count": request})

    calls = connect(serve(refuse_one).port, parallel=3)
    with pytest.raises(StoreRefusedError, match="AccessDenied"):
        calls.call_many(queries(range(3)), is_hedged=False)
    release.set()
    for number in range(10, 20):
        assert ask(calls, number) == number


def experienced(seconds=0.03):
    policy = HedgePolicy(quantile=0.95)
    for _ in range(10 * MIN_LATENCIES):
        policy.record(seconds)
    return policy


def test_the_first_response_is_taken(serve, connect, client_name):
    """The round does not wait for the slow one, whose connection serves again only after its response has come."""
    release, late, asked, lock = Event(), Event(), {}, Lock()

    def slow_once(peer):
        while (request := peer.take()) is not None:
            with lock:
                asked[request] = asked.get(request, 0) + 1
                is_slow = request == 1 and asked[1] == 1
            if is_slow:
                assert release.wait(PATIENCE_SECONDS)
            peer.reply({"Count": request, "ScannedCount": int(is_slow)})
            if is_slow:
                late.set()

    server = serve(slow_once)
    calls = connect(server.port, parallel=3, policy=experienced())
    outcomes, hedged = calls.call_many(queries(range(3)), is_hedged=True)
    assert counts(outcomes) == [0, 1, 2]
    assert [outcome["ScannedCount"] for outcome in outcomes] == [0, 0, 0]
    assert hedged >= 1
    assert asked[1] == 2
    for number in range(10, 16):
        assert counts(calls.call_many(queries([number]), is_hedged=False).outcomes) == [number]
    release.set()
    assert late.wait(PATIENCE_SECONDS)
    outcomes, _ = calls.call_many(queries(range(20, 23)), is_hedged=False)
    assert counts(outcomes) == [20, 21, 22]
    if client_name == "curl":  # threads share fewer connections while responses come fast
        assert server.accepted <= 3 + hedged


@pytest.mark.parametrize(("policy", "is_hedged"), [(None, True), (experienced(), False)])
def test_nothing_is_asked_twice_without_leave(serve, connect, policy, is_hedged):
    """Neither without a policy, nor where the caller does not want it."""

    def slow(peer):
        while (request := peer.take()) is not None:
            time.sleep(0.15)
            peer.reply({"Count": request})

    server = serve(slow)
    calls = connect(server.port, parallel=3, policy=policy)
    assert calls.call_many(queries(range(3)), is_hedged=is_hedged).hedged == 0
    assert len(server.log) == 3


def test_responses_are_never_mixed_up(serve, connect):
    """Rounds of three threads with slow, hedged, failing and closing requests: each response is its request's."""
    chance = random.Random(7)
    lock = Lock()

    def unreliable(peer):
        while (request := peer.take()) is not None:
            with lock:
                draw = chance.random()
            if draw < 0.15:
                time.sleep(0.03)
            elif draw < 0.18:
                peer.reply({"__type": "#InternalServerError"}, status=500)
                continue
            elif draw < 0.21:
                return
            peer.reply({"Count": request})

    calls = connect(serve(unreliable).port, parallel=5, policy=experienced(0.005))
    responded, wrong, hedges = [], [], []

    def work(thread):
        for turn in range(15):
            numbers = [thread * 1_000 + turn * 10 + n for n in range(8)]
            outcomes, hedged = calls.call_many(queries(numbers), is_hedged=True)
            hedges.append(hedged)
            given = zip(numbers, counts(outcomes), strict=True)
            came = [(number, count) for number, count in given if count is not StoreUnavailableError]
            responded.extend(came)
            wrong.extend((number, count) for number, count in came if number != count)

    threads = [Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert sum(hedges) > 0
    assert len(responded) > 250
