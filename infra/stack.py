"""The stack: builds the constructs, hands them to one another, and grants access."""

from __future__ import annotations

from collections.abc import Mapping

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from hotpartition.redis.acl import Role
from hotpartition_cdk.alarms import Subject, list_alarms
from hotpartition_cdk.functions import publish
from hotpartition_cdk.hot_partition import HotPartition, Use
from hotpartition_cdk.monitoring import Monitoring
from hotpartition_messages.settings import ReadSettings, WriteSettings
from infra.api import MessageApi
from infra.bundle import MESSAGES, ROOT
from infra.environments import Environment
from infra.table import ROUTING_INDEX, MessageTable

_LAMBDAS = ROOT / "lambdas"

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
        self._messages = MessageTable(
            self,
            "Messages",
            options=environment.table,
            is_retained=environment.is_data_retained,
            key_arn=environment.kms_key_arn,
        )
        # An id that the CDK leaves out of logical ids: they are as if all of it were made in the stack itself.
        self._hot = HotPartition(
            self,
            "Default",
            table=self._messages.table,
            journal=self._messages.journal,
            options=environment,
            use=Use(
                settings={**_wiring(environment), **overrides},
                users={role: (role,) for role in (Role.WRITER, Role.READER)},
            ),
            name=self.stack_name,
            is_watched=False,
        )
        # The cluster's identity: another logical id is another, empty cluster.
        self._hot.registry.cluster.override_logical_id("Registry")
        self._hot.network.allow_dynamodb(
            _TABLE_ACTIONS, [self._messages.table.table_arn, f"{self._messages.table.table_arn}/index/{ROUTING_INDEX}"]
        )
        self._messages_layer = self._hot.layers.add_package("Messages", "hotpartition: the messages API", MESSAGES)
        writer = self._make_writer(environment)
        reader = self._make_reader(environment)
        api = MessageApi(
            self,
            "Api",
            writer=publish(writer, is_snap_started=environment.is_snap_started),
            reader=publish(reader, is_snap_started=environment.is_snap_started),
            options=environment.api,
            access_log=self._hot.log_keeping.make_group(self, "AccessLog", name=self._vended_log_name("access")),
        )
        self._watch(environment, api)
        self._add_outputs(api, writer=writer, reader=reader)
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

    def _make_writer(self, environment: Environment) -> lambda_.Function:
        writer = self._hot.functions.make(
            "WriteMessage",
            code=_LAMBDAS / "write_message",
            description="Stores a message on the shard that its conversation's route names",
            settings=WriteSettings,
            size=environment.writer,
            user=Role.WRITER,
            more_layers=[self._messages_layer],
            is_snap_started=environment.is_snap_started,
        )
        # Refreshing a route from the journal; looking whether a message that is sent again lies at another choice, and
        # where all copies of one lie that is edited or deleted. Both of these are puts.
        self._messages.grant_items(writer, "dynamodb:BatchGetItem", "dynamodb:GetItem")
        self._messages.grant_message_put(writer)
        self._messages.grant_counter_update(writer)
        return writer

    def _make_reader(self, environment: Environment) -> lambda_.Function:
        reader = self._hot.functions.make(
            "ReadMessages",
            code=_LAMBDAS / "read_messages",
            description="Gathers a conversation's messages from all of its shards",
            settings=ReadSettings,
            size=environment.reader,
            user=Role.READER,
            more_layers=[self._messages_layer],
            is_snap_started=environment.is_snap_started,
        )
        self._messages.grant_items(reader, "dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:Query")
        return reader

    def _watch(self, environment: Environment, api: MessageApi) -> None:
        made = self._hot.functions.made
        functions = {name: made[name] for name in ("write_message", "read_messages", "consume_reports", "operate")}
        alarms = list_alarms(environment, functions=tuple(functions), slow_request_ms=environment.alarms.slow_ms)
        Monitoring(
            self,
            "Monitoring",
            name=self.stack_name,
            alarms=alarms,
            subjects={**self._hot.subjects(), Subject.API: api.api_id},
            functions={folder: function.function_name for folder, function in functions.items()},
            nodes=self._hot.registry.nodes_to_watch(),
            options=environment.alarms,
        )

    def _add_outputs(self, api: MessageApi, *, writer: lambda_.Function, reader: lambda_.Function) -> None:
        outputs = {
            "ApiUrl": api.url,
            "TableName": self._messages.table.table_name,
            "RegistryEndpoint": f"{self._hot.registry.host}:{self._hot.registry.port}",
            "WriteMessageFunctionName": writer.function_name,
            "ReadMessagesFunctionName": reader.function_name,
            "ConsumeReportsFunctionName": self._hot.detection.consumer.function_name,
        }
        for name, value in outputs.items():
            cdk.CfnOutput(self, name, value=value)


def _wiring(environment: Environment) -> dict[str, str]:
    """Build the settings that only the API's functions know, by field name."""
    wiring = {}
    if environment.retention_days:
        wiring["retention_days"] = str(environment.retention_days)
    if environment.api.sender_claim:
        wiring["sender_claim"] = environment.api.sender_claim
    return wiring
