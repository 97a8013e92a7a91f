"""How a function's settings become a connection that says who it is."""

import pytest

from hotpartition.redis.credentials import IamCredentials, PasswordFile
from hotpartition.runtime.settings import WriterSettings
from hotpartition.runtime.wiring import connect_redis
from support.fakes import FakeTelemetry

HERE = {"table_name": "t", "registry_host": "cache.example"}


def connect(telemetry=None, **values):
    return connect_redis(WriterSettings(**HERE, **values), telemetry or FakeTelemetry(), "routes")


@pytest.fixture(autouse=True)
def _own_credentials(monkeypatch):
    """What Lambda hands a function."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ASIAOWN")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "own")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")


def test_iam_signs_for_the_named_cache_and_user():
    """In the function's own region."""
    connection = connect(registry_authentication="iam", registry_user="functions", registry_cache_name="Registry")
    provider = connection._options["credential_provider"]
    assert isinstance(provider, IamCredentials)
    user, token = provider.get_credentials()
    assert user == "functions"
    assert token.startswith("registry/?Action=connect&User=functions&")
    assert "%2Feu-west-1%2Felasticache%2F" in token


def test_a_password_comes_from_the_named_file(tmp_path):
    """As the user that is named."""
    (tmp_path / "password").write_text("secret\n")
    connection = connect(
        registry_authentication="password", registry_user="u", registry_password_file=str(tmp_path / "password")
    )
    provider = connection._options["credential_provider"]
    assert isinstance(provider, PasswordFile)
    assert provider.get_credentials() == ("u", "secret")


def test_without_authentication_nothing_is_said():
    """As a registry without users wants it."""
    assert connect()._options["credential_provider"] is None


def test_every_connection_authenticates_for_itself():
    """They run on several threads, and a provider is for one."""
    values = {"registry_authentication": "iam", "registry_user": "u", "registry_cache_name": "c"}
    first, second = (connect(**values)._options["credential_provider"] for _ in range(2))
    assert first is not second


def test_a_refusal_is_an_event_with_what_an_operator_needs():
    """Who is refused, for what, and why."""
    telemetry = FakeTelemetry()
    connect(telemetry, registry_user="functions")._on_refusal("Redis refused: no")
    facts = {"reason": "Redis refused: no", "user": "functions", "purpose": "routes"}
    assert telemetry.events == [("registry refuses this function", facts)]
