"""The stream consumer and its schedule."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_scheduler_targets as targets
from constructs import Construct

from hotpartition.redis.acl import Role
from hotpartition_cdk.configuration import HotPartitionOptions
from hotpartition_cdk.functions import HANDLERS, FunctionFactory
from hotpartition_cdk.journal import Journal

_USEFUL_FOR = cdk.Duration.seconds(60)
"""A start that is late by a minute is worth nothing: the next one reads the same streams."""


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
