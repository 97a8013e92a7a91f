"""What AWS's variables say: the region, DynamoDB's address, and whom to trust."""

import ssl
from pathlib import Path

import botocore
import pytest

from hotpartition.core.access import Certificates
from hotpartition.core.errors import SettingsError
from hotpartition.runtime.environment import find_certificates, find_dynamodb_endpoint, find_region

CONFIGURED = "https://dynamodb.cn-north-1.amazonaws.com.cn"


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:8000", "http://localhost:80/", "https://vpce-1.ddb.example:443/x", "https://[::1]:8443"],
)
def test_an_address_can_be_named(address):
    assert find_dynamodb_endpoint({"AWS_ENDPOINT_URL_DYNAMODB": address}, CONFIGURED, "eu-west-1") == address


def test_the_services_own_address_comes_first():
    """Then the one for all services, then the configured one; both variables can be switched off."""
    variables = {"AWS_ENDPOINT_URL": "http://all:1"}
    assert find_dynamodb_endpoint(variables, CONFIGURED, "eu-west-1") == "http://all:1"
    variables["AWS_ENDPOINT_URL_DYNAMODB"] = "http://own:1"
    assert find_dynamodb_endpoint(variables, CONFIGURED, "eu-west-1") == "http://own:1"
    variables["AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"] = "true"
    assert find_dynamodb_endpoint(variables, CONFIGURED, "eu-west-1") == CONFIGURED


def test_without_any_address_it_is_the_regions():
    """With TLS: nothing is sent in clear unless an address says so."""
    assert find_dynamodb_endpoint({}, "", "eu-west-1") == "https://dynamodb.eu-west-1.amazonaws.com"


@pytest.mark.parametrize(
    "address", ["127.0.0.1:8000", "ftp://x", "http://", "http://h:port", "http://h?x=1", "http://é"]
)
def test_what_is_no_address_is_named(address):
    with pytest.raises(SettingsError, match="AWS_ENDPOINT_URL_DYNAMODB should be an address"):
        find_dynamodb_endpoint({"AWS_ENDPOINT_URL_DYNAMODB": address}, "", "eu-west-1")
    with pytest.raises(SettingsError, match="dynamodb_endpoint should be an address"):
        find_dynamodb_endpoint({}, address, "eu-west-1")


def test_the_region_comes_from_the_variables(monkeypatch, tmp_path):
    """Those of Lambda, then a profile's, then nowhere."""
    assert find_region({"AWS_REGION": "eu-west-1"}) == "eu-west-1"
    assert find_region({"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-west-2"}) == "eu-west-2"
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "config").write_text("[default]\nregion = eu-west-3\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    assert find_region({}) == "eu-west-3"
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    with pytest.raises(SettingsError, match="AWS_REGION is missing"):
        find_region({})


class TestCertificates:
    """Who may vouch for a server."""

    def test_a_bundle_can_be_named(self):
        """Nothing is trusted beside it."""
        assert find_certificates({"AWS_CA_BUNDLE": "/own.pem"}) == Certificates(file="/own.pem")

    def test_a_machines_own_certificates_are_enough(self, monkeypatch, tmp_path):
        """As one file, or as a folder of them."""
        bundle = tmp_path / "ca.pem"
        bundle.touch()
        monkeypatch.setenv("SSL_CERT_DIR", "/nonexistent")
        monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
        assert find_certificates({}) == Certificates(file=str(bundle))
        monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent")
        monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
        (tmp_path / "0123abcd.0").touch()
        assert find_certificates({}) == Certificates(folder=str(tmp_path))

    @pytest.mark.parametrize("folder", ["", "empty"])
    def test_a_machine_without_certificates_takes_those_of_the_sdk(self, monkeypatch, tmp_path, folder):
        """Without them nobody could be trusted."""
        monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent")
        monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path) if folder else "/nonexistent")
        found = find_certificates({})
        assert found == Certificates(file=str(Path(botocore.__file__).with_name("cacert.pem")))
        assert ssl.create_default_context(cafile=found.file).cert_store_stats()["x509_ca"] > 50
