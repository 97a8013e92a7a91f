"""What fails on the way to a response: no function, URL, rush or stack; and `watch`, which goes on.

It is long because failures are brought about where they happen, by errors of the SDK, stubs and a server, and are held
to their sentences.
"""

import io
import json
import os
import sys
from functools import partial
from pathlib import Path
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
from hotpartition_cli.callers import OUTPUTS, Api, LambdaCaller, UrlCaller, find_functions, find_stack, open_stack
from hotpartition_cli.errors import FailedError, Status, UsageError
from hotpartition_cli.main import run
from hotpartition_cli.rush import make_rush, send_messages
from hotpartition_cli.views import VIEWS
from support.fakes import KEY_RANGE_THROTTLE
from support.servers import Server

REGION = "eu-central-1"
NOWHERE = "http://127.0.0.1:1"
URL = {"HOTPARTITION_URL": NOWHERE}
HOT = {"command": "hot"}
NAMES = {output: f"dev-{function}" for function, output in OUTPUTS.items()}


def test_watch_survives_a_failure_and_ends_with_control_c(connect, world, capsys):
    """The failure is shown, and the next look is taken all the same; each is a line for a program."""
    looks = []

    def sleep(seconds):
        looks.append(seconds)
        world.table.failures = [KEY_RANGE_THROTTLE] * (500 if len(looks) == 1 else 0)
        if len(looks) == 3:
            raise KeyboardInterrupt

    status = run(["watch", "--every", "7", "--json"], URL, connect=connect, sleep=sleep)
    assert (status, looks) == (Status.FINE, [7, 7, 7])
    said = capsys.readouterr()
    first, failed, last = [json.loads(line) for line in said.out.splitlines()]
    assert (first["is_complete"], failed["error"]["kind"], last["is_complete"]) == (True, "retry-later", True)
    assert "throttled" in said.err


def test_an_option_beats_the_environment():
    """As everywhere."""
    chosen = []

    def connect(options, *_):
        chosen.append((options.function, options.url))
        raise FailedError("stop", kind="failed")

    environ = {**URL, "HOTPARTITION_FUNCTION": "f"}
    for options in (["--function", "g"], ["--url", "http://u"], ["--url", "http://u", "--function", "of_rooms"]):
        assert run(["hot", *options], environ, connect=connect) == Status.FAILED
    assert chosen == [("g", None), (None, "http://u"), ("of_rooms", "http://u")]


@pytest.fixture
def session():
    return boto3.Session("AKIDEXAMPLE", "secret", region_name=REGION)


def open_dev(session, *, api="https://api.example", token=None):
    return open_stack("dev", {**NAMES, "ApiUrl": api}, session, token)


def test_a_function_is_called_by_its_name_in_the_stack(session, monkeypatch):
    """The response is its payload, of one request; of a function that failed the log says more."""
    client = session.client("lambda")
    monkeypatch.setattr(session, "client", lambda *_, **__: client)
    stack = open_dev(session)
    with Stubber(client) as stub:
        for payload, failed in ((b'{"ready": true}', {}), (b'{"errorType": "KeyError"}', {"FunctionError": "x"})):
            answer = {"StatusCode": 200, "Payload": io.BytesIO(payload), **failed}
            sent = {"FunctionName": "dev-consume_reports", "Payload": b'{"probe": true}'}
            stub.add_response("invoke", answer, sent)
        assert stack.invoke("consume_reports", {"probe": True}) == {"ready": True}
        with pytest.raises(FailedError, match=r"consume_reports failed \(KeyError: without a message\)"):
            stack.invoke("consume_reports", {"probe": True})


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
            LambdaCaller("f", SimpleNamespace(invoke=invoke), REGION)(HOT)
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


def test_what_is_no_response_of_the_function_is_said():
    """Something else responded, or nothing: no server listens on port 1. What is no URL is usage."""
    for payload in (b"<html>", b"[]"):
        client = SimpleNamespace(invoke=lambda payload=payload, **_: {"Payload": io.BytesIO(payload)})
        with pytest.raises(FailedError, match="what responded is not the function operate"):
            LambdaCaller("f", client, REGION)(HOT)
    for url in ("127.0.0.1:8001", "ftp://a", "http://"):
        with pytest.raises(UsageError, match="should be like http://"):
            UrlCaller(url)
    for ask in (lambda: UrlCaller(NOWHERE)(HOT), lambda: send_messages(Api(NOWHERE), "/", 1, 0.0, lambda _: None)):
        with pytest.raises(FailedError, match="nothing responds at"):
            ask()


def test_a_local_run_may_operate_several_tables():
    """Each has its own function; one that is not there is answered with those that are."""

    def respond(peer):
        while peer.receive():
            if peer.path == "/functions/rooms_operate/invoke":
                peer.reply({"routes": []})
            else:
                peer.reply({"message": "there are rooms_operate and reads"}, status=404)

    with Server(respond) as server:
        url = f"http://127.0.0.1:{server.port}"
        assert UrlCaller(url, "rooms_operate")({"command": "routes"}) == {"routes": []}
        with pytest.raises(FailedError, match="no function operate: there are rooms_operate and reads"):
            UrlCaller(url)({"command": "routes"})


def test_output_that_cannot_be_written_is_no_finding(monkeypatch, capsys):
    """What status 1 says of a route, a full disk does not."""
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert run(["plan", "--rate", "5", "--item-bytes", "1", "--json"], {}) == Status.FAILED
    assert capsys.readouterr().err == "hotpartition: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_output_whose_reader_has_closed_it_is_no_finding(monkeypatch, form):
    """As `head` does: status 1 would say something of a route."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        assert run(["plan", "--rate", "5", "--item-bytes", "1", *form], {}) == Status.FAILED


def test_a_rush_is_for_an_id_that_a_conversation_may_have(monkeypatch):
    """Else each of its messages would be refused."""
    monkeypatch.setattr(UrlCaller, "status", lambda _: {"functions": ["write_message"]})
    for name in ("a b", "\udcff"):
        with pytest.raises(UsageError, match="conversation_id"):
            make_rush(UrlCaller(NOWHERE), print, name, 25.0, 1.0)


@pytest.mark.parametrize(("seconds", "says"), [(0.0, False), (20.0, False), (40.0, True)])
def test_a_machine_that_did_not_offer_the_load_is_said(seconds, says):
    """Otherwise whoever waits for a raise looks for it in the wrong place."""
    counts = {"shard_count": 0, "stored": 1_500, "throttled": 100, "failed": 0}
    document = {"conversation_id": "c", "offered_wcu_per_second": 2_000.0, "seconds": seconds, **counts}
    assert ("This machine offered 1,000 WCU/s, not 2,000." in str(VIEWS["rush"](document))) == says


OF_CONSTRUCT = {"SiteUrl": "https://a", "HotOperateFunctionName40C3D129": "sensors-operate"}
TWO = {"AOperateFunctionName40C3D129": "a", "BOperateFunctionName40C3D128": "b"}


def test_a_stack_is_known_by_its_outputs(session, client):
    """Each function by its name there, and the API's address; somebody else's by the output of `HotPartition`.

    Which is meant of two tables, or of none, is unknown. CloudFormation calls a missing stack a wrong parameter.
    """
    resources = {"Resources": {"A": {"Type": "AWS::SNS::Topic"}}}
    template = {**resources, "Outputs": {"OperateFunctionName": {"Value": "a"}}}
    cloud_formation = session.client("cloudformation")
    for name, body in (("there", template), ("bare", resources)):
        cloud_formation.create_stack(StackName=name, TemplateBody=json.dumps(body))
    connect = partial(find_stack, region=REGION, profile=None, token=None)
    assert connect("there").functions == ("operate",)
    assert find_functions("theirs", OF_CONSTRUCT) == {"operate": "sensors-operate"}
    for find, said in (
        (lambda: connect("away"), "no stack away in eu-central-1"),
        (lambda: connect("bare"), "it has no output OperateFunctionName"),
        (lambda: find_functions("theirs", TWO), "operates several tables"),
        (lambda: open_stack("theirs", NAMES, session, None), "it has no output ApiUrl"),
    ):
        with pytest.raises(FailedError, match=said) as caught:
            find()
        assert caught.value.kind == "not-found"


@pytest.mark.parametrize("url", ["", "ApiUrl", "api.example/x", "https://", "https://api:port", "https://[api"])
def test_an_address_that_is_no_url_is_said(session, url):
    """Before anything is signed: botocore's signer cannot."""
    with pytest.raises(FailedError, match="the API's address is no URL like https://HOST: "):
        open_dev(session, api=url).api.request("GET", "/conversations")


def test_requests_are_signed_with_the_callers_credentials(session, monkeypatch):
    """For API Gateway, in the stack's region, body and headers included; a token goes as it is."""
    api = open_dev(session).api
    headers = api._authorize("POST", "https://api.example/x", b"{}", {"content-type": "application/json"})
    signature = headers["Authorization"]
    assert signature.startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
    assert f"/{REGION}/execute-api/aws4_request" in signature
    assert "SignedHeaders=content-type;host;x-amz-date" in signature
    with_token = open_dev(session, token="ey.J").api
    assert with_token._authorize("GET", "https://x", b"", {}) == {"authorization": "Bearer ey.J"}

    def expired():
        raise UnauthorizedSSOTokenError

    # Credentials that cannot be read fail the step: botocore says so at the first signature, in its own error.
    monkeypatch.setattr(session, "get_credentials", expired)
    with pytest.raises(FailedError, match="no usable AWS credentials"):
        api.request("GET", "/conversations")
