"""What fails on the way to a response: no function, URL, rush or stack; what `hot --all` and `watch` repeat."""

import io
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import boto3
import pytest
from botocore.exceptions import (
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
    UnauthorizedSSOTokenError,
)
from botocore.session import get_session
from botocore.stub import Stubber

from hotpartition_cli import outcomes, stacks
from hotpartition_cli.api import Api
from hotpartition_cli.callers import LambdaCaller, UrlCaller, read_response
from hotpartition_cli.errors import FailedError, FoundError, Status, UsageError
from hotpartition_cli.main import run
from hotpartition_cli.rush import send_messages
from hotpartition_cli.stacks import OUTPUTS, AwsStack
from hotpartition_cli.views import VIEWS
from support.builders import World
from support.fakes import KEY_RANGE_THROTTLE
from support.fleet import START_MS, Fleet

URL = {"HOTPARTITION_URL": "http://127.0.0.1:1"}


@pytest.fixture
def world():
    world = World()
    world.clock.now_ms = START_MS + 6_000
    world.reports.announce(world.clock.now_ms)
    return world


@pytest.fixture
def tool(connect, capsys):
    """Runs a command against a world: exit status, standard output, standard error."""

    def tool(*arguments, environ=URL, sleep=None):
        status = run(arguments, environ, connect=connect, sleep=sleep or (lambda _: None))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return tool


def write(world, rate=2_000):
    for arrival in Fleet().offer(lambda _: rate, 6_000, "rush"):
        world.reports.send(arrival.report)


class TestCommands:
    def test_hot_all_follows_the_cursor(self, tool, world, monkeypatch):
        """However many there are; hottest first, then the newest."""
        write(world)
        for i in range(1_100):
            world.raise_to(2, i, conversation_id=f"c{i}")
        status, out, _ = tool("hot", "--all", "--json")
        rows = json.loads(out)["routes"]
        assert status == Status.FINE
        assert [row["conversation_id"] for row in rows] == ["rush", *(f"c{i}" for i in reversed(range(1_100)))]
        assert {row["wcu_per_second"] for row in rows[1:]} == {0.0}

    def test_hot_all_does_not_call_cold_what_it_did_not_ask_for(self, tool, world, monkeypatch):
        """With more active conversations than one response holds, the rest is unknown."""
        monkeypatch.setattr(outcomes, "MAX_HOT", 1)
        write(world)
        for i, (id_, count) in enumerate((("busy", 2), ("idle", 4))):
            world.raise_to(count, i, conversation_id=id_)
        for arrival in Fleet(seed=2).offer(lambda _: 500, 6_000, "busy"):
            world.reports.send(arrival.report)
        _, out, _ = tool("hot", "--all", "--json")
        heats = {row["conversation_id"]: row["wcu_per_second"] for row in json.loads(out)["routes"]}
        assert heats["rush"] > 1_000
        assert (heats["busy"], heats["idle"]) == (None, None)

    def test_watch_ends_with_control_c(self, tool, world):
        """And that is no error; where nobody looks at a terminal, each look is a line for a program."""
        looks = []

        def sleep(seconds):
            looks.append(seconds)
            if len(looks) == 3:
                raise KeyboardInterrupt

        status, out, _ = tool("watch", "--every", "7", "--json", sleep=sleep)
        assert (status, looks) == (Status.FINE, [7, 7, 7])
        assert [json.loads(line)["is_complete"] for line in out.splitlines()] == [True] * 3

    def test_watch_survives_a_failure(self, tool, world):
        """It is told, and the next look is taken all the same."""
        looks = []

        def sleep(_):
            looks.append(1)
            world.table.failures = [KEY_RANGE_THROTTLE] * (500 if len(looks) == 1 else 0)
            if len(looks) == 3:
                raise KeyboardInterrupt

        status, out, err = tool("watch", sleep=sleep)
        assert status == Status.FINE
        assert "throttled" in err
        assert out.count("Nothing is being written") == 2


class TestMistakes:
    def test_an_option_beats_the_environment(self, world):
        """As everywhere."""
        chosen = []

        def connect(options):
            chosen.append((options.function, options.url))
            raise FailedError("stop", kind="failed")

        environ = {**URL, "HOTPARTITION_FUNCTION": "f"}
        assert run(["hot", "--function", "g"], environ, connect=connect) == Status.FAILED
        assert run(["hot", "--url", "http://u"], environ, connect=connect) == Status.FAILED
        assert run(["hot", "--url", "http://u", "--function", "of_rooms"], environ, connect=connect) == Status.FAILED
        assert chosen == [("g", None), (None, "http://u"), ("of_rooms", "http://u")]


class TestLambda:
    """Through Lambda's API, as botocore would answer."""

    @pytest.fixture
    def client(self):
        session = get_session()
        session.set_credentials("testing", "testing")
        client = session.create_client("lambda", region_name="eu-central-1")
        yield client
        client.close()

    def test_the_response_is_the_payload(self, client):
        """One request, with the command as its payload; a function that failed is named, since its log says more."""
        with Stubber(client) as stub:
            expected = {"FunctionName": "f", "Payload": b'{"command": "hot"}'}
            stub.add_response("invoke", {"StatusCode": 200, "Payload": io.BytesIO(b'{"routes": []}')}, expected)
            assert LambdaCaller("f", client, "eu-central-1")({"command": "hot"}) == {"routes": []}
            body = io.BytesIO(b'{"errorType": "KeyError", "errorMessage": "x"}')
            stub.add_response("invoke", {"StatusCode": 200, "FunctionError": "Unhandled", "Payload": body})
            with pytest.raises(FailedError, match="KeyError: x"):
                LambdaCaller("f", client, "eu-central-1")({"command": "hot"})
            stub.assert_no_pending_responses()

    @pytest.mark.parametrize(
        ("code", "kind", "sentence"),
        [
            ("ResourceNotFoundException", "not-found", "no function f in eu-central-1.*OperateFunctionName"),
            ("TooManyRequestsException", "throttled", "throttled"),
            ("AccessDeniedException", "access-denied", "lambda:InvokeFunction"),
            ("ExpiredTokenException", "no-credentials", "sign in again"),
            ("ServiceException", "failed", "ServiceException"),
        ],
    )
    def test_refusals_name_the_way_out(self, client, code, kind, sentence):
        """One sentence, and a word for programs."""
        with Stubber(client) as stub:
            stub.add_client_error("invoke", code, http_status_code=400)
            with pytest.raises(FailedError, match=sentence) as caught:
                LambdaCaller("f", client, "eu-central-1")({"command": "hot"})
        assert caught.value.kind == kind

    @pytest.mark.parametrize(
        ("error", "kind", "place"),
        [
            (NoCredentialsError(), "no-credentials", "invoke"),
            (EndpointConnectionError(endpoint_url="https://lambda.example"), "unreachable", "invoke"),
            (ReadTimeoutError(endpoint_url="https://lambda.example"), "unreachable", "read"),
        ],
    )
    def test_what_never_left_or_came_is_said(self, error, kind, place):
        """No credentials, no way there, and a response that ends on its way back."""

        class Client:
            def invoke(self, **_):
                if place == "invoke":
                    raise error
                return {"Payload": self}

            def read(self):
                raise error

        with pytest.raises(FailedError) as caught:
            LambdaCaller("f", Client(), "eu-central-1")({"command": "hot"})
        assert caught.value.kind == kind

    def test_no_region_and_no_profile_are_usage(self, monkeypatch, tmp_path):
        """They are for the caller to set."""
        for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
        with pytest.raises(UsageError, match="--region"):
            LambdaCaller.connect("f", region=None, profile=None)
        with pytest.raises(UsageError, match="nobody"):
            LambdaCaller.connect("f", region="eu-central-1", profile="nobody")


class TestResponses:
    @pytest.mark.parametrize(
        ("payload", "is_error", "error"),
        [
            (b"<html>", False, FailedError),
            (b"[]", False, FailedError),
            (b'{"error": {"kind": "invalid-request", "message": "m"}}', False, UsageError),
            (b'{"error": {"kind": "malformed-route", "message": "m"}}', False, FoundError),
            (b'{"error": {"kind": "retry-later", "message": "m"}}', False, FailedError),
            (b'{"errorMessage": "m"}', True, FailedError),
        ],
    )
    def test_errors_have_their_status(self, payload, is_error, error):
        """Wrong, found, or failed."""
        with pytest.raises(error):
            read_response(payload, is_error=is_error)

    @pytest.mark.parametrize("url", ["127.0.0.1:8001", "ftp://a", "http://"])
    def test_what_is_no_url_is_usage(self, url):
        """With what one looks like."""
        with pytest.raises(UsageError, match="should be like http://"):
            UrlCaller(url)

    def test_a_url_that_does_not_respond_is_said(self):
        """Port 1 is nobody's."""
        with pytest.raises(FailedError, match="nothing responds at"):
            UrlCaller("http://127.0.0.1:1")({"command": "hot"})

    def test_a_local_run_may_operate_several_tables(self):
        """Each has its own function; one that is not there is answered with those that are."""

        class Control(BaseHTTPRequestHandler):
            def do_POST(self):
                is_known = self.path == "/functions/rooms_operate/invoke"
                self.send_response(200 if is_known else 404)
                self.end_headers()
                self.wfile.write(b'{"routes": []}' if is_known else b'{"message": "there are rooms_operate and reads"}')

            def log_message(self, *_):
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Control) as server:
            Thread(target=server.serve_forever, daemon=True).start()
            url = f"http://127.0.0.1:{server.server_port}"
            assert UrlCaller(url, "rooms_operate")({"command": "routes"}) == {"routes": []}
            with pytest.raises(FailedError, match="no function operate: there are rooms_operate and reads"):
                UrlCaller(url)({"command": "routes"})
            server.shutdown()


class TestRush:
    def test_an_api_that_is_not_there_is_said(self):
        """Every message failed, and why is plain."""
        with pytest.raises(FailedError, match="nothing responds at http"):
            send_messages(Api("http://127.0.0.1:1"), "/", 1, 0.0, lambda _: None)

    @pytest.mark.parametrize(("seconds", "says"), [(20.0, False), (40.0, True)])
    def test_a_machine_that_did_not_offer_the_load_is_said(self, seconds, says):
        """Otherwise whoever waits for a raise looks for it in the wrong place."""
        document = {
            "conversation_id": "c",
            "offered_wcu_per_second": 2_000.0,
            "seconds": seconds,
            "shard_count": 0,
            "stored": 1_500,
            "throttled": 100,
            "failed": 0,
        }
        assert ("This machine offered 1,000 WCU/s, not 2,000." in str(VIEWS["rush"](document))) == says


NAME = "hotpartition-dev"
NAMES = {output: f"dev-{function}" for function, output in OUTPUTS.items()}
ALL = {**NAMES, "ApiUrl": "https://api.example"}
REGION = "eu-central-1"
STACK = {"StackName": NAME, "CreationTime": "2026-11-21", "StackStatus": "CREATE_COMPLETE"}


@pytest.fixture
def session():
    return boto3.Session("AKIDEXAMPLE", "secret", region_name=REGION)


@pytest.fixture
def cloudformation(session, monkeypatch):
    """CloudFormation's responses."""
    client = session.client("cloudformation")
    opened = {"cloudformation": client}
    monkeypatch.setattr(stacks, "open_session", lambda *_: session)
    monkeypatch.setattr(stacks, "open_client", lambda session, service: opened.get(service) or session.client(service))
    with Stubber(client) as stub:
        yield stub


def connect_stack(token=None):
    return AwsStack.connect(NAME, region=None, profile=None, token=token)


def describe(cloudformation, outputs):
    listed = [{"OutputKey": key, "OutputValue": value} for key, value in outputs.items()]
    cloudformation.add_response("describe_stacks", {"Stacks": [{**STACK, "Outputs": listed}]}, {"StackName": NAME})


def test_a_stack_is_known_by_its_outputs(cloudformation):
    """Each function by its name there, and the API's address."""
    describe(cloudformation, ALL)
    stack = connect_stack()
    assert stack.api.url == "https://api.example"
    with Stubber(stack._lambda) as stub:
        body = io.BytesIO(b'{"ready": true}')
        expected = {"FunctionName": "dev-consume_reports", "Payload": b'{"probe": true}'}
        stub.add_response("invoke", {"StatusCode": 200, "Payload": body}, expected)
        assert stack.invoke("consume_reports", {"probe": True}) == {"ready": True}


@pytest.mark.parametrize("url", ["", "ApiUrl", "api.example/x", "https://", "https://api:port", "https://[api"])
def test_an_address_that_is_no_url_is_said(cloudformation, url):
    """Before anything is signed: botocore's signer cannot."""
    describe(cloudformation, {**ALL, "ApiUrl": url})
    with pytest.raises(FailedError, match="the API's address is no URL like https://HOST: "):
        connect_stack().api.request("GET", "/conversations")


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ({"Stacks": []}, "it has no output OperateFunctionName"),
        ({"Stacks": [{**STACK, "Outputs": [{"OutputKey": "WriteMessageFunctionName"}]}]}, "it has no output Operate"),
        ({"Stacks": [STACK]}, "it has no output OperateFunctionName"),
        ({}, "it has no output OperateFunctionName"),
    ],
)
def test_what_cloudformation_leaves_out_is_said(cloudformation, missing, said):
    """No list, no stack, no outputs, an output without a value."""
    cloudformation.add_response("describe_stacks", missing)
    with pytest.raises(FailedError, match=said):
        connect_stack()


def test_credentials_that_cannot_be_read_fail_the_step(cloudformation, session, monkeypatch):
    """Botocore says so at the first signature, in its own error."""
    describe(cloudformation, ALL)
    api = connect_stack().api

    def expired():
        raise UnauthorizedSSOTokenError

    monkeypatch.setattr(session, "get_credentials", expired)
    with pytest.raises(FailedError, match="no usable AWS credentials"):
        api.request("GET", "/conversations")


def test_somebody_elses_stack_is_known_by_its_construct(cloudformation):
    """By the output of `HotPartition`; with two of them, or none, nobody knows what is meant."""
    describe(cloudformation, {"SiteUrl": "https://a", "HotOperateFunctionName40C3D129": "sensors-operate"})
    assert connect_stack().functions == ("operate",)
    describe(cloudformation, {"AOperateFunctionName40C3D129": "a", "BOperateFunctionName40C3D128": "b"})
    with pytest.raises(FailedError, match="operates several tables"):
        connect_stack()
    describe(cloudformation, {"SiteUrl": "https://a"})
    with pytest.raises(FailedError, match="it has no output OperateFunctionName"):
        connect_stack()
    describe(cloudformation, {**NAMES})
    with pytest.raises(FailedError, match="no stack of hotpartition: it has no output ApiUrl"):
        connect_stack()


def test_a_stack_that_is_not_there_is_said(cloudformation):
    """CloudFormation calls its name a wrong parameter."""
    cloudformation.add_client_error("describe_stacks", "ValidationError", "Stack with id x does not exist", 400)
    with pytest.raises(FailedError, match="no stack hotpartition-dev in eu-central-1") as caught:
        connect_stack()
    assert caught.value.kind == "not-found"


def test_requests_are_signed_with_the_callers_credentials(cloudformation):
    """For API Gateway, in the stack's region, body and headers included; a token goes as it is."""
    describe(cloudformation, ALL)
    headers = connect_stack().api._authorize(
        "POST", "https://api.example/x", b"{}", {"content-type": "application/json"}
    )
    signature = headers["Authorization"]
    assert signature.startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
    assert f"/{REGION}/execute-api/aws4_request" in signature
    assert "SignedHeaders=content-type;host;x-amz-date" in signature
    describe(cloudformation, ALL)
    assert connect_stack("ey.J").api._authorize("GET", "https://x", b"", {}) == {"authorization": "Bearer ey.J"}
