"""How a function's settings become a connection that says who it is."""

import ast
from pathlib import Path

import pytest

from hotpartition.core.access import Certificates
from hotpartition.core.keys import KeyForm
from hotpartition.redis.logins import IamCredentials, PasswordFile
from hotpartition.runtime.build import Ends, build_engine
from hotpartition.runtime.build_control import build_consumer
from hotpartition.runtime.clocks import ElapsedTime
from hotpartition.runtime.connect import connect_redis, find_redis_certificates
from hotpartition.runtime.settings import Settings
from support.builders import World
from support.fakes import FakeClock, FakeTelemetry

HERE = {"registry_host": "cache.example"}


def connect(telemetry=None, **values):
    return connect_redis(Settings.defaults("write", **HERE, **values), telemetry or FakeTelemetry(), "routes")


@pytest.fixture(autouse=True)
def _own_credentials(monkeypatch):
    """What Lambda hands a function."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ASIAOWN")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "own")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")


def test_iam_signs_for_the_named_cache_and_user():
    """With the function's own credentials, in its own region."""
    connection = connect(registry_authentication="iam", registry_user="functions", registry_cache_name="Registry")
    provider = connection._options["credential_provider"]
    assert isinstance(provider, IamCredentials)
    user, token = provider.get_credentials()
    assert user == "functions"
    assert token.startswith("registry/?Action=connect&User=functions&")
    assert "X-Amz-Credential=ASIAOWN%2F" in token
    assert "%2Feu-west-1%2Felasticache%2F" in token
    assert "X-Amz-Security-Token=session" in token


def test_a_password_comes_from_the_named_file(tmp_path):
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


@pytest.mark.parametrize(("is_patient", "limits"), [(False, (0.5, 0.03)), (True, (2.0, 1.0))])
def test_a_request_waits_for_less_than_the_consumer(is_patient, limits):
    """TLS and IAM may take hundreds of ms. Larger settings are for all."""
    settings = Settings.defaults("write", **HERE)
    options = connect_redis(settings, FakeTelemetry(), "routes", is_patient=is_patient)._options
    assert (options["socket_connect_timeout"], options["socket_timeout"]) == limits
    settings = Settings.defaults("write", **HERE, registry_connect_timeout_ms=3_000, registry_command_timeout_ms=1_500)
    options = connect_redis(settings, FakeTelemetry(), "routes", is_patient=is_patient)._options
    assert (options["socket_connect_timeout"], options["socket_timeout"]) == (3.0, 1.5)


@pytest.mark.parametrize(
    ("values", "trusted"),
    [
        ({}, Certificates(file="/all.pem")),
        ({"registry_ca_file": "/own.pem"}, Certificates(file="/own.pem")),
        ({"registry_tls": False}, Certificates()),
    ],
)
def test_redis_and_dynamodb_trust_the_same(monkeypatch, values, trusted):
    """Unless a file is named for Redis."""
    monkeypatch.setenv("AWS_CA_BUNDLE", "/all.pem")
    assert find_redis_certificates(Settings.defaults("write", **HERE, **values)) == trusted


def test_a_refusal_is_an_event_with_what_an_operator_needs():
    """Who is refused, for what, and why."""
    telemetry = FakeTelemetry()
    connect(telemetry, registry_user="functions")._on_refusal("Redis refused: no")
    facts = {"reason": "Redis refused: no", "user": "functions", "purpose": "routes"}
    assert telemetry.events == [("registry refuses this function", facts)]


def test_elapsed_time_goes_on_while_the_environment_is_frozen():
    """By the larger step of both clocks: one that is set back, or that stops, takes nothing."""
    now = {"monotonic": 10.0, "wall": 1_000.0}
    timer = ElapsedTime(lambda: now["monotonic"], lambda: now["wall"])
    seen = []
    for monotonic, wall in ((11.0, 1_001.0), (11.0, 1_061.0), (12.0, 900.0), (13.0, 901.0), (13.0, 901.0)):
        now.update(monotonic=monotonic, wall=wall)
        seen.append(timer())
    assert seen == [1.0, 61.0, 62.0, 63.0, 63.0]


@pytest.mark.parametrize("has_positions", [True, False])
def test_the_consumer_closes_only_where_positions_are_times(has_positions):
    settings = Settings.defaults("consumer", has_positions=has_positions)
    assert (build_consumer(World().control_ends(), settings)._cooling is not None) == has_positions


@pytest.mark.parametrize("is_raising", [True, False])
def test_writers_raise_in_band_only_where_the_settings_let_them(is_raising):
    ends = Ends(telemetry=FakeTelemetry(), clock=FakeClock().as_clock(), journal=object(), loads=object())
    settings = Settings.defaults("in_band()", is_raising=is_raising)
    assert build_engine(ends, settings, form=KeyForm()).writer._counting._is_raising == is_raising


PRODUCT = ("layers", "lambdas", "hotpartition_cdk", "hotpartition_cli", "infra")
ENGINE = {
    "Gatherer",
    "InBandCounting",
    "JournalRoutes",
    "Leases",
    "ReadCache",
    "RegistryRoutes",
    "ReportedWrites",
    "Writer",
}


def test_engines_are_built_in_one_place():
    """Everything else gets one; only caches of values are built apart, by `build_cache.py`."""
    calls = {
        (path.name, node.func.id)
        for folder in PRODUCT
        for path in Path(__file__).parents[3].joinpath(folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert {path for path, name in calls if name in ENGINE} == {"build.py", "build_cache.py"}
