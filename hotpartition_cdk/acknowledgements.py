"""Findings of cdk-nag that are meant to be so. Each is acknowledged beside the resource, with its reason."""

from __future__ import annotations

import aws_cdk as cdk
from constructs import IConstruct

_PACK = "AwsSolutions"


def acknowledge(scope: IConstruct, rule: str, *, reason: str) -> None:
    """Acknowledge a rule's findings in a construct and below it."""
    cdk.Validations.of(scope).acknowledge(cdk.Acknowledgment(id=f"{_PACK}::{_PACK}-{rule}", reason=reason))


def acknowledge_wildcards(owner: IConstruct, *findings: str, reason: str) -> None:
    """Acknowledge wildcards in a policy, or a role's own one, each by cdk-nag's name for it."""
    for finding in findings:
        acknowledge(owner, f"IAM5[{finding}]", reason=reason)
