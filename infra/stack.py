"""The stack: builds the constructs, hands them to one another, and grants access."""

from __future__ import annotations

from collections.abc import Mapping

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from hotpartition.settings import ConsumerSettings, ReaderSettings, WriterSettings
from infra.api import MessageApi
from infra.detection import Detection
from infra.environments import Environment
from infra.functions import FunctionFactory
from infra.layers import Layers
from infra.logs import LogKeeping
from infra.network import Network
from infra.registry import Registry
from infra.table import ROUTING_INDEX, MessageTable


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
        log_keeping = LogKeeping(retention_days=environment.log_retention_days, removal_policy=removal)
        network = Network(self, "Network")
        self._table = MessageTable(self, "Messages", is_retained=environment.is_data_retained)
        self._registry = Registry(self, "Valkey", network=network, size=environment.registry, removal_policy=removal)
        self._functions = FunctionFactory(
            self,
            layers=Layers(self, "Layers", target=environment.target),
            network=network,
            log_keeping=log_keeping,
            wiring=self._wiring(),
            overrides=overrides,
        )
        writer = self._make_writer(environment)
        reader = self._make_reader(environment)
        consumer = self._make_consumer(environment)
        Detection(self, "Detection", consumer=consumer)
        api = MessageApi(
            self,
            "Api",
            writer=writer,
            reader=reader,
            rate_limit=environment.api_rate_limit,
            burst_limit=environment.api_burst_limit,
            access_log=log_keeping.make_group(self, "AccessLog"),
        )
        self._add_outputs(api, writer=writer, reader=reader, consumer=consumer)

    def _wiring(self) -> dict[str, str]:
        return {
            "table_name": self._table.table_name,
            "routing_index_name": ROUTING_INDEX,
            "registry_host": self._registry.host,
            "registry_port": self._registry.port,
            "registry_tls": str(self._registry.is_encrypted_in_transit).lower(),
        }

    def _make_writer(self, environment: Environment) -> lambda_.Function:
        writer = self._functions.make(
            "WriteMessage",
            folder="write_message",
            description="Stores a message on the shard that its conversation's route names",
            settings=WriterSettings,
            size=environment.writer,
        )
        # GetItem: refreshing a route from the journal.
        self._table.grant_items(writer, "dynamodb:GetItem", "dynamodb:PutItem")
        return writer

    def _make_reader(self, environment: Environment) -> lambda_.Function:
        reader = self._functions.make(
            "ReadMessages",
            folder="read_messages",
            description="Gathers a conversation's messages from all of its shards",
            settings=ReaderSettings,
            size=environment.reader,
        )
        # UpdateItem: adding a generation to the journal that only the registry knew.
        actions = ("dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:Query", "dynamodb:UpdateItem")
        self._table.grant_items(reader, *actions)
        return reader

    def _make_consumer(self, environment: Environment) -> lambda_.Function:
        consumer = self._functions.make(
            "ConsumeReports",
            folder="consume_reports",
            description="Sums the load reports, decides shard counts and raises them",
            settings=ConsumerSettings,
            size=environment.consumer,
            reserved_concurrency=environment.consumer_concurrency,
        )
        self._table.grant_items(consumer, "dynamodb:GetItem", "dynamodb:UpdateItem")
        self._table.grant_index_query(consumer)
        return consumer

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
