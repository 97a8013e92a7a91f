"""The one table: messages, and the journal of routes."""

from __future__ import annotations

from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from hotpartition_cdk.journal import Journal, name_throttled_keys
from hotpartition_cdk.logs import keep
from hotpartition_cdk.rights import grant_table, only_attributes
from hotpartition_messages.keys import ROUTING_INDEX
from hotpartition_messages.messages import MESSAGE_ATTRIBUTES, TTL_ATTRIBUTE
from infra.environments import Environment, TableOptions


class MessageTable(Construct):
    """An on-demand table with a sparse index over the routing items.

    IAM enforces for each role (decision 14): which actions; that a put names the attributes of a message and no
    others, so it cannot forge a route; that an update names those of a routing item and no others, so it cannot touch
    a message's content. IAM cannot
    distinguish routing items from messages by key: both share the partition key, and `dynamodb:LeadingKeys` sees
    nothing else. So a faulty writer could put a message-like item in a routing item's place (readers then fail with an
    error and lose nothing silently), an updater could put a generation on a message (where it is never read), and every
    reader of the journal may read messages.
    """

    def __init__(self, scope: Construct, id_: str, *, environment: Environment) -> None:
        super().__init__(scope, id_)
        options, key_arn = environment.table, environment.kms_key_arn
        insights = name_throttled_keys(environment.has_contributor_insights)
        self.table = dynamodb.Table(
            self,
            "Table",
            partition_key=_text("pk"),
            sort_key=_text("sk"),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            max_write_request_units=options.max_write_units,
            max_read_request_units=options.max_read_units,
            warm_throughput=_warm_throughput(options),
            # Without a key DynamoDB encrypts the table at rest under one of AWS, which costs nothing.
            encryption_key=None if key_arn is None else kms.Key.from_key_arn(self, "Key", key_arn),
            # DynamoDB removes expired items within days, at no price; readers leave it out at once.
            time_to_live_attribute=TTL_ATTRIBUTE,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            contributor_insights_specification=insights,
            deletion_protection=environment.is_protected,
            # Retained: a stack that is deleted or renamed leaves the messages where they are.
            removal_policy=keep(environment.is_data_retained),
        )
        # Only routing items carry `routing_partition`, so nothing else is in the index or pays for it.
        self.table.add_global_secondary_index(
            index_name=ROUTING_INDEX,
            partition_key=_text("routing_partition"),
            sort_key=_text("updated_at"),
            projection_type=dynamodb.ProjectionType.ALL,
            contributor_insights_specification=insights,
        )
        resource = self.table.node.default_child
        if not isinstance(resource, dynamodb.CfnTable):
            raise TypeError("the table's resource is not its default child")
        # The table's identity: another logical id is another, empty table.
        resource.override_logical_id("Table")
        self.journal = Journal(self.table, keys=("pk", "sk"), index_name=ROUTING_INDEX)

    def grant_message_put(self, grantee: iam.IGrantable) -> None:
        """Allow putting items that have the attributes of a message and no others."""
        grant_table(grantee, self.table, ["dynamodb:PutItem"], only_attributes(MESSAGE_ATTRIBUTES))


def _warm_throughput(options: TableOptions) -> dynamodb.WarmThroughput | None:
    if options.warm_write_units is None and options.warm_read_units is None:
        return None
    return dynamodb.WarmThroughput(
        write_units_per_second=options.warm_write_units, read_units_per_second=options.warm_read_units
    )


def _text(name: str) -> dynamodb.Attribute:
    return dynamodb.Attribute(name=name, type=dynamodb.AttributeType.STRING)
