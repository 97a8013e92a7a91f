"""What `hotpartition check` needs of a stack on AWS: outputs, signatures; as botocore would answer."""

import io

import boto3
import pytest
from botocore.stub import Stubber

from hotpartition_cli import stacks
from hotpartition_cli.errors import FailedError
from hotpartition_cli.stacks import OUTPUTS, AwsStack

NAME = "hotpartition-dev"
NAMES = {output: f"dev-{function}" for function, output in OUTPUTS.items()}
ALL = {**NAMES, "ApiUrl": "https://api.example"}
REGION = "eu-central-1"


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
    stack = {"StackName": NAME, "CreationTime": "2026-11-21", "StackStatus": "CREATE_COMPLETE", "Outputs": listed}
    cloudformation.add_response("describe_stacks", {"Stacks": [stack]}, {"StackName": NAME})


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
