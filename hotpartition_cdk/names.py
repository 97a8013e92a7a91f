"""Names that are the account's and the region's, made of a construct's path."""

from __future__ import annotations

import aws_cdk as cdk
from constructs import IConstruct

from hotpartition_cdk.configuration import LONGEST_NAME


def unique_name(scope: IConstruct) -> str:
    """Build a name that no other construct of the account and region has, of small letters, digits and hyphens."""
    name: str = cdk.Names.unique_resource_name(scope, max_length=LONGEST_NAME, separator="-")
    return name.lower()
