"""Settings: read once, typed, in range, and every wrong one named."""

import pytest

from hotpartition.core.errors import SettingsError
from hotpartition.runtime.declaring import variable_name
from hotpartition.runtime.settings import Settings, is_in_band, name_of
from hotpartition_messages.settings import FUNCTIONS, IN_BAND_FUNCTIONS, MessageSettings

REQUIRED = {"HOTPARTITION_TABLE_NAME": "t", "HOTPARTITION_REGISTRY_HOST": "h"}
ALL = (*FUNCTIONS, *IN_BAND_FUNCTIONS, "adaptive()", "in_band()")


@pytest.mark.parametrize("function", ALL)
def test_defaults_are_within_their_own_ranges(function):
    """What is not set has a value that would be accepted if it were."""
    settings = MessageSettings.from_env(REQUIRED, function)
    declared = MessageSettings.declared(function)
    spelled = {variable_name(name): str(setting.default) for name, setting in declared.items()}
    assert MessageSettings.from_env(spelled | REQUIRED, function) == settings


@pytest.mark.parametrize("function", ALL)
def test_every_setting_says_what_it_means_and_may_be(function):
    """A sentence with its unit; a number has both bounds, so that a mistake can be answered with them."""
    for setting in MessageSettings.declared(function).values():
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


def test_a_mistake_is_one_sentence():
    """With the variable's name, what is allowed, and what is there instead."""
    wrong = {"HOTPARTITION_REGISTRY_PORT": "0", "HOTPARTITION_REGISTRY_USER": ""}
    with pytest.raises(SettingsError) as caught:
        Settings.from_env(REQUIRED | wrong, "write")
    assert caught.value.problems == (
        "HOTPARTITION_REGISTRY_PORT should be a whole number, between 1 and 65535, not '0'",
        "HOTPARTITION_REGISTRY_USER should be a text that is not empty, not ''",
    )


def test_every_wrong_variable_is_named():
    """One failed start tells all that is wrong with the deployment."""
    environ = {
        "HOTPARTITION_REGISTRY_PORT": "x",
        "HOTPARTITION_REGISTRY_TLS": "yes",
        "HOTPARTITION_MAX_SHARD_COUNT": "1",
        "HOTPARTITION_HOT_AT_ONCE_WCU": "nan",
        "HOTPARTITION_ROUTING_INDEX_NAME": "",
    }
    with pytest.raises(SettingsError) as caught:
        Settings.from_env(environ, "consumer")
    names = [problem.split()[0] for problem in caught.value.problems]
    assert sorted(names) == sorted([*environ, *REQUIRED])


def test_the_environment_is_built_from_the_same_names():
    """What infrastructure builds, the function reads; another function's values are left out."""
    values = {"table_name": "t", "registry_host": "h", "sampling_distance_wcu": "2.5", "run_seconds": "9"}
    environ = Settings.build_environment("write", values)
    assert "HOTPARTITION_RUN_SECONDS" not in environ
    assert Settings.from_env(environ, "write").sampling_distance_wcu == 2.5


def test_building_refuses_missing_names():
    """A missing one fails the synthesis, not the function."""
    with pytest.raises(SettingsError, match="table_name is missing for write"):
        Settings.build_environment("write", {"registry_host": "h"})


def authentication(**values):
    return {**REQUIRED, **{f"HOTPARTITION_REGISTRY_{name.upper()}": value for name, value in values.items()}}


@pytest.mark.parametrize("function", [name for name in ALL if "registry_host" in Settings.declared(name)])
@pytest.mark.parametrize(
    ("values", "missing"),
    [
        ({"authentication": "iam"}, {"REGISTRY_CACHE_NAME", "REGISTRY_USER"}),
        ({"authentication": "iam", "user": "f", "cache_name": "c", "tls": "false"}, {"REGISTRY_TLS"}),
        ({"authentication": "password"}, {"REGISTRY_PASSWORD_FILE"}),
        ({"authentication": "password", "password_file": "/p", "tls": "false"}, {"REGISTRY_TLS"}),
        ({"authentication": "kerberos"}, {"REGISTRY_AUTHENTICATION"}),
    ],
)
def test_authentication_that_cannot_work_fails_the_start(function, values, missing):
    """With one error that names each variable that is missing or wrong."""
    with pytest.raises(SettingsError) as caught:
        Settings.from_env(authentication(**values), function)
    assert {problem.split()[0].removeprefix("HOTPARTITION_") for problem in caught.value.problems} == missing


@pytest.mark.parametrize(
    "values",
    [
        {"authentication": "none", "tls": "false"},
        {"authentication": "iam", "user": "f", "cache_name": "c"},
        {"authentication": "password", "password_file": "/p"},
    ],
)
def test_authentication_that_can_work_is_taken(values):
    """Each way with the least it needs."""
    settings = Settings.from_env(authentication(**values), "write")
    assert settings.registry_authentication == values["authentication"]


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
