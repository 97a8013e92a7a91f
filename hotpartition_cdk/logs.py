"""How long logs are kept, and under which key: one decision for every log group of the stack."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_logs as logs
from constructs import Construct

from hotpartition_cdk.configuration import SMALL, CommonOptions


def keep(is_retained: bool) -> cdk.RemovalPolicy:
    """Choose whether a store stays when its stack goes; a creation that fails leaves nothing behind in any case."""
    return cdk.RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE if is_retained else cdk.RemovalPolicy.DESTROY


class LogKeeping:
    """Makes log groups that all keep their lines equally long, under the same key."""

    def __init__(self, options: CommonOptions = SMALL) -> None:
        self._retention_days = options.log_retention_days
        self._removal_policy = keep(options.is_data_retained)
        self._key_arn = options.kms_key_arn

    def make_group(self, scope: Construct, id_: str, *, name: str | None = None) -> logs.LogGroup:
        """Make a log group; without a name, CloudFormation chooses one."""
        group = logs.LogGroup(scope, id_, removal_policy=self._removal_policy, log_group_name=name)
        resource = group.node.default_child
        if not isinstance(resource, logs.CfnLogGroup):
            raise TypeError("the log group's resource is not its default child")
        # The L2 property is an enumeration by name, which a number of days does not fit.
        resource.retention_in_days = self._retention_days
        resource.kms_key_id = self._key_arn
        return group
