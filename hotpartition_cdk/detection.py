"""The stream consumers, their schedules, and the queue of starts that failed."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_destinations as destinations
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_scheduler_targets as targets
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from hotpartition.core.shares import Share, list_shares
from hotpartition.redis.acl import Role
from hotpartition_cdk.acknowledgements import acknowledge
from hotpartition_cdk.configuration import HotPartitionOptions
from hotpartition_cdk.functions import HANDLERS, FunctionFactory
from hotpartition_cdk.journal import Journal

_USEFUL_FOR = cdk.Duration.seconds(60)
"""A start that is late by a minute is worth nothing: the next one reads the same streams."""


class Detection(Construct):
    """The stream consumer, and a schedule for each share that starts it every minute, once, with no second try.

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
            reserved_concurrency=options.consumers_concurrency or None,
        )
        journal.grant_raise(consumer)
        journal.grant_list(consumer)
        self.failures = self._queue()
        consumer.configure_async_invoke(
            retry_attempts=0, max_event_age=_USEFUL_FOR, on_failure=destinations.SqsDestination(self.failures)
        )
        # Made here, because the one that the target makes may invoke every version of the function as well.
        role = self._role(consumer).without_policy_updates()
        for share in list_shares(options.consumers):
            scheduler.Schedule(
                self,
                f"EveryMinute{share.index or ''}",
                description="Starts the stream consumer; runs overlap on purpose",
                schedule=scheduler.ScheduleExpression.rate(cdk.Duration.minutes(1)),
                target=targets.LambdaInvoke(
                    consumer,
                    input=_event(share),
                    role=role,
                    retry_attempts=0,
                    max_event_age=_USEFUL_FOR,
                    dead_letter_queue=self.failures,
                ),
            )

    def _queue(self) -> sqs.Queue:
        failures = sqs.Queue(
            self,
            "Failures",
            enforce_ssl=True,
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            # As long as SQS keeps anything: it is for people, and there is nothing to repeat.
            retention_period=cdk.Duration.days(14),
        )
        acknowledge(
            failures,
            "SQS3",
            reason="This is the dead-letter queue, of the schedule and of the function's asynchronous invocations;"
            " the rule only knows those of other queues",
        )
        return failures

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
        self.failures.grant(role, "sqs:SendMessage")
        return role


def _event(share: Share) -> scheduler.ScheduleTargetInput | None:
    """Build the event of one share's consumer; the only consumer gets the Scheduler's own."""
    if share.is_whole:
        return None
    # The share's own names; the time as the Scheduler's own event has it.
    return scheduler.ScheduleTargetInput.from_object(
        {"time": scheduler.ContextAttribute.scheduled_time, "share": share.encode()}
    )
