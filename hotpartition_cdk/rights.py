"""Rights on a table, with those on its key that DynamoDB requires; and findings of cdk-nag that are meant to be so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from constructs import IConstruct

_KEY_ACTIONS = ("kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey")
"""Rights of readers and writers of a table under a key of the user's (Developer Guide, "Encryption at rest")."""

_ATTRIBUTES = "dynamodb:Attributes"
_LEADING_KEYS = "dynamodb:LeadingKeys"
_PACK = "AwsSolutions"

Conditions = Mapping[str, Mapping[str, object]]


def grant_table(
    grantee: iam.IGrantable, table: dynamodb.ITable, actions: Sequence[str], conditions: Conditions | None = None
) -> None:
    """Allow exactly these actions on the table's items, and not on its indexes."""
    iam.Grant.add_to_principal(
        grantee=grantee, actions=list(actions), resource_arns=[table.table_arn], conditions=conditions
    )
    if table.encryption_key is None:
        return
    stack = cdk.Stack.of(table)
    iam.Grant.add_to_principal(
        grantee=grantee,
        actions=list(_KEY_ACTIONS),
        resource_arns=[table.encryption_key.key_arn],
        conditions={"StringEquals": {"kms:ViaService": f"dynamodb.{stack.region}.{stack.url_suffix}"}},
    )


def only_attributes(attributes: Sequence[str]) -> Conditions:
    """Build the condition that a request names some of these attributes and no others.

    `ForAllValues` alone also holds for a request that names none (IAM guide, "Multivalued context keys").
    """
    return {"ForAllValues:StringEquals": {_ATTRIBUTES: list(attributes)}, "Null": {_ATTRIBUTES: "false"}}


def only_keys(pattern: str) -> Conditions:
    """Build the condition that a request touches partition keys of this pattern and no others."""
    return {"ForAllValues:StringLike": {_LEADING_KEYS: [pattern]}, "Null": {_LEADING_KEYS: "false"}}


def acknowledge(scope: IConstruct, rule: str, *, reason: str) -> None:
    """Acknowledge a rule's findings in a construct and below it, with the reason; in a role, also in its own policy."""
    cdk.Validations.of(scope).acknowledge(cdk.Acknowledgment(id=f"{_PACK}::{_PACK}-{rule}", reason=reason))
