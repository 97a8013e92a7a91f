"""The operations function, which only `hotpartition`, the command-line tool, invokes."""

from __future__ import annotations

import aws_cdk as cdk
from constructs import Construct

from hotpartition.redis.acl import Role
from hotpartition_cdk.configuration import FunctionSize
from hotpartition_cdk.functions import HANDLERS, FunctionFactory
from hotpartition_cdk.journal import Journal

SIZE = FunctionSize(
    # It works for minutes a month. `hotpartition hot` parses reports by the thousand.
    memory_mb=512,
    # A part of a long command ends after 15 s by itself; the rest is for a store that refuses meanwhile.
    timeout_seconds=60,
)


class Operations(Construct):
    """The function, which may read and raise routes and list them, and no more.

    The account's own policies grant the right to invoke it (`lambda:InvokeFunction`); none is granted here.
    """

    def __init__(self, scope: Construct, id_: str, *, functions: FunctionFactory, journal: Journal) -> None:
        super().__init__(scope, id_)
        self.function = functions.make(
            "Operate",
            code=HANDLERS / "operate",
            description="Serves operators: what is hot, where its routes are; raises by hand, repairs the registry",
            known_as="operate" if functions.users is not None else "in-band operate",
            size=SIZE,
            user=Role.OPERATOR,
        )
        journal.grant_raise(self.function)
        journal.grant_list(self.function)
        cdk.CfnOutput(functions.scope, "OperateFunctionName", value=self.function.function_name)
