"""What `hotpartition check` needs of a stack on AWS: outputs, signatures; as botocore would answer."""

import io

import boto3
import pytest
from botocore.exceptions import UnauthorizedSSOTokenError
from botocore.stub import Stubber

from hotpartition_cli import stacks
from hotpartition_cli.errors import FailedError
from hotpartition_cli.stacks import OUTPUTS, AwsStack

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


def connect(token=None):
    return AwsStack.connect(NAME, region=None, profile=None, token=token)


def describe(cloudformation, outputs):
    listed = [{"OutputKey": key, "OutputValue": value} for key, value in outputs.items()]
    cloudformation.add_response("describe_stacks", {"Stacks": [{**STACK, "Outputs": listed}]}, {"StackName": NAME})


def test_a_stack_is_known_by_its_outputs(cloudformation):
    """Each function by its name there, and the API's address."""
    describe(cloudformation, ALL)
    stack = connect()
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
        connect().api.request("GET", "/conversations")


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
        connect()


def test_credentials_that_cannot_be_read_fail_the_step(cloudformation, session, monkeypatch):
    """Botocore says so at the first signature, in its own error."""
    describe(cloudformation, ALL)
    api = connect().api

    def expired():
        raise UnauthorizedSSOTokenError

    monkeypatch.setattr(session, "get_credentials", expired)
    with pytest.raises(FailedError, match="no usable AWS credentials"):
        api.request("GET", "/conversations")


def test_another_stack_is_refused(cloudformation):
    """The output that it lacks is named."""
    describe(cloudformation, {**NAMES})
    with pytest.raises(FailedError, match="no stack of hotpartition: it has no output ApiUrl"):
        connect()


def test_somebody_elses_stack_is_known_by_its_construct(cloudformation):
    """By the output of `HotPartition`; with two of them, or none, nobody knows what is meant."""
    describe(cloudformation, {"SiteUrl": "https://a", "HotOperateFunctionName40C3D129": "sensors-operate"})
    assert connect().functions == ("operate",)
    describe(cloudformation, {"AOperateFunctionName40C3D129": "a", "BOperateFunctionName40C3D128": "b"})
    with pytest.raises(FailedError, match="operates several tables"):
        connect()
    describe(cloudformation, {"SiteUrl": "https://a"})
    with pytest.raises(FailedError, match="it has no output OperateFunctionName"):
        connect()


def test_a_stack_that_is_not_there_is_said(cloudformation):
    """CloudFormation calls its name a wrong parameter."""
    cloudformation.add_client_error("describe_stacks", "ValidationError", "Stack with id x does not exist", 400)
    with pytest.raises(FailedError, match="no stack hotpartition-dev in eu-central-1") as caught:
        connect()
    assert caught.value.kind == "not-found"


def test_requests_are_signed_with_the_callers_credentials(cloudformation):
    """For API Gateway, in the stack's region; body and headers included."""
    describe(cloudformation, ALL)
    headers = connect().api._authorize("POST", "https://api.example/x", b"{}", {"content-type": "application/json"})
    signature = headers["Authorization"]
    assert signature.startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
    assert f"/{REGION}/execute-api/aws4_request" in signature
    assert "SignedHeaders=content-type;host;x-amz-date" in signature


def test_a_token_goes_as_it_is(cloudformation):
    """For an API with a JWT authorizer."""
    describe(cloudformation, ALL)
    assert connect("ey.J").api._authorize("GET", "https://x", b"", {}) == {"authorization": "Bearer ey.J"}
