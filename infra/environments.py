"""The environments `dev`, `prod` and `local`, and every number that differs between them.

This module and `bundle` import no CDK, so that building a layer does not start its Node.js process.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

from infra.errors import ConfigurationError

Architecture = Literal["arm64", "x86_64"]

DEFAULT_ENVIRONMENT = "dev"

ENVIRONMENT_NAMES = ("dev", "prod", "local")

FULL_CPU_MB = 1769
"""Memory at which Lambda gives a function one whole CPU; below, it gets a share (Lambda guide, "Configure memory")."""

_DURABLE_NODE_FAMILIES = frozenset({"r6g", "r7g", "r8g", "m6g", "m7g", "m8g", "c7gn", "c8gn"})
"""ElastiCache guide, "Durability: limitations". The x8g families are named on its newer translations only."""

_MACHINES: dict[str, Architecture] = {
    "aarch64": "arm64",
    "arm64": "arm64",
    "x86_64": "x86_64",
    "amd64": "x86_64",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSize:
    """How much of everything one function gets."""

    memory_mb: int
    timeout_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySize:
    """The ElastiCache for Valkey cluster that holds routes and reports.

    Attributes:
        node_type: ElastiCache node type of every node.
        shard_count: Redis shards (node groups) of the cluster.
        replicas_per_shard: Replicas of each Redis shard; 0 loses the registry with a node, which costs speed only.
        is_multi_az: Whether a replica stands in another availability zone than its primary.
        is_durable: Whether writes go to the Multi-AZ transaction log before they are acknowledged
            (`Durability=sync`). ElastiCache fixes this when the cluster is created.
        is_encrypted_in_transit: Whether clients speak TLS.
    """

    node_type: str
    shard_count: int
    replicas_per_shard: int
    is_multi_az: bool
    is_durable: bool
    is_encrypted_in_transit: bool

    def __post_init__(self) -> None:
        """Refuse what ElastiCache would refuse only after minutes of deploying."""
        if not self.is_durable:
            return
        family = self.node_type.split(".")[1]
        if family not in _DURABLE_NODE_FAMILIES:
            allowed = ", ".join(sorted(_DURABLE_NODE_FAMILIES))
            raise ConfigurationError(f"node type {self.node_type} cannot be durable; allowed families are {allowed}")
        if not (self.is_multi_az and self.replicas_per_shard >= 1 and self.is_encrypted_in_transit):
            raise ConfigurationError("a durable registry needs is_multi_az, a replica and is_encrypted_in_transit")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTarget:
    """What the packages in the dependency layer are built for.

    Attributes:
        python_version: Minor version of the functions' Python, such as `3.13`.
        architecture: The functions' instruction set, in Lambda's words.
        wheel_platform: Platform tag of the wheels; None takes those of the running interpreter.
    """

    python_version: str
    architecture: Architecture
    wheel_platform: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Everything that differs between two deployments of the stack.

    Attributes:
        name: `dev`, `prod` or `local`; part of the stack's name.
        target: Python version and architecture of functions and layers.
        writer, reader, consumer: Sizes of the three functions.
        consumer_concurrency: Reserved concurrency of the consumer: its runs overlap on purpose. Starts lie 0 to
            119 s apart and a run ends at 180 s at the latest, so three may be at work when the fourth begins.
            AWS refuses it in accounts that would keep less than 100 unreserved.
        api_rate_limit: Requests per second that the API accepts; the account's default quota is 10,000, and
            Lambda's default concurrency of 1,000 is usually reached before.
        api_burst_limit: Requests that the API accepts at once, above the rate.
        log_retention_days: How long logs are kept.
        is_data_retained: Whether table, registry and logs outlive the stack, and table and stack are protected from
            deletion.
        registry: Size of the Valkey cluster.
    """

    name: str
    target: LayerTarget
    writer: FunctionSize
    reader: FunctionSize
    consumer: FunctionSize
    consumer_concurrency: int
    api_rate_limit: int
    api_burst_limit: int
    log_retention_days: int
    is_data_retained: bool
    registry: RegistrySize


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


_LAMBDA_TARGET = LayerTarget(python_version="3.13", architecture="arm64", wheel_platform="manylinux2014_aarch64")
"""arm64 costs about a fifth less per millisecond; every package we ship has wheels for it."""

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
    api_rate_limit=500,
    api_burst_limit=250,
    log_retention_days=7,
    is_data_retained=False,
    registry=RegistrySize(
        # The smallest there is. One node: its loss empties the registry, which readers survive by the journal.
        node_type="cache.t4g.micro",
        shard_count=1,
        replicas_per_shard=0,
        is_multi_az=False,
        is_durable=False,
        is_encrypted_in_transit=True,
    ),
)

PROD = Environment(
    name="prod",
    target=_LAMBDA_TARGET,
    writer=FunctionSize(memory_mb=FULL_CPU_MB, timeout_seconds=10),
    reader=FunctionSize(memory_mb=FULL_CPU_MB, timeout_seconds=15),
    # One thread reads, parses and sums the reports of the whole fleet: a whole CPU is all that it can use.
    consumer=FunctionSize(memory_mb=FULL_CPU_MB, timeout_seconds=180),
    consumer_concurrency=4,
    api_rate_limit=5000,
    api_burst_limit=2500,
    log_retention_days=90,
    is_data_retained=True,
    registry=RegistrySize(
        # The smallest current family that may be durable.
        node_type="cache.m7g.large",
        # Two, so that a failover leaves half of the routes and report streams untouched.
        shard_count=2,
        replicas_per_shard=1,
        is_multi_az=True,
        is_durable=True,
        is_encrypted_in_transit=True,
    ),
)


def build_local(host: Host) -> Environment:
    """Build the environment that the local run reads: `dev`, on the host's Python and processor, without TLS.

    Raises:
        ConfigurationError: when Lambda has no such processor.
    """
    architecture = _MACHINES.get(host.machine.lower())
    if architecture is None:
        allowed = ", ".join(sorted(_MACHINES))
        raise ConfigurationError(f"this machine is a {host.machine}; environment local runs on {allowed}")
    wheels = f"manylinux2014_{'aarch64' if architecture == 'arm64' else architecture}"
    return replace(
        DEV,
        name="local",
        target=LayerTarget(
            python_version=host.python_version,
            architecture=architecture,
            # Elsewhere than on Linux the functions run on the host's own kind of wheels.
            wheel_platform=wheels if host.system == "Linux" else None,
        ),
        # A redis-server without certificates, reached through loopback only.
        registry=replace(DEV.registry, is_encrypted_in_transit=False),
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
