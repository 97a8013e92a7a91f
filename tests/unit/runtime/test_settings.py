"""Settings: read once, typed, in range, and every wrong one named."""

import pytest

from hotpartition.core.errors import SettingsError
from hotpartition.runtime.declaring import build_environment, variable_name
from hotpartition.runtime.settings import AdaptiveSettings, ConsumerSettings, WriterSettings, is_in_band
from hotpartition_messages.settings import FUNCTION_SETTINGS, IN_BAND_SETTINGS

REQUIRED = {"HOTPARTITION_TABLE_NAME": "t", "HOTPARTITION_REGISTRY_HOST": "h"}
ALL = [*dict.fromkeys((*FUNCTION_SETTINGS.values(), *IN_BAND_SETTINGS.values())), AdaptiveSettings]


@pytest.mark.parametrize("cls", ALL)
def test_defaults_are_within_their_own_ranges(cls):
    """What is not set has a value that would be accepted if it were."""
    settings = cls.from_env(REQUIRED)
    spelled = {variable_name(name): str(setting.default) for name, setting in cls.declared().items()}
    assert cls.from_env(spelled | REQUIRED) == settings


@pytest.mark.parametrize("cls", ALL)
def test_every_setting_says_what_it_means_and_may_be(cls):
    """A sentence with its unit; a number has both bounds, so that a mistake can be answered with them."""
    for setting in cls.declared().values():
        assert setting.description.endswith(".")
        assert "number" not in setting.allowed or "between" in setting.allowed


@pytest.mark.parametrize(("environ", "expected"), [({}, True), ({"HOTPARTITION_REGISTRY_PORT": "1"}, False)])
def test_a_function_without_redis_is_in_band(environ, expected):
    """Not one that lacks only a part of what reaches it: that one has to name what is missing."""
    assert is_in_band(environ | {"HOTPARTITION_TABLE_NAME": "t"}) == expected


def test_a_mistake_is_one_sentence():
    """With the variable's name, what is allowed, and what is there instead."""
    with pytest.raises(SettingsError) as caught:
        WriterSettings.from_env(REQUIRED | {"HOTPARTITION_REGISTRY_PORT": "0", "HOTPARTITION_REGISTRY_USER": ""})
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
        ConsumerSettings.from_env(environ)
    names = [problem.split()[0] for problem in caught.value.problems]
    assert sorted(names) == sorted([*environ, *REQUIRED])


def test_the_environment_is_built_from_the_same_names():
    """What infrastructure builds, the function reads."""
    values = {"table_name": "t", "registry_host": "h", "sampling_distance_wcu": "2.5"}
    assert WriterSettings.from_env(build_environment(WriterSettings, values)).sampling.sampling_distance_wcu == 2.5


def test_building_refuses_unknown_and_missing_names():
    """A typo fails the synthesis, not the function."""
    with pytest.raises(SettingsError, match=r"table_name is missing.*sampling_distance is unknown"):
        build_environment(WriterSettings, {"registry_host": "h", "sampling_distance": "2"})
    assert "sampling_distance_wcu" in WriterSettings.declared()


def authentication(**values):
    return {**REQUIRED, **{f"HOTPARTITION_REGISTRY_{name.upper()}": value for name, value in values.items()}}


@pytest.mark.parametrize("cls", [cls for cls in ALL if "registry_host" in cls.declared()])
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
def test_authentication_that_cannot_work_fails_the_start(cls, values, missing):
    """With one error that names each variable that is missing or wrong."""
    with pytest.raises(SettingsError) as caught:
        cls.from_env(authentication(**values))
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
    assert (
        WriterSettings.from_env(authentication(**values)).registry.registry_authentication == values["authentication"]
    )


def test_a_group_is_checked_in_whole():
    """What two settings say together is named as well."""
    with pytest.raises(SettingsError, match="HOTPARTITION_PAGE_STALENESS_SECONDS should be at least twice"):
        AdaptiveSettings.defaults(page_ttl_seconds=2)


@pytest.mark.parametrize(
    "values", [{"fan_out": 1}, {"stream_partitions": 2.5}, {"stream_partitions": True}, {"registry_tls": 1}]
)
def test_what_code_gives_is_checked_as_a_variable_is(values):
    """`adaptive()` takes settings by name."""
    with pytest.raises(SettingsError):
        AdaptiveSettings.defaults(**values)
