"""Findings of cdk-nag that are meant to be so. Each is acknowledged beside the resource, with its reason."""

from __future__ import annotations

import aws_cdk as cdk
from constructs import IConstruct

_PACK = "AwsSolutions"


def acknowledge(scope: IConstruct, rule: str, *, reason: str) -> None:
    """Acknowledge a rule's findings in a construct and below it; in a role, also in its own policy."""
    cdk.Validations.of(scope).acknowledge(cdk.Acknowledgment(id=f"{_PACK}::{_PACK}-{rule}", reason=reason))
