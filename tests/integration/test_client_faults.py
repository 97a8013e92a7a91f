"""What a client of DynamoDB must do, for both of them: errors, and servers that fail in every way.

Signatures are in `test_curl_signatures.py`; what is stored and read through a client is in `test_contracts.py`.
"""

from __future__ import annotations

import os
import random
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Barrier, Event, Lock, Thread

import boto3
import pytest
import trustme
from botocore.exceptions import ParamValidationError

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
from hotpartition.dynamodb.curl import MAX_IDLE_SECONDS
from support.faulty_server import PATIENCE_SECONDS, Peer, whole
from support.unreachable import closed_port, full_port

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
        if ca_file:
            monkeypatch.setenv("AWS_CA_BUNDLE", ca_file)
        else:
            monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
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


def echoed(calls: DynamoDBCalls, text: str) -> str:
    """Send a text, and return it as it came back."""
    return calls.call("Query", request(0, KeyConditionExpression=text))["Items"][0]["text"]["S"]


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


class TestErrors:
    """What DynamoDB, and what lies between, says instead of a response: what the caller can do about it."""

    @pytest.fixture
    def refuse(self, serve, connect):
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
    def test_an_error_of_dynamodb(self, refuse, code, status, facts, kind, words):
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

    @pytest.mark.parametrize(("status", "body", "kind"), ON_THE_WAY)
    def test_an_error_that_is_not_dynamodbs(self, refuse, status, body, kind):
        """Something on the way failed, or the address is something else's: the status says which."""
        error = refuse(status, body)
        assert type(error) is kind
        assert str(status) in str(error)

    def test_missing_credentials_are_a_wrong_deployment(self, connect, monkeypatch):
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


class TestOneConnection:
    """Many requests, one after the other."""

    def test_a_connection_is_kept(self, serve, connect):
        """Requests follow one another on it, and responses are those of their requests."""
        server = serve(Peer.echo)
        calls = connect(server.port)
        assert [ask(calls, n) for n in range(5)] == list(range(5))
        assert server.connections() == [0] * 5

    def test_one_that_was_closed_meanwhile_is_not_written_to(self, serve, connect):
        """Its end is seen before the next request is sent."""
        closed = Event()

        def close_after_one(peer):
            once(peer)
            peer.finish()
            closed.set()

        server = serve(close_after_one, Peer.echo)
        calls = connect(server.port)
        ask(calls)
        assert closed.wait(PATIENCE_SECONDS)
        ask(calls, 1)
        assert server.log == [(0, 0), (1, 1)]

    @only_curl
    @pytest.mark.parametrize("operation", ["Query", "PutItem", "UpdateItem"])
    @pytest.mark.parametrize("end", [Peer.reset, lambda peer: peer.sock.close()], ids=["reset", "closed"])
    def test_one_that_closes_on_a_request_is_replaced_once(self, serve, connect, operation, end):
        """Before a line of the response: the request goes again, on a new connection."""
        server = serve(once_then(end), Peer.echo)
        calls = connect(server.port)
        ask(calls)
        assert calls.call(operation, request(1))["Count"] == 1
        assert server.log == [(0, 0), (0, 1), (1, 1)]

    @only_curl
    def test_it_is_replaced_only_once(self, serve, connect):
        """What fails on a new connection is told, not tried for ever."""
        server = serve(once_then(lambda _: None), Peer.take)
        calls = connect(server.port)
        ask(calls)
        with unavailable(*CLOSED):
            ask(calls, 1)
        assert server.connections() == [0, 0, 1]

    def test_a_new_connection_that_closes_is_a_failure(self, serve, connect):
        """It was not idle: the server means it."""
        server = serve(Peer.take)
        with unavailable(*CLOSED):
            ask(connect(server.port))
        assert server.connections() == [0]

    @only_curl
    @pytest.mark.parametrize("is_reused", [False, True])
    @pytest.mark.parametrize("half", [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Le", whole({"a": 1})[:-1]])
    def test_half_a_response_is_a_failure(self, serve, connect, is_reused, half):
        """The request has arrived: it is not sent again behind its caller's back."""

        def break_off(peer):
            if is_reused:
                once(peer)
            assert peer.take() is not None
            peer.sock.sendall(half)

        server = serve(break_off, Peer.echo)
        calls = connect(server.port)
        if is_reused:
            ask(calls)
        with pytest.raises(StoreUnavailableError):
            ask(calls, 1)
        assert server.connections() == [0] * (1 + is_reused)
        assert ask(calls, 2) == 2

    @pytest.mark.parametrize("is_reused", [False, True])
    def test_a_response_that_does_not_come_in_time_is_a_failure(self, serve, connect, is_reused):
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
    def test_a_response_that_drips_is_late_as_well(self, serve, connect):
        """The limit is for the whole of it."""

        def drip(peer):
            assert peer.take() is not None
            for byte in whole({"a": "x" * 1000}):
                peer.sock.sendall(bytes([byte]))
                time.sleep(0.02)

        with unavailable(*LATE):
            ask(connect(serve(drip).port, response_seconds=READ_TIMEOUT_SECONDS))

    @only_curl
    @pytest.mark.parametrize(
        "response",
        [
            b"SSH-2.0-OpenSSH_9\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            whole({"a": 1}).replace(b'"a"', b'"b"'),
            whole(b"<html>nothing here</html>"),
        ],
        ids=["other protocol", "no length", "wrong checksum", "no JSON"],
    )
    def test_what_is_no_response_is_worth_a_retry(self, serve, connect, response):
        """And the next request finds a connection in order."""

        def send(peer):
            assert peer.take() is not None
            peer.sock.sendall(response)
            peer.echo()

        calls = connect(serve(send, Peer.echo).port)
        with pytest.raises(StoreUnavailableError):
            ask(calls)
        assert ask(calls, 1) == 1

    @only_curl
    def test_what_nobody_asked_for_ends_a_connection(self, serve, connect):
        """Bytes behind a response, at once or later, would be taken for the next one."""
        taken, sent = Event(), Event()

        def chatter(peer):
            assert peer.take() is not None
            peer.sock.sendall(whole({}) + (whole({"stray": 1}) if peer.number == 0 else b""))
            if peer.number == 1:
                assert taken.wait(PATIENCE_SECONDS)
                peer.sock.sendall(whole({"stray": 2}))
                sent.set()
            while peer.take() is not None:
                peer.reply({"wrong connection": peer.number})

        server = serve(chatter, chatter, Peer.echo)
        calls = connect(server.port)
        for number in range(2):
            assert ask(calls, number) is None
        taken.set()
        assert sent.wait(PATIENCE_SECONDS)
        time.sleep(1.1)  # what nobody asked for crosses the loopback; libcurl looks once a second
        assert ask(calls, 2) == 2
        assert server.connections() == [0, 1, 2]

    def test_the_time_of_a_response_is_where_boto3_has_it(self, serve, connect):
        """What finds hot keys in band follows DynamoDB's clock."""
        date = "Mon, 23 Nov 2026 00:36:33 GMT"

        def response(peer):
            while peer.take() is not None:
                peer.reply({}, more=f"Date: {date}\r\n".encode())

        given = connect(serve(response).port).call("Query", request(0))
        assert given["ResponseMetadata"]["HTTPHeaders"]["date"] == date

    @only_curl
    def test_a_response_may_come_before_the_request_was_taken(self, serve, connect):
        """A refusal for its size, for instance; the rest of the request must not reach anybody as a new one."""
        refused = Event()

        def refuse(peer):
            peer.sock.recv(1000)
            peer.reply({"__type": "#RequestTooLarge"}, status=413)
            assert refused.wait(PATIENCE_SECONDS)  # nobody reads the rest, so it cannot be sent
            while peer.sock.recv(65536):
                pass

        server = serve(refuse, Peer.echo)
        calls = connect(server.port)
        with pytest.raises(StoreRefusedError, match="RequestTooLarge"):
            echoed(calls, "x" * 20_000_000)
        refused.set()
        assert ask(calls, 1) == 1
        assert server.connections() == [1]

    def test_a_request_that_is_no_json_takes_no_connection(self, serve, connect):
        """A bug of ours is told, and the next request finds everything in order."""
        server = serve(Peer.echo)
        calls = connect(server.port)
        ask(calls)
        with pytest.raises((TypeError, ParamValidationError)):
            calls.call("Query", request(1, Limit=object()))
        ask(calls, 1)
        assert server.connections() == [0, 0]

    @only_curl
    def test_a_connection_that_was_idle_for_long_is_given_up(self, serve, connect):
        """Its environment was frozen, perhaps: nobody told it of the other side's end."""
        now = [1000.0]
        server = serve(Peer.echo)
        calls = connect(server.port)
        calls._now_seconds = lambda: now[0]
        for step in (0.0, MAX_IDLE_SECONDS, MAX_IDLE_SECONDS + 1, -5000.0):
            now[0] += step
            ask(calls)
        assert server.connections() == [0, 0, 1, 2]


class TestOpening:
    """Connections that cannot be opened, or only at another address."""

    def test_a_refusal_is_told(self, connect):
        """At once."""
        with closed_port() as port, unavailable("onnect to"):
            ask(connect(port))

    def test_one_that_opens_too_slowly_is_given_up(self, connect):
        """Long before the response would be."""
        with full_port() as port, unavailable(*LATE):
            ask(connect(port, connect_seconds=READ_TIMEOUT_SECONDS))


SLOW_RESOLVER = """
#include <netdb.h>
#include <unistd.h>
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    sleep(30);
    write(2, "resolved", 8);
    return EAI_AGAIN;
}
"""
ASK_A_NAME = """
import os
from hotpartition.dynamodb import curl
from hotpartition.dynamodb.calls import Call
from hotpartition.runtime.connect import open_curl
looks, wait = [], curl._Transfers.wait
curl._Transfers.wait = lambda transfers, seconds: looks.append(seconds) or wait(transfers, seconds)
calls = open_curl(connect_timeout_seconds=0.2, read_timeout_seconds=0.5, parallel=4)
outcomes = calls.call_many([Call("Query", {}) for _ in range(4)], is_hedged=False).outcomes
print(*{type(outcome).__name__ for outcome in outcomes}, len(looks), flush=True)
os._exit(0)  # the resolver's threads would be waited for
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="the slow resolver is compiled")
def test_a_slow_resolver_takes_no_longer_than_a_connection_may(tmp_path):
    """It is waited for within the same limit, and without being busy."""
    (tmp_path / "slow.c").write_text(SLOW_RESOLVER)
    library = tmp_path / "slow.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "slow.c"], check=True)
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "LD_PRELOAD": str(library),
        "AWS_ACCESS_KEY_ID": "A",
        "AWS_SECRET_ACCESS_KEY": "S",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_ENDPOINT_URL_DYNAMODB": "http://dynamodb.example",
    }
    done = subprocess.run(
        [sys.executable, "-c", ASK_A_NAME], env=environ, capture_output=True, text=True, check=True, timeout=60
    )
    outcome, looks = done.stdout.split()
    assert (outcome, done.stderr) == ("StoreUnavailableError", "")
    assert int(looks) < 500


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


class TestTls:
    """Who is spoken to is known, and nobody else can listen."""

    @pytest.fixture
    def ca_file(self, authority, tmp_path):
        path = tmp_path / "ca.pem"
        authority.cert_pem.write_to_path(str(path))
        return str(path)

    @pytest.fixture
    def context(self, authority):
        def build(name="localhost"):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            authority.issue_cert(name).configure_cert(context)
            return context

        return build

    @pytest.fixture
    def secure(self, connect, ca_file):
        def build(server, **options):
            return connect(server.port, is_tls=True, **{"host": "localhost", "ca_file": ca_file, **options})

        return build

    def test_requests_share_a_connection(self, serve, secure, context):
        """Small and large ones."""
        server = serve(Peer.echo, tls=context())
        calls = secure(server)
        text = "x" * 300_000
        assert ask(calls, 1) == 1
        assert echoed(calls, text) == text
        assert server.connections() == [0, 0]

    def test_a_stranger_is_not_spoken_to(self, serve, secure, context):
        """A certificate for another name, or by an authority that is not ours: no request leaves."""
        impostor, stranger = serve(Peer.echo, tls=context("other.example")), serve(Peer.echo, tls=context())
        for server, options in ((impostor, {}), (stranger, {"ca_file": ""})):
            with unavailable("certificate", "does not match", "doesn't match"):
                ask(secure(server, **options))
        assert impostor.log == stranger.log == []

    def test_a_file_without_certificates_is_told(self, serve, secure, context):
        """Nothing is trusted instead."""
        server = serve(Peer.echo, tls=context())
        with unavailable("/nonexistent", "No such file"):
            ask(secure(server, ca_file="/nonexistent"))

    def test_a_server_without_tls_is_not_spoken_to(self, serve, secure):
        """Nor a request sent in clear."""
        server = serve(lambda peer: peer.sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
        with unavailable("SSL"):
            ask(secure(server))
        assert server.log == []

    @only_curl
    def test_later_connections_take_up_the_session(self, serve, secure, context):
        """Which spares the handshake most of its work."""
        resumed = []

        def note(peer):
            resumed.append(peer.sock.session_reused)
            once(peer)

        calls = secure(serve(note, tls=context()))
        for _ in range(3):
            ask(calls)
        assert resumed == [False, True, True]

    def test_many_are_opened_at_the_same_time(self, serve, secure, context):
        """All handshakes run side by side, on one thread: none ends before all have begun."""
        barrier = Barrier(4)

        def meet(peer):
            barrier.wait(PATIENCE_SECONDS)
            peer.echo()

        server = serve(meet, tls=context())
        calls = secure(server, parallel=4)
        outcomes, _ = calls.call_many(queries(range(4)), is_hedged=False)
        assert counts(outcomes) == [0, 1, 2, 3]


class TestRounds:
    """Several requests at the same time, on one thread."""

    def test_failures_stay_with_their_requests(self, serve, connect):
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
    def test_all_stale_connections_are_replaced(self, serve, connect):
        """An environment that was frozen for minutes: every one of them is."""
        server = serve(*[once_then(Peer.reset)] * 4, Peer.echo)
        calls = connect(server.port, parallel=4)
        round_ = queries(range(4))
        calls.call_many(round_, is_hedged=False)
        assert counts(calls.call_many(round_, is_hedged=False).outcomes) == [0, 1, 2, 3]

    @only_curl
    def test_after_many_stale_connections_none_is_tried_again(self, serve, connect):
        """Libcurl gives up after five; whoever repeats the request then meets new ones only."""
        all_open = Barrier(9)

        def close_on_second(peer):
            assert peer.take() is not None
            all_open.wait(PATIENCE_SECONDS)
            peer.reply({})
            if peer.take() is not None:
                peer.reset()

        server = serve(*[close_on_second] * 9, Peer.echo)
        calls = connect(server.port, parallel=9)
        calls.call_many(queries(range(9)), is_hedged=False)
        (outcome,) = calls.call_many(queries([10]), is_hedged=False).outcomes
        assert isinstance(outcome, StoreUnavailableError)
        with unavailable("Connection died", "Recv failure"):
            raise outcome
        assert counts(calls.call_many(queries([11]), is_hedged=False).outcomes) == [11]
        assert server.accepted == 10

    def test_a_refusal_is_raised_and_the_others_are_left_in_order(self, serve, connect):
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

    def test_threads_share_a_client(self, serve, connect):
        """Each gets its own responses."""
        calls = connect(serve(Peer.echo).port, parallel=4)
        wrong = []

        def work(thread):
            for turn in range(60):
                numbers = [thread * 100_000 + turn * 10 + n for n in range(3)]
                outcomes, _ = calls.call_many(queries(numbers), is_hedged=False)
                if counts(outcomes) != numbers:
                    wrong.append(outcomes)

        threads = [Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


def experienced(seconds=0.03):
    policy = HedgePolicy(quantile=0.95)
    for _ in range(10 * MIN_LATENCIES):
        policy.record(seconds)
    return policy


class TestHedges:
    """Requests whose responses are slow are sent a second time."""

    def test_the_first_response_is_taken(self, serve, connect, client_name):
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
    def test_nothing_is_asked_twice_without_leave(self, serve, connect, policy, is_hedged):
        """Neither without a policy, nor where the caller does not want it."""

        def slow(peer):
            while (request := peer.take()) is not None:
                time.sleep(0.15)
                peer.reply({"Count": request})

        server = serve(slow)
        calls = connect(server.port, parallel=3, policy=policy)
        assert calls.call_many(queries(range(3)), is_hedged=is_hedged).hedged == 0
        assert len(server.log) == 3

    def test_responses_are_never_mixed_up(self, serve, connect):
        """Rounds with slow, hedged, failing and closing requests, in turn: each response is its request's."""
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

        server = serve(unreliable)
        calls = connect(server.port, parallel=5, policy=experienced(0.005))
        hedges = responded = 0
        for turn in range(120):
            numbers = [turn * 10 + n for n in range(8)]
            outcomes, hedged = calls.call_many(queries(numbers), is_hedged=True)
            hedges += hedged
            for number, outcome in zip(numbers, outcomes, strict=True):
                if not isinstance(outcome, StoreUnavailableError):
                    assert outcome["Count"] == number
                    responded += 1
        assert hedges > 0
        assert responded > 800
