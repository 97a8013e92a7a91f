"""The table of the routes of hot keys, and the rights to read and raise them."""

from __future__ import annotations

from dataclasses import dataclass, field

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from hotpartition.dynamodb.stored_route import ROUTING_ATTRIBUTES
from hotpartition.dynamodb.table import LOAD_PREFIX
from hotpartition_cdk.errors import ConfigurationError
from hotpartition_cdk.logs import keep
from hotpartition_cdk.names import follow_name
from hotpartition_cdk.rights import grant_table, only_attributes, only_keys

_KEY = "pk"

JOURNAL_PREFIX = "hp-routes-"
"""The prefix of the name of a journal's table; the name of the table that it is for follows."""

_LONGEST_TABLE_NAME = 255 - len(JOURNAL_PREFIX)
"""DynamoDB takes 255 characters."""


def name_throttled_keys(is_wanted: bool) -> dynamodb.ContributorInsightsSpecification | None:
    """Let CloudWatch name throttled keys, in the mode that is meant to stay on.

    Its rules are billed by the month, and beyond that only throttled requests.
    """
    if not is_wanted:
        return None
    return dynamodb.ContributorInsightsSpecification(enabled=True, mode=dynamodb.ContributorInsightsMode.THROTTLED_KEYS)


@dataclass(frozen=True, slots=True)
class Journal:
    """Routing items in a table: beside the items that they route, listed by a sparse index, or in one of their own.

    Example:
        >>> Journal(readings, keys=("pk",)).is_apart
        True
    """

    table: dynamodb.ITable
    keys: tuple[str, ...] = field(kw_only=True)
    index_name: str = field(default="", kw_only=True)
    """Empty: the routing items have the table to themselves."""

    @property
    def is_apart(self) -> bool:
        """Whether the routing items have a table of their own."""
        return not self.index_name

    def wiring(self) -> dict[str, str]:
        """Build the settings that say where the routing items are, by field name."""
        if self.is_apart:
            return {"journal_table_name": self.table.table_name, "journal_partition_key_name": self.keys[0]}
        names = dict(zip(("partition_key_name", "sort_key_name"), self.keys, strict=True))
        return {"routing_index_name": self.index_name, **names}

    def grant_read(self, grantee: iam.IGrantable) -> None:
        """Allow reading routing items by their keys, and the table's own, which a `ShardedTable` looks at."""
        grant_table(grantee, self.table, ["dynamodb:BatchGetItem", "dynamodb:DescribeTable", "dynamodb:GetItem"])

    def grant_raise(self, grantee: iam.IGrantable) -> None:
        """Allow reading routing items, and updates that name their attributes and no others.

        Without a condition on `dynamodb:ReturnValues`: the grantee may read the journal anyway.
        """
        grant_table(grantee, self.table, ["dynamodb:GetItem"])
        condition = only_attributes((*self.keys, *ROUTING_ATTRIBUTES))
        grant_table(grantee, self.table, ["dynamodb:UpdateItem"], condition)

    def grant_list(self, grantee: iam.IGrantable) -> None:
        """Allow listing routing items."""
        if self.is_apart:
            grant_table(grantee, self.table, ["dynamodb:Scan"])
            return
        index_arn = f"{self.table.table_arn}/index/{self.index_name}"
        iam.Grant.add_to_principal(grantee=grantee, actions=["dynamodb:Query"], resource_arns=[index_arn])

    def grant_load_update(self, grantee: iam.IGrantable) -> None:
        """Allow changing load items, whose keys differ from routing items'; their attributes are named after times."""
        grant_table(grantee, self.table, ["dynamodb:UpdateItem"], only_keys(f"{LOAD_PREFIX}*"))


class JournalTable(Construct):
    """A table for the routing items of another one, in which nothing is changed.

    It holds one small item for each partition key that was ever hot, and is the truth about where items lie: without
    it, those on shards cannot be found. So its name and its logical id follow the other table's name: a construct that
    is renamed or moved keeps its journal, and where one was left behind, the deployment fails instead of making an
    empty one beside it.

    Example:
        >>> routes = JournalTable(stack, "Routes", table=readings, is_retained=True).journal()
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        table: dynamodb.ITable,
        is_retained: bool,
        is_protected: bool = False,
        has_contributor_insights: bool = False,
        key_arn: str | None = None,
    ) -> None:
        """Make the table for the routes of the given one.

        Raises:
            ConfigurationError: the table's name is too long to be part of another.
        """
        super().__init__(scope, id_)
        is_named = not cdk.Token.is_unresolved(table.table_name)
        if is_named and len(table.table_name) > _LONGEST_TABLE_NAME:
            raise ConfigurationError(
                f"{self.node.path} is called after the table {table.table_name}, whose name has more than"
                f" {_LONGEST_TABLE_NAME} characters: give a journal= of your own"
            )
        self.table = dynamodb.Table(
            self,
            "Table",
            table_name=f"{JOURNAL_PREFIX}{table.table_name}",
            partition_key=dynamodb.Attribute(name=_KEY, type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            encryption_key=None if key_arn is None else kms.Key.from_key_arn(self, "Key", key_arn),
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            contributor_insights_specification=name_throttled_keys(has_contributor_insights),
            deletion_protection=is_protected,
            removal_policy=keep(is_retained),
        )
        follow_name(self.table.node.default_child, "Routes", table.table_name if is_named else table.node.path)

    def journal(self) -> Journal:
        """Build the journal that lies in it."""
        return Journal(self.table, keys=(_KEY,))
