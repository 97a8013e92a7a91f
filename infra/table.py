"""The one table: messages, and the journal of routes."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from constructs import Construct

ROUTING_INDEX = "routing-index"


class MessageTable(Construct):
    """An on-demand table with a sparse index over the routing items.

    Grants name single actions. They cannot tell routing items from messages: both share a partition key, and
    IAM's condition `dynamodb:LeadingKeys` sees nothing else.
    """

    def __init__(self, scope: Construct, id_: str, *, is_retained: bool) -> None:
        super().__init__(scope, id_)
        self._table = dynamodb.Table(
            self,
            "Table",
            partition_key=_text("pk"),
            sort_key=_text("sk"),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            # No `encryption`: DynamoDB encrypts every table at rest, by default under a key of AWS that costs nothing.
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            # The mode that is meant to stay on: it names throttled keys and is billed for those alone.
            contributor_insights_specification=dynamodb.ContributorInsightsSpecification(
                enabled=True, mode=dynamodb.ContributorInsightsMode.THROTTLED_KEYS
            ),
            deletion_protection=is_retained,
            # Retained: a stack that is deleted or renamed leaves the messages where they are.
            removal_policy=cdk.RemovalPolicy.RETAIN if is_retained else cdk.RemovalPolicy.DESTROY,
        )
        # Only routing items carry `routing_partition`, so nothing else is in the index or pays for it.
        self._table.add_global_secondary_index(
            index_name=ROUTING_INDEX,
            partition_key=_text("routing_partition"),
            sort_key=_text("updated_at"),
            projection_type=dynamodb.ProjectionType.ALL,
        )
        resource = self._table.node.default_child
        if not isinstance(resource, dynamodb.CfnTable):
            raise TypeError("the table's resource is not its default child")
        # The table's identity: another logical id is another, empty table.
        resource.override_logical_id("Table")
        self.table_name = self._table.table_name

    def grant_items(self, grantee: iam.IGrantable, *actions: str) -> None:
        """Allow exactly these actions on the table's items, and not on its index."""
        iam.Grant.add_to_principal(grantee=grantee, actions=list(actions), resource_arns=[self._table.table_arn])

    def grant_index_query(self, grantee: iam.IGrantable) -> None:
        """Allow listing the routing items through the index."""
        arn = f"{self._table.table_arn}/index/{ROUTING_INDEX}"
        iam.Grant.add_to_principal(grantee=grantee, actions=["dynamodb:Query"], resource_arns=[arn])


def _text(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING)
