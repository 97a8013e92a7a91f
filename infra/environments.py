"""The environments `dev`, `prod`, `lite` and the local ones, and every number that differs between them.

Each number is an option (`hotpartition_cdk/options.py`) with its unit and its reason; those of what is beside the
table are in `hotpartition_cdk/configuration.py`. A file or a context overrides it (`config.py`).
This module imports no CDK, so that building a layer does not start its Node.js process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Self

from pydantic import Field, model_validator

from hotpartition.runtime.declaring import unknown
from hotpartition_cdk.configuration import (
    FULL_CPU_MB,
    LONGEST_NAME,
    PRODUCTION,
    SMALL,
    AlarmOptions,
    CommonOptions,
    FunctionSize,
    Host,
    HotPartitionOptions,
    ListOf,
    arn_field,
    run_on,
)
from hotpartition_cdk.errors import ConfigurationError
from hotpartition_cdk.options import Options

DEFAULT_ENVIRONMENT = "dev"

ENVIRONMENT_NAMES = ("dev", "prod", "lite", "local", "local-lite")

PROJECT = "hotpartition"
"""The prefix of every stack's name."""

API_SECONDS = 30
"""An HTTP API gives up on a function after 30 s (API Gateway quotas)."""

Requests = Annotated[int, Field(ge=1, le=100_000)]
RequestMs = Annotated[int, Field(ge=1, le=1_000 * API_SECONDS)]
Issuer = Annotated[str, Field(pattern=r"^https://\S+$", examples=["https://login.example.com/"])]
Audience = Annotated[str, Field(min_length=1, examples=["chat"])]
Scope = Annotated[str, Field(pattern=r"^[\x21\x23-\x5b\x5d-\x7e]{1,64}$", examples=["messages.write"])]
Claim = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:/-]{1,128}$", examples=["sub"])]
FunctionArn = Annotated[str, arn_field("lambda", "function:[A-Za-z0-9_-]+(:[A-Za-z0-9_$-]+)?", "function:who-calls")]
Origin = Annotated[str, Field(pattern=r"^(\*|https?://[^/\s]+)$", examples=["https://chat.example.com"])]
Domain = Annotated[str, Field(pattern=r"^([a-z0-9-]+\.)+[a-z]{2,}$", examples=["chat.example.com"])]
Account = Annotated[str, Field(pattern=r"^\d{12}$", examples=["123456789012"])]
Region = Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d+$", examples=["eu-west-1"])]
Suffix = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", examples=["anna"])]
PolicyArn = Annotated[
    str,
    Field(
        pattern=r"^arn:aws[a-z-]*:iam::(\d{12}|aws):policy/\S+$",
        examples=["arn:aws:iam::123456789012:policy/boundary"],
    ),
]
TagValue = Annotated[str, Field(max_length=256)]
_TAG = re.compile(r"(?!aws:).{1,128}")


class RequestFunctionSize(FunctionSize):
    """The same for a function of the API, which must end before the API gives up on it."""

    timeout_seconds: int = Field(
        ge=1, le=API_SECONDS - 1, description="when Lambda stops it, in s; before the API gives up on it"
    )
    reserved_concurrency: int | None = Field(
        default=None,
        ge=1,
        le=10_000,
        description="requests that it serves at a time, over all of its routes, at most; Lambda keeps them for it."
        " null: what the account has left",
    )


class TableOptions(Options):
    """Throughput of the on-demand table.

    `None` leaves it to DynamoDB: a new table takes 4,000 writes and 12,000 reads a second, then up to twice its last
    peak. A maximum guards the bill: requests above it are throttled. Warm throughput opens partitions in advance of a
    known event, for a one-time price; it can be raised, not lowered.
    """

    max_write_units: int | None = Field(default=None, ge=1, le=10_000_000, description="on-demand maximum, WCU/s")
    max_read_units: int | None = Field(default=None, ge=1, le=10_000_000, description="on-demand maximum, RCU/s")
    warm_write_units: int | None = Field(default=None, ge=4000, le=10_000_000, description="warm throughput, WCU/s")
    warm_read_units: int | None = Field(default=None, ge=12_000, le=10_000_000, description="warm throughput, RCU/s")


class ApiOptions(Options):
    """The allowed callers of the API, their origins, and their rates.

    The account's default quota is 10,000 requests a second, and Lambda's default concurrency of 1,000 is usually
    reached before.
    """

    write_rate: Requests = Field(description="requests/s that each route that writes accepts")
    write_burst: Requests = Field(description="requests that each route that writes accepts at once")
    read_rate: Requests = Field(description="requests/s that each read route accepts")
    read_burst: Requests = Field(description="requests that each read route accepts at once")
    jwt_issuer: Issuer | None = Field(
        default=None,
        description="issuer of the tokens that are accepted, whose openid-configuration is read at deployment; null:"
        " requests signed with IAM",
    )
    jwt_audience: ListOf[Audience] = Field(default=(), description="audiences that a token may be for")
    write_scopes: ListOf[Scope] = Field(
        default=(), description="scopes of which a token needs one to write; none: any token may"
    )
    change_scopes: ListOf[Scope] = Field(default=(), description="scopes of which a token needs one to edit and delete")
    read_scopes: ListOf[Scope] = Field(default=(), description="scopes of which a token needs one to read")
    authorizer_arn: FunctionArn | None = Field(
        default=None, description="a Lambda authorizer of yours, in the same account and region, that is asked instead"
    )
    authorizer_cache_seconds: int = Field(
        default=0,
        ge=0,
        le=3600,
        description="how long its decision on an `Authorization` header is used for a route, whatever conversation is"
        " named, in s; 0 asks for each request",
    )
    sender_claim: Claim | None = Field(
        default=None,
        description="the token's claim, or what the Lambda authorizer passes on, that is the sender of what its caller"
        " writes; null: the body names the sender",
    )
    domain: Domain | None = Field(
        default=None,
        description="a domain of yours that is mapped to the API; its own address is then switched off. Set it once the"
        " mapping is there",
    )
    has_route_metrics: bool = Field(default=False, description="whether CloudWatch counts each route by itself")
    cors_origins: ListOf[Origin] = Field(
        default=(), description="origins of web pages that may call the API; none: no page of another origin"
    )

    @model_validator(mode="after")
    def check(self) -> Self:
        """Refuse half a JWT authorizer, two authorizers, and what the one there is cannot say."""
        if (self.jwt_issuer is None) != (not self.jwt_audience):
            raise ValueError("options api.jwt_issuer and api.jwt_audience are given together, or not at all")
        if self.jwt_issuer is not None and self.authorizer_arn is not None:
            raise ValueError("options api.jwt_issuer and api.authorizer_arn exclude each other")
        scopes = (self.write_scopes, self.change_scopes, self.read_scopes)
        if any(scopes) and not all(scopes):
            raise ValueError(
                "options api.write_scopes, change_scopes and read_scopes are given together, or not at all"
            )
        if any(scopes) and self.jwt_issuer is None:
            raise ValueError("options api.write_scopes, change_scopes and read_scopes need api.jwt_issuer, its tokens")
        if self.authorizer_cache_seconds and self.authorizer_arn is None:
            raise ValueError("option api.authorizer_cache_seconds needs api.authorizer_arn")
        if self.sender_claim is not None and self.jwt_issuer is None and self.authorizer_arn is None:
            raise ValueError("option api.sender_claim needs api.jwt_issuer or api.authorizer_arn, whose claim it names")
        return self


class ApiAlarmOptions(AlarmOptions):
    """The receivers of alarms, and which latency is slow."""

    slow_ms: RequestMs = Field(description="latency that 1 % of the API's requests may exceed, in ms")


class Environment(CommonOptions):
    """Everything that differs between two deployments of the stack. `name` is part of the stack's name.

    Here writers find hot conversations themselves, and nothing stands beside the table.
    """

    name: str
    is_data_retained: bool = Field(
        description="whether table and logs outlive the stack; a first deployment that fails leaves nothing behind"
    )
    is_protected: bool = Field(
        description="whether table and stack are protected from deletion; `make deploy` sets it after the first"
        " deployment"
    )
    account: Account | None = Field(default=None, description="the account that `make deploy` may deploy to; null: any")
    region: Region | None = Field(default=None, description="the region that `make deploy` may deploy to; null: any")
    writer: RequestFunctionSize
    reader: RequestFunctionSize
    retention_days: int | None = Field(
        default=None,
        ge=1,
        le=36_500,
        description="how long after its time a message expires, in days, for those written from then on; null: never",
    )
    table: TableOptions
    api: ApiOptions
    alarms: ApiAlarmOptions
    name_suffix: Suffix | None = Field(
        default=None, description="added to the stack's name, so that two stacks of an environment fit into a region"
    )
    tags: Mapping[str, TagValue] = Field(
        default_factory=dict, description="tags of every resource, beside `project` and `environment`"
    )
    permissions_boundary: PolicyArn | None = Field(
        default=None, description="policy that bounds the permissions of every role of the stack"
    )

    @property
    def reserved_concurrency(self) -> int:
        """Count the concurrency reserved for all functions together."""
        return sum(size.reserved_concurrency or 0 for size in (self.writer, self.reader))

    @property
    def stack_name(self) -> str:
        """The stack's name, with which the names of its alarms, users and dashboard begin."""
        return "-".join(part for part in (PROJECT, self.name, self.name_suffix) if part)

    @model_validator(mode="after")
    def check(self) -> Self:
        """Refuse values that AWS would refuse only after minutes of deploying."""
        if len(self.stack_name) > LONGEST_NAME:
            raise ValueError(
                f"the stack's name {self.stack_name} has more than {LONGEST_NAME} characters: choose a shorter"
                " environment or name_suffix"
            )
        for tag in self.tags:
            if not _TAG.fullmatch(tag):
                raise ValueError(f"option tags should have names of 1 to 128 characters, not in aws:, not {tag!r}")
        return self


class AdaptiveEnvironment(Environment, HotPartitionOptions):
    """An environment with Redis and a consumer, which find hot conversations."""

    @property
    def reserved_concurrency(self) -> int:
        """Count the concurrency reserved for all functions together, the consumer included."""
        return super().reserved_concurrency + self.consumer_concurrency


DEV = AdaptiveEnvironment(
    **dict(SMALL, alarms=ApiAlarmOptions(slow_ms=3000)),  # there are more cold starts
    name="dev",
    # A request writes one item and sends at most one report; the cold start decides, nearly all of it imports.
    writer=RequestFunctionSize(memory_mb=1024, timeout_seconds=10),
    # A page of a raised conversation parses the responses of many queries: it takes a whole CPU.
    reader=RequestFunctionSize(memory_mb=FULL_CPU_MB, timeout_seconds=15),
    table=TableOptions(),
    # Enough to make one conversation hot many times over, and little enough for a mistake to stay cheap.
    api=ApiOptions(write_rate=500, write_burst=250, read_rate=500, read_burst=250),
)

PROD = AdaptiveEnvironment(
    **dict(
        PRODUCTION,
        # A request's own budget is 300 ms; beyond a second, one in a hundred waits for something else.
        alarms=ApiAlarmOptions(slow_ms=1000),
        is_protected=True,
        # Redis with an append-only file was required. The smallest current family that may be durable.
        registry=PRODUCTION.registry.model_copy(update={"node_type": "cache.m7g.large", "is_durable": True}),
    ),
    name="prod",
    writer=RequestFunctionSize(memory_mb=FULL_CPU_MB, timeout_seconds=10),
    reader=RequestFunctionSize(memory_mb=FULL_CPU_MB, timeout_seconds=15),
    table=TableOptions(),
    # Half of an account's default quota, so that one stack cannot take all of it.
    api=ApiOptions(write_rate=5000, write_burst=2500, read_rate=5000, read_burst=2500),
)

_BESIDE_THE_TABLE = frozenset(HotPartitionOptions.model_fields) - frozenset(CommonOptions.model_fields)
LITE = Environment(
    **{
        **{name: value for name, value in DEV if name not in _BESIDE_THE_TABLE},
        "name": "lite",
        # It would nearly double what stands idle here.
        "has_dashboard": False,
        # Without Redis nothing else names throttled keys.
        "has_contributor_insights": True,
    }
)
"""`dev` without Redis, VPC and consumer."""


def build_local(host: Host, environment: Environment = DEV) -> Environment:
    """Build an environment that the local run reads: `dev` or `lite` on the host."""
    name = "local" if environment is DEV else f"local-{environment.name}"
    return run_on(host, environment).model_copy(update={"name": name})


def choose_environment(name: object, host: Host, own_names: Iterable[str] = ()) -> Environment:
    """Find an environment by its name; the error names `own_names` as allowed as well.

    Raises:
        ConfigurationError: when there is no such environment; names those that are allowed.
    """
    for environment in (DEV, PROD, LITE):
        if environment.name == name:
            return environment
    if name in ("local", "local-lite"):
        return build_local(host, DEV if name == "local" else LITE)
    raise ConfigurationError(unknown(f"environment {name!r}", (*ENVIRONMENT_NAMES, *own_names)))
