"""DynamoDB's charges: item sizes in bytes and capacity units.

Source: DynamoDB Developer Guide, "DynamoDB item sizes and formats" and "Read and write operations". Items are in
the API's own form, attribute name to `{type: value}`, as both the functions and the local proxy hold them.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from math import ceil
from typing import Any

ITEM_LIMIT_BYTES = 400 * 1024
"""Largest item that DynamoDB stores, attribute names included."""

WRITE_UNIT_BYTES = 1024
READ_UNIT_BYTES = 4096

AttributeValue = Mapping[str, Any]
Item = Mapping[str, AttributeValue]

CONTAINER_OVERHEAD_BYTES = 3
"""Of a list or map; and for each of its elements:"""
ELEMENT_OVERHEAD_BYTES = 1


def item_size_bytes(item: Item) -> int:
    """Compute an item's size as DynamoDB counts it: UTF-8 names and values, with the overhead of containers."""
    return sum([text_size_bytes(name) + _value_size_bytes(value) for name, value in item.items()])


def write_units(size_bytes: int) -> int:
    """Compute the WCU of writing an item: 1 for each KiB begun, at least 1."""
    return max(1, ceil(size_bytes / WRITE_UNIT_BYTES))


def read_units(size_bytes: int, *, is_strong: bool) -> float:
    """Compute the RCU of one read of `size_bytes`: 1 for each 4 KiB begun, half when eventually consistent."""
    units = max(1, ceil(size_bytes / READ_UNIT_BYTES))
    return float(units) if is_strong else units / 2


def _value_size_bytes(value: AttributeValue) -> int:
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return text_size_bytes(content)
        case "N":
            return number_size_bytes(content)
        case "B":
            return _binary_size_bytes(content)
        case "BOOL" | "NULL":
            return 1
        case "SS":
            return sum(text_size_bytes(text) for text in content)
        case "NS":
            return sum(number_size_bytes(text) for text in content)
        case "BS":
            return sum(_binary_size_bytes(data) for data in content)
        case "L":
            return CONTAINER_OVERHEAD_BYTES + sum(ELEMENT_OVERHEAD_BYTES + _value_size_bytes(v) for v in content)
        case "M":
            return CONTAINER_OVERHEAD_BYTES + len(content) * ELEMENT_OVERHEAD_BYTES + item_size_bytes(content)
        case _:
            raise ValueError(f"unknown DynamoDB type {kind!r}")


def text_size_bytes(text: str) -> int:
    """Count bytes in UTF-8; Python knows of a text whether it is ASCII, and then nothing need be encoded."""
    return len(text) if text.isascii() else len(text.encode())


def number_size_bytes(text: str) -> int:
    """Estimate: one byte for each two significant digits, and one; a negative number takes one more."""
    digits = text.lower().split("e")[0].lstrip("-").replace(".", "").strip("0")
    return ceil(len(digits) / 2) + 1 + text.startswith("-")


def _binary_size_bytes(data: bytes | str) -> int:
    return len(base64.b64decode(data)) if isinstance(data, str) else len(data)
