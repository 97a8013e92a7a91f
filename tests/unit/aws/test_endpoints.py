"""Regions and endpoints, held to botocore's rules."""

from __future__ import annotations

import itertools

import boto3
import pytest
from botocore.endpoint_provider import EndpointProvider
from botocore.loaders import Loader

from hotpartition.aws.endpoints import Endpoint, find_dynamodb_endpoint, find_region
from hotpartition.errors import SettingsError

SDK = boto3.Session()
REGIONS = sorted({r for p in SDK.get_available_partitions() for r in SDK.get_available_regions("dynamodb", p)})


def test_every_region_is_reached_where_the_sdk_reaches_it():
    """All partitions, with and without IPv6 and FIPS."""
    loader = Loader()
    rules = loader.load_service_model("dynamodb", "endpoint-rule-set-1")
    provider = EndpointProvider(rules, loader.load_data("partitions"))
    assert len(REGIONS) > 30
    for region, has_ipv6, is_fips in itertools.product(REGIONS, (False, True), (False, True)):
        wanted = provider.resolve_endpoint(Region=region, UseDualStack=has_ipv6, UseFIPS=is_fips).url
        variables = {
            "AWS_USE_DUALSTACK_ENDPOINT": str(has_ipv6).lower(),
            "AWS_USE_FIPS_ENDPOINT": str(is_fips).lower(),
        }
        found = find_dynamodb_endpoint(variables, region)
        assert f"https://{found.host}" == wanted
        assert found == Endpoint(is_tls=True, host=found.host, port=443, path="/", header=found.host)


@pytest.mark.parametrize(
    ("address", "endpoint"),
    [
        ("http://127.0.0.1:8000", Endpoint(False, "127.0.0.1", 8000, "/", "127.0.0.1:8000")),
        ("http://localhost:80/", Endpoint(False, "localhost", 80, "/", "localhost")),
        ("https://vpce-1.ddb.example:443/x", Endpoint(True, "vpce-1.ddb.example", 443, "/x", "vpce-1.ddb.example")),
        ("https://[::1]:8443", Endpoint(True, "::1", 8443, "/", "[::1]:8443")),
    ],
)
def test_an_address_can_be_named(address, endpoint):
    """The default port is left out of the header, as the signature's rules want it."""
    assert find_dynamodb_endpoint({"AWS_ENDPOINT_URL_DYNAMODB": address}, "eu-west-1") == endpoint


def test_the_services_own_address_comes_first():
    """Then the one for all services; both can be switched off."""
    variables = {"AWS_ENDPOINT_URL": "http://all:1"}
    assert find_dynamodb_endpoint(variables, "eu-west-1").host == "all"
    variables["AWS_ENDPOINT_URL_DYNAMODB"] = "http://own:1"
    assert find_dynamodb_endpoint(variables, "eu-west-1").host == "own"
    variables["AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"] = "true"
    assert find_dynamodb_endpoint(variables, "eu-west-1").host == "dynamodb.eu-west-1.amazonaws.com"


@pytest.mark.parametrize(
    "address", ["127.0.0.1:8000", "ftp://x", "http://", "http://h:port", "http://h?x=1", "http://é"]
)
def test_what_is_no_address_is_named(address):
    """With its variable."""
    with pytest.raises(SettingsError, match="AWS_ENDPOINT_URL_DYNAMODB should be an address"):
        find_dynamodb_endpoint({"AWS_ENDPOINT_URL_DYNAMODB": address}, "eu-west-1")


def test_the_region_comes_from_the_variables(monkeypatch):
    """Those of Lambda, then boto3's, then nowhere."""
    assert find_region({"AWS_REGION": "eu-west-1"}) == "eu-west-1"
    assert find_region({"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-west-2"}) == "eu-west-2"
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", boto3.Session(region_name="eu-west-3"))
    assert find_region({}) == "eu-west-3"
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    with pytest.raises(SettingsError, match="AWS_REGION is missing"):
        find_region({})
