"""What a `ShardedTable` cannot honour, and what to do instead: refused by name, never passed on raw."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hotpartition.errors import InvalidRequestError
from hotpartition.table.expressions import compares, names_in
from hotpartition.table.schema import RESERVED

_EXPRESSIONS_INSTEAD = "is the form of 2012, which is not read here. Use {instead}"

PARAMETERS: Mapping[str, str] = {
    "KeyConditions": _EXPRESSIONS_INSTEAD.format(instead="KeyConditionExpression"),
    "QueryFilter": _EXPRESSIONS_INSTEAD.format(instead="FilterExpression"),
    "ScanFilter": _EXPRESSIONS_INSTEAD.format(instead="FilterExpression"),
    "ConditionalOperator": _EXPRESSIONS_INSTEAD.format(instead="the expressions, with AND and OR"),
    "AttributesToGet": _EXPRESSIONS_INSTEAD.format(instead="ProjectionExpression"),
    "AttributeUpdates": _EXPRESSIONS_INSTEAD.format(instead="UpdateExpression"),
    "Expected": _EXPRESSIONS_INSTEAD.format(instead="ConditionExpression"),
    "Segment": "splits a scan so that two copies of an item may come from two segments. Scan without segments",
    "TotalSegments": "splits a scan so that two copies of an item may come from two segments. Scan without segments",
}

_ONE_BY_ONE = "the items of a transaction lie on shards that it cannot name. Use put_item, update_item and delete_item"
_NO_PARTIQL = "a PartiQL statement names partition keys as they are stored. Use the methods of the table"

METHODS: Mapping[str, str] = {
    "transact_write_items": _ONE_BY_ONE,
    "transact_get_items": "the items of a transaction lie on shards that it cannot name. Use get_item",
    "execute_statement": _NO_PARTIQL,
    "batch_execute_statement": _NO_PARTIQL,
    "execute_transaction": _NO_PARTIQL,
    "batch_get_item": "it names several tables. Use get_item, or query",
    "batch_write_item": "it names several tables. Use batch_writer()",
}


_PLACEHOLDERS_OF_OURS = re.compile(r"[#:]hp(?:[a-z]\d*|\d+)")


def refuse_parameters(method: str, request: Mapping[str, Any]) -> None:
    """Refuse parameters that cannot be honoured.

    Raises:
        NotImplementedError: naming the parameter, the reason and what to use instead.
        InvalidRequestError: a placeholder is called as one of those that are added to requests.
    """
    for name, why in PARAMETERS.items():
        if name in request:
            raise NotImplementedError(f"{method}({name}=…): {name} {why}")
    for parameter in ("ExpressionAttributeNames", "ExpressionAttributeValues"):
        for placeholder in request.get(parameter) or ():
            if _PLACEHOLDERS_OF_OURS.fullmatch(placeholder):
                raise InvalidRequestError.of(placeholder, "is reserved for ShardedTable. Call it something else")


def refuse_expressions(method: str, request: Mapping[str, Any], partition: str) -> None:
    """Refuse a change whose expressions look at the partition key's value, or name attributes of ours.

    Raises:
        NotImplementedError: it looks at the partition key, which is another one on a shard.
        InvalidRequestError: it changes an attribute that is reserved.
    """
    for parameter in ("ConditionExpression", "UpdateExpression"):
        if compares(request, parameter, partition):
            raise NotImplementedError(
                f"{method}({parameter}=…): it looks at the value of {partition}, which differs on shards. "
                f"The item is the one that has this key anyway: leave it out, or use attribute_exists({partition})"
            )
    for name in sorted(RESERVED & names_in(request, "UpdateExpression")):
        raise InvalidRequestError.of(name, "is reserved for ShardedTable. Call the attribute something else")


class RefusedMethodError(NotImplementedError, AttributeError):
    """A method that cannot be honoured. As an `AttributeError` it lets `hasattr` say False, as of boto3's `Table`."""


def refuse_method(name: str) -> None:
    """Refuse a method that cannot be honoured; others are none of ours.

    Raises:
        RefusedMethodError: naming the method, the reason and what to use instead.
    """
    if name in METHODS:
        raise RefusedMethodError(f"{name}(): {METHODS[name]}")
