"""The environments `dev`, `prod` and `local`, and every number that differs between them.

Each number is an option (`options.py`) with its unit and its reason. A file or a context overrides it (`config.py`).
This module and `bundle` import no CDK, so that building a layer does not start its Node.js process.
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, Self, TypeVar, get_args

from pydantic import Field, model_validator

from hotpartition.runtime.mistakes import unknown
from infra.errors import ConfigurationError
from infra.options import Options

Architecture = Literal["arm64", "x86_64"]

DEFAULT_ENVIRONMENT = "dev"

ENVIRONMENT_NAMES = ("dev", "prod", "local")

PROJECT = "hotpartition"
"""What every stack's name begins with."""

_LONGEST_STACK_NAME = 31
"""Redis users are called after stack and role, and their ids have at most 40 characters (ElastiCache, `CreateUser`)."""

PythonVersion = Literal["3.13", "3.14"]
PYTHON_VERSIONS: tuple[PythonVersion, ...] = get_args(PythonVersion)
"""What the functions may run on: Lambda's current Pythons, the newest last."""

TESTED_PYTHON: PythonVersion = "3.13"
"""The newest that the suite runs on as well (decision 39): no machine that develops this has 3.14."""

ENGINE = "valkey"
ENGINE_VERSION = "9.0"
"""The first version that can be durable; ElastiCache takes no patch level here."""

ZONES = 2
"""Availability zones where nobody names any: the first two of the account, in the region's order."""

FULL_CPU_MB = 1769
"""Memory at which Lambda gives a function one whole CPU; below, it gets a share (Lambda guide, "Configure memory")."""

API_SECONDS = 30
"""An HTTP API gives up on a function after 30 s (API Gateway quotas)."""

_DURABLE_NODE_FAMILIES = frozenset({"r6g", "r7g", "r8g", "m6g", "m7g", "m8g", "c7gn", "c8gn"})
"""ElastiCache guide, "Durability: limitations". The x8g families are named on its newer translations only."""

_OVERLAPPING_RUNS = 4
"""Runs of a consumer overlap on purpose. Starts lie 0 to 119 s apart and a run ends at 180 s at the latest, so three
may be at work when the fourth begins."""

RetentionDays = Literal[
    1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288
]
"""CloudWatch Logs takes these numbers only (PutRetentionPolicy)."""

Requests = Annotated[int, Field(ge=1, le=100_000)]
RequestMs = Annotated[int, Field(ge=1, le=1_000 * API_SECONDS)]
NodeType = Annotated[str, Field(pattern=r"^cache\.[a-z0-9]+\.[a-z0-9]+$", examples=["cache.m7g.large"])]
Issuer = Annotated[str, Field(pattern=r"^https://\S+$", examples=["https://login.example.com/"])]
Audience = Annotated[str, Field(min_length=1, examples=["chat"])]
Scope = Annotated[str, Field(pattern=r"^[\x21\x23-\x5b\x5d-\x7e]{1,64}$", examples=["messages.write"])]
Claim = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:/-]{1,128}$", examples=["sub"])]
FunctionArn = Annotated[
    str,
    Field(
        pattern=r"^arn:aws[a-z-]*:lambda:[a-z0-9-]+:\d{12}:function:[A-Za-z0-9_-]+(:[A-Za-z0-9_$-]+)?$",
        examples=["arn:aws:lambda:eu-west-1:123456789012:function:who-calls"],
    ),
]
Origin = Annotated[str, Field(pattern=r"^(\*|https?://[^/\s]+)$", examples=["https://chat.example.com"])]
EmailAddress = Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+$", examples=["oncall@example.com"])]
TopicArn = Annotated[
    str,
    Field(
        pattern=r"^arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:\S+$",
        examples=["arn:aws:sns:eu-west-1:123456789012:oncall"],
    ),
]
Zone = Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d+[a-z]$", examples=["eu-west-1a"])]
Suffix = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", examples=["anna"])]
KeyArn = Annotated[
    str,
    Field(
        pattern=r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[\w-]+$",
        examples=["arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"],
    ),
]
PolicyArn = Annotated[
    str,
    Field(
        pattern=r"^arn:aws[a-z-]*:iam::(\d{12}|aws):policy/\S+$",
        examples=["arn:aws:iam::123456789012:policy/boundary"],
    ),
]
TagValue = Annotated[str, Field(max_length=256)]
PrefixList = Annotated[str, Field(pattern=r"^pl-[0-9a-f]+$", examples=["pl-6da54004"])]

ItemT = TypeVar("ItemT")
ListOf = Annotated[tuple[ItemT, ...], Field(strict=False)]
"""TOML and JSON have lists where a value that does not change has a tuple."""

_TAG = re.compile(r"(?!aws:).{1,128}")

_MACHINES: dict[str, Architecture] = {
    "aarch64": "arm64",
    "arm64": "arm64",
    "x86_64": "x86_64",
    "amd64": "x86_64",
}


class FunctionSize(Options):
    """How much of everything one function gets."""

    memory_mb: int = Field(ge=128, le=10_240, description="memory in MB, and with it CPU")
    timeout_seconds: int = Field(ge=1, le=900, description="when Lambda stops it, in s")


class RequestFunctionSize(FunctionSize):
    """The same for a function of the API, which must not go on after nobody listens."""

    timeout_seconds: int = Field(
        ge=1, le=API_SECONDS - 1, description="when Lambda stops it, in s; before the API gives up on it"
    )


class TableOptions(Options):
    """Throughput of the on-demand table.

    `None` leaves it to DynamoDB: a new table takes 4,000 writes and 12,000 reads a second, then up to twice its last
    peak. A maximum guards the bill: what exceeds it is throttled. Warm throughput opens partitions in advance of a
    known event, for a one-time price; it can be raised, not lowered.
    """

    max_write_units: int | None = Field(default=None, ge=1, le=10_000_000, description="on-demand maximum, WCU/s")
    max_read_units: int | None = Field(default=None, ge=1, le=10_000_000, description="on-demand maximum, RCU/s")
    warm_write_units: int | None = Field(default=None, ge=4000, le=10_000_000, description="warm throughput, WCU/s")
    warm_read_units: int | None = Field(default=None, ge=12_000, le=10_000_000, description="warm throughput, RCU/s")


class RegistrySize(Options):
    """The ElastiCache for Valkey cluster that holds routes and reports."""

    node_type: NodeType = Field(description="ElastiCache node type of every node")
    shard_count: int = Field(ge=1, le=500, description="Redis shards (node groups)")
    replicas_per_shard: int = Field(
        ge=0, le=5, description="replicas of each Redis shard; 0 loses the registry with a node, which costs speed only"
    )
    is_multi_az: bool = Field(description="whether a replica stands in another availability zone than its primary")
    is_durable: bool = Field(
        description=(
            "whether a write is in the Multi-AZ log before it is acknowledged (`Durability=sync`); a deployment that"
            " changes it changes nothing else"
        )
    )
    is_encrypted_in_transit: bool = Field(description="whether clients speak TLS")
    is_authenticated: bool = Field(description="whether functions prove who they are (IAM), each as a user of its own")

    @model_validator(mode="after")
    def check(self) -> Self:
        """Refuse what ElastiCache would refuse only after minutes of deploying."""
        if self.is_multi_az and self.replicas_per_shard == 0:
            raise ValueError("a registry over several zones (is_multi_az) needs a replica per shard")
        if self.is_authenticated and not self.is_encrypted_in_transit:
            raise ValueError("a registry with users (is_authenticated) needs is_encrypted_in_transit")
        if not self.is_durable:
            return self
        family = self.node_type.split(".")[1]
        if family not in _DURABLE_NODE_FAMILIES:
            allowed = ", ".join(sorted(_DURABLE_NODE_FAMILIES))
            raise ValueError(f"node type {self.node_type} cannot be durable; allowed families are {allowed}")
        if not (self.is_multi_az and self.replicas_per_shard >= 1 and self.is_encrypted_in_transit):
            raise ValueError("a durable registry needs is_multi_az, a replica and is_encrypted_in_transit")
        return self

    @property
    def node_count(self) -> int:
        """Count the nodes, primaries and replicas."""
        return self.shard_count * (1 + self.replicas_per_shard)


class ApiOptions(Options):
    """Who may call the API, from where, and how often.

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


class AlarmOptions(Options):
    """Whom alarms tell, and what is slow."""

    email: EmailAddress | None = Field(
        default=None, description="address that a topic of ours tells of alarms; it must be confirmed once"
    )
    topic_arn: TopicArn | None = Field(default=None, description="an SNS topic of yours that is told instead")
    tomorrow_email: EmailAddress | None = Field(
        default=None,
        description="address that a second topic tells of alarms that can wait; the first then has the others",
    )
    tomorrow_topic_arn: TopicArn | None = Field(
        default=None, description="an SNS topic of yours that is told of those instead"
    )
    slow_write_ms: RequestMs = Field(description="latency of a write that 1 % may exceed, in ms")
    slow_read_ms: RequestMs = Field(description="latency of a read that 1 % may exceed, in ms")

    @model_validator(mode="after")
    def check(self) -> Self:
        """Refuse two receivers of the same alarms."""
        for prefix, email, topic_arn in (
            ("", self.email, self.topic_arn),
            ("tomorrow_", self.tomorrow_email, self.tomorrow_topic_arn),
        ):
            if email is not None and topic_arn is not None:
                raise ValueError(
                    f"option alarms.{prefix}email is for a topic of ours; give it or alarms.{prefix}topic_arn, not both"
                )
        return self


class NetworkOptions(Options):
    """How narrow the functions' way out is."""

    dynamodb_prefix_list: PrefixList | None = Field(
        default=None,
        description="id of the region's prefix list of DynamoDB: the functions' security group then admits it alone",
    )
    availability_zones: ListOf[Zone] = Field(
        default=(),
        description="two to six zones that have the Redis node type; none: the account's first two. Fixed at creation",
    )

    @model_validator(mode="after")
    def check(self) -> Self:
        """Refuse fewer zones than a Multi-AZ registry needs, and one that is named twice."""
        zones = self.availability_zones
        if zones and (len(zones) not in range(2, 7) or len(set(zones)) < len(zones)):
            raise ValueError(
                f"option network.availability_zones should name two to six different zones, not {list(zones)}"
            )
        return self


def linux_wheels(machine: str) -> tuple[str, ...]:
    """List the tags of wheels that Lambda takes: its Amazon Linux 2023 has glibc 2.34."""
    return f"manylinux_2_28_{machine}", f"manylinux2014_{machine}"


class LayerTarget(Options):
    """What the packages in the dependency layer are built for.

    Attributes:
        python_version: Minor version of the functions' Python, such as `3.13`.
        architecture: The functions' instruction set, in Lambda's words.
        wheel_platforms: Platform tags of the wheels, newest first; none takes those of the running interpreter.
        is_deployed: Whether it goes to Lambda, where bytecode that is not shipped is made anew at each cold start.
    """

    python_version: PythonVersion = Field(description="Python of the functions")
    architecture: Architecture
    wheel_platforms: tuple[str, ...]
    is_deployed: bool = True


class Environment(Options):
    """Everything that differs between two deployments of the stack. `name` is part of the stack's name."""

    name: str
    target: LayerTarget
    writer: RequestFunctionSize
    reader: RequestFunctionSize
    consumer: FunctionSize
    consumer_concurrency: int = Field(
        # AWS refuses a reservation in accounts that would keep less than 100 unreserved; a new account has 10 in all,
        # of which none can be reserved.
        ge=0,
        le=100,
        description="concurrency that is reserved for each consumer, whose runs overlap: at least 4; 0 reserves none",
    )
    consumers: int = Field(
        default=1,
        ge=1,
        le=64,
        description="stream consumers that share the report streams; at most `stream_partitions`",
    )
    is_snap_started: bool = Field(
        description=(
            "whether writer and reader start from a snapshot (SnapStart), which costs for its cache and each restore"
        )
    )
    retention_days: int | None = Field(
        default=None,
        ge=1,
        le=36_500,
        description="how long after its time a message expires, in days, for those written from then on; null: never",
    )
    log_retention_days: RetentionDays = Field(description="how long logs are kept, in days")
    is_data_retained: bool = Field(
        description="whether table and logs outlive the stack, and table and stack are protected from deletion"
    )
    table: TableOptions
    registry: RegistrySize
    api: ApiOptions
    alarms: AlarmOptions
    network: NetworkOptions
    name_suffix: Suffix | None = Field(
        default=None, description="added to the stack's name, so that two stacks of an environment fit into a region"
    )
    tags: Mapping[str, TagValue] = Field(
        default_factory=dict, description="tags of every resource, beside `project` and `environment`"
    )
    permissions_boundary: PolicyArn | None = Field(
        default=None, description="policy that bounds the permissions of every role of the stack"
    )
    kms_key_arn: KeyArn | None = Field(
        default=None,
        description="your KMS key for table, Redis and logs; null: keys of AWS. Redis is replaced when it changes",
    )

    @property
    def stack_name(self) -> str:
        """The stack's name, with which the names of its alarms, users and dashboard begin."""
        return "-".join(part for part in (PROJECT, self.name, self.name_suffix) if part)

    @property
    def reserved_concurrency(self) -> int | None:
        """Count what is reserved for all consumers together."""
        return self.consumers * self.consumer_concurrency or None

    @model_validator(mode="after")
    def check(self) -> Self:
        """Refuse what AWS would refuse only after minutes of deploying."""
        given = self.consumer_concurrency
        if 0 < given < _OVERLAPPING_RUNS:
            raise ValueError(f"option consumer_concurrency should be 0 or at least {_OVERLAPPING_RUNS}, not {given}")
        if len(self.stack_name) > _LONGEST_STACK_NAME:
            raise ValueError(
                f"the stack's name {self.stack_name} has more than {_LONGEST_STACK_NAME} characters: choose a shorter"
                " environment or name_suffix"
            )
        for tag in self.tags:
            if not _TAG.fullmatch(tag):
                raise ValueError(f"option tags should have names of 1 to 128 characters, not in aws:, not {tag!r}")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine that synthesizes; only the `local` environment depends on it."""

    python_version: str
    machine: str
    system: str

    @classmethod
    def current(cls) -> Self:
        """Describe the running interpreter."""
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return cls(python_version=version, machine=platform.machine(), system=platform.system())


_LAMBDA_TARGET = LayerTarget(
    python_version=TESTED_PYTHON, architecture="arm64", wheel_platforms=linux_wheels("aarch64")
)
"""arm64 costs about a fifth less per millisecond; every package we ship has
wheels for it."""

DEV = Environment(
    name="dev",
    target=_LAMBDA_TARGET,
    # A request writes one item and sends at most one report; what counts is the cold start, nearly all of it imports.
    writer=RequestFunctionSize(memory_mb=1024, timeout_seconds=10),
    # A page of a raised conversation parses the responses of many queries: it takes a whole CPU.
    reader=RequestFunctionSize(memory_mb=FULL_CPU_MB, timeout_seconds=15),
    # Works off a few reports a second; must outlive `run_seconds` (170 s) to end by itself.
    consumer=FunctionSize(memory_mb=512, timeout_seconds=180),
    # A new account cannot reserve any.
    consumer_concurrency=0,
    is_snap_started=False,
    log_retention_days=7,
    is_data_retained=False,
    table=TableOptions(),
    registry=RegistrySize(
        # The smallest there is. One node: its loss empties the registry, which readers survive by the journal.
        node_type="cache.t4g.micro",
        shard_count=1,
        replicas_per_shard=0,
        is_multi_az=False,
        is_durable=False,
        is_encrypted_in_transit=True,
        is_authenticated=True,
    ),
    # Enough to make one conversation hot many times over, and little enough for a mistake to stay cheap.
    api=ApiOptions(write_rate=500, write_burst=250, read_rate=500, read_burst=250),
    # Cold starts are a larger part of little traffic.
    alarms=AlarmOptions(slow_write_ms=3000, slow_read_ms=3000),
    network=NetworkOptions(),
)

PROD = Environment(
    name="prod",
    target=_LAMBDA_TARGET,
    writer=RequestFunctionSize(memory_mb=FULL_CPU_MB, timeout_seconds=10),
    reader=RequestFunctionSize(memory_mb=FULL_CPU_MB, timeout_seconds=15),
    # One thread reads, parses and sums the reports of the whole fleet: a whole CPU is all that it can use.
    consumer=FunctionSize(memory_mb=FULL_CPU_MB, timeout_seconds=180),
    consumer_concurrency=4,
    is_snap_started=False,
    log_retention_days=90,
    is_data_retained=True,
    table=TableOptions(),
    registry=RegistrySize(
        # The smallest current family that may be durable.
        node_type="cache.m7g.large",
        # Two, so that a failover leaves half of the routes and report streams untouched.
        shard_count=2,
        replicas_per_shard=1,
        is_multi_az=True,
        is_durable=True,
        is_encrypted_in_transit=True,
        is_authenticated=True,
    ),
    # Half of an account's default quota, so that one stack cannot take all of it.
    api=ApiOptions(write_rate=5000, write_burst=2500, read_rate=5000, read_burst=2500),
    # A request's own budget is 300 ms; beyond a second, one in a hundred waits for something else.
    alarms=AlarmOptions(slow_write_ms=1000, slow_read_ms=1000),
    network=NetworkOptions(),
)


def build_local(host: Host) -> Environment:
    """Build the environment that the local run reads: `dev`, on the host's Python and processor, without TLS and users.

    Raises:
        ConfigurationError: when Lambda has no such processor.
    """
    architecture = _MACHINES.get(host.machine.lower())
    if architecture is None:
        allowed = ", ".join(sorted(_MACHINES))
        raise ConfigurationError(f"this machine is a {host.machine}; environment local runs on {allowed}")
    wheels = linux_wheels("aarch64" if architecture == "arm64" else architecture)
    target = {
        # Which need not be one of Lambda's: a copy is not validated.
        "python_version": host.python_version,
        "architecture": architecture,
        # Elsewhere than on Linux the functions run on the host's own kind of wheels.
        "wheel_platforms": wheels if host.system == "Linux" else (),
        "is_deployed": False,
    }
    # A redis-server without certificates, reached through loopback only.
    registry = {"is_encrypted_in_transit": False, "is_authenticated": False}
    return DEV.model_copy(
        update={
            "name": "local",
            "target": DEV.target.model_copy(update=target),
            "registry": DEV.registry.model_copy(update=registry),
        }
    )


def choose_environment(name: object, host: Host, own_names: Iterable[str] = ()) -> Environment:
    """Find an environment by its name.

    Args:
        name: Its name.
        host: The machine that synthesizes.
        own_names: What else is allowed, where it is unknown.

    Raises:
        ConfigurationError: naming what is allowed, when there is none.
    """
    match name:
        case "dev":
            return DEV
        case "prod":
            return PROD
        case "local":
            return build_local(host)
        case _:
            raise ConfigurationError(unknown(f"environment {name!r}", (*ENVIRONMENT_NAMES, *own_names)))
