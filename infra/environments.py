"""The environments `dev`, `prod` and `local`, and every number that differs between them.

Each number is an option (`options.py`) with its unit and its reason. A file or a context overrides it (`config.py`).
This module and `bundle` import no CDK, so that building a layer does not start its Node.js process.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

from infra.errors import ConfigurationError
from infra.options import option

Architecture = Literal["arm64", "x86_64"]

DEFAULT_ENVIRONMENT = "dev"

ENVIRONMENT_NAMES = ("dev", "prod", "local")

PYTHON_VERSIONS = ("3.13", "3.14")
"""What the functions may run on: Lambda's current Pythons, the newest last (decision 15)."""

FULL_CPU_MB = 1769
"""Memory at which Lambda gives a function one whole CPU; below, it gets a share (Lambda guide, "Configure memory")."""

API_SECONDS = 30
"""An HTTP API gives up on a function after 30 s (API Gateway quotas)."""

_DURABLE_NODE_FAMILIES = frozenset({"r6g", "r7g", "r8g", "m6g", "m7g", "m8g", "c7gn", "c8gn"})
"""ElastiCache guide, "Durability: limitations". The x8g families are named on its newer translations only."""

_RETENTION_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288)
"""CloudWatch Logs takes these numbers only (PutRetentionPolicy)."""

_MACHINES: dict[str, Architecture] = {
    "aarch64": "arm64",
    "arm64": "arm64",
    "x86_64": "x86_64",
    "amd64": "x86_64",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSize:
    """How much of everything one function gets."""

    memory_mb: int = option("memory in MB, and with it CPU", at_least=128, at_most=10_240)
    timeout_seconds: int = option("when Lambda stops it, in s", at_least=1, at_most=900)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """Throughput of the on-demand table.

    `None` leaves it to DynamoDB: a new table takes 4,000 writes and 12,000 reads a second, then up to twice its last
    peak. A maximum guards the bill: what exceeds it is throttled. Warm throughput opens partitions in advance of a
    known event, for a one-time price; it can be raised, not lowered.
    """

    max_write_units: int | None = option("on-demand maximum, WCU/s", default=None, at_least=1, at_most=10_000_000)
    max_read_units: int | None = option("on-demand maximum, RCU/s", default=None, at_least=1, at_most=10_000_000)
    warm_write_units: int | None = option("warm throughput, WCU/s", default=None, at_least=4000, at_most=10_000_000)
    warm_read_units: int | None = option("warm throughput, RCU/s", default=None, at_least=12_000, at_most=10_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySize:
    """The ElastiCache for Valkey cluster that holds routes and reports."""

    node_type: str = option(
        "ElastiCache node type of every node", pattern=r"cache\.[a-z0-9]+\.[a-z0-9]+", example="cache.m7g.large"
    )
    shard_count: int = option("Redis shards (node groups)", at_least=1, at_most=500)
    replicas_per_shard: int = option(
        "replicas of each Redis shard; 0 loses the registry with a node, which costs speed only", at_least=0, at_most=5
    )
    is_multi_az: bool = option("whether a replica stands in another availability zone than its primary")
    is_durable: bool = option(
        "whether a write is in the Multi-AZ log before it is acknowledged (`Durability=sync`); fixed at creation"
    )
    is_encrypted_in_transit: bool = option("whether clients speak TLS")
    is_authenticated: bool = option("whether functions prove who they are (IAM), each as a user of its own")

    def __post_init__(self) -> None:
        """Refuse what ElastiCache would refuse only after minutes of deploying."""
        if self.is_multi_az and self.replicas_per_shard == 0:
            raise ConfigurationError("a registry over several zones (is_multi_az) needs a replica per shard")
        if self.is_authenticated and not self.is_encrypted_in_transit:
            raise ConfigurationError("a registry with users (is_authenticated) needs is_encrypted_in_transit")
        if not self.is_durable:
            return
        family = self.node_type.split(".")[1]
        if family not in _DURABLE_NODE_FAMILIES:
            allowed = ", ".join(sorted(_DURABLE_NODE_FAMILIES))
            raise ConfigurationError(f"node type {self.node_type} cannot be durable; allowed families are {allowed}")
        if not (self.is_multi_az and self.replicas_per_shard >= 1 and self.is_encrypted_in_transit):
            raise ConfigurationError("a durable registry needs is_multi_az, a replica and is_encrypted_in_transit")

    @property
    def node_count(self) -> int:
        """Count the nodes, primaries and replicas."""
        return self.shard_count * (1 + self.replicas_per_shard)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiOptions:
    """Who may call the API, from where, and how often.

    The account's default quota is 10,000 requests a second, and Lambda's default concurrency of 1,000 is usually
    reached before.
    """

    write_rate: int = option("requests/s that the write route accepts", at_least=1, at_most=100_000)
    write_burst: int = option("requests that the write route accepts at once", at_least=1, at_most=100_000)
    read_rate: int = option("requests/s that each read route accepts", at_least=1, at_most=100_000)
    read_burst: int = option("requests that each read route accepts at once", at_least=1, at_most=100_000)
    jwt_issuer: str | None = option(
        "issuer of the tokens that are accepted; null: requests signed with IAM",
        default=None,
        pattern=r"https://\S+",
        example="https://login.example.com/",
    )
    jwt_audience: tuple[str, ...] = option("audiences that a token may be for", default=(), example="chat")
    cors_origins: tuple[str, ...] = option(
        "origins of web pages that may call the API; none: no page of another origin",
        default=(),
        pattern=r"\*|https?://[^/\s]+",
        example="https://chat.example.com",
    )

    def __post_init__(self) -> None:
        """Refuse half a JWT authorizer."""
        if (self.jwt_issuer is None) != (not self.jwt_audience):
            raise ConfigurationError("options api.jwt_issuer and api.jwt_audience are given together, or not at all")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmOptions:
    """Whom alarms tell, and what is slow."""

    email: str | None = option(
        "address that a topic of ours tells; it must be confirmed once",
        default=None,
        pattern=r"[^@\s]+@[^@\s]+",
        example="oncall@example.com",
    )
    topic_arn: str | None = option(
        "an SNS topic of yours that is told instead",
        default=None,
        pattern=r"arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:\S+",
        example="arn:aws:sns:eu-west-1:123456789012:oncall",
    )
    slow_write_ms: int = option("latency of a write that 1 % may exceed, in ms", at_least=1, at_most=30_000)
    slow_read_ms: int = option("latency of a read that 1 % may exceed, in ms", at_least=1, at_most=30_000)

    def __post_init__(self) -> None:
        """Refuse two receivers."""
        if self.email is not None and self.topic_arn is not None:
            raise ConfigurationError(
                "option alarms.email is for a topic of ours; give it or alarms.topic_arn, not both"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkOptions:
    """How narrow the functions' way out is."""

    dynamodb_prefix_list: str | None = option(
        "id of the region's prefix list of DynamoDB: the functions' security group then admits it alone",
        default=None,
        pattern=r"pl-[0-9a-f]+",
        example="pl-6da54004",
    )


def linux_wheels(machine: str) -> tuple[str, ...]:
    """List the tags of wheels that Lambda takes: its Amazon Linux 2023 has glibc 2.34."""
    return f"manylinux_2_28_{machine}", f"manylinux2014_{machine}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTarget:
    """What the packages in the dependency layer are built for.

    Attributes:
        python_version: Minor version of the functions' Python, such as `3.14`.
        architecture: The functions' instruction set, in Lambda's words.
        wheel_platforms: Platform tags of the wheels, newest first; none takes those of the running interpreter.
        is_deployed: Whether it goes to Lambda, where bytecode that is not shipped is made anew at each cold start.
    """

    python_version: str = option("Python of the functions", choices=PYTHON_VERSIONS)
    architecture: Architecture
    wheel_platforms: tuple[str, ...]
    is_deployed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Everything that differs between two deployments of the stack. `name` is part of the stack's name."""

    name: str
    target: LayerTarget
    writer: FunctionSize
    reader: FunctionSize
    consumer: FunctionSize
    consumer_concurrency: int = option(
        # Runs overlap on purpose. Starts lie 0 to 119 s apart and a run ends at 180 s at the latest, so three may be
        # at work when the fourth begins. AWS refuses it in accounts that would keep less than 100 unreserved.
        "concurrency that is reserved for the consumer, whose runs overlap",
        at_least=4,
        at_most=100,
    )
    is_snap_started: bool = option(
        "whether writer and reader start from a snapshot (SnapStart), which costs for its cache and each restore"
    )
    log_retention_days: int = option("how long logs are kept, in days", choices=_RETENTION_DAYS)
    is_data_retained: bool = option(
        "whether table and logs outlive the stack, and table and stack are protected from deletion"
    )
    table: TableOptions
    registry: RegistrySize
    api: ApiOptions
    alarms: AlarmOptions
    network: NetworkOptions

    def __post_init__(self) -> None:
        """Refuse a function that may go on after nobody listens."""
        for name, size in (("writer", self.writer), ("reader", self.reader)):
            if size.timeout_seconds >= API_SECONDS:
                raise ConfigurationError(
                    f"option {name}.timeout_seconds should be less than {API_SECONDS}, not {size.timeout_seconds}:"
                    " the API gives up on a function then"
                )


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
    python_version=PYTHON_VERSIONS[-1], architecture="arm64", wheel_platforms=linux_wheels("aarch64")
)
"""arm64 costs about a fifth less per millisecond; every package we ship has
wheels for it."""

DEV = Environment(
    name="dev",
    target=_LAMBDA_TARGET,
    # A request writes one item and sends at most one report; what counts is the cold start, nearly all of it imports.
    writer=FunctionSize(memory_mb=1024, timeout_seconds=10),
    # Up to 16 queries at once, and threads do not share less than one CPU well.
    reader=FunctionSize(memory_mb=FULL_CPU_MB, timeout_seconds=15),
    # Works off a few reports a second; must outlive `run_seconds` (170 s) to end by itself.
    consumer=FunctionSize(memory_mb=512, timeout_seconds=180),
    consumer_concurrency=4,
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
    writer=FunctionSize(memory_mb=FULL_CPU_MB, timeout_seconds=10),
    reader=FunctionSize(memory_mb=FULL_CPU_MB, timeout_seconds=15),
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
    return replace(
        DEV,
        name="local",
        target=LayerTarget(
            python_version=host.python_version,
            architecture=architecture,
            # Elsewhere than on Linux the functions run on the host's own kind of wheels.
            wheel_platforms=wheels if host.system == "Linux" else (),
            is_deployed=False,
        ),
        # A redis-server without certificates, reached through loopback only.
        registry=replace(DEV.registry, is_encrypted_in_transit=False, is_authenticated=False),
    )


def choose_environment(name: object, host: Host) -> Environment:
    """Find an environment by its name.

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
            raise ConfigurationError(f"environment {name!r} is unknown; allowed are {_listed(ENVIRONMENT_NAMES)}")


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"
