"""What a deployment needs of an account is said in a sentence before it begins; with botocore's stubs."""

import json
from contextlib import ExitStack
from pathlib import Path

import boto3
import pytest
from botocore.stub import Stubber

from hotpartition_cdk.options import override
from infra.account import look, main
from infra.environments import DEV, LITE, PROD
from support.golden import assert_answers

ENVIRONMENTS = {each.name: each for each in (DEV, PROD, LITE)}


@pytest.fixture(scope="module")
def clients():
    """A client of each service: to make them takes longer than all the tests."""
    session = boto3.Session("testing", "testing", region_name="eu-central-1")
    clients = {service: session.client(service) for service in ("sts", "ssm", "cloudformation", "lambda")}
    yield clients
    for client in clients.values():
        client.close()


def look_at(
    clients, environment, *, bootstrap="21", quota=1_000, unreserved=1_000, status=None, reason=None, denied=()
):
    """Look at an account that has everything, but for what is said."""
    stubs = {service: Stubber(client) for service, client in clients.items()}

    def respond(service, operation, response):
        """With a text for the code of an error."""
        response = "AccessDeniedException" if service in denied else response
        if isinstance(response, str):
            stubs[service].add_client_error(operation, response, "no", 400)
        else:
            stubs[service].add_response(operation, response)

    respond("sts", "get_caller_identity", {"Account": "123456789012"})
    respond("ssm", "get_parameter", {"Parameter": {"Value": bootstrap}} if bootstrap else "ParameterNotFound")
    described = {"StackName": "s", "CreationTime": "2026-11-21", "StackStatus": status}
    described |= {"StackStatusReason": reason} if reason else {}
    respond("cloudformation", "describe_stacks", {"Stacks": [described]} if status else "ValidationError")
    limit = {"ConcurrentExecutions": quota, "UnreservedConcurrentExecutions": unreserved}
    respond("lambda", "get_account_settings", {"AccountLimit": limit})
    with ExitStack() as stack:
        for stub in stubs.values():
            stack.enter_context(stub)
        return look(environment, clients.__getitem__, qualifier="hnb659fds")


def test_what_is_missing_or_doubtful(clients):
    """Each in a sentence, with what there is instead, or with the way out. A stack that is yet to be made is new."""

    def answer(line):
        name, text = line.split(" ", 1)
        given = json.loads(text)
        found = look_at(clients, override(ENVIRONMENTS[name], given.pop("options", {})), **given)
        said = [f"missing: {sentence}" for sentence in found.missing] + [f"doubt: {each}" for each in found.doubts]
        return [f"{'new' if found.is_new else 'known'}: {', '.join(said) or 'fine'}"]

    assert_answers(Path(__file__).parent / "refused" / "account.txt", answer)


def test_the_command_ends_with_the_sentence(monkeypatch, capsys, tmp_path):
    """And prints no stack's name, which `make deploy` would go on with."""
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert main(["--environment", "dev"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("cannot be deployed: no usable AWS credentials and region (")
    assert main(["--environment", "staging"]) == 2
