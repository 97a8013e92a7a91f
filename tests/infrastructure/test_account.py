"""What a deployment needs of an account is said in a sentence before it begins; with botocore's stubs."""

from contextlib import ExitStack
from unittest.mock import MagicMock

import boto3
import pytest
from botocore.stub import Stubber

from hotpartition_cdk.options import override
from infra.account import Findings, look, main, remove_what_is_left
from infra.environments import DEV, LITE, PROD

PLACE = "aws://123456789012/eu-central-1"
SERVICES = ("sts", "ssm", "cloudformation", "lambda")
STACK = "hotpartition-prod"


@pytest.fixture(scope="module")
def clients():
    """A client of each service: to make them takes longer than all the tests."""
    session = boto3.Session("testing", "testing", region_name="eu-central-1")
    clients = {service: session.client(service) for service in SERVICES}
    yield clients
    for client in clients.values():
        client.close()


@pytest.fixture
def look_at(clients):
    """Looks at an account that has everything, but for what is said."""

    def look_at(environment=PROD, *, bootstrap="21", quota=1_000, unreserved=1_000, status=None, left=(), denied=()):
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
        respond("cloudformation", "describe_stacks", {"Stacks": [described]} if status else "ValidationError")
        if left:
            names = ("ResourceType", "LogicalResourceId", "PhysicalResourceId", "ResourceStatus")
            resources = [dict(zip(names, each, strict=True), LastUpdatedTimestamp="2026-11-21") for each in left]
            respond("cloudformation", "list_stack_resources", {"StackResourceSummaries": resources})
        limit = {"ConcurrentExecutions": quota, "UnreservedConcurrentExecutions": unreserved}
        respond("lambda", "get_account_settings", {"AccountLimit": limit})
        with ExitStack() as stack:
            for stub in stubs.values():
                stack.enter_context(stub)
            return look(environment, clients.__getitem__, qualifier="hnb659fds")

    return look_at


@pytest.mark.parametrize("environment", [DEV, PROD, LITE], ids=lambda environment: environment.name)
@pytest.mark.parametrize(("status", "is_new"), [(None, True), ("REVIEW_IN_PROGRESS", True), ("UPDATE_COMPLETE", False)])
def test_an_account_that_has_everything(look_at, environment, status, is_new):
    """Nothing is missing or doubtful. A stack is deployed without protection until it was created."""
    assert look_at(environment, status=status) == Findings(is_new=is_new)


RESERVES = "prod reserves a concurrency of 4, of which Lambda has {} unreserved here (quota {}){}"
BOOTSTRAP = f"run `npx cdk bootstrap {PLACE}`"
ELSEWHERE = {"account": "210987654321", "region": "eu-central-1"}
FAR = {"account": "123456789012", "region": "eu-west-1"}
SUBNET = ("AWS::EC2::Subnet", "subnet-1", "subnet-1", "DELETE_FAILED")
KEPT = ("AWS::DynamoDB::Table", "messages", "messages", "DELETE_SKIPPED")


@pytest.mark.parametrize(
    ("environment", "has", "missing", "doubts"),
    [
        # A new account's concurrency may be 10, of which nothing can be reserved.
        (DEV, {"quota": 10, "unreserved": 10}, [], []),
        (PROD, {"quota": 10, "unreserved": 10}, [RESERVES.format(10, 10, ", and must leave 10 at least")], []),
        (PROD, {"unreserved": 13}, [RESERVES.format(13, 1000, ", and must leave 10 at least")], []),
        # Between 10 and 100 only Lambda knows.
        (PROD, {"unreserved": 14}, [], [RESERVES.format(14, 1000, ": in some accounts 100 must be left")]),
        (PROD, {"unreserved": 103}, [], ["reserve none for writer and reader"]),
        (PROD, {"unreserved": 104}, [], []),
        # A stack that exists has its reservation, among what the account has reserved already.
        (PROD, {"unreserved": 100, "status": "UPDATE_COMPLETE"}, [], []),
        (DEV, {"bootstrap": ""}, [f"{PLACE} is not bootstrapped: {BOOTSTRAP}"], []),
        (DEV, {"bootstrap": "5"}, [f"the bootstrap stack of {PLACE} has version 5, 6 is needed: {BOOTSTRAP}"], []),
        # Another place ends the look, and so do credentials that are missing.
        (override(PROD, ELSEWHERE), {"bootstrap": ""}, ["of account 123456789012, and prod belongs into 21098765"], []),
        (override(PROD, FAR), {"bootstrap": ""}, ["of region eu-central-1, and prod belongs into eu-west-1"], []),
        (DEV, {"denied": ("sts",), "bootstrap": ""}, ["sign in, and set AWS_REGION"], []),
        # Who may deploy need not be allowed to look.
        (PROD, {"denied": ("ssm", "cloudformation")}, [], ["the bootstrap stack could not be", "the stack could not"]),
        (PROD, {"status": "UPDATE_IN_PROGRESS"}, ["is in UPDATE_IN_PROGRESS: wait until that has ended"], []),
        (PROD, {"status": "UPDATE_ROLLBACK_FAILED"}, [f"continue-update-rollback --stack-name {STACK}`"], []),
        # A deletion that failed says nothing of the table, which it kept: it holds messages.
        (PROD, {"status": "DELETE_FAILED", "left": [KEPT, SUBNET]}, ["left subnet-1 (AWS::EC2::Subnet) behind"], []),
    ],
)
def test_what_is_missing(look_at, environment, has, missing, doubts):
    """Each in a sentence, with what there is instead, or with the way out; what may be missing is a doubt."""
    found = look_at(environment, **has)
    for sentences, parts in ((found.missing, missing), (found.doubts, doubts)):
        assert [part in sentence for sentence, part in zip(sentences, parts, strict=True)] == [True] * len(parts)


LEFT = [
    ("AWS::DynamoDB::Table", "Table", "messages", "CREATE_COMPLETE"),
    ("AWS::Logs::LogGroup", "Log", "log", "CREATE_COMPLETE"),
    ("AWS::Lambda::Function", "Gone", "gone", "DELETE_COMPLETE"),
]


def test_a_failed_creation_names_what_it_left_and_how_to_remove_it(look_at):
    """Where nothing is left, `cdk deploy` deletes the stack and goes on."""
    (sentence,) = look_at(status="ROLLBACK_COMPLETE", left=LEFT).missing
    assert sentence == (
        f"stack {STACK} is in ROLLBACK_COMPLETE, and left messages (AWS::DynamoDB::Table), log (AWS::Logs::LogGroup)"
        " behind; if nothing of that is wanted, `python -m infra.account --remove` with the same --environment removes"
        " it, and the stack"
    )
    assert look_at(status="ROLLBACK_COMPLETE", left=LEFT[2:]) == Findings(is_new=True)


def test_what_is_left_is_removed_and_a_stack_that_stands_is_not():
    """Protection first, then what stands outside of the stack's deletion, data last, then the stack."""
    calls = []

    def removed(status):
        names = ("ResourceType", "LogicalResourceId", "PhysicalResourceId", "ResourceStatus")
        resources = [dict(zip(names, each, strict=True)) for each in LEFT]
        client = MagicMock()
        client.describe_stacks.return_value = {"Stacks": [{"StackStatus": status}]}
        client.get_paginator.return_value.paginate.return_value = [{"StackResourceSummaries": resources}]
        said = remove_what_is_left(lambda _: client, STACK)
        calls[:] = [name for name, _, _ in client.method_calls if name.startswith(("delete", "update"))]
        return said

    assert removed("ROLLBACK_COMPLETE") == f"removed: messages, log, stack {STACK}"
    protection = ["update_termination_protection", "delete_log_group", "update_table", "delete_table", "delete_stack"]
    assert calls == protection
    assert removed("UPDATE_COMPLETE").endswith("nothing removed")
    assert calls == []


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
