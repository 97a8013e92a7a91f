"""Makes the project's Lambda functions: runtime, layers, logs, tracing, network and a role of its own for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_scheduler_targets as targets
from constructs import Construct

from hotpartition.redis.acl import Role
from hotpartition.runtime.settings import Settings
from hotpartition_cdk.configuration import FunctionSize, HotPartitionOptions
from hotpartition_cdk.journal import Journal
from hotpartition_cdk.layers import COMPILED_PYTHON, Layers
from hotpartition_cdk.logs import LogKeeping
from hotpartition_cdk.network import Network
from hotpartition_cdk.registry import RegistryUsers
from hotpartition_cdk.rights import acknowledge

_HERE = Path(__file__).resolve().parent
HANDLERS = next(
    folder for folder in (_HERE.parent / "lambdas", _HERE / "handlers") if (folder / "operate" / "handler.py").is_file()
)
"""The code of the construct's own functions: beside this package in a checkout, in it where it was installed."""

NETWORK_INTERFACE_ACTIONS = [
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:UnassignPrivateIpAddresses",
]

TRACING_REASON = "X-Ray has no resources (X-Ray, 'Resource types')"

WILDCARD_REASON = (
    "Lambda joins the VPC under the function's role before any network interface exists, and X-Ray has no resources:"
    " neither admits a narrower resource (Lambda guide, 'Required IAM permissions'; X-Ray, 'Resource types')"
)

_USEFUL_FOR = cdk.Duration.seconds(60)
"""A start that is late by a minute is worth nothing: the next one reads the same streams."""

OPERATIONS_SIZE = FunctionSize(
    # It works for minutes a month. `hotpartition hot` parses reports by the thousand.
    memory_mb=512,
    # A part of a long command ends after 15 s by itself; the rest is for a store that refuses meanwhile.
    timeout_seconds=60,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionFactory:
    """Makes functions that differ only in code, size, settings and rights.

    Without a registry they have neither network nor users. The wiring is their settings, by field name; the namespace
    is that of their metrics; `made` has them by folder.
    """

    scope: Construct
    layers: Layers
    network: Network | None
    users: RegistryUsers | None
    log_keeping: LogKeeping
    wiring: Mapping[str, str]
    namespace: str
    made: dict[str, lambda_.Function] = field(default_factory=dict, init=False)

    def make(
        self,
        id_: str,
        *,
        code: Path,
        description: str,
        known_as: str,
        settings: type[Settings] = Settings,
        size: FunctionSize,
        user: str,
        reserved_concurrency: int | None = None,
        more_layers: Sequence[lambda_.ILayerVersion] = (),
    ) -> lambda_.Function:
        """Make the function whose handler lies in a folder, which names it; its settings know it as `known_as`.

        Its user is that of Redis.
        """
        place = Construct(self.scope, id_)
        log_group = self.log_keeping.make_group(place, "Logs")
        execution_role = _role(place, log_group, joins_vpc=self.network is not None)
        function = lambda_.Function(
            place,
            "Function",
            description=description,
            code=lambda_.Code.from_asset(str(code), exclude=COMPILED_PYTHON),
            handler="handler.handler",
            runtime=self.layers.runtime,
            architecture=self.layers.architecture,
            layers=[self.layers.library, *more_layers, self.layers.dependencies],
            memory_size=size.memory_mb,
            timeout=cdk.Duration.seconds(size.timeout_seconds),
            reserved_concurrent_executions=reserved_concurrency,
            environment=self._environment(code.name, settings, known_as, user),
            role=execution_role,
            log_group=log_group,
            # Lambda's own lines as JSON, like those of the functions.
            logging_format=lambda_.LoggingFormat.JSON,
            tracing=lambda_.Tracing.ACTIVE,
            **_place_in(self.network),
        )
        if self.users is not None:
            self.users.grant_connect(function, user)
        reason = WILDCARD_REASON if self.network is not None else TRACING_REASON
        acknowledge(execution_role, "IAM5[Resource::*]", reason=reason)
        if not self.layers.is_newest_python:
            acknowledge(function, "L1", reason="The suite runs on this Python; Lambda supports the newer one no longer")
        self.made[code.name] = function
        return function

    def _environment(self, name: str, settings: type[Settings], known_as: str, user: str) -> dict[str, str]:
        of_user = self.users.wiring_of(user) if self.users is not None else {}
        return {
            **settings.build_environment(known_as, {**self.wiring, **of_user}),
            "POWERTOOLS_SERVICE_NAME": name,
            "POWERTOOLS_METRICS_NAMESPACE": self.namespace,
            "POWERTOOLS_LOG_LEVEL": "INFO",
        }


def wire_table(scope: Construct, table: dynamodb.ITable, journal: Journal) -> dict[str, str]:
    """Build the settings that say where items and routes are, by field name."""
    stack = cdk.Stack.of(scope)
    return {
        "table_name": table.table_name,
        "dynamodb_endpoint": f"https://dynamodb.{stack.region}.{stack.url_suffix}",
        **journal.wiring(),
    }


def _place_in(network: Network | None) -> dict[str, Any]:
    if network is None:
        return {}
    return {
        "vpc": network.vpc,
        "vpc_subnets": ec2.SubnetSelection(subnets=network.subnets),
        "security_groups": [network.function_security_group],
    }


def _role(scope: Construct, log_group: logs.ILogGroup, *, joins_vpc: bool) -> iam.Role:
    """Make a role without AWS's managed policies, which let a function write to every log group of the account."""
    role = iam.Role(scope, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
    log_group.grant_write(role)
    if joins_vpc:
        role.add_to_policy(iam.PolicyStatement(actions=NETWORK_INTERFACE_ACTIONS, resources=["*"]))
    return role


class Operations(Construct):
    """The operations function, which may read and raise routes and list them, and no more.

    Only `hotpartition`, the command-line tool, invokes it. The account's own policies grant the right to
    (`lambda:InvokeFunction`); none is granted here.
    """

    def __init__(self, scope: Construct, id_: str, *, functions: FunctionFactory, journal: Journal) -> None:
        super().__init__(scope, id_)
        self.function = functions.make(
            "Operate",
            code=HANDLERS / "operate",
            description="Serves operators: what is hot, where its routes are; raises by hand, repairs the registry",
            known_as="operate" if functions.users is not None else "in-band operate",
            size=OPERATIONS_SIZE,
            user=Role.OPERATOR,
        )
        journal.grant_raise(self.function)
        journal.grant_list(self.function)
        cdk.CfnOutput(functions.scope, "OperateFunctionName", value=self.function.function_name)


class Detection(Construct):
    """The stream consumer, and a schedule that starts it every minute, once, with no second try.

    The Scheduler puts the event into Lambda's own queue, so neither may try again: the Scheduler after an event that
    Lambda refuses, Lambda after a run that fails or finds no free concurrency.
    """

    def __init__(
        self, scope: Construct, id_: str, *, functions: FunctionFactory, journal: Journal, options: HotPartitionOptions
    ) -> None:
        super().__init__(scope, id_)
        self.consumer = consumer = functions.make(
            "ConsumeReports",
            code=HANDLERS / "consume_reports",
            description="Sums the load reports, decides shard counts and raises them",
            known_as="consumer",
            size=options.consumer,
            user=Role.CONSUMER,
            reserved_concurrency=options.consumer_concurrency or None,
        )
        journal.grant_raise(consumer)
        journal.grant_list(consumer)
        consumer.configure_async_invoke(retry_attempts=0, max_event_age=_USEFUL_FOR)
        scheduler.Schedule(
            self,
            "EveryMinute",
            description="Starts the stream consumer; runs overlap on purpose",
            schedule=scheduler.ScheduleExpression.rate(cdk.Duration.minutes(1)),
            target=targets.LambdaInvoke(
                consumer,
                # Made here, because the one that the target makes may invoke every version of the function as well.
                role=self._role(consumer).without_policy_updates(),
                retry_attempts=0,
                max_event_age=_USEFUL_FOR,
            ),
        )

    def _role(self, consumer: lambda_.Function) -> iam.Role:
        role = iam.Role(
            self,
            "ScheduleRole",
            description="Starts the stream consumer",
            assumed_by=iam.ServicePrincipal(
                "scheduler.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": cdk.Aws.ACCOUNT_ID}}
            ),
        )
        role.add_to_policy(iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[consumer.function_arn]))
        return role
