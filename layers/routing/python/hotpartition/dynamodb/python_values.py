"""The client of a boto3 resource, which takes and gives Python values, for adapters that speak DynamoDB's own form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer

from hotpartition.dynamodb.boto3_client import Boto3Call
from hotpartition.dynamodb.calls import Response

_ATTRIBUTES = frozenset(
    {"Attributes", "ExclusiveStartKey", "ExpressionAttributeValues", "Item", "Key", "LastEvaluatedKey"}
)
"""The members of requests and responses that hold values by name."""


class PythonValuesCall:
    """As `Boto3Call`, through the client of a boto3 `Table`."""

    def __init__(self, client: Any) -> None:
        self._call = Boto3Call(client)
        self._load = TypeDeserializer().deserialize
        self._dump = TypeSerializer().serialize

    def __call__(self, operation: str, request: Mapping[str, Any]) -> Response:
        """Send one request in DynamoDB's form."""
        response: Response = self._convert(self._call(operation, self._convert(request, self._load)), self._dump)
        return response

    def _convert(self, content: Any, convert: Any) -> Any:
        """Convert all values that a request or a response holds."""
        if isinstance(content, list):
            return [self._convert(element, convert) for element in content]
        if not isinstance(content, Mapping):
            return content
        return {
            name: {key: convert(value) for key, value in part.items()}
            if name in _ATTRIBUTES
            else [{key: convert(value) for key, value in item.items()} for item in part]
            if name == "Items"
            else self._convert(part, convert)
            for name, part in content.items()
        }
