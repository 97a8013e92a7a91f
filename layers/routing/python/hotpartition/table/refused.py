"""What a `ShardedTable` cannot honour, and what to do instead: refused by name, never passed on raw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def refuse_parameters(method: str, request: Mapping[str, Any]) -> None:
    """Refuse parameters that cannot be honoured.

    Raises:
        NotImplementedError: naming the parameter, the reason and what to use instead.
    """
    for name, why in PARAMETERS.items():
        if name in request:
            raise NotImplementedError(f"{method}({name}=…): {name} {why}")


def refuse_method(name: str) -> None:
    """Refuse a method that cannot be honoured; others are none of ours.

    Raises:
        NotImplementedError: naming the method, the reason and what to use instead.
    """
    if name in METHODS:
        raise NotImplementedError(f"{name}(): {METHODS[name]}")
