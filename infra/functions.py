"""How we make a Lambda function: runtime, layers, logs, tracing, network and a role of its own."""

from __future__ import annotations

from collections.abc import Mapping

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from hotpartition.redis.acl import Role
from hotpartition.runtime.settings import CommonSettings, build_environment
from infra.acknowledgements import acknowledge, acknowledge_wildcards
from infra.bundle import ROOT
from infra.environments import FunctionSize
from infra.layers import COMPILED_PYTHON, Layers
from infra.logs import LogKeeping
from infra.network import Network
from infra.registry import Registry
from infra.settings import select_overrides

LIVE = "live"
"""Alias of the version that starts from a snapshot."""

_NETWORK_INTERFACE_ACTIONS = [
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:UnassignPrivateIpAddresses",
]

_WILDCARD_REASON = (
    "Lambda joins the VPC under the function's role before any network interface exists, and X-Ray has no resources:"
    " neither admits a narrower resource (Lambda guide, 'Required IAM permissions'; X-Ray, 'Resource types')"
)


class FunctionFactory:
    """Makes functions that differ only in code, size, settings and rights."""

    def __init__(
        self,
        scope: Construct,
        *,
        layers: Layers,
        network: Network,
        registry: Registry,
        log_keeping: LogKeeping,
        wiring: Mapping[str, str],
        overrides: Mapping[str, str],
    ) -> None:
        """Take what all functions share.

        Args:
            scope: Where the functions are made.
            layers: Layers, runtime and architecture.
            network: Where the functions run.
            registry: Whom the functions ask for routes.
            log_keeping: Makes their log groups.
            wiring: Settings that come from other resources, by field name.
            overrides: Settings that were asked for, by field name.
        """
        self._scope = scope
        self._layers = layers
        self._network = network
        self._registry = registry
        self._log_keeping = log_keeping
        self._wiring = wiring
        self._overrides = overrides
        self.made: dict[str, lambda_.Function] = {}

    def make(
        self,
        id_: str,
        *,
        folder: str,
        description: str,
        settings: type[CommonSettings],
        size: FunctionSize,
        role: Role,
        reserved_concurrency: int | None = None,
        serves_api: bool = False,
        is_snap_started: bool = False,
    ) -> lambda_.Function:
        """Make the function whose code is `lambdas/<folder>`; it may use the registry as its role may."""
        place = Construct(self._scope, id_)
        log_group = self._log_keeping.make_group(place, "Logs")
        execution_role = _role(place, log_group)
        function = lambda_.Function(
            place,
            "Function",
            description=description,
            code=lambda_.Code.from_asset(str(ROOT / "lambdas" / folder), exclude=COMPILED_PYTHON),
            handler="handler.handler",
            runtime=self._layers.runtime,
            architecture=self._layers.architecture,
            layers=self._layers.of_api if serves_api else self._layers.of_library,
            memory_size=size.memory_mb,
            timeout=cdk.Duration.seconds(size.timeout_seconds),
            reserved_concurrent_executions=reserved_concurrency,
            environment=self._environment(folder, settings, role),
            role=execution_role,
            log_group=log_group,
            # Lambda's own lines as JSON, like those of the functions.
            logging_format=lambda_.LoggingFormat.JSON,
            tracing=lambda_.Tracing.ACTIVE,
            snap_start=lambda_.SnapStartConf.ON_PUBLISHED_VERSIONS if is_snap_started else None,
            vpc=self._network.vpc,
            vpc_subnets=self._network.subnets,
            security_groups=[self._network.function_security_group],
        )
        self._registry.grant_connect(function, role)
        acknowledge_wildcards(execution_role, "Resource::*", reason=_WILDCARD_REASON)
        if not self._layers.is_newest_python:
            acknowledge(
                function,
                "L1",
                reason="The suite runs on this Python; Lambda supports the newer one no longer (decision 39)",
            )
        self.made[folder] = function
        return function

    def _environment(self, folder: str, settings: type[CommonSettings], role: Role) -> dict[str, str]:
        values = select_overrides(settings, {**self._wiring, **self._registry.wiring_of(role), **self._overrides})
        return {
            **build_environment(settings, values),
            "POWERTOOLS_SERVICE_NAME": folder,
            "POWERTOOLS_METRICS_NAMESPACE": cdk.Stack.of(self._scope).stack_name,
            "POWERTOOLS_LOG_LEVEL": "INFO",
        }


def publish(function: lambda_.Function, *, is_snap_started: bool) -> lambda_.IFunction:
    """Choose what is invoked: the function, or the alias of its newest version, which alone starts from a snapshot."""
    return function.add_alias(LIVE) if is_snap_started else function


def _role(scope: Construct, log_group: logs.ILogGroup) -> iam.Role:
    """Make a role without AWS's managed policies, which let a function write to every log group of the account."""
    role = iam.Role(scope, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    log_group.grant_write(role)
    role.add_to_policy(iam.PolicyStatement(actions=_NETWORK_INTERFACE_ACTIONS, resources=["*"]))
    return role
