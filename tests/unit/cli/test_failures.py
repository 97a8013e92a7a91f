"""What fails on the way to a response: no function, URL, rush or stack; what `hot --all` and `watch` repeat."""

import io
import json
from types import SimpleNamespace

import boto3
import pytest
from botocore.exceptions import (
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
    UnauthorizedSSOTokenError,
)
from botocore.stub import Stubber

from hotpartition.core.errors import CredentialsError, StoreRefusedError
from hotpartition_cli import outcomes, stacks
from hotpartition_cli.api import Api
from hotpartition_cli.callers import LambdaCaller, UrlCaller, read_response
from hotpartition_cli.errors import FailedError, Status, UsageError
from hotpartition_cli.main import run
from hotpartition_cli.rush import send_messages
from hotpartition_cli.stacks import OUTPUTS, AwsStack
from hotpartition_cli.views import VIEWS
from support.fakes import KEY_RANGE_THROTTLE
from support.fleet import send_load
from support.servers import serving

REGION = "eu-central-1"
NOWHERE = "http://127.0.0.1:1"
URL = {"HOTPARTITION_URL": NOWHERE}


@pytest.fixture
def tool(connect, capsys):
    """Runs a command against a world: exit status, standard output, standard error."""

    def tool(*arguments, sleep=lambda _: None):
        status = run(arguments, URL, connect=connect, sleep=sleep)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return tool


def test_hot_all_follows_the_cursor(tool, world):
    """However many there are; hottest first, then the newest."""
    send_load(world, "rush", 2_000)
    for i in range(1_100):
        world.raise_to(2, i, conversation_id=f"c{i}")
    status, out, _ = tool("hot", "--all", "--json")
    rows = json.loads(out)["routes"]
    assert status == Status.FINE
    assert [row["conversation_id"] for row in rows] == ["rush", *(f"c{i}" for i in reversed(range(1_100)))]
    assert {row["wcu_per_second"] for row in rows[1:]} == {0.0}


def test_hot_all_does_not_call_cold_what_it_did_not_ask_for(tool, world, monkeypatch):
    """With more active conversations than one response holds, the rest is unknown."""
    monkeypatch.setattr(outcomes, "MAX_HOT", 1)
    send_load(world, "rush", 2_000)
    send_load(world, "busy", 500, seed=2)
    for i, (id_, count) in enumerate((("busy", 2), ("idle", 4))):
        world.raise_to(count, i, conversation_id=id_)
    _, out, _ = tool("hot", "--all", "--json")
    heats = {row["conversation_id"]: row["wcu_per_second"] for row in json.loads(out)["routes"]}
    assert heats["rush"] > 1_000
    assert (heats["busy"], heats["idle"]) == (None, None)


def test_watch_survives_a_failure_and_ends_with_control_c(tool, world):
    """The failure is shown, and the next look is taken all the same; each is a line for a program."""
    looks = []

    def sleep(seconds):
        looks.append(seconds)
        world.table.failures = [KEY_RANGE_THROTTLE] * (500 if len(looks) == 1 else 0)
        if len(looks) == 3:
            raise KeyboardInterrupt

    status, out, err = tool("watch", "--every", "7", "--json", sleep=sleep)
    assert (status, looks) == (Status.FINE, [7, 7, 7])
    first, failed, last = [json.loads(line) for line in out.splitlines()]
    assert (first["is_complete"], failed["error"]["kind"], last["is_complete"]) == (True, "retry-later", True)
    assert "throttled" in err


def test_an_option_beats_the_environment(world):
    """As everywhere."""
    chosen = []

    def connect(options):
        chosen.append((options.function, options.url))
        raise FailedError("stop", kind="failed")

    environ = {**URL, "HOTPARTITION_FUNCTION": "f"}
    for options in (["--function", "g"], ["--url", "http://u"], ["--url", "http://u", "--function", "of_rooms"]):
        assert run(["hot", *options], environ, connect=connect) == Status.FAILED
    assert chosen == [("g", None), (None, "http://u"), ("of_rooms", "http://u")]


@pytest.fixture
def session():
    return boto3.Session("AKIDEXAMPLE", "secret", region_name=REGION)


@pytest.fixture
def stubbed(session):
    """Lambda's client, and what it is to be asked."""
    client = session.client("lambda")
    with Stubber(client) as stub:
        yield LambdaCaller("f", client, REGION), stub
        stub.assert_no_pending_responses()


def test_the_response_is_the_payload(stubbed):
    """One request, with the command as its payload; a function that failed is named, since its log says more."""
    call, stub = stubbed
    expected = {"FunctionName": "f", "Payload": b'{"command": "hot"}'}
    stub.add_response("invoke", {"StatusCode": 200, "Payload": io.BytesIO(b'{"routes": []}')}, expected)
    assert call({"command": "hot"}) == {"routes": []}
    body = io.BytesIO(b'{"errorType": "KeyError", "errorMessage": "x"}')
    stub.add_response("invoke", {"StatusCode": 200, "FunctionError": "Unhandled", "Payload": body})
    with pytest.raises(FailedError, match="KeyError: x"):
        call({"command": "hot"})


def refusal(code):
    return ClientError({"Error": {"Code": code}}, "Invoke")


def refusing(error):
    def refuse(**_):
        raise error

    return refuse


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (refusal("ResourceNotFoundException"), "not-found", "no function f in eu-central-1: .* OperateFunctionName"),
        (refusal("TooManyRequestsException"), "throttled", "Lambda throttled"),
        (refusal("AccessDeniedException"), "access-denied", "it needs lambda:InvokeFunction"),
        (refusal("ExpiredTokenException"), "no-credentials", "sign in again"),
        (refusal("ServiceException"), "failed", "refused the call: ServiceException"),
        (NoCredentialsError(), "no-credentials", "sign in, or name a profile"),
        (EndpointConnectionError(endpoint_url="https://lambda.example"), "unreachable", "Lambda did not respond"),
        (ReadTimeoutError(endpoint_url="https://lambda.example"), "unreachable", "Lambda did not respond"),
    ],
)
def test_what_the_sdk_refuses_names_the_way_out(error, kind, sentence):
    """One sentence, and a word for programs; also where the library has wrapped the SDK's error.

    And where the response ends on its way back: it is read within the same call.
    """
    wrapped = StoreRefusedError("refused") if isinstance(error, ClientError) else CredentialsError("none")
    wrapped.__cause__ = error
    ending = SimpleNamespace(read=refusing(error))
    for invoke in (refusing(error), refusing(wrapped), lambda **_: {"Payload": ending}):
        with pytest.raises(FailedError, match=sentence) as caught:
            LambdaCaller("f", SimpleNamespace(invoke=invoke), REGION)({"command": "hot"})
        assert caught.value.kind == kind


def test_no_region_and_no_profile_are_usage(monkeypatch, tmp_path):
    """They are for the caller to set."""
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    with pytest.raises(UsageError, match="--region"):
        LambdaCaller.connect("f", region=None, profile=None)
    with pytest.raises(UsageError, match="nobody"):
        LambdaCaller.connect("f", region=REGION, profile="nobody")


@pytest.mark.parametrize("payload", [b"<html>", b"[]"])
def test_what_is_no_response_of_the_function_is_said(payload):
    """Something else responded."""
    with pytest.raises(FailedError, match="what responded is not the function operate"):
        read_response(payload, is_error=False)


def test_what_is_no_url_is_usage_and_one_that_does_not_respond_is_said():
    """With what one looks like. Nothing listens on port 1."""
    for url in ("127.0.0.1:8001", "ftp://a", "http://"):
        with pytest.raises(UsageError, match="should be like http://"):
            UrlCaller(url)
    with pytest.raises(FailedError, match="nothing responds at"):
        UrlCaller(NOWHERE)({"command": "hot"})
    with pytest.raises(FailedError, match="nothing responds at"):
        send_messages(Api(NOWHERE), "/", 1, 0.0, lambda _: None)


def test_a_local_run_may_operate_several_tables():
    """Each has its own function; one that is not there is answered with those that are."""

    def respond(peer):
        while peer.receive():
            if peer.path == "/functions/rooms_operate/invoke":
                peer.reply({"routes": []})
            else:
                peer.reply({"message": "there are rooms_operate and reads"}, status=404)

    with serving(respond) as server:
        url = f"http://127.0.0.1:{server.port}"
        assert UrlCaller(url, "rooms_operate")({"command": "routes"}) == {"routes": []}
        with pytest.raises(FailedError, match="no function operate: there are rooms_operate and reads"):
            UrlCaller(url)({"command": "routes"})


@pytest.mark.parametrize(("seconds", "says"), [(20.0, False), (40.0, True)])
def test_a_machine_that_did_not_offer_the_load_is_said(seconds, says):
    """Otherwise whoever waits for a raise looks for it in the wrong place."""
    counts = {"shard_count": 0, "stored": 1_500, "throttled": 100, "failed": 0}
    document = {"conversation_id": "c", "offered_wcu_per_second": 2_000.0, "seconds": seconds, **counts}
    assert ("This machine offered 1,000 WCU/s, not 2,000." in str(VIEWS["rush"](document))) == says


NAME = "hotpartition-dev"
NAMES = {output: f"dev-{function}" for function, output in OUTPUTS.items()}
ALL = {**NAMES, "ApiUrl": "https://api.example"}
STACK = {"StackName": NAME, "CreationTime": "2026-11-21", "StackStatus": "CREATE_COMPLETE"}


@pytest.fixture
def connect_stack(session, monkeypatch):
    """Connects to a stack as CloudFormation describes it: by its outputs, or by a whole response."""
    client = session.client("cloudformation")
    opened = {"cloudformation": client}
    monkeypatch.setattr(stacks, "open_session", lambda *_: session)
    monkeypatch.setattr(stacks, "open_client", lambda session, service: opened.get(service) or session.client(service))

    def connect(outputs=ALL, *, response=None, token=None):
        listed = [{"OutputKey": key, "OutputValue": value} for key, value in outputs.items()]
        given = {"Stacks": [{**STACK, "Outputs": listed}]} if response is None else response
        with Stubber(client) as stub:
            if isinstance(given, str):
                stub.add_client_error("describe_stacks", given, "Stack with id x does not exist", 400)
            else:
                stub.add_response("describe_stacks", given, {"StackName": NAME})
            return AwsStack.connect(NAME, region=None, profile=None, token=token)

    return connect


def test_a_stack_is_known_by_its_outputs(connect_stack):
    """Each function by its name there, and the API's address; somebody else's by the output of `HotPartition`."""
    stack = connect_stack()
    assert stack.api.url == "https://api.example"
    with Stubber(stack._lambda) as stub:
        expected = {"FunctionName": "dev-consume_reports", "Payload": b'{"probe": true}'}
        stub.add_response("invoke", {"StatusCode": 200, "Payload": io.BytesIO(b'{"ready": true}')}, expected)
        assert stack.invoke("consume_reports", {"probe": True}) == {"ready": True}
    of_construct = {"SiteUrl": "https://a", "HotOperateFunctionName40C3D129": "sensors-operate"}
    assert connect_stack(of_construct).functions == ("operate",)


TWO = {"AOperateFunctionName40C3D129": "a", "BOperateFunctionName40C3D128": "b"}
WITHOUT_VALUE = {**STACK, "Outputs": [{"OutputKey": "WriteMessageFunctionName"}]}


@pytest.mark.parametrize(
    ("outputs", "response", "said"),
    [
        (TWO, None, "operates several tables"),
        ({"SiteUrl": "https://a"}, None, "it has no output OperateFunctionName"),
        (NAMES, None, "no stack of hotpartition: it has no output ApiUrl"),
        *(({}, {"Stacks": found}, "it has no output Operate") for found in ([], [WITHOUT_VALUE], [STACK])),
        ({}, {}, "it has no output OperateFunctionName"),
        ({}, "ValidationError", "no stack hotpartition-dev in eu-central-1"),
    ],
)
def test_what_is_no_stack_of_ours_is_said(connect_stack, outputs, response, said):
    """With two tables, or none, which is meant is unknown; CloudFormation calls a missing stack a wrong parameter."""
    with pytest.raises(FailedError, match=said) as caught:
        connect_stack(outputs, response=response)
    assert caught.value.kind == "not-found"


@pytest.mark.parametrize("url", ["", "ApiUrl", "api.example/x", "https://", "https://api:port", "https://[api"])
def test_an_address_that_is_no_url_is_said(connect_stack, url):
    """Before anything is signed: botocore's signer cannot."""
    with pytest.raises(FailedError, match="the API's address is no URL like https://HOST: "):
        connect_stack({**ALL, "ApiUrl": url}).api.request("GET", "/conversations")


def test_requests_are_signed_with_the_callers_credentials(connect_stack, session, monkeypatch):
    """For API Gateway, in the stack's region, body and headers included; a token goes as it is."""
    api = connect_stack().api
    headers = api._authorize("POST", "https://api.example/x", b"{}", {"content-type": "application/json"})
    signature = headers["Authorization"]
    assert signature.startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
    assert f"/{REGION}/execute-api/aws4_request" in signature
    assert "SignedHeaders=content-type;host;x-amz-date" in signature
    with_token = connect_stack(token="ey.J").api
    assert with_token._authorize("GET", "https://x", b"", {}) == {"authorization": "Bearer ey.J"}

    def expired():
        raise UnauthorizedSSOTokenError

    # Credentials that cannot be read fail the step: botocore says so at the first signature, in its own error.
    monkeypatch.setattr(session, "get_credentials", expired)
    with pytest.raises(FailedError, match="no usable AWS credentials"):
        api.request("GET", "/conversations")
