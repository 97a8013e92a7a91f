"""Functions of the construct's user that use a table through `ShardedTable`, each with the least rights it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from hotpartition.runtime.settings import Settings
from hotpartition_cdk.bundle import CLIENT_PACKAGES
from hotpartition_cdk.checks import (
    check_client,
    check_environment,
    check_policies,
    check_stacks,
    check_vpc,
    claim_function,
)
from hotpartition_cdk.configuration import LAMBDA_TARGET, LayerTarget, linux_platform
from hotpartition_cdk.errors import ConfigurationError
from hotpartition_cdk.functions import NETWORK_INTERFACE_ACTIONS, WILDCARD_REASON
from hotpartition_cdk.journal import Journal
from hotpartition_cdk.layers import Layers
from hotpartition_cdk.network import REGISTRY_PORT, Network
from hotpartition_cdk.registry import RegistryUsers
from hotpartition_cdk.rights import acknowledge, grant_table

_READS = ("BatchGetItem", "DescribeTable", "GetItem", "Query", "Scan")
_CHANGES = ("BatchWriteItem", "ConditionCheckItem", "DeleteItem", "PutItem", "UpdateItem")


class Kind(StrEnum):
    """The kind of use that a function makes of the table; also the end of its Redis user's name."""

    TABLE = "table"
    READER = "reader"


ACTIONS: Mapping[Kind, tuple[str, ...]] = {
    Kind.TABLE: tuple(f"dynamodb:{name}" for name in sorted((*_READS, *_CHANGES))),
    Kind.READER: tuple(f"dynamodb:{name}" for name in _READS),
}
"""The actions of `ShardedTable` on the table for each kind of function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """Gives functions a layer, settings, rights and a way to the registry.

    The wiring is their settings, by field name; with a given VPC, functions can be in it already, and with `is_joining`
    those outside any VPC are put into it.
    """

    scope: Construct
    table: dynamodb.ITable
    indexes: Sequence[str]
    journal: Journal
    network: Network
    users: RegistryUsers
    wiring: Mapping[str, str]
    is_vpc_given: bool
    is_joining: bool
    _layers: dict[tuple[str, str], Layers] = field(default_factory=dict, init=False)

    def add(self, function: lambda_.Function, kind: Kind) -> None:
        """Let a function use the table.

        Raises:
            ConfigurationError: its runtime, its place or what it has already does not fit.
        """
        place = claim_function(self.scope, function)
        check_stacks(self.scope, function, {"table": self.table, "VPC": self.network.vpc})
        values = {**self.wiring, **self.users.wiring_of(kind)}
        # Theirs is the client of the boto3 `Table` that they give.
        values.pop("dynamodb_endpoint", None)
        _set_environment(function, "adaptive()", values)
        layers = self._find_layers(function)
        if layers is not None:
            function.add_layers(layers.library, layers.dependencies)
        _grant_items(function, self.table, self.indexes, kind)
        if self.journal.is_apart:
            self.journal.grant_read(function)
        self.users.grant_connect(function, kind)
        self._connect(function, place)

    def _find_layers(self, function: lambda_.Function) -> Layers | None:
        """Find the layers for a function's Python and processor; None for a container image, which brings its own."""
        runtime = function.runtime.name
        if runtime == lambda_.Runtime.FROM_IMAGE.name:
            return None
        version = runtime.removeprefix("python")
        machine = function.architecture.name
        if (version, machine) not in self._layers:
            changes = {"python_version": version, "architecture": machine, "platform": linux_platform(machine)}
            target: LayerTarget = LAMBDA_TARGET.model_copy(update=changes)
            id_ = f"LayersPython{version.replace('.', '')}{'Arm' if machine == 'arm64' else 'X86'}"
            self._layers[version, machine] = Layers(self.scope, id_, target=target, packages=CLIENT_PACKAGES)
        return self._layers[version, machine]

    def _connect(self, function: lambda_.Function, place: Construct) -> None:
        """Let it reach the registry; one that is in no VPC joins the network, if it may."""
        if function.is_bound_to_vpc:
            if not self.is_vpc_given:
                raise ConfigurationError(
                    f"{function.node.path} runs in a VPC, from which the registry in a new one cannot be reached: give"
                    f" that VPC to {self.scope.node.path} as vpc="
                )
            check_vpc(self.scope, function, self.network.vpc)
            function.connections.allow_to(
                self.network.registry_security_group, ec2.Port.tcp(REGISTRY_PORT), "function to registry"
            )
            return
        if not self.is_joining:
            reached = "what its subnets reach over HTTPS" if self.is_vpc_given else "DynamoDB and Redis, no internet"
            raise ConfigurationError(
                f"{function.node.path} runs in no VPC, and in that of the registry it reaches nothing but {reached}:"
                " say is_joining=True if that will do, or detection=IN_BAND, which needs no VPC"
            )
        resource = function.node.default_child
        if not isinstance(resource, lambda_.CfnFunction) or function.role is None:
            raise TypeError("the function's resource is not its default child")
        resource.vpc_config = lambda_.CfnFunction.VpcConfigProperty(
            security_group_ids=[self.network.function_security_group.security_group_id],
            subnet_ids=[subnet.subnet_id for subnet in self.network.subnets],
        )
        policy = iam.Policy(place, "JoinVpc", roles=[function.role])
        policy.add_statements(iam.PolicyStatement(actions=NETWORK_INTERFACE_ACTIONS, resources=["*"]))
        acknowledge(policy, "IAM5[Resource::*]", reason=WILDCARD_REASON)
        resource.node.add_dependency(policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class InBandClients:
    """Gives functions that find hot keys themselves (`in_band()`) settings and rights.

    Without a journal, routing and load items lie in the table, in which writers may change items anyway.
    """

    scope: Construct
    table: dynamodb.ITable
    indexes: Sequence[str]
    journal: Journal | None
    settings: Mapping[str, str]

    def add(self, function: lambda_.Function, kind: Kind) -> None:
        """Let a function use the table.

        Raises:
            ConfigurationError: it is not a function of this app, or another HotPartition has it.
        """
        claim_function(self.scope, function)
        wiring = self.journal.wiring() if self.journal is not None else {}
        values = {"table_name": self.table.table_name, **wiring, **self.settings}
        _set_environment(function, "in_band()", values)
        _grant_items(function, self.table, self.indexes, kind)
        if self.journal is None or not self.journal.is_apart:
            return
        self.journal.grant_read(function)
        if kind is Kind.TABLE:
            self.journal.grant_raise(function)
            self.journal.grant_load_update(function)


def _grant_items(function: lambda_.Function, table: dynamodb.ITable, indexes: Sequence[str], kind: Kind) -> None:
    """Allow the actions of `ShardedTable` on the items."""
    grant_table(function, table, ACTIONS[kind])
    check_policies(function)
    if indexes:
        arns = [f"{table.table_arn}/index/{name}" for name in indexes]
        iam.Grant.add_to_principal(grantee=function, actions=["dynamodb:Query", "dynamodb:Scan"], resource_arns=arns)


def _set_environment(function: lambda_.Function, known_as: str, values: Mapping[str, str]) -> None:
    check_client(function)
    environment = Settings.build_environment(known_as, values)
    check_environment(function, environment)
    for name, value in environment.items():
        function.add_environment(name, value)
