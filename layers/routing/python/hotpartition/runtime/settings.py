"""The settings of the functions: one frozen model each, read once from the environment.

A field's name, in capitals and behind `HOTPARTITION_`, is its environment variable. The infrastructure builds each
function's environment from the same models (`build_environment`), so a name is written once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from hotpartition.errors import SettingsError
from hotpartition.runtime.mistakes import list_mistakes, unknown

PREFIX = "HOTPARTITION_"

DynamoDBClient = Literal["curl", "boto3"]
DYNAMODB_CLIENTS: tuple[DynamoDBClient, ...] = get_args(DynamoDBClient)
"""What can speak to DynamoDB; `dynamodb/clients.py` opens it."""

_TRUTH: Mapping[object, bool] = {"true": True, "false": False}

Flag = Annotated[
    bool,
    BeforeValidator(lambda value: _TRUTH.get(str(value).lower(), value), json_schema_input_type=bool),
    Field(strict=True),
]
"""Only `true` and `false`, not all that pydantic takes for them."""

Text = Annotated[str, Field(min_length=1)]
Port = Annotated[int, Field(ge=1, le=65_535)]
TimeoutMs = Annotated[int, Field(ge=1, le=5_000)]
Wcu = Annotated[float, Field(ge=0.001, le=1_000_000.0)]
"""In WCU/s."""
Rcu = Annotated[float, Field(ge=0.001, le=10_000_000.0)]
"""In RCU/s."""


class _Settings(BaseModel):
    """Base of all settings, and of parts of them that several functions share."""

    # Built when they are used: the parts, and other functions' settings, never are.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


class CommonSettings(_Settings):
    """What every function needs to know."""

    table_name: Text = Field(description="Name of the DynamoDB table; also names the Redis keys.")
    dynamodb_client: DynamoDBClient = Field(
        default="curl", description="What speaks to DynamoDB: `curl` (libcurl) or `boto3`."
    )
    dynamodb_endpoint: str = Field(
        default="",
        description="DynamoDB's address for `curl`; AWS's own variables come first. Empty: the region's.",
    )
    registry_host: Text = Field(description="Host name of the Redis cluster's configuration endpoint.")
    registry_port: Port = Field(default=6379, description="Port of the Redis cluster.")
    registry_tls: Flag = Field(default=True, description="Whether the Redis cluster is reached through TLS.")
    registry_authentication: Literal["none", "iam", "password"] = Field(
        default="none",
        description="How a function authenticates to Redis: `none`, `iam` or `password`; the last two need TLS.",
    )
    registry_user: Text = Field(default="default", description="Name of the Redis user that authenticates.")
    registry_cache_name: str = Field(
        default="", description="With `iam`: name of the cache (replication group id) that tokens are signed for."
    )
    registry_password_file: str = Field(
        default="", description="With `password`: path of the file that holds it, read at each new connection."
    )
    registry_ca_file: str = Field(
        default="",
        description="Path of the certificates (PEM) that Redis's own must descend from; empty: those that DynamoDB's"
        " must (`AWS_CA_BUNDLE`, else the machine's, else botocore's).",
    )
    registry_tls_strict: Flag = Field(
        default=True,
        description="Whether Redis's certificates must keep RFC 5280 in all, as Python 3.13 demands"
        " (`VERIFY_X509_STRICT`).",
    )
    registry_connect_timeout_ms: TimeoutMs = Field(
        default=500,
        description="How long a request waits for a connection to Redis, TLS and authentication included, in ms;"
        " consumer and operations wait 2,000 at least.",
    )
    registry_command_timeout_ms: TimeoutMs = Field(
        default=30,
        description="How long a request waits for a response of Redis, in ms; consumer and operations wait 1,000 at"
        " least.",
    )
    registry_rest_ms: int = Field(
        default=1_000, ge=0, le=60_000, description="How long Redis is left alone after it failed to respond, in ms."
    )

    @classmethod
    def defaults(cls, **values: object) -> Self:
        """Build settings for calculations, without a table or a Redis; what is not given has its default."""
        return cls.model_validate({"table_name": "-", "registry_host": "-", **values})

    @classmethod
    def from_env(cls, environ: Mapping[str, str], **given: object) -> Self:
        """Read the settings, once, at cold start; what is given in code comes first.

        Raises:
            SettingsError: naming every variable that is missing, malformed or out of range.
        """
        variables = {name: variable_name(name) for name in cls.model_fields}
        try:
            told = {name: environ[key] for name, key in variables.items() if key in environ}
            return cls.model_validate({**told, **given})
        except ValidationError as error:
            raise SettingsError(list_mistakes(error, cls, variable_name)) from error

    @model_validator(mode="after")
    def check_authentication(self) -> Self:
        """Refuse a way of authentication that lacks what it needs.

        Raises:
            SettingsError: naming each variable that is to be set.
        """
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
        problems = [
            f"{variable_name(name)} should be {'true' if name == 'registry_tls' else 'set'}"
            f" with {variable_name('registry_authentication')}={way}"
            for name, is_met in needs[way].items()
            if not is_met
        ]
        if problems:
            raise SettingsError(problems)
        return self


class ReportSettings(_Settings):
    """Who reports, and who reads reports."""

    stream_partitions: int = Field(default=4, ge=1, le=1024, description="Number of report streams.")


class RouteSettings(_Settings):
    """Who caches routes."""

    route_cache_seconds: float = Field(
        default=2.0, ge=0.0, le=60.0, description="How long a route is used before Redis is asked again, in seconds."
    )


class _RequestSettings(RouteSettings):
    route_cache_entries: int = Field(
        default=10_000, ge=1, le=1_000_000, description="How many routes one execution environment keeps."
    )
    request_budget_ms: int = Field(
        default=300, ge=1, le=25_000, description="How long a request goes on trying while DynamoDB refuses, in ms."
    )


class CountingSettings(_RequestSettings, ReportSettings):
    """Who writes, and counts that."""

    sampling_distance_wcu: float = Field(
        default=5.0, ge=0.001, le=1000.0, description="Write units of one conversation between two reports (z)."
    )


class PageSettings(_Settings):
    """How pages are counted, and how newest pages of what is read-hot are cached."""

    read_sampling_distance_rcu: float = Field(
        default=100.0,
        ge=0.001,
        le=100_000.0,
        description="Read units of one conversation's pages between two reports.",
    )
    page_cache: Flag = Field(default=True, description="Whether newest pages of what is read-hot are cached.")
    page_ttl_seconds: float = Field(
        default=1.0, ge=0.2, le=60.0, description="How old a cached page gets before it is read anew, in seconds."
    )
    page_staleness_seconds: float = Field(
        default=3.0,
        ge=0.4,
        le=600.0,
        description="How old a page from the cache may be, in seconds; at least twice `page_ttl_seconds`.",
    )
    page_l1_entries: int = Field(
        default=200, ge=1, le=100_000, description="How many cached pages one execution environment keeps."
    )
    page_l1_bytes: int = Field(
        default=16_000_000,
        ge=8_000_000,
        le=1_000_000_000,
        description="Bytes of cached pages, as JSON, that one execution environment keeps; in memory they are larger.",
    )

    @model_validator(mode="after")
    def check_staleness(self) -> Self:
        """Refuse a staleness bound that pages would pass in the normal course of things.

        Raises:
            SettingsError: naming both settings.
        """
        if self.page_staleness_seconds < 2 * self.page_ttl_seconds:
            names = variable_name("page_staleness_seconds"), variable_name("page_ttl_seconds")
            raise SettingsError([f"{names[0]} should be at least twice {names[1]}"])
        return self


class WriterSettings(CountingSettings, CommonSettings):
    """Settings of the write function."""

    retention_days: int = Field(
        default=0, ge=0, le=36_500, description="How long after its time a message expires, in days; 0: never."
    )
    sender_claim: str = Field(
        default="",
        description="Claim of the caller's token, or value that a Lambda authorizer passes on, that is the sender;"
        " empty: the body names it.",
    )


class ReaderSettings(_RequestSettings, ReportSettings, PageSettings, CommonSettings):
    """Settings of the read function."""

    settle_seconds: float = Field(
        default=5.0,
        ge=0.0,
        le=3600.0,
        description="How far behind the present a reader may trust that no message is still to come, in seconds.",
    )
    hedge_quantile: float = Field(
        default=0.97,
        ge=0.0,
        le=0.999,
        description="A shard's query slower than this share of recent ones is asked again; 0 turns that off.",
    )
    # The base key's and those of 32 shards: with one too few, a page waits for a second turn.
    fan_out_threads: int = Field(default=33, ge=1, le=256, description="Queries that one read runs at the same time.")


def variable_name(field_name: str) -> str:
    """Build the environment variable's name of a setting."""
    return PREFIX + field_name.upper()


def build_environment(settings: type[CommonSettings], values: Mapping[str, str]) -> dict[str, str]:
    """Build a function's environment from values by field name; a setting that is not named keeps its default.

    Values are texts because at synthesis some of them are only known as CloudFormation references.

    Raises:
        SettingsError: when a required setting is not among the values, or a name is unknown.
    """
    known = settings.model_fields
    missing = [name for name, declared in known.items() if declared.is_required() and name not in values]
    problems = [f"{name} is missing for {settings.__name__}" for name in missing]
    problems += [unknown(name, known) for name in values if name not in known]
    if problems:
        raise SettingsError(problems)
    return {variable_name(name): value for name, value in values.items()}
