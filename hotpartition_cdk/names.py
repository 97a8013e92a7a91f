"""Names that are the account's and the region's, and logical ids that follow them."""

from __future__ import annotations

import hashlib

import aws_cdk as cdk
from constructs import Construct, IConstruct

from hotpartition_cdk.configuration import LONGEST_NAME
from hotpartition_cdk.errors import ConfigurationError


def unique_name(scope: IConstruct) -> str:
    """Build a name that no other construct of the account and region has, of small letters, digits and hyphens."""
    name: str = cdk.Names.unique_resource_name(scope, max_length=LONGEST_NAME, separator="-")
    return name.lower()


def short_hash(text: str, length: int = 8) -> str:
    """Build a few digits that stand for a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def follow_name(resource: IConstruct | None, kind: str, name: str) -> None:
    """Give a resource that has a name of its own the logical id that follows it.

    CloudFormation creates before it deletes. So a construct that is renamed or moved, and whose resource keeps its name
    under another logical id, could not be deployed: the name is taken.

    Raises:
        ConfigurationError: another resource of the stack is called so.
    """
    if not isinstance(resource, cdk.CfnResource):
        raise TypeError("what has a name is a resource")
    stack, id_ = cdk.Stack.of(resource), f"{kind}{short_hash(name)}"
    if stack.node.try_find_child(id_) is not None:
        raise ConfigurationError(
            f"{resource.node.path} is called after {name!r}, as another resource of {stack.node.path} is: give one"
            " another name=, or for routes the journal= that there is"
        )
    Construct(stack, id_)
    resource.override_logical_id(id_)
