"""The stack: builds the constructs, hands them to one another, and grants access."""

from __future__ import annotations

from collections.abc import Mapping

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from hotpartition.redis.acl import Role
from hotpartition.runtime.settings import ConsumerSettings, ReaderSettings, WriterSettings
from infra.alarms import Subject, WatchedRoute, list_alarms
from infra.api import MESSAGE_PATH, MESSAGES_PATH, MessageApi
from infra.detection import Detection
from infra.environments import Environment
from infra.functions import FunctionFactory, publish
from infra.layers import Layers
from infra.logs import LogKeeping
from infra.monitoring import Monitoring
from infra.network import Network
from infra.operations import make_operations
from infra.registry import Registry
from infra.table import ROUTING_INDEX, MessageTable

_TABLE_ACTIONS = (
    "dynamodb:BatchGetItem",
    "dynamodb:GetItem",
    "dynamodb:PutItem",
    "dynamodb:Query",
    "dynamodb:UpdateItem",
)
"""All that any function does with the table; the endpoint lets nothing else through."""


class HotPartitionStack(cdk.Stack):
    """Everything, in one stack that knows no account and no region."""

    def __init__(self, scope: Construct, id_: str, *, environment: Environment, overrides: Mapping[str, str]) -> None:
        super().__init__(
            scope,
            id_,
            description="hotpartition: spreads the writes of hot conversations over shards",
            termination_protection=environment.is_data_retained,
        )
        removal = cdk.RemovalPolicy.RETAIN if environment.is_data_retained else cdk.RemovalPolicy.DESTROY
        log_keeping = LogKeeping(
            retention_days=environment.log_retention_days,
            removal_policy=removal,
            key_arn=environment.kms_key_arn,
        )
        network = Network(self, "Network", options=environment.network, log_keeping=log_keeping)
        self._table = MessageTable(
            self,
            "Messages",
            options=environment.table,
            is_retained=environment.is_data_retained,
            key_arn=environment.kms_key_arn,
        )
        self._registry = Registry(
            self,
            "Valkey",
            network=network,
            size=environment.registry,
            table_name=self._table.table_name,
            key_arn=environment.kms_key_arn,
        )
        self._functions = FunctionFactory(
            self,
            layers=Layers(self, "Layers", target=environment.target),
            network=network,
            registry=self._registry,
            log_keeping=log_keeping,
            wiring=self._wiring(environment),
            overrides=overrides,
        )
        writer = self._make_writer(environment)
        reader = self._make_reader(environment)
        consumer = self._make_consumer(environment)
        operator = make_operations(self._functions, self._table)
        network.allow_dynamodb(_TABLE_ACTIONS, [self._table.table_arn, self._table.index_arn])
        detection = Detection(self, "Detection", consumer=consumer, consumers=environment.consumers)
        api = MessageApi(
            self,
            "Api",
            writer=publish(writer, is_snap_started=environment.is_snap_started),
            reader=publish(reader, is_snap_started=environment.is_snap_started),
            options=environment.api,
            access_log=log_keeping.make_group(self, "AccessLog", name=self._vended_log_name("access")),
        )
        self._watch(environment, api, detection)
        self._add_outputs(api, writer=writer, reader=reader, consumer=consumer)
        cdk.CfnOutput(self, "OperateFunctionName", value=operator.function_name)
        if environment.permissions_boundary is not None:
            boundary = iam.ManagedPolicy.from_managed_policy_arn(self, "Boundary", environment.permissions_boundary)
            iam.PermissionsBoundary.of(self).apply(boundary)

    def _vended_log_name(self, name: str) -> str:
        """Name a log group that AWS delivers to.

        API Gateway admits itself to each group by one policy of the account, which holds 5,120 characters: names under
        `/aws/vendedlogs/` share an entry of it. A part of the stack's own id keeps the name apart from the group that
        an earlier stack of the same name left behind.
        """
        uuid = cdk.Fn.select(2, cdk.Fn.split("/", self.stack_id))
        return f"/aws/vendedlogs/{self.stack_name}/{name}-{cdk.Fn.select(0, cdk.Fn.split('-', uuid))}"

    def _wiring(self, environment: Environment) -> dict[str, str]:
        return {
            "table_name": self._table.table_name,
            "dynamodb_endpoint": f"https://dynamodb.{self.region}.{self.url_suffix}",
            "routing_index_name": ROUTING_INDEX,
            "consumers": str(environment.consumers),
            **({"retention_days": str(environment.retention_days)} if environment.retention_days else {}),
            **({"sender_claim": environment.api.sender_claim} if environment.api.sender_claim else {}),
            **self._registry.wiring(),
        }

    def _make_writer(self, environment: Environment) -> lambda_.Function:
        writer = self._functions.make(
            "WriteMessage",
            folder="write_message",
            description="Stores a message on the shard that its conversation's route names",
            settings=WriterSettings,
            size=environment.writer,
            role=Role.WRITER,
            serves_api=True,
            is_snap_started=environment.is_snap_started,
        )
        # Refreshing a route from the journal; looking whether a message that is sent again lies at another choice, and
        # where all copies of one lie that is edited or deleted. Both of these are puts.
        self._table.grant_items(writer, "dynamodb:BatchGetItem", "dynamodb:GetItem")
        self._table.grant_message_put(writer)
        return writer

    def _make_reader(self, environment: Environment) -> lambda_.Function:
        reader = self._functions.make(
            "ReadMessages",
            folder="read_messages",
            description="Gathers a conversation's messages from all of its shards",
            settings=ReaderSettings,
            size=environment.reader,
            role=Role.READER,
            serves_api=True,
            is_snap_started=environment.is_snap_started,
        )
        self._table.grant_items(reader, "dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:Query")
        return reader

    def _make_consumer(self, environment: Environment) -> lambda_.Function:
        consumer = self._functions.make(
            "ConsumeReports",
            folder="consume_reports",
            description="Sums the load reports, decides shard counts and raises them",
            settings=ConsumerSettings,
            size=environment.consumer,
            role=Role.CONSUMER,
            reserved_concurrency=environment.reserved_concurrency,
        )
        self._table.grant_items(consumer, "dynamodb:GetItem")
        self._table.grant_journal_update(consumer)
        self._table.grant_index_query(consumer)
        return consumer

    def _watch(self, environment: Environment, api: MessageApi, detection: Detection) -> None:
        functions = self._functions.made
        slow_read_ms = environment.alarms.slow_read_ms
        slow_write_ms = environment.alarms.slow_write_ms
        routes = (
            WatchedRoute(name="Write", method="POST", path=MESSAGES_PATH, slow_ms=slow_write_ms),
            WatchedRoute(name="Edit", method="PATCH", path=MESSAGE_PATH, slow_ms=slow_write_ms),
            WatchedRoute(name="Delete", method="DELETE", path=MESSAGE_PATH, slow_ms=slow_write_ms),
            WatchedRoute(name="ReadPage", method="GET", path=MESSAGES_PATH, slow_ms=slow_read_ms),
            WatchedRoute(name="ReadMessage", method="GET", path=MESSAGE_PATH, slow_ms=slow_read_ms),
        )
        Monitoring(
            self,
            "Monitoring",
            alarms=list_alarms(environment, functions=tuple(functions), routes=routes),
            subjects={
                Subject.TABLE: self._table.table_name,
                Subject.INDEX: ROUTING_INDEX,
                Subject.API: api.api_id,
                Subject.QUEUE: detection.failures.queue_name,
            },
            functions={folder: function.function_name for folder, function in functions.items()},
            nodes=self._registry.node_ids,
            options=environment.alarms,
        )

    def _add_outputs(
        self, api: MessageApi, *, writer: lambda_.Function, reader: lambda_.Function, consumer: lambda_.Function
    ) -> None:
        outputs = {
            "ApiUrl": api.url,
            "TableName": self._table.table_name,
            "RegistryEndpoint": f"{self._registry.host}:{self._registry.port}",
            "WriteMessageFunctionName": writer.function_name,
            "ReadMessagesFunctionName": reader.function_name,
            "ConsumeReportsFunctionName": consumer.function_name,
        }
        for name, value in outputs.items():
            cdk.CfnOutput(self, name, value=value)
