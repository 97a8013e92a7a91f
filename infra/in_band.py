"""The resources beside the table where writers find hot conversations themselves."""

from __future__ import annotations

from collections.abc import Mapping

import aws_cdk as cdk
from constructs import Construct

from hotpartition_cdk.alarms import Watched
from hotpartition_cdk.functions import FunctionFactory, wire_table
from hotpartition_cdk.layers import Layers
from hotpartition_cdk.logs import LogKeeping
from hotpartition_cdk.operations import Operations
from hotpartition_messages.counters import COUNTER_PREFIX
from infra.environments import Environment
from infra.table import MessageTable


class InBand(Construct):
    """The operations function, and the factory of functions: in no VPC, without Redis and a consumer."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        messages: MessageTable,
        environment: Environment,
        settings: Mapping[str, str],
    ) -> None:
        super().__init__(scope, id_)
        self._messages = messages
        self.log_keeping = LogKeeping(environment)
        self.layers = Layers(self, "Layers", target=environment.target)
        self.functions = FunctionFactory(
            scope=self,
            layers=self.layers,
            network=None,
            users=None,
            log_keeping=self.log_keeping,
            wiring={
                **wire_table(self, messages.table, messages.journal),
                "timeless_prefix": COUNTER_PREFIX,
                **settings,
            },
            namespace=cdk.Stack.of(self).stack_name,
        )
        self.operations = Operations(self, "Operations", functions=self.functions, journal=messages.journal)
        cdk.CfnOutput(self, "OperateFunctionName", value=self.operations.function.function_name)

    def watched(self) -> Watched:
        """Name the resources that alarms watch."""
        table = self._messages.table.table_name
        return Watched(
            name=cdk.Stack.of(self).stack_name,
            table=table,
            journal=table,
            index=self._messages.journal.index_name,
            functions={folder: made.function_name for folder, made in self.functions.made.items()},
        )
