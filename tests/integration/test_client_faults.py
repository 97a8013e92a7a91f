"""What a client of DynamoDB must do, for both of them: signatures, errors, and servers that fail in every way.

What is stored and read through a client is in `test_dynamodb.py`. What libcurl does by itself is not repeated here.
"""

from __future__ import annotations

import random
import re
import ssl
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import boto3
import pytest
import trustme
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as SdkCredentials

from hotpartition.core.access import Certificates, Credentials
from hotpartition.core.errors import (
    ConditionFailedError,
    CredentialsError,
    HotPartitionError,
    StoreRefusedError,
    StoreUnavailableError,
    ThrottledError,
)
from hotpartition.core.hedging import MIN_LATENCIES, HedgePolicy
from hotpartition.dynamodb.calls import Call, DynamoDBCalls, StaleSignatureError
from hotpartition.dynamodb.curl import MAX_IDLE_SECONDS, CurlCalls, Target, _Transfers
from hotpartition.runtime.environment import FixedCredentials
from support.servers import PATIENCE_SECONDS, Peer, by_number, closed_port, error, full_port, whole

READ_TIMEOUT_SECONDS = 0.4
BOTH, CURL = ("boto3", "curl"), ("curl",)
"""boto3 repeats nothing here, limits single reads, and takes what came before a connection ended for a response."""
only_curl = pytest.mark.parametrize("client_name", CURL)

NO_RESPONSE = r"DynamoDB did not respond \((curl error \d+|\w+)\), because .*"
"""An operator can learn why; whoever asked does not."""
CLOSED = NO_RESPONSE + "(Empty reply from server|Recv failure|closed before we received)"
LATE = NO_RESPONSE + "(timed out|[Tt]imeout)"
NOT_OPENED = NO_RESPONSE + "onnect to"


@pytest.fixture(params=BOTH)
def client_name(request):
    """Each of the two clients in turn."""
    return request.param


@pytest.fixture
def connect(aws_environment, client_name, open_calls, monkeypatch) -> Callable[..., DynamoDBCalls]:
    """Builds clients of a port."""

    def build(port, *, host="127.0.0.1", is_tls=False, ca_file="", **options):
        monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", f"http{'s' if is_tls else ''}://{host}:{port}")
        monkeypatch.setenv("AWS_CA_BUNDLE", ca_file)
        return open_calls(client_name, **options)

    return build


def queries(numbers) -> list[Call]:
    """Requests that both clients take; the table's name is the number."""
    return [Call("Query", {"TableName": f"n{number}"}) for number in numbers]


def read(outcome):
    """Return a response's number, or why there was none."""
    if isinstance(outcome, StoreUnavailableError):
        return f"{outcome}, because {outcome.__cause__!r}"
    return outcome["Count"]


def ask(calls, number=0):
    try:
        return read(calls.call(*queries([number])[0]))
    except StoreUnavailableError as unavailable:
        return read(unavailable)


def ask_together(calls, numbers, *, is_hedged=False):
    return [read(outcome) for outcome in calls.call_many(queries(numbers), is_hedged=is_hedged).outcomes]


def assert_like(outcomes, expected):
    """Numbers are the same; failures match."""
    assert len(outcomes) == len(expected)
    for found, wanted in zip(outcomes, expected, strict=True):
        assert found == wanted or re.match(str(wanted), str(found)), (found, wanted)


def ask_until_it_comes(calls, number):
    """Repeat a call with tight limits until the busy machine lets it through."""
    while ask(calls, number) != number:
        pass


def send(content: bytes) -> Callable[[Peer], None]:
    """Send something instead of a response, and close."""

    def step(peer):
        peer.sock.sendall(content)
        peer.close()

    return step


UNUSABLE = {
    "half a head": (b"HTTP/1.1 200 OK\r\nContent-Le", "DynamoDB"),
    "half a body": (whole({"a": 1})[:-1], NO_RESPONSE),
    "other protocol": (b"SSH-2.0-OpenSSH_9\r\n", NO_RESPONSE),
    "wrong checksum": (whole({"a": 1}).replace(b'"a"', b'"b"'), ".* damaged"),
    "error with a wrong checksum": (whole({"a": 1}, status=400).replace(b'"a"', b'"b"'), ".* damaged"),
    "nothing": (whole(b""), ".* is not JSON"),
    "HTML": (whole(b"<html>nothing here</html>"), ".* is not JSON"),
    "a list": (whole([]), ".* is not JSON"),
    "null": (whole(None), ".* is not JSON"),
    "no text": (whole(b"\xff"), ".* is not JSON"),
    "too deep": (whole(b"[" * 100_000), ".* is not JSON"),
    "too long a number": (whole(b"1" * 10_000), ".* is not JSON"),
}
"""What is no response, and what is said of it. The request has arrived: it is not sent again by itself."""
CONNECTIONS = {
    "kept": (BOTH, [{}], [0, 1, 2], [0, 0, 0]),
    "closed before its first response": (BOTH, [{0: Peer.close}], [CLOSED], [0]),
    "closed meanwhile": (CURL, [{1: Peer.close}], [0, 1], [0, 0, 1]),
    "reset meanwhile": (CURL, [{1: Peer.reset}], [0, 1], [0, 0, 1]),
    "closed, and the next one too": (CURL, [{1: Peer.close}, {1: Peer.close}], [0, CLOSED], [0, 0, 1]),
    **{name: (CURL, [{0: send(sent)}], [failure, 1], [0, 1]) for name, (sent, failure) in UNUSABLE.items()},
    **{
        f"{name} later": (CURL, [{1: send(sent)}], [0, failure, 2], [0, 0, 1])
        for name, (sent, failure) in UNUSABLE.items()
    },
}
"""Clients; what a server does with which request on its first connections; what comes of all, by which connection."""


@pytest.mark.parametrize(
    ("client_name", "connections", "outcomes", "came_by"),
    [(client, *facts) for clients, *facts in CONNECTIONS.values() for client in clients],
    ids=[f"{name}-{client}" for name, (clients, *_) in CONNECTIONS.items() for client in clients],
)
def test_what_becomes_of_a_connection(serve, connect, connections, outcomes, came_by):
    """Where one that had served closes without a line of a response, the request goes again, once, on a new one."""
    server = serve(*map(by_number, connections), by_number())
    calls = connect(server.port)
    assert_like([ask(calls, number) for number in range(len(outcomes))], outcomes)
    assert server.connections() == came_by


@pytest.mark.parametrize("served_before", [0, 1])
def test_a_response_that_does_not_come_in_time_is_a_failure(serve, connect, client_name, served_before):
    """It is not repeated, and its connection never serves again: the response may still come."""
    late = Event()
    server = serve(by_number({1: lambda peer: (late.wait(PATIENCE_SECONDS), peer.echo())}))
    calls = connect(server.port, read_timeout_seconds=READ_TIMEOUT_SECONDS)
    if served_before:
        ask_until_it_comes(calls, 0)
    assert_like([ask(calls, 1)], [LATE])
    late.set()
    ask_until_it_comes(calls, 2)
    assert not server.connections_of(1) & server.connections_of(2)
    assert server.connections_of(1) <= server.connections_of(0) or not served_before


def test_a_connection_that_cannot_be_opened_is_a_failure(connect):
    """At once where it is refused; long before the response would be where it opens too slowly."""
    with closed_port() as port:
        assert_like([ask(connect(port))], [NOT_OPENED])
    began = time.monotonic()
    with full_port() as port:
        assert_like([ask(connect(port, connect_timeout_seconds=READ_TIMEOUT_SECONDS))], [LATE])
    assert time.monotonic() - began < PATIENCE_SECONDS / 2


@only_curl
def test_a_connection_that_was_idle_for_long_is_given_up(serve, connect):
    """Its environment was frozen, perhaps: it does not know of the other side's end."""
    now = [1000.0]
    server = serve(by_number())
    calls = connect(server.port)
    calls._now_seconds = lambda: now[0]
    for step in (0.0, MAX_IDLE_SECONDS, MAX_IDLE_SECONDS + 1, -5000.0):
        now[0] += step
        ask(calls)
    assert server.connections() == [0, 0, 1, 2]


REASON = "TableWriteKeyRangeThroughputExceeded"
REASONS = [{"reason": REASON, "resource": "arn:aws:dynamodb:eu-central-1:1:table/t"}]
ITEM = {"pk": {"S": "c"}}
THROUGHPUT, FAILED, SIGNATURE = (
    "ProvisionedThroughputExceededException",
    "ConditionalCheckFailedException",
    "InvalidSignatureException",
)
ENDED = "The security token included in the request is expired"
EXPIRED = "Signature expired: 20261121T000000Z is now earlier than 20261121T001000Z"
EARLY = "Signature not yet current: 20261121T001000Z is still later than 2026"

REFUSALS = [
    (error(THROUGHPUT, ThrottlingReasons=REASONS), ThrottledError, (REASON,)),
    (error("RequestLimitExceeded", ThrottlingReasons=REASONS), ThrottledError, (REASON,)),
    (error("ThrottlingException", throttlingReasons=REASONS), ThrottledError, (REASON,)),
    (error(THROUGHPUT, ThrottlingReasons=[{}]), ThrottledError, ()),
    (error("ThrottlingException"), ThrottledError, ()),
    (error("InternalServerError", 500), StoreUnavailableError, "InternalServerError"),
    (error("ServiceUnavailable", 503), StoreUnavailableError, "ServiceUnavailable"),
    (error("SomethingNew", 500), StoreUnavailableError, "SomethingNew"),
    (error("ExpiredTokenException", message=ENDED), StaleSignatureError, ENDED),
    (error(SIGNATURE, message=EXPIRED), StaleSignatureError, EXPIRED),
    (error(SIGNATURE, message=EARLY), StaleSignatureError, EARLY),
    (error(SIGNATURE, message="does not match"), StoreRefusedError, f"{SIGNATURE}: does not match"),
    (error("ValidationException", message="wrong"), StoreRefusedError, "ValidationException: wrong"),
    ((400, {"__type": "AccessDenied", "Message": "no right"}), StoreRefusedError, "AccessDenied: no right"),
    ((400, {"__type": "com.amazonaws.x#NoTable:http://a/"}), StoreRefusedError, "NoTable"),
    (error(FAILED, Item=ITEM), ConditionFailedError, ITEM),
    (error(FAILED), ConditionFailedError, None),
    # Something on the way failed, or the address is something else's: the status says which.
    ((502, b"<h1>Bad Gateway</h1>"), StoreUnavailableError, "502"),
    ((503, b""), StoreUnavailableError, "503"),
    ((504, b"{}"), StoreUnavailableError, "504"),
    ((429, b"slow down"), StoreUnavailableError, "429"),
    ((408, b""), StoreUnavailableError, "408"),
    ((403, b"<html>"), StoreRefusedError, "403"),
    ((301, b""), StoreRefusedError, "301"),
    ((400, b""), StoreRefusedError, "400"),
]


@pytest.mark.parametrize(("response", "kind", "fact"), REFUSALS)
def test_a_refusal_is_told_by_its_kind(serve, connect, client_name, response, kind, fact):
    """After one attempt, of a call and of a round; with DynamoDB's words, and what else it brings."""
    status, content = response
    server = serve(by_number({}, lambda peer: peer.reply(content, status=status)))
    calls, forgotten, (request,) = connect(server.port), [], queries([1])
    if client_name == "curl":  # boto3 asks for new credentials by itself
        calls._credentials = FixedCredentials(Credentials("A", "S"))
        calls._credentials.forget = lambda: forgotten.append(True)
    with pytest.raises(HotPartitionError) as raised:
        calls.call(*request)
    with pytest.raises(HotPartitionError) as of_round:
        raise calls.call_many([request], is_hedged=False).outcomes[0]
    assert type(raised.value) is type(of_round.value) is kind
    match raised.value:
        case ThrottledError(reasons=reasons):
            assert reasons == fact
        case ConditionFailedError(item=item):
            assert item == fact
        case other:
            assert fact in str(other)
    assert len(server.log) == 2
    assert bool(forgotten) == (kind is StaleSignatureError and client_name == "curl")


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
    peers = []
    address = f"http://127.0.0.1:{serve(lambda peer: (peer.receive(), peers.append(peer), peer.reply({}))).port}"
    target = Target(address + path, region, Certificates(), PATIENCE_SECONDS, PATIENCE_SECONDS)
    calls = CurlCalls(target, FixedCredentials(credentials), timer=lambda: 0.0, now_seconds=lambda: 0.0)
    calls.call("PutItem", {"text": text})
    calls.close()
    (peer,) = peers
    headers = {name.lower(): value for name, value in peer.headers.items()}
    names = headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    signed = ALWAYS_SIGNED | ({"x-amz-security-token"} if credentials.token else set())
    assert (peer.path, names) == (path, sorted(signed))
    assert set(headers) == signed | {"authorization", "content-length", "user-agent"}
    assert headers["x-amz-target"] == "DynamoDB_20120810.PutItem"
    assert headers["content-type"] == "application/x-amz-json-1.0"
    assert headers.get("x-amz-security-token", "") == credentials.token
    request = AWSRequest("POST", address + path, headers={name: headers[name] for name in names}, data=peer.body)
    request.context["timestamp"] = headers["x-amz-date"]
    auth = SigV4Auth(SdkCredentials(*credentials), "dynamodb", region)
    signature = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
    assert headers["authorization"].endswith(f"Signature={signature}")


def test_the_time_of_a_response_is_where_boto3_has_it(serve, connect):
    """What finds hot keys in band follows DynamoDB's clock."""
    date = "Mon, 23 Nov 2026 00:36:33 GMT"
    server = serve(by_number(other=lambda peer: peer.reply({}, more=f"Date: {date}\r\n".encode())))
    given = connect(server.port).call(*queries([0])[0])
    assert given["ResponseMetadata"]["HTTPHeaders"]["date"] == date


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
    ("name", "trusted", "words"),
    [
        ("other.example", {}, "certificate|does not match|doesn't match"),
        ("localhost", {"ca_file": ""}, "certificate"),
        ("localhost", {"ca_file": "/nonexistent"}, "/nonexistent|No such file"),
    ],
    ids=["another name", "another authority", "no certificates"],
)
def test_a_stranger_is_not_spoken_to(secure, name, trusted, words):
    """No request leaves."""
    server, calls = secure(by_number(), name, **trusted)
    assert_like([ask(calls)], [f"{NO_RESPONSE}({words})"])
    assert server.log == []


def test_secure_connections_are_opened_at_the_same_time(secure):
    """All handshakes run side by side, on one thread: none ends before all have begun. They are kept."""
    barrier = Barrier(4)
    server, calls = secure(lambda peer: (barrier.wait(PATIENCE_SECONDS), by_number()(peer)), parallel=4)
    for _ in range(2):
        assert ask_together(calls, range(4)) == [0, 1, 2, 3]
    assert server.accepted == 4


def test_a_refusal_is_raised_and_the_others_are_left_in_order(serve, connect):
    """A bug is not hidden; what was under way is not taken for the next request's response."""
    release = Event()
    refuse = lambda peer: peer.reply({"__type": "#AccessDeniedException"}, status=400)  # noqa: E731
    wait = lambda peer: (release.wait(PATIENCE_SECONDS), peer.echo())  # noqa: E731
    calls = connect(serve(by_number({0: wait, 1: refuse, 2: wait})).port, parallel=3)
    with pytest.raises(StoreRefusedError, match="AccessDenied"):
        ask_together(calls, range(3))
    release.set()
    assert [ask(calls, number) for number in range(10, 20)] == [*range(10, 20)]


@only_curl
def test_a_round_waits_without_being_busy(serve, connect, monkeypatch):
    """For responses that do not come."""
    looks, wait = [], _Transfers.wait
    monkeypatch.setattr(_Transfers, "wait", lambda self, seconds: looks.append(seconds) or wait(self, seconds))
    release = Event()
    server = serve(lambda peer: (peer.take(), release.wait(PATIENCE_SECONDS)))
    calls = connect(server.port, read_timeout_seconds=READ_TIMEOUT_SECONDS, parallel=4)
    assert_like(ask_together(calls, range(4)), [LATE] * 4)
    release.set()
    assert len(looks) < 500


def experienced(seconds=0.03):
    policy = HedgePolicy(quantile=0.95)
    for _ in range(10 * MIN_LATENCIES):
        policy.record(seconds)
    return policy


def test_the_first_response_is_taken(serve, connect, client_name):
    """The round does not wait for the slow one, whose connection serves again only after its response has come."""
    release, late, asked = Event(), Event(), []

    def slow_once(peer):
        asked.append(peer)
        if len(asked) == 1:
            assert release.wait(PATIENCE_SECONDS)
            peer.reply({"Count": "late"})
            late.set()
        else:
            peer.echo()

    server = serve(by_number({1: slow_once}))
    calls = connect(server.port, parallel=3, policy=experienced())
    outcomes, hedged = calls.call_many(queries(range(3)), is_hedged=True)
    assert [read(outcome) for outcome in outcomes] == [0, 1, 2]
    assert (hedged >= 1, len(asked)) == (True, 2)
    for number in range(10, 16):
        assert ask_together(calls, [number]) == [number]
    release.set()
    assert late.wait(PATIENCE_SECONDS)
    assert ask_together(calls, range(20, 23)) == [20, 21, 22]
    if client_name == "curl":  # threads share fewer connections while responses come fast
        assert server.accepted <= 3 + hedged


@pytest.mark.parametrize(("policy", "is_hedged"), [(None, True), (experienced(), False)])
def test_nothing_is_asked_twice_without_leave(serve, connect, policy, is_hedged):
    """Neither without a policy, nor where the caller does not want it."""
    server = serve(by_number({}, lambda peer: (time.sleep(0.15), peer.echo())))
    calls = connect(server.port, parallel=3, policy=policy)
    assert calls.call_many(queries(range(3)), is_hedged=is_hedged).hedged == 0
    assert len(server.log) == 3


def test_responses_are_never_mixed_up(serve, connect):
    """Rounds of three threads with slow, hedged, failing and closing requests: each response is its request's."""
    chance = random.Random(7)

    def slow(peer):
        time.sleep(0.03)
        peer.echo()

    def fail(peer):
        peer.reply({"__type": "#InternalServerError"}, status=500)

    def ask_round(first):
        numbers = range(first, first + 8)
        outcomes, hedged = calls.call_many(queries(numbers), is_hedged=True)
        return hedged, zip(numbers, map(read, outcomes), strict=True)

    def respond(peer):
        chance.choice(ways)(peer)

    ways = [slow] * 15 + [fail] * 3 + [Peer.close] * 3 + [Peer.echo] * 79
    server = serve(by_number({}, respond))
    calls = connect(server.port, parallel=5, policy=experienced(0.005))
    with ThreadPoolExecutor(3) as threads:
        hedges, rounds = zip(*threads.map(ask_round, range(0, 360, 8)), strict=True)
    came = [each for round_ in rounds for each in round_]
    failed = [response for _, response in came if not isinstance(response, int)]
    assert_like(failed, [f"{NO_RESPONSE}|DynamoDB responded with InternalServerError"] * len(failed))
    responded = [(number, response) for number, response in came if isinstance(response, int)]
    assert [each for each in responded if each[0] != each[1]] == []
    assert sum(hedges) > 0
    assert len(responded) > 250
