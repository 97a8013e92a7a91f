"""Python values, as the client of a boto3 resource has them, for adapters that speak DynamoDB's own form."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from boto3.dynamodb.conditions import ConditionBase, ConditionExpressionBuilder
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer

from hotpartition.dynamodb.boto3_client import Boto3Call
from hotpartition.dynamodb.calls import Response

Attributes = dict[str, Any]
"""An item, a key or a request as boto3's `Table` takes and gives them: Python values."""

_VALUES = frozenset(
    {
        *("Item", "Key", "ExpressionAttributeValues", "ExclusiveStartKey"),
        *("Attributes", "LastEvaluatedKey", "ItemCollectionKey"),
    }
)
"""The members that hold values by name."""
_LISTS_OF_VALUES = frozenset({"Items", "Keys"})
_BY_TABLE = frozenset({"RequestItems", "UnprocessedKeys", "UnprocessedItems"})
"""Maps by tables, whose names may be those of members."""


def write_conditions(request: Mapping[str, Any]) -> Attributes:
    """Write conditions that are boto3's objects as text, with our placeholders."""
    written = dict(request)
    builder = None
    for parameter in ("KeyConditionExpression", "FilterExpression", "ConditionExpression"):
        if isinstance(condition := request.get(parameter), ConditionBase):
            builder = builder or ConditionExpressionBuilder()  # one for all: it numbers the placeholders
            built = builder.build_expression(condition, is_key_condition=parameter.startswith("Key"))
            written[parameter] = _PLACEHOLDER_OF_BOTO3.sub(r"\1hpf", built.condition_expression)
            names = {f"#hpf{name[2:]}": of for name, of in built.attribute_name_placeholders.items()}
            values = {f":hpf{name[2:]}": of for name, of in built.attribute_value_placeholders.items()}
            written = with_placeholders(written, names, values)
    return written


_PLACEHOLDER_OF_BOTO3 = re.compile(r"([#:])[nv](?=\d)")


def with_placeholders(
    request: Mapping[str, Any], names: Mapping[str, str], values: Mapping[str, Any] = MappingProxyType({})
) -> Attributes:
    """Add the names and values of placeholders to a request."""
    completed = dict(request)
    for parameter, added in (("ExpressionAttributeNames", names), ("ExpressionAttributeValues", values)):
        if added:
            completed[parameter] = {**(request.get(parameter) or {}), **added}
    return completed


def convert_values(content: Any, convert: Callable[[Any], Any]) -> Any:
    """Convert all values in a part of a request or a response; `convert` takes those of one item or key."""
    if isinstance(content, (list, tuple)):
        return [convert_values(element, convert) for element in content]
    if not isinstance(content, Mapping):
        return content
    return {name: convert_member(name, part, convert) for name, part in content.items()}


def convert_member(name: str, part: Any, convert: Callable[[Any], Any]) -> Any:
    """Convert all values in one member of a request or a response."""
    if name in _VALUES:
        return convert(part)
    if isinstance(part, (str, int)):
        return part
    if name == "Hashed" and isinstance(part, Mapping):  # a parameter of ShardedTable alone
        return convert({name: part})[name]
    if name == "ConsumedCapacity":
        return part  # an index may have the name of a member
    if name in _LISTS_OF_VALUES:
        return [convert(values) for values in part]
    if name in _BY_TABLE:
        return {table: convert_values(each, convert) for table, each in part.items()}
    if name == "Responses" and isinstance(part, Mapping):
        return {table: [convert(values) for values in items] for table, items in part.items()}
    return convert_values(part, convert)


class _Deserializer(TypeDeserializer):
    """boto3's, which takes a text that is no number for NaN. Takes text for bytes, as boto3's client does."""

    def _deserialize_n(self, value: str) -> Any:
        number = super()._deserialize_n(value)  # type: ignore[misc]
        if not number.is_finite():
            raise TypeError(f"{value!r} is not a number")
        return number

    def _deserialize_b(self, value: Any) -> Any:
        return super()._deserialize_b(value.encode() if isinstance(value, str) else value)  # type: ignore[misc]


_deserialize = _Deserializer().deserialize
_serialize = TypeSerializer().serialize


def load(values: Mapping[str, Any]) -> Attributes:
    """Read the typed values of an item or key."""
    return {name: _deserialize(value) for name, value in values.items()}


def dump(values: Mapping[str, Any]) -> Attributes:
    """Build the typed values of an item or key."""
    return {name: _serialize(value) for name, value in values.items()}


class PythonValuesCall:
    """As `Boto3Call`, through the client of a boto3 `Table`."""

    def __init__(self, client: Any) -> None:
        self._call = Boto3Call(client)

    def __call__(self, operation: str, request: Mapping[str, Any]) -> Response:
        """Send one request in DynamoDB's form."""
        response: Response = convert_values(self._call(operation, convert_values(request, load)), dump)
        return response
