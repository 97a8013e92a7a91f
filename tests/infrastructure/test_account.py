"""What a deployment needs of an account is said in a sentence before it begins; with botocore's stubs."""

from contextlib import ExitStack

import boto3
import pytest
from botocore.stub import Stubber

from infra.account import look, main
from infra.environments import DEV, LITE, PROD

PLACE = "aws://123456789012/eu-central-1"
ZONES = ("eu-central-1a", "eu-central-1b", "eu-central-1c")
SERVICES = ("sts", "ssm", "cloudformation", "lambda", "ec2", "elasticache", "service-quotas")
STACK = "hotpartition-prod"


class Account:
    """An account that has everything, until a test says otherwise."""

    def __init__(self, clients):
        self.clients = clients
        self.bootstrap = "21"
        self.quota, self.unreserved = 1_000, 1_000
        self.zones = ZONES
        self.family = "valkey9"
        self.offerings = [{"ReservedCacheNodesOfferingId": "x"}]
        self.status = None
        self.left = []
        self.vpcs, self.vpc_quota = 1, 5
        self.users = ["default"]
        self.denied = ()

    def client(self, service):
        return self.clients[service]

    def look(self, environment):
        stubs = {service: Stubber(client) for service, client in self.clients.items()}

        def respond(service, operation, response, code=None):
            if service in self.denied:
                stubs[service].add_client_error(operation, "AccessDeniedException", "no", 400)
            elif code:
                stubs[service].add_client_error(operation, code, "no", 400)
            else:
                stubs[service].add_response(operation, response)

        respond("sts", "get_caller_identity", {"Account": "123456789012"})
        found = {"Parameter": {"Value": self.bootstrap}}
        respond("ssm", "get_parameter", found, None if self.bootstrap else "ParameterNotFound")
        described = {"StackName": "s", "CreationTime": "2026-11-21", "StackStatus": self.status or ""}
        respond(
            "cloudformation", "describe_stacks", {"Stacks": [described]}, None if self.status else "ValidationError"
        )
        if self.left:
            left = [
                {
                    "LogicalResourceId": id_,
                    "PhysicalResourceId": id_,
                    "ResourceType": type_,
                    "ResourceStatus": status,
                    "LastUpdatedTimestamp": "2026-11-21",
                }
                for type_, id_, status in self.left
            ]
            respond("cloudformation", "list_stack_resources", {"StackResourceSummaries": left})
        limit = {"ConcurrentExecutions": self.quota, "UnreservedConcurrentExecutions": self.unreserved}
        respond("lambda", "get_account_settings", {"AccountLimit": limit})
        zones = [{"ZoneName": zone, "State": "available"} for zone in self.zones]
        respond("ec2", "describe_availability_zones", {"AvailabilityZones": zones})
        respond("ec2", "describe_vpcs", {"Vpcs": [{"VpcId": f"vpc-{number}"} for number in range(self.vpcs)]})
        respond("service-quotas", "get_service_quota", {"Quota": {"Value": float(self.vpc_quota)}})
        version = {"Engine": "valkey", "EngineVersion": "9.0", "CacheParameterGroupFamily": self.family}
        versions = {"CacheEngineVersions": [version] if self.family else []}
        respond("elasticache", "describe_cache_engine_versions", versions)
        offerings = {"ReservedCacheNodesOfferings": self.offerings}
        respond("elasticache", "describe_reserved_cache_nodes_offerings", offerings)
        respond("elasticache", "describe_users", {"Users": [{"UserId": user} for user in self.users]})
        with ExitStack() as stack:
            for stub in stubs.values():
                stack.enter_context(stub)
            return look(environment, self.client, qualifier="hnb659fds")


@pytest.fixture(scope="module")
def clients():
    """A client of each service: to make them takes longer than all the tests."""
    session = boto3.Session("testing", "testing", region_name="eu-central-1")
    clients = {service: session.client(service) for service in SERVICES}
    yield clients
    for client in clients.values():
        client.close()


@pytest.fixture
def account(clients):
    return Account(clients)


@pytest.mark.parametrize("environment", [DEV, PROD, LITE], ids=lambda environment: environment.name)
@pytest.mark.parametrize(("status", "is_new"), [(None, True), ("REVIEW_IN_PROGRESS", True), ("UPDATE_COMPLETE", False)])
def test_an_account_that_has_everything_is_told_nothing(account, environment, status, is_new):
    """Neither missing nor doubtful. A stack is deployed without protection until it was created."""
    account.status = status
    findings = account.look(environment)
    assert (findings.missing, findings.doubts, findings.is_new) == ([], [], is_new)


def test_a_new_account_takes_dev_and_not_prod(account):
    """Its concurrency may be 10, of which nothing can be reserved; dev reserves none."""
    account.quota = account.unreserved = 10
    assert account.look(DEV).missing == []
    (sentence,) = account.look(PROD).missing
    assert "prod reserves a concurrency of 4, of which Lambda has 10 unreserved here (quota 10)" in sentence
    assert "set consumer_concurrency to 0" in sentence


@pytest.mark.parametrize(("unreserved", "missing", "doubts"), [(13, 1, 0), (14, 0, 1), (103, 0, 1), (104, 0, 0)])
def test_what_must_be_left_unreserved_differs_by_account(account, unreserved, missing, doubts):
    """Less than 10 never is; from 10 to 99 only Lambda knows."""
    account.unreserved = unreserved
    findings = account.look(PROD)
    assert (len(findings.missing), len(findings.doubts)) == (missing, doubts)


def test_a_stack_that_exists_has_its_reservation(account):
    """It is among what the account has reserved already."""
    account.unreserved, account.status = 100, "UPDATE_COMPLETE"
    assert account.look(PROD).missing == account.look(PROD).doubts == []


@pytest.mark.parametrize(("version", "sentence"), [("", "is not bootstrapped"), ("5", "has version 5, 6 is needed")])
def test_a_missing_or_old_bootstrap_names_the_command(account, version, sentence):
    """For this account and region."""
    account.bootstrap = version
    (found,) = account.look(DEV).missing
    assert sentence in found
    assert found.endswith(f"run `npx cdk bootstrap {PLACE}`")


def test_zones_that_the_account_does_not_have_are_named(account):
    """With those that it has."""
    network = PROD.network.model_copy(update={"availability_zones": ("eu-central-1a", "eu-central-1z")})
    (found,) = account.look(PROD.model_copy(update={"network": network})).missing
    assert found == (
        "network.availability_zones names eu-central-1z, and this account has"
        " eu-central-1a, eu-central-1b, eu-central-1c here"
    )
    account.zones = ZONES[:1]
    assert account.look(DEV).missing == ["this account has 1 availability zones here, and 2 are needed"]


def test_a_region_without_the_engine_or_the_nodes_is_said(account):
    """The engine is missing; the node type may only have no reservations. A stack without Redis needs neither."""
    account.family, account.offerings = None, []
    assert account.look(LITE).missing == account.look(LITE).doubts == []
    findings = account.look(DEV)
    assert findings.missing == ["ElastiCache has no Valkey 9.0 in this region"]
    assert findings.doubts == ["ElastiCache may not have cache.t4g.micro in this region (registry.node_type)"]


def test_what_may_not_be_looked_at_is_a_doubt(account):
    """Who may deploy need not be allowed to look."""
    account.denied = ("ssm", "cloudformation", "ec2", "elasticache")
    findings = account.look(PROD)
    assert findings.missing == []
    assert [doubt.partition(" could not be looked at (")[0] for doubt in findings.doubts] == [
        "the bootstrap stack",
        "the stack",
        "the availability zones",
        "ElastiCache's offer",
    ]


def test_another_account_or_region_ends_the_look(account):
    """Before anything else is asked."""
    environment = PROD.model_copy(update={"account": "210987654321", "region": "eu-central-1"})
    assert account.look(environment).missing == [
        "the credentials are of account 123456789012, and prod belongs into 210987654321 (option account)"
    ]
    environment = PROD.model_copy(update={"account": "123456789012", "region": "eu-west-1"})
    assert account.look(environment).missing == [
        "the credentials are of region eu-central-1, and prod belongs into eu-west-1 (option region)"
    ]


def test_a_failed_creation_names_what_it_left_and_how_to_remove_it(account):
    """Protection first, then what stands outside of the stack's deletion, then the stack."""
    account.status = "ROLLBACK_COMPLETE"
    account.left = [
        ("AWS::DynamoDB::Table", "messages", "CREATE_COMPLETE"),
        ("AWS::Logs::LogGroup", "log", "CREATE_COMPLETE"),
        ("AWS::Lambda::Function", "gone", "DELETE_COMPLETE"),
    ]
    (sentence,) = account.look(PROD).missing
    first, *commands = sentence.split("\n  ")
    assert first == (
        f"stack {STACK} is in ROLLBACK_COMPLETE, and left messages (AWS::DynamoDB::Table), log (AWS::Logs::LogGroup)"
        " behind; if nothing of that is wanted, these remove it:"
    )
    assert commands == [
        f"aws cloudformation update-termination-protection --no-enable-termination-protection --stack-name {STACK}",
        "aws dynamodb update-table --table-name messages --no-deletion-protection-enabled",
        "aws dynamodb delete-table --table-name messages",
        "aws logs delete-log-group --log-group-name log",
        f"aws cloudformation delete-stack --stack-name {STACK}",
        f"aws cloudformation wait stack-delete-complete --stack-name {STACK}",
    ]


def test_what_a_deleted_stack_kept_is_not_removed(account):
    """A deletion that failed says nothing of the table, which holds messages."""
    account.status = "DELETE_FAILED"
    account.left = [
        ("AWS::DynamoDB::Table", "messages", "DELETE_SKIPPED"),
        ("AWS::EC2::Subnet", "subnet-1", "DELETE_FAILED"),
    ]
    (sentence,) = account.look(PROD).missing
    assert "left subnet-1 (AWS::EC2::Subnet) behind" in sentence
    assert "messages" not in sentence


@pytest.mark.parametrize(
    ("status", "end"),
    [
        ("UPDATE_IN_PROGRESS", "wait until that has ended"),
        ("UPDATE_ROLLBACK_FAILED", f"`aws cloudformation continue-update-rollback --stack-name {STACK}`"),
    ],
)
def test_a_stack_that_cannot_be_updated_now_is_said(account, status, end):
    """With what to do."""
    account.status = status
    (sentence,) = account.look(PROD).missing
    assert sentence.startswith(f"stack {STACK} is in {status}: ")
    assert sentence.endswith(end)


def test_what_creation_would_find_after_minutes_is_said_before(account):
    """The family of parameter groups, the quota of VPCs, and Redis users that an earlier stack left."""
    account.family, account.vpcs = "valkey10", 5
    account.users = ["default", "hotpartition-prod-b35a-writer", "hotpartition-production-b35a-writer"]
    family, vpcs, users = account.look(PROD).missing
    assert family.startswith("Valkey 9.0 takes parameter groups of the family valkey10 in this region, and the stack's")
    assert vpcs.startswith("this account has 5 VPCs here, as many as its quota allows")
    assert users.startswith("ElastiCache has users of an earlier hotpartition-prod: hotpartition-prod-b35a-writer;")
    account.family, account.users, account.vpc_quota = "valkey9", [], 6
    assert account.look(PROD).missing == []


def test_without_credentials_nothing_else_is_tried(account):
    """One sentence."""
    account.denied = ("sts",)
    findings = account.look(DEV)
    assert len(findings.missing) == 1
    assert "sign in, and set AWS_REGION" in findings.missing[0]
    assert findings.doubts == []


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
