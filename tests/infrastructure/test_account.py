"""What a deployment needs of an account is said in a sentence before it begins; with botocore's stubs."""

from contextlib import ExitStack

import boto3
import pytest
from botocore.stub import Stubber

from infra.account import look, main
from infra.environments import DEV, LITE, PROD

PLACE = "aws://123456789012/eu-central-1"
ZONES = ("eu-central-1a", "eu-central-1b", "eu-central-1c")
SERVICES = ("sts", "ssm", "cloudformation", "lambda", "ec2", "elasticache")


class Account:
    """An account that has everything, until a test says otherwise."""

    def __init__(self, clients):
        self.clients = clients
        self.bootstrap = "21"
        self.quota, self.unreserved = 1_000, 1_000
        self.zones = ZONES
        self.versions = [{"Engine": "valkey", "EngineVersion": "9.0"}]
        self.offerings = [{"ReservedCacheNodesOfferingId": "x"}]
        self.exists = False
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
        described = {"StackName": "s", "CreationTime": "2026-11-21", "StackStatus": "CREATE_COMPLETE"}
        respond(
            "cloudformation", "describe_stacks", {"Stacks": [described]}, None if self.exists else "ValidationError"
        )
        limit = {"ConcurrentExecutions": self.quota, "UnreservedConcurrentExecutions": self.unreserved}
        respond("lambda", "get_account_settings", {"AccountLimit": limit})
        zones = [{"ZoneName": zone, "State": "available"} for zone in self.zones]
        respond("ec2", "describe_availability_zones", {"AvailabilityZones": zones})
        respond("elasticache", "describe_cache_engine_versions", {"CacheEngineVersions": self.versions})
        offerings = {"ReservedCacheNodesOfferings": self.offerings}
        respond("elasticache", "describe_reserved_cache_nodes_offerings", offerings)
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
def test_an_account_that_has_everything_is_told_nothing(account, environment):
    """Neither missing nor doubtful."""
    findings = account.look(environment)
    assert (findings.missing, findings.doubts) == ([], [])


def test_a_new_account_takes_dev_and_not_prod(account):
    """Its concurrency may be 10, of which nothing can be reserved; dev reserves none."""
    account.quota = account.unreserved = 10
    assert account.look(DEV).missing == []
    (sentence,) = account.look(PROD).missing
    assert "reserves a concurrency of 4, of which Lambda has 10 unreserved here (quota 10)" in sentence
    assert "set consumer_concurrency to 0" in sentence


@pytest.mark.parametrize(("unreserved", "missing", "doubts"), [(13, 1, 0), (14, 0, 1), (103, 0, 1), (104, 0, 0)])
def test_what_must_be_left_unreserved_differs_by_account(account, unreserved, missing, doubts):
    """Less than 10 never is; from 10 to 99 only Lambda knows."""
    account.unreserved = unreserved
    findings = account.look(PROD)
    assert (len(findings.missing), len(findings.doubts)) == (missing, doubts)


def test_a_stack_that_exists_has_its_reservation(account):
    """It is among what the account has reserved already."""
    account.unreserved, account.exists = 100, True
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
    account.versions, account.offerings = [], []
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
        "Lambda's concurrency",
        "the availability zones",
        "ElastiCache's offer",
    ]


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
