"""The operations function: what `hotpartition`, the command-line tool, asks. Nothing invokes it but people."""

from __future__ import annotations

from aws_cdk import aws_lambda as lambda_

from hotpartition.redis.acl import Role
from hotpartition.runtime.settings import OperateSettings
from infra.environments import FunctionSize
from infra.functions import FunctionFactory
from infra.table import MessageTable

SIZE = FunctionSize(
    # It works for minutes a month. Reports are parsed by the thousand when somebody looks at the heat.
    memory_mb=512,
    # A part of a long command ends after 15 s by itself; the rest is for a store that refuses meanwhile.
    timeout_seconds=60,
)


def make_operations(functions: FunctionFactory, table: MessageTable) -> lambda_.Function:
    """Make the function, which may read and raise routes and list them, and no more.

    Who may call it is for the account's own policies to say (`lambda:InvokeFunction` on it): nobody is granted it here.
    """
    function = functions.make(
        "Operate",
        folder="operate",
        description="Answers operators: what is hot, where its routes are; raises by hand, mends the registry",
        settings=OperateSettings,
        size=SIZE,
        role=Role.OPERATOR,
    )
    table.grant_items(function, "dynamodb:GetItem")
    table.grant_journal_update(function)
    table.grant_index_query(function)
    return function
