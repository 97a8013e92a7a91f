"""How long logs are kept: one decision for every log group of the stack."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_logs as logs
from constructs import Construct

_RETENTION = {
    7: logs.RetentionDays.ONE_WEEK,
    90: logs.RetentionDays.THREE_MONTHS,
}
"""CloudWatch takes certain numbers only; these are the ones in use."""


class LogKeeping:
    """Makes log groups that all keep their lines equally long."""

    def __init__(self, *, retention_days: int, removal_policy: cdk.RemovalPolicy) -> None:
        self._retention = _RETENTION[retention_days]
        self._removal_policy = removal_policy

    def make_group(self, scope: Construct, id_: str) -> logs.LogGroup:
        """Make a log group; its name is CloudFormation's choice."""
        return logs.LogGroup(scope, id_, retention=self._retention, removal_policy=self._removal_policy)
