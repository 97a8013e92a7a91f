"""The stack: builds the constructs, hands them to one another, and grants access."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from hotpartition.redis.acl import Role
from hotpartition_cdk.alarms import Watched
from hotpartition_cdk.functions import FunctionFactory, Operations, wire_table
from hotpartition_cdk.hot_partition import HotPartition, Use
from hotpartition_cdk.layers import Layers
from hotpartition_cdk.logs import LogKeeping
from hotpartition_cdk.monitoring import Monitoring
from hotpartition_cdk.rights import grant_table
from hotpartition_messages.keys import ROUTING_INDEX
from hotpartition_messages.settings import MessageSettings
from infra.api import MessageApi
from infra.bundle import MESSAGES, ROOT
from infra.environments import AdaptiveEnvironment, Environment, RequestFunctionSize
from infra.table import MessageTable

_LAMBDAS = ROOT / "lambdas"

_TABLE_ACTIONS = (
    "dynamodb:BatchGetItem",
    "dynamodb:GetItem",
    "dynamodb:PutItem",
    "dynamodb:Query",
    "dynamodb:UpdateItem",
)
"""All that any function does with the table; the endpoint lets nothing else through."""

_UNNAMED = "Default"
"""An id that the CDK leaves out of logical ids: they are as if all of it were made in the stack itself."""


class HotPartitionStack(cdk.Stack):
    """Everything, in one stack that knows no account and no region."""

    def __init__(self, scope: Construct, id_: str, *, environment: Environment, overrides: Mapping[str, str]) -> None:
        super().__init__(
            scope,
            id_,
            description="hotpartition: spreads the writes of hot conversations over shards",
            termination_protection=environment.is_protected,
        )
        self._messages = MessageTable(self, "Messages", environment=environment)
        settings = {**_wiring(environment), **overrides}
        self._hot: HotPartition | None = None
        if isinstance(environment, AdaptiveEnvironment):
            self._hot = self._make_hot_partition(environment, settings)
        self._functions = self._hot.functions if self._hot else self._make_factory(environment, settings)
        self._messages_layer = self._functions.layers.add_package(
            "Messages", "hotpartition: the messages API", MESSAGES
        )
        writer = self._make_writer(environment)
        reader = self._make_reader(environment)
        api = MessageApi(
            self,
            "Api",
            writer=writer,
            reader=reader,
            options=environment.api,
            access_log=self._functions.log_keeping.make_group(self, "AccessLog", name=self._vended_log_name("access")),
        )
        self._watch(environment, api)
        self._add_outputs(
            {
                "ApiUrl": api.url,
                "TableName": self._messages.table.table_name,
                "WriteMessageFunctionName": writer.function_name,
                "ReadMessagesFunctionName": reader.function_name,
            }
        )
        if environment.permissions_boundary is not None:
            boundary = iam.ManagedPolicy.from_managed_policy_arn(self, "Boundary", environment.permissions_boundary)
            iam.PermissionsBoundary.of(self).apply(boundary)

    def _make_factory(self, environment: Environment, settings: Mapping[str, str]) -> FunctionFactory:
        """Make the factory of functions in no VPC, without Redis and a consumer, and the operations function."""
        journal = self._messages.journal
        functions = FunctionFactory(
            scope=self,
            layers=Layers(self, "Layers", target=environment.target),
            network=None,
            users=None,
            log_keeping=LogKeeping(environment),
            wiring={**wire_table(self, self._messages.table, journal), **settings},
            namespace=self.stack_name,
        )
        Operations(self, "Operations", functions=functions, journal=journal)
        return functions

    def _make_hot_partition(self, environment: AdaptiveEnvironment, settings: Mapping[str, str]) -> HotPartition:
        table = self._messages.table
        hot = HotPartition(
            self,
            _UNNAMED,
            table=table,
            journal=self._messages.journal,
            options=environment,
            indexes=[ROUTING_INDEX],
            use=Use(
                settings=settings,
                users={role: (role,) for role in (Role.WRITER, Role.READER)},
                actions=_TABLE_ACTIONS,
            ),
            name=self.stack_name,
            is_watched=False,
        )
        # The cluster's identity: another logical id is another, empty cluster.
        hot.registry.cluster.override_logical_id("Registry")
        self._add_outputs(
            {
                "RegistryEndpoint": f"{hot.registry.host}:{hot.registry.port}",
                "ConsumeReportsFunctionName": hot.detection.consumer.function_name,
            }
        )
        return hot

    def _vended_log_name(self, name: str) -> str:
        """Name a log group that AWS delivers to.

        API Gateway admits itself to each group by one policy of the account, which holds 5,120 characters: names under
        `/aws/vendedlogs/` share an entry of it. A part of the stack's own id keeps the name apart from the group that
        an earlier stack of the same name left behind.
        """
        uuid = cdk.Fn.select(2, cdk.Fn.split("/", self.stack_id))
        return f"/aws/vendedlogs/{self.stack_name}/{name}-{cdk.Fn.select(0, cdk.Fn.split('-', uuid))}"

    def _make_writer(self, environment: Environment) -> lambda_.Function:
        description = "Stores a message on the shard that its conversation's route names"
        writer = self._make("WriteMessage", "write_message", description, environment.writer, Role.WRITER)
        # Refreshing a route from the journal; looking whether a message that is sent again lies at another choice, and
        # where all copies of one lie that is edited or deleted. Both of these are puts.
        grant_table(writer, self._messages.table, ["dynamodb:BatchGetItem", "dynamodb:GetItem"])
        self._messages.grant_message_put(writer)
        if self._hot is None:
            self._messages.journal.grant_raise(writer)
            self._messages.journal.grant_load_update(writer)
        return writer

    def _make_reader(self, environment: Environment) -> lambda_.Function:
        description = "Gathers a conversation's messages from all of its shards"
        reader = self._make("ReadMessages", "read_messages", description, environment.reader, Role.READER)
        grant_table(reader, self._messages.table, ["dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:Query"])
        return reader

    def _make(self, id_: str, folder: str, description: str, size: RequestFunctionSize, role: Role) -> lambda_.Function:
        """Make a function of the API; settings know it by the first word of its folder."""
        known_as = folder.partition("_")[0]
        return self._functions.make(
            id_,
            code=_LAMBDAS / folder,
            description=description,
            settings=MessageSettings,
            known_as=known_as if self._hot else f"in-band {known_as}",
            size=size,
            reserved_concurrency=size.reserved_concurrency,
            user=role,
            more_layers=[self._messages_layer],
        )

    def _watch(self, environment: Environment, api: MessageApi) -> None:
        table, made = self._messages.table.table_name, self._functions.made
        order = ("write_message", "read_messages", "consume_reports", "operate")
        functions = {name: made[name].function_name for name in order if name in made}
        in_band = Watched(name=self.stack_name, table=table, journal=table, index=ROUTING_INDEX, functions=functions)
        watched = self._hot.watched() if self._hot else in_band
        Monitoring(
            self,
            "Monitoring",
            watched=replace(watched, functions=functions, api=api.api_id),
            options=environment,
            slow_request_ms=environment.alarms.slow_ms,
        )

    def _add_outputs(self, outputs: Mapping[str, str]) -> None:
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
