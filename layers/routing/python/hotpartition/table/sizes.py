"""How large DynamoDB counts an item, from the Python values that boto3's `Table` takes: without encoding them first."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from decimal import Decimal
from typing import Any

from boto3.dynamodb.types import Binary

from hotpartition.core.capacity import (
    CONTAINER_OVERHEAD_BYTES,
    ELEMENT_OVERHEAD_BYTES,
    number_size_bytes,
    text_size_bytes,
)
from hotpartition.table.schema import order_of


def attributes_size_bytes(attributes: Mapping[str, Any]) -> int:
    """Compute what `core.capacity.item_size_bytes` says of the encoded item; what boto3 will refuse counts nothing."""
    return sum([text_size_bytes(str(name)) + _value_size_bytes(value) for name, value in attributes.items()])


def _value_size_bytes(value: Any) -> int:
    match value:
        case str():
            return text_size_bytes(value)
        case bool() | None:
            return 1
        case int() | Decimal():
            return number_size_bytes(str(value))
        case bytes() | bytearray() | Binary():
            return len(order_of(value))
        case AbstractSet():
            return sum([_value_size_bytes(element) for element in value])
        case list() | tuple():
            elements = [ELEMENT_OVERHEAD_BYTES + _value_size_bytes(element) for element in value]
            return CONTAINER_OVERHEAD_BYTES + sum(elements)
        case Mapping():
            return CONTAINER_OVERHEAD_BYTES + len(value) * ELEMENT_OVERHEAD_BYTES + attributes_size_bytes(value)
        case _:
            return 0
