"""Functions that find hot keys themselves (`in_band()`), and their rights. Nothing else is deployed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from hotpartition.runtime.declaring import build_environment
from hotpartition.runtime.settings import InBandSettings
from hotpartition_cdk.checks import claim_function
from hotpartition_cdk.clients import Kind, grant_items
from hotpartition_cdk.journal import Journal
from hotpartition_cdk.settings import select_settings


@dataclass(frozen=True, slots=True, kw_only=True)
class InBandClients:
    """Gives functions settings and rights.

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
        for name, value in build_environment(InBandSettings, select_settings(InBandSettings, values)).items():
            function.add_environment(name, value)
        grant_items(function, self.table, self.indexes, kind)
        if self.journal is None or not self.journal.is_apart:
            return
        self.journal.grant_read(function)
        if kind is Kind.TABLE:
            self.journal.grant_raise(function)
            self.journal.grant_load_update(function)
