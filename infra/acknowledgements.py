"""Findings of cdk-nag that are meant to be so. Each is acknowledged beside the resource, with its reason."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from constructs import IConstruct

_PACK = "AwsSolutions"


def acknowledge(scope: IConstruct, rule: str, *, reason: str) -> None:
    """Acknowledge what a rule finds in a construct and below it."""
    cdk.Validations.of(scope).acknowledge(cdk.Acknowledgment(id=f"{_PACK}::{_PACK}-{rule}", reason=reason))


def acknowledge_wildcards(role: iam.IRole, *findings: str, reason: str) -> None:
    """Acknowledge wildcards in a role's own policy, each by what cdk-nag calls it."""
    for finding in findings:
        acknowledge(role, f"IAM5[{finding}]", reason=reason)
