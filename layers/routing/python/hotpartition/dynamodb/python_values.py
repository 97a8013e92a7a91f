"""Python values, as the client of a boto3 resource has them, for adapters that speak DynamoDB's own form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer

from hotpartition.dynamodb.boto3_client import Boto3Call
from hotpartition.dynamodb.calls import Response

Attributes = dict[str, Any]
"""An item, a key or a request as boto3's `Table` takes and gives them: Python values."""

VALUES_SENT = frozenset({"Item", "Key", "ExpressionAttributeValues", "ExclusiveStartKey"})
"""The members of requests that hold values by name."""
_VALUES = VALUES_SENT | {"Attributes", "LastEvaluatedKey", "ItemCollectionKey"}
_LISTS_OF_VALUES = frozenset({"Items", "Keys"})


def convert_values(content: Any, convert: Callable[[Any], Any]) -> Any:
    """Convert all values in a part of a request or a response; `convert` takes those of one item or key."""
    if isinstance(content, (list, tuple)):
        return [convert_values(element, convert) for element in content]
    if not isinstance(content, Mapping):
        return content
    return {
        name: convert(part)
        if name in _VALUES
        else [convert(values) for values in part]
        if name in _LISTS_OF_VALUES
        else convert_values(part, convert)
        for name, part in content.items()
    }


class PythonValuesCall:
    """As `Boto3Call`, through the client of a boto3 `Table`."""

    def __init__(self, client: Any) -> None:
        self._call = Boto3Call(client)
        self._load = partial(_each, TypeDeserializer().deserialize)
        self._dump = partial(_each, TypeSerializer().serialize)

    def __call__(self, operation: str, request: Mapping[str, Any]) -> Response:
        """Send one request in DynamoDB's form."""
        response: Response = convert_values(self._call(operation, convert_values(request, self._load)), self._dump)
        return response


def _each(convert: Callable[[Any], Any], values: Mapping[str, Any]) -> Attributes:
    return {name: convert(value) for name, value in values.items()}
