"""Settings: read once, typed, in range, and every wrong one named; and how they become connections and engines.

Much of it is about timeouts of connections, certificates and clocks, which have no file of their own.
"""

import ast
import random
from contextlib import nullcontext
from pathlib import Path

import pytest

from hotpartition.core.access import Certificates
from hotpartition.core.errors import SettingsError
from hotpartition.redis.logins import IamCredentials, PasswordFile
from hotpartition.runtime.build_control import build_consumer
from hotpartition.runtime.clocks import ElapsedTime, system_clock
from hotpartition.runtime.connect import connect_redis, find_redis_certificates
from hotpartition.runtime.declaring import variable_name
from hotpartition.runtime.settings import Settings, is_in_band, name_of
from hotpartition.table import in_band
from hotpartition_messages.settings import FUNCTIONS, IN_BAND_FUNCTIONS, MessageSettings
from support.builders import World
from support.fakes import FakeTelemetry

IAM, PASSWORD = {"REGISTRY_AUTHENTICATION": "iam"}, {"REGISTRY_AUTHENTICATION": "password"}
REQUIRED = {"HOTPARTITION_TABLE_NAME": "t", "HOTPARTITION_REGISTRY_HOST": "h"}
ALL = (*FUNCTIONS, *IN_BAND_FUNCTIONS, "adaptive()", "in_band()")


@pytest.mark.parametrize("function", ALL)
def test_defaults_are_within_their_own_ranges(function):
    """What is not set has a value that would be accepted if it were. Each is described, a number with both bounds."""
    declared = MessageSettings.declared(function)
    spelled = {variable_name(name): str(setting.default) for name, setting in declared.items()}
    assert MessageSettings.from_env(spelled | REQUIRED, function) == MessageSettings.from_env(REQUIRED, function)
    for setting in declared.values():
        assert setting.description.endswith(".")
        assert "number" not in setting.allowed or "between" in setting.allowed


def test_a_function_has_its_own_settings_only():
    """Another one's are neither read nor there: a job that asks for one is wired wrongly."""
    settings = MessageSettings.from_env(REQUIRED | {"HOTPARTITION_RUN_SECONDS": "soon"}, "write")
    with pytest.raises(AttributeError, match="run_seconds is not a setting of write"):
        _ = settings.run_seconds
    with pytest.raises(SettingsError, match="HOTPARTITION_RUN_SECONDS is unknown; allowed are"):
        MessageSettings.defaults("write", run_seconds=5)


@pytest.mark.parametrize(("environ", "name"), [({}, "in-band write"), ({"HOTPARTITION_REGISTRY_PORT": "1"}, "write")])
def test_a_function_without_redis_is_in_band(environ, name):
    """Not one that lacks only a part of what reaches it: that one has to name what is missing."""
    environ = environ | {"HOTPARTITION_TABLE_NAME": "t"}
    assert is_in_band(environ) == (name == "in-band write")
    assert name_of("write", environ) == name


def test_a_mistake_in_code_is_named_as_it_was_written_and_at_once():
    with pytest.raises(SettingsError) as caught:
        in_band(max_shards=8, max_shard_count=1, is_raising=False)
    unknown, out_of_range = caught.value.problems
    assert unknown.startswith("max_shards is unknown; allowed are ")
    assert unknown.endswith("Did you mean max_shard_count?")
    assert out_of_range == "max_shard_count should be a whole number, between 2 and 1024, not 1"


def test_a_mistake_is_one_sentence():
    """With the variable's name, what is allowed, and what is there instead."""
    wrong = {"HOTPARTITION_REGISTRY_PORT": "0", "HOTPARTITION_REGISTRY_USER": ""}
    with pytest.raises(SettingsError) as caught:
        Settings.from_env(REQUIRED | wrong, "write")
    assert caught.value.problems == (
        "HOTPARTITION_REGISTRY_PORT should be a whole number, between 1 and 65535, not '0'",
        "HOTPARTITION_REGISTRY_USER should be a text that is not empty, not ''",
    )


@pytest.mark.parametrize(
    ("variables", "wrong"),
    [
        (
            {"REGISTRY_PORT": "x", "REGISTRY_TLS": "yes", "MAX_SHARD_COUNT": "1", "HOT_AT_ONCE_WCU": "nan"},
            {"REGISTRY_PORT", "REGISTRY_TLS", "MAX_SHARD_COUNT", "HOT_AT_ONCE_WCU"},
        ),
        ({"TABLE_NAME": "", "ROUTING_INDEX_NAME": ""}, {"TABLE_NAME", "ROUTING_INDEX_NAME"}),
        # Authentication, and the least that each way needs.
        ({"REGISTRY_AUTHENTICATION": "none", "REGISTRY_TLS": "false"}, set()),
        ({**IAM, "REGISTRY_USER": "f", "REGISTRY_CACHE_NAME": "c"}, set()),
        ({**PASSWORD, "REGISTRY_PASSWORD_FILE": "/p"}, set()),
        (IAM, {"REGISTRY_CACHE_NAME", "REGISTRY_USER"}),
        ({**IAM, "REGISTRY_USER": "f", "REGISTRY_CACHE_NAME": "c", "REGISTRY_TLS": "false"}, {"REGISTRY_TLS"}),
        (PASSWORD, {"REGISTRY_PASSWORD_FILE"}),
        ({**PASSWORD, "REGISTRY_PASSWORD_FILE": "/p", "REGISTRY_TLS": "false"}, {"REGISTRY_TLS"}),
        ({"REGISTRY_AUTHENTICATION": "kerberos"}, {"REGISTRY_AUTHENTICATION"}),
    ],
)
def test_every_wrong_variable_is_named(variables, wrong):
    """One failed start tells all that is wrong with the deployment."""
    environ = {f"HOTPARTITION_{name}": value for name, value in variables.items()}
    with pytest.raises(SettingsError) if wrong else nullcontext() as caught:
        Settings.from_env(REQUIRED | environ, "consumer")
    problems = caught.value.problems if wrong else ()
    assert {problem.split()[0] for problem in problems} == {f"HOTPARTITION_{name}" for name in wrong}


def test_building_an_environment_refuses_missing_names():
    """A missing one fails the synthesis, not the function."""
    with pytest.raises(SettingsError, match="table_name is missing for write"):
        Settings.build_environment("write", {"registry_host": "h"})


def test_values_are_checked_together():
    """What two settings say together is named as well."""
    with pytest.raises(SettingsError, match="HOTPARTITION_PAGE_STALENESS_SECONDS should be at least twice"):
        Settings.defaults("adaptive()", page_ttl_seconds=2)


@pytest.mark.parametrize(
    "values", [{"fan_out": 1}, {"stream_partitions": 2.5}, {"stream_partitions": True}, {"registry_tls": 1}]
)
def test_what_code_gives_is_checked_as_a_variable_is(values):
    """`adaptive()` takes settings by name."""
    with pytest.raises(SettingsError):
        Settings.defaults("adaptive()", **values)


def test_environments_from_one_snapshot_do_not_draw_the_same_numbers():
    """The generator is made on the first request: whatever state a snapshot holds, samplers start apart."""
    draws = []
    for _ in range(2):
        random.seed(7)
        draws.append(system_clock().random())
    assert draws[0] != draws[1]


HERE = {"registry_host": "cache.example"}


def connect(telemetry=None, **values):
    return connect_redis(Settings.defaults("write", **HERE, **values), telemetry or FakeTelemetry(), "routes")


def test_a_connection_says_who_it_is(monkeypatch, tmp_path):
    """By IAM for the named cache and user, with the function's own credentials; by a file; or not at all."""
    own = {"ACCESS_KEY_ID": "ASIAOWN", "SECRET_ACCESS_KEY": "own", "SESSION_TOKEN": "session"}
    for name, value in {**own, "DEFAULT_REGION": "eu-west-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    connection = connect(registry_authentication="iam", registry_user="functions", registry_cache_name="Registry")
    provider = connection._options["credential_provider"]
    assert isinstance(provider, IamCredentials)
    user, token = provider.get_credentials()
    assert user == "functions"
    assert token.startswith("registry/?Action=connect&User=functions&")
    for part in ("X-Amz-Credential=ASIAOWN%2F", "%2Feu-west-1%2Felasticache%2F", "X-Amz-Security-Token=session"):
        assert part in token
    (tmp_path / "password").write_text("secret\n")
    file = {"registry_user": "u", "registry_password_file": str(tmp_path / "password")}
    provider = connect(registry_authentication="password", **file)._options["credential_provider"]
    assert isinstance(provider, PasswordFile)
    assert provider.get_credentials() == ("u", "secret")
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
    assert (build_consumer(World().control_ends(), settings).cooling is not None) == has_positions


PRODUCT = ("layers", "lambdas", "hotpartition_cdk", "hotpartition_cli", "infra")
ROUTES = {"JournalRoutes", "RegistryRoutes"}
ENGINE = {"Gatherer", "InBandCounting", "Leases", "ReadCache", "ReportedWrites", "Writer", *ROUTES}


def test_engines_are_built_in_one_place():
    """Everything else gets one."""
    calls = {
        (path.name, node.func.id)
        for folder in PRODUCT
        for path in Path(__file__).parents[3].joinpath(folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert {path for path, name in calls if name in ENGINE} == {"build.py"}
