"""The options of the deployment beside a table, each with its unit and its reason.

This module and `bundle` import no CDK, so that building a layer does not start its Node.js process.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from pydantic import Field, model_validator

from hotpartition_cdk.errors import ConfigurationError
from hotpartition_cdk.options import Options, override

Architecture = Literal["arm64", "x86_64"]

PythonVersion = Literal["3.13", "3.14"]
PYTHON_VERSIONS: tuple[PythonVersion, ...] = get_args(PythonVersion)
"""The allowed runtimes of the functions: Lambda's current Pythons, the newest last."""

TESTED_PYTHON: PythonVersion = "3.13"
"""The newest that the suite runs on as well: no machine that develops this has 3.14."""

CONSUMER = "consumer"
"""Hot keys are found by a stream consumer, for functions with `adaptive()`.

Example:
    >>> HotPartition(stack, "Found", table=readings, detection=CONSUMER)
"""
IN_BAND = "in-band"
"""Functions find hot keys themselves, with `in_band()`.

Example:
    >>> HotPartition(stack, "InBand", table=readings, functions=[ingest], detection=IN_BAND)
"""

ENGINE = "valkey"
ENGINE_VERSION = "9.0"
"""The first version that can be durable; ElastiCache takes no patch level here."""

PARAMETER_FAMILY = "valkey9"
"""Not named in the pages of the ElastiCache guide we could read; as used by public templates that run 9.0. `aws
elasticache describe-cache-engine-versions --engine valkey` lists what a region has."""

LONGEST_NAME = 31
"""Of the name after which alarms, Redis users, dashboard and metrics are called."""

_USER_PREFIX = 26
"""A Redis user's id has at most 40 characters (ElastiCache, `CreateUser`): part of a name, four digits that stand for
all of it and for the registry, the longest of the users, and two hyphens."""

ZONES = 2
"""Availability zones where no option names any: the first two of the account, in the region's order."""

FULL_CPU_MB = 1769
"""Memory at which Lambda gives a function one whole CPU; below, it gets a share (Lambda guide, "Configure memory")."""

_DURABLE_NODE_FAMILIES = frozenset({"r6g", "r7g", "r8g", "m6g", "m7g", "m8g", "c7gn", "c8gn"})
"""ElastiCache guide, "Durability: limitations". The x8g families are named on its newer translations only."""

_MOST_NODES = 500
"""Of one cluster, replicas included, once its quota of 90 is raised (ElastiCache guide, "Quotas")."""

_OVERLAPPING_RUNS = 4
"""Runs of a consumer overlap on purpose. Starts lie 0 to 119 s apart and a run ends at 180 s at the latest, so three
may be at work when the fourth begins."""

RetentionDays = Literal[
    1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288
]
"""CloudWatch Logs takes these numbers only (PutRetentionPolicy)."""


def arn_field(service: str, resource: str, example: str) -> Any:
    """Describe an ARN of a service in some region, by the pattern of its resource."""
    return Field(
        pattern=rf"^arn:aws[a-z-]*:{service}:[a-z0-9-]+:\d{{12}}:{resource}$",
        examples=[f"arn:aws:{service}:eu-west-1:123456789012:{example}"],
    )


NodeType = Annotated[str, Field(pattern=r"^cache\.[a-z0-9]+\.[a-z0-9]+$", examples=["cache.m7g.large"])]
EmailAddress = Annotated[str, Field(pattern=r"^[^@\s]+@[^@\s]+$", examples=["oncall@example.com"])]
TopicArn = Annotated[str, arn_field("sns", r"\S+", "oncall")]
Zone = Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d+[a-z]$", examples=["eu-west-1a"])]
WebPage = Annotated[str, Field(pattern=r"^https?://[^\s#]+$", examples=["https://wiki.example.com/runbook"])]
KeyArn = Annotated[str, arn_field("kms", r"key/[\w-]+", "key/1234abcd-12ab-34cd-56ef-1234567890ab")]

_MACHINES: dict[str, Architecture] = {"aarch64": "arm64", "arm64": "arm64", "x86_64": "x86_64", "amd64": "x86_64"}

ItemT = TypeVar("ItemT")
ListOf = Annotated[tuple[ItemT, ...], Field(strict=False)]
"""TOML and JSON have lists where a value that does not change has a tuple."""


def user_prefix(name: str) -> str:
    """Shorten a name to the prefix of the ids of its Redis users."""
    return name[:_USER_PREFIX].rstrip("-")


class FunctionSize(Options):
    """How much of everything one function gets."""

    memory_mb: int = Field(ge=128, le=10_240, description="memory in MB, and with it CPU")
    timeout_seconds: int = Field(ge=1, le=900, description="when Lambda stops it, in s")


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
        """Refuse values that ElastiCache would refuse only after minutes of deploying."""
        nodes = self.shard_count * (1 + self.replicas_per_shard)
        if nodes > _MOST_NODES:
            raise ValueError(f"a registry has at most {_MOST_NODES} nodes, and shards with replicas are {nodes}")
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


class AlarmOptions(Options):
    """The receivers of alarms."""

    email: EmailAddress | None = Field(
        default=None, description="address that gets alarms by a topic of the stack; it must be confirmed once"
    )
    topic_arn: TopicArn | None = Field(default=None, description="an SNS topic of yours that gets them instead")
    is_silent: bool = Field(default=False, description="whether alarms may reach nobody although data is retained")
    runbook_url: WebPage | None = Field(
        default=None, description="address of the runbook that alarms name; null: its place in this project"
    )

    @model_validator(mode="after")
    def check(self) -> Self:
        """Refuse two receivers of the same alarms."""
        if self.email is not None and self.topic_arn is not None:
            raise ValueError("option alarms.email is for a topic of the stack; give it or alarms.topic_arn, not both")
        return self


class NetworkOptions(Options):
    """Where the VPC stands."""

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


def linux_platform(architecture: str) -> str:
    """Name the platform of wheels that Lambda takes, for uv: its Amazon Linux 2023 has glibc 2.34."""
    return f"{'aarch64' if architecture == 'arm64' else architecture}-manylinux_2_28"


class LayerTarget(Options):
    """What the packages in the dependency layer are built for.

    Attributes:
        python_version: Minor version of the functions' Python, such as `3.13`.
        architecture: The functions' instruction set, in Lambda's words.
        platform: The wheels' platform, in uv's words; empty takes that of this machine.
        is_deployed: Whether it goes to Lambda, where bytecode that is not shipped is made anew at each cold start.
    """

    python_version: PythonVersion = Field(description="Python of the functions")
    architecture: Architecture
    platform: str
    is_deployed: bool = True


LAMBDA_TARGET = LayerTarget(python_version=TESTED_PYTHON, architecture="arm64", platform=linux_platform("arm64"))
"""arm64 costs about a fifth less per millisecond; every package we ship has
wheels for it."""


class CommonOptions(Options):
    """What every deployment chooses, however hot keys are found."""

    target: LayerTarget = LAMBDA_TARGET
    log_retention_days: RetentionDays = Field(description="how long logs are kept, in days")
    is_data_retained: bool = Field(description="whether logs outlive the stack; the journal does if its table does")
    is_protected: bool = Field(
        description="whether the journal is protected from deletion. Set it after the first deployment: one that fails"
        " could not be taken back"
    )
    has_dashboard: bool = Field(description="whether there is a dashboard")
    has_contributor_insights: bool = Field(
        description="whether CloudWatch names throttled keys (Contributor Insights): of the journal, and of a table"
        " that is made here"
    )
    alarms: AlarmOptions
    kms_key_arn: KeyArn | None = Field(
        default=None,
        description="your KMS key for table, Redis and logs; null: keys of AWS. Redis is replaced when it changes",
    )


class HotPartitionOptions(CommonOptions):
    """What is deployed beside a table.

    Example:
        >>> HotPartition(stack, "Large", table=readings, options=SMALL.changed({"log_retention_days": 30}))
    """

    consumer: FunctionSize
    consumer_concurrency: int = Field(
        # AWS refuses a reservation in accounts that would keep less than 100 unreserved; a new account has 10 in all,
        # of which none can be reserved.
        ge=0,
        le=100,
        description="concurrency that is reserved for the consumer, whose runs overlap: at least 4; 0 reserves none",
    )
    registry: RegistrySize
    network: NetworkOptions = NetworkOptions()

    def changed(self, changes: Mapping[str, object]) -> Self:
        """Build options that differ by name, at any depth.

        Raises:
            ConfigurationError: naming every option that is unknown or wrong, and what is allowed.

        Example:
            >>> PRODUCTION.changed({"registry": {"node_type": "cache.r7g.large"}})
        """
        return override(self, changes)

    @model_validator(mode="after")
    def check_concurrency(self) -> Self:
        """Refuse a reservation that the overlapping runs of a consumer would exceed."""
        given = self.consumer_concurrency
        if 0 < given < _OVERLAPPING_RUNS:
            raise ValueError(f"option consumer_concurrency should be 0 or at least {_OVERLAPPING_RUNS}, not {given}")
        return self


SMALL = HotPartitionOptions(
    # Works off a few reports a second; must outlive `run_seconds` (170 s) to end by itself.
    consumer=FunctionSize(memory_mb=512, timeout_seconds=180),
    # A new account cannot reserve any.
    consumer_concurrency=0,
    log_retention_days=7,
    is_data_retained=False,
    is_protected=False,
    has_dashboard=True,
    # `hotpartition hot` names the keys.
    has_contributor_insights=False,
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
    alarms=AlarmOptions(),
)
"""The least bill, for trying it: nothing outlives the stack.

Example:
    >>> SMALL.registry.node_type
    'cache.t4g.micro'
"""

PRODUCTION = SMALL.model_copy(
    update={
        "consumer_concurrency": 4,
        "log_retention_days": 90,
        "is_data_retained": True,
        "has_contributor_insights": True,
        # A failover loses reports of seconds, and routes that the journal has.
        "registry": SMALL.registry.model_copy(
            update={"node_type": "cache.t4g.small", "replicas_per_shard": 1, "is_multi_az": True}
        ),
    }
)
"""No single point of failure, and the data outlives the stack.

Example:
    >>> PRODUCTION.registry.shard_count, PRODUCTION.is_data_retained
    (1, True)
"""

OptionsT = TypeVar("OptionsT", bound=CommonOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The machine that synthesizes.

    Example:
        >>> Host(python_version="3.13", machine="aarch64", system="Linux").python_version
        '3.13'
    """

    python_version: str
    machine: str
    system: str

    @classmethod
    def current(cls) -> Self:
        """Describe the running interpreter."""
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return cls(python_version=version, machine=platform.machine(), system=platform.system())


def run_on(host: Host, options: OptionsT) -> OptionsT:
    """Change options for a run on the machine itself: its Python and processor, and Redis without TLS and users.

    Raises:
        ConfigurationError: Lambda has no such processor.

    Example:
        >>> run_on(Host(python_version="3.12", machine="x86_64", system="Linux"), SMALL).target.architecture
        'x86_64'
    """
    architecture = _MACHINES.get(host.machine.lower())
    if architecture is None:
        allowed = ", ".join(sorted(_MACHINES))
        raise ConfigurationError(f"this machine is a {host.machine}; functions run on {allowed}")
    target = {
        # Which need not be one of Lambda's: a copy is not validated.
        "python_version": host.python_version,
        "architecture": architecture,
        # Elsewhere than on Linux the functions run on the host's own kind of wheels.
        "platform": linux_platform(architecture) if host.system == "Linux" else "",
        "is_deployed": False,
    }
    update: dict[str, object] = {"target": options.target.model_copy(update=target)}
    if isinstance(options, HotPartitionOptions):
        # A redis-server without certificates, reached through loopback only.
        registry = {"is_encrypted_in_transit": False, "is_authenticated": False}
        update["registry"] = options.registry.model_copy(update=registry)
    return options.model_copy(update=update)
