"""The settings of the functions: one frozen class each, read once from the environment.

A field's name, in capitals and behind `HOTPARTITION_`, is its environment variable. The infrastructure builds each
function's environment from the same classes (`build_environment`), so a name is written once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, Self, TypeVar, get_type_hints

from hotpartition.errors import SettingsError

PREFIX = "HOTPARTITION_"

_TRUTH = {"true": True, "false": False}

AUTHENTICATIONS = ("none", "iam", "password")
"""How a function can tell Redis who it is."""

DYNAMODB_CLIENTS = ("lean", "boto3")
"""What can speak to DynamoDB; `dynamodb_clients.py` opens it."""


def setting(
    doc: str,
    *,
    default: object = MISSING,
    at_least: float | None = None,
    at_most: float | None = None,
    choices: Sequence[str] = (),
) -> Any:
    """Declare one setting: what it means with its unit, its default, and the range or the choice it may have."""
    metadata = {"doc": doc, "at_least": at_least, "at_most": at_most, "choices": tuple(choices)}
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonSettings:
    """What every function needs to know."""

    table_name: str = setting("Name of the DynamoDB table; also names the Redis keys.")
    dynamodb_client: str = setting(
        "What speaks to DynamoDB: lean (this project's own client) or boto3.", default="lean", choices=DYNAMODB_CLIENTS
    )
    registry_host: str = setting("Host name of the Redis cluster's configuration endpoint.")
    registry_port: int = setting("Port of the Redis cluster.", default=6379, at_least=1, at_most=65535)
    registry_tls: bool = setting("Whether the Redis cluster is reached through TLS.", default=True)
    registry_authentication: str = setting(
        "How a function authenticates to Redis: none, iam or password.", default="none", choices=AUTHENTICATIONS
    )
    registry_user: str = setting("Name of the Redis user that authenticates.", default="default")
    registry_cache_name: str = setting(
        "Name of the ElastiCache cache (replication group id) that IAM tokens are signed for.", default=""
    )
    registry_password_file: str = setting("Path of the file that holds the Redis user's password.", default="")
    registry_ca_file: str = setting(
        "Path of the certificates (PEM) that Redis's own must descend from; empty: the system's.", default=""
    )
    registry_connect_timeout_ms: int = setting(
        "How long a request waits for a connection to Redis, in ms.", default=50, at_least=1, at_most=5000
    )
    registry_command_timeout_ms: int = setting(
        "How long a request waits for an answer of Redis, in ms.", default=30, at_least=1, at_most=5000
    )
    registry_rest_ms: int = setting(
        "How long Redis is left alone after it failed to answer, in ms.", default=1000, at_least=0, at_most=60000
    )

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Self:
        """Read the settings, once, at cold start.

        Raises:
            SettingsError: naming every variable that is missing, malformed or out of range.
        """
        values: dict[str, object] = {}
        problems: list[str] = []
        types = get_type_hints(cls)
        for declared in fields(cls):
            name = variable_name(declared.name)
            text = environ.get(name)
            if text is None:
                if declared.default is MISSING:
                    problems.append(f"{name} is missing ({declared.metadata['doc']})")
                continue
            try:
                values[declared.name] = parse_setting(declared, types[declared.name], text)
            except ValueError as error:
                problems.append(f"{name} {error}")
        if problems:
            raise SettingsError(problems)
        settings = cls(**values)  # type: ignore[arg-type]  # each value was parsed to its field's type
        if problems := settings.find_contradictions():
            raise SettingsError(problems)
        return settings

    def find_contradictions(self) -> list[str]:
        """List what the way of authentication needs and does not have, each with its variable's name."""
        way = self.registry_authentication
        needs = {
            "none": {},
            "iam": {
                "registry_tls": self.registry_tls,
                "registry_cache_name": self.registry_cache_name,
                # ElastiCache's own user `default` cannot be one of IAM.
                "registry_user": self.registry_user != "default",
            },
            "password": {"registry_tls": self.registry_tls, "registry_password_file": self.registry_password_file},
        }
        return [
            f"{variable_name(name)} should be {'true' if name == 'registry_tls' else 'set'}"
            f" with {variable_name('registry_authentication')}={way}"
            for name, is_met in needs[way].items()
            if not is_met
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _RequestSettings(CommonSettings):
    """What the functions on the request path share."""

    route_cache_seconds: float = setting(
        "How long a route is used before Redis is asked again, in seconds.", default=2.0, at_least=0.0, at_most=60.0
    )
    route_cache_entries: int = setting(
        "How many routes one execution environment keeps.", default=10_000, at_least=1, at_most=1_000_000
    )
    request_budget_ms: int = setting(
        "How long a request goes on trying while DynamoDB refuses, in ms.", default=300, at_least=1, at_most=25_000
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterSettings(_RequestSettings):
    """Settings of the write function."""

    stream_partitions: int = setting("Number of report streams.", default=4, at_least=1, at_most=1024)
    sampling_distance_wcu: float = setting(
        "Write units of one conversation between two reports (z).", default=5.0, at_least=0.001, at_most=1000.0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderSettings(_RequestSettings):
    """Settings of the read function."""

    settle_seconds: float = setting(
        "How far behind the present a reader may trust that no message is still to come, in seconds.",
        default=5.0,
        at_least=0.0,
        at_most=3600.0,
    )
    hedge_quantile: float = setting(
        "A shard's query slower than this share of recent ones is asked again; 0 turns that off.",
        default=0.97,
        at_least=0.0,
        at_most=0.999,
    )
    # The base key's and those of 32 shards: with one too few, a page waits for a second turn.
    fan_out_threads: int = setting("Queries that one read runs at the same time.", default=33, at_least=1, at_most=256)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings(CommonSettings):
    """Settings of the stream consumer: detection and decision."""

    routing_index_name: str = setting("Name of the sparse index that lists the routing items.", default="routing-index")
    stream_partitions: int = setting("Number of report streams.", default=4, at_least=1, at_most=1024)
    hot_at_once_wcu: float = setting(
        "Load of one second that is hot at once, in WCU/s for each key that serves it.",
        default=1000.0,
        at_least=0.001,
        at_most=1_000_000.0,
    )
    hot_sustained_wcu: float = setting(
        "Mean load of five seconds that is hot, in WCU/s for each key that serves it.",
        default=800.0,
        at_least=0.001,
        at_most=1_000_000.0,
    )
    target_shard_wcu: float = setting(
        "Load that a new shard is sized for, in WCU/s; in proportion less where the load exceeds `hot_at_once_wcu`.",
        default=300.0,
        at_least=0.001,
        at_most=1_000_000.0,
    )
    max_shard_count: int = setting("Largest N that is ever decided.", default=128, at_least=2, at_most=1024)
    run_seconds: float = setting(
        "When a consumer stops even though no successor came, in seconds.", default=170.0, at_least=1.0, at_most=890.0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OperateSettings(CommonSettings):
    """Settings of the operations function: what it must know of the others."""

    routing_index_name: str = setting("Name of the sparse index that lists the routing items.", default="routing-index")
    stream_partitions: int = setting("Number of report streams.", default=4, at_least=1, at_most=1024)
    hot_sustained_wcu: float = setting(
        "Mean load of five seconds that is hot, in WCU/s for each key that serves it.",
        default=800.0,
        at_least=0.001,
        at_most=1_000_000.0,
    )
    max_shard_count: int = setting("Largest N that is ever decided.", default=128, at_least=2, at_most=1024)
    route_cache_seconds: float = setting(
        "How long a route is used before Redis is asked again, in seconds.", default=2.0, at_least=0.0, at_most=60.0
    )


SettingsT = TypeVar("SettingsT", bound=CommonSettings)


def variable_name(field_name: str) -> str:
    """Build the environment variable's name of a setting."""
    return PREFIX + field_name.upper()


def setting_names(settings: type[CommonSettings]) -> frozenset[str]:
    """List the settings of one function by field name."""
    return frozenset(declared.name for declared in fields(settings))


def build_environment(settings: type[CommonSettings], values: Mapping[str, str]) -> dict[str, str]:
    """Build a function's environment from values by field name; a setting that is not named keeps its default.

    Values are texts because at synthesis some of them are only known as CloudFormation references.

    Raises:
        SettingsError: when a required setting is not among the values, or a name is unknown.
    """
    required = {declared.name for declared in fields(settings) if declared.default is MISSING}
    problems = [f"{name} is missing for {settings.__name__}" for name in sorted(required - values.keys())]
    problems += [
        f"{name} is unknown to {settings.__name__}; known are {', '.join(sorted(setting_names(settings)))}"
        for name in sorted(values.keys() - setting_names(settings))
    ]
    if problems:
        raise SettingsError(problems)
    return {variable_name(name): value for name, value in values.items()}


def parse_setting(declared: Field[Any], type_: type, text: str) -> object:
    """Parse one setting's text.

    Raises:
        ValueError: saying what the value should be.
    """
    if type_ is bool:
        if text.lower() not in _TRUTH:
            raise ValueError(f"should be true or false, not {text!r}")
        return _TRUTH[text.lower()]
    if type_ is str:
        return _parse_text(declared, text)
    try:
        number: int | float = type_(text)
    except ValueError as error:
        kind = "a whole number" if type_ is int else "a number"
        raise ValueError(f"should be {kind}, not {text!r}") from error
    low, high = declared.metadata["at_least"], declared.metadata["at_most"]
    if not (low is None or number >= low) or not (high is None or number <= high):
        raise ValueError(f"should be between {low} and {high}, not {text!r}")
    return number


def _parse_text(declared: Field[Any], text: str) -> str:
    if not text and declared.default != "":
        raise ValueError("should not be empty")
    choices = declared.metadata["choices"]
    if choices and text not in choices:
        raise ValueError(f"should be one of {', '.join(choices)}, not {text!r}")
    return text
