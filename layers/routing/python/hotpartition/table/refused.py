"""Calls that a `ShardedTable` cannot honour, with alternatives: refused by name, never passed on raw."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from hotpartition.errors import InvalidRequestError
from hotpartition.table.expressions import compares, names_in

_EXPRESSIONS_INSTEAD = "is the form of 2012, which is not read here. Use {instead}"

PARAMETERS: Mapping[str, str] = {
    "KeyConditions": _EXPRESSIONS_INSTEAD.format(instead="KeyConditionExpression"),
    "QueryFilter": _EXPRESSIONS_INSTEAD.format(instead="FilterExpression"),
    "ScanFilter": _EXPRESSIONS_INSTEAD.format(instead="FilterExpression"),
    "ConditionalOperator": _EXPRESSIONS_INSTEAD.format(instead="the expressions, with AND and OR"),
    "AttributesToGet": _EXPRESSIONS_INSTEAD.format(instead="ProjectionExpression"),
    "AttributeUpdates": _EXPRESSIONS_INSTEAD.format(instead="UpdateExpression"),
    "Expected": _EXPRESSIONS_INSTEAD.format(instead="ConditionExpression"),
}

_NO_PARTIQL = "a PartiQL statement names partition keys as they are stored. Use the methods of the table"
_OF_THE_CLIENT = "it names its tables. Use {}"

METHODS: Mapping[str, str] = {
    "transact_write_items": _OF_THE_CLIENT.format("table.meta.client.transact_write_items()"),
    "transact_get_items": _OF_THE_CLIENT.format("table.meta.client.transact_get_items()"),
    "execute_statement": _NO_PARTIQL,
    "batch_execute_statement": _NO_PARTIQL,
    "execute_transaction": _NO_PARTIQL,
    "batch_get_item": _OF_THE_CLIENT.format("get_items(), or table.meta.client.batch_get_item()"),
    "batch_write_item": _OF_THE_CLIENT.format("batch_writer(), or table.meta.client.batch_write_item()"),
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


def refuse_expressions(method: str, request: Mapping[str, Any], partition: str, reserved: AbstractSet[str]) -> None:
    """Refuse a change whose expressions look at the partition key's value, or name reserved attributes.

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
    for name in sorted(reserved & names_in(request, "UpdateExpression")):
        raise InvalidRequestError.of(name, "is reserved for ShardedTable. Call the attribute something else")


class RefusedMethodError(NotImplementedError, AttributeError):
    """A method that cannot be honoured. As an `AttributeError` it lets `hasattr` say False, as of boto3's `Table`."""


def refuse_method(name: str) -> None:
    """Refuse a method that cannot be honoured; other names pass.

    Raises:
        RefusedMethodError: naming the method, the reason and what to use instead.
    """
    if name in METHODS:
        raise RefusedMethodError(f"{name}(): {METHODS[name]}")


def refuse_options(method: str, request: Mapping[str, Any]) -> None:
    """Refuse what a transaction over sharded tables cannot honour.

    Raises:
        NotImplementedError: naming the parameter, the reason and what to use instead.
    """
    if request.get("ClientRequestToken"):
        raise NotImplementedError(
            f"{method}(ClientRequestToken=…): what is sent depends on where the items lie, so a repetition would be "
            "another request. Leave it out, and let a condition tell whether it was done"
        )
    if request.get("ReturnItemCollectionMetrics", "NONE") != "NONE":
        raise NotImplementedError(f"{method}(ReturnItemCollectionMetrics=…): it describes single shards. Leave it out")


def refuse_statements(request: Mapping[str, Any], tables: Iterable[str]) -> None:
    """Refuse PartiQL that may be about sharded tables: where it has the name of one anywhere.

    Raises:
        NotImplementedError: naming the table, the reason and what to use instead.
    """
    listed = request.get("Statements") or request.get("TransactStatements") or [request]
    for statement in (str(each.get("Statement", "")) for each in listed):
        for name in tables:
            if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", statement, re.IGNORECASE):
                raise NotImplementedError(f"{statement!r} is about {name}: {_NO_PARTIQL}")


def check_arguments(table: Any, shards: Any, hashed: Any, position: Any, time_buckets: Any, *, taken: type) -> None:
    """Refuse arguments of `ShardedTable` (`taken`) that are something else, and say what to write.

    Raises:
        TypeError: naming the first of them.
    """
    if isinstance(table, taken):
        raise TypeError(f"{table!r} is sharded already. Use it as it is")
    if not hasattr(table, "name") or not hasattr(getattr(table, "meta", None), "client"):
        is_client = hasattr(getattr(table, "meta", None), "method_to_api_mapping")
        way = "ShardedTable.of_client(client, name, …)" if is_client else 'resource.Table("readings")'
        raise TypeError(f"ShardedTable({table!r}, …): should be a boto3 Table. Write {way}")
    if not hasattr(shards, "build_routes"):
        number = shards if isinstance(shards, int) else "n"
        raise TypeError(f"shards={shards!r}: should be fixed({number}), in_band() or adaptive()")
    if getattr(shards, "closing", False) and position is None:
        raise TypeError(
            "closing=True: keys are closed by the items' times. Write position=..., a function that returns the time of"
            " a sort key in Unix ms"
        )
    if hashed is not None and (isinstance(hashed, type) or not hasattr(hashed, "of_nothing")):
        attribute = hashed if isinstance(hashed, str) else "device_id"
        raise TypeError(f"hashed={hashed!r}: should be by_sort_key(), by_attribute({attribute!r}) or at_random()")
    if position is not None and not callable(position):
        raise TypeError(f"position={position!r}: should be a function that returns the position of a sort key")
    if time_buckets is not None and not hasattr(time_buckets, "list_between"):
        raise TypeError(f'time_buckets={time_buckets!r}: should be TimeBuckets("hour", index="by-time")')
