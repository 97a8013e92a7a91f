"""Filters of a scan, or of an index, that look at the partition key: it is another one on a shard.

Conditions of a `FilterExpression` on the key alone, joined with the rest by AND, are taken out and tested here,
on the owner's key. DynamoDB is sent a wider condition in its place.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from hotpartition.dynamodb.python_values import Attributes
from hotpartition.table.expressions import conjuncts, read_words, split

Test = Callable[[str], bool]
"""Says whether a filter keeps what has a partition key."""


class Filtered(NamedTuple):
    """A request with the wider filter; and which partition keys the owner's keeps, None: it looks at none."""

    request: Attributes
    keeps: Test | None


_COMPARE: Mapping[str, Callable[[str, str], bool]] = {
    "<>": operator.ne,
    "<": operator.gt,
    "<=": operator.ge,
    ">": operator.lt,
    ">=": operator.le,
}
"""Of the value and the key, in this order."""
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_SAME_ON_SHARDS = frozenset({"attribute_exists", "attribute_not_exists", "attribute_type"})


def split_filter(request: Mapping[str, Any], partition: str) -> Filtered | None:
    """Take what it demands of the partition key out of a request's filter.

    Returns:
        None where the filter looks at the key in another way.
    """
    if not request.get("FilterExpression"):
        return Filtered(dict(request), None)
    text, names = request["FilterExpression"], request.get("ExpressionAttributeNames") or {}
    values: Mapping[str, Any] = request.get("ExpressionAttributeValues") or {}
    words = read_words(text)
    tests: list[Test] = []
    wider, end = "", 0
    for part in conjuncts(words):
        told = [word.text for word in part]
        keys = [key for before, key in pairwise(["", *told]) if before != "." and names.get(key, key) == partition]
        if not keys or (told[0] in _SAME_ON_SHARDS and told[2:3] == keys):
            continue
        read = _read_test(told, keys[0], values) if len(keys) == 1 else None
        if read is None:
            return None
        test, prefix = read
        sent = f"begins_with({keys[0]}, {prefix})" if prefix else f"attribute_exists({keys[0]})"
        wider, end = wider + text[end : part[0].start] + sent, part[-1].end
        tests.append(test)
    if not tests:
        return Filtered(dict(request), None)
    wider += text[end:]
    gone = {word.text for word in words} - _used({**request, "FilterExpression": wider})
    kept = {name: value for name, value in values.items() if name not in gone}
    rest = {name: value for name, value in request.items() if name != "ExpressionAttributeValues"}
    wide = {**rest, "FilterExpression": wider, **({"ExpressionAttributeValues": kept} if kept else {})}
    return Filtered(wide, lambda collection: all(test(collection) for test in tests))


def _used(request: Mapping[str, Any]) -> set[str]:
    return {word for value in request.values() if isinstance(value, str) for word in split(value)}


def _read_test(told: Sequence[str], key: str, values: Mapping[str, Any]) -> tuple[Test, str] | None:
    """Read a condition on the key: its test, and the placeholder of what such keys begin with; empty where of nothing.

    Returns:
        None where it cannot be read; for what a text does not compare with either: DynamoDB says best what comes of it.
    """
    placeholders = [word for word in told if word in values]
    given = [values[word] for word in placeholders]
    if not given or not all(isinstance(value, str) and value for value in given):
        return None
    shape = ["key" if word == key else ":v" if word in values else word for word in told]
    if shape[0] == ":v" and shape[2:] == ["key"]:
        shape = ["key", _MIRRORED.get(shape[1], shape[1]), ":v"]
    first, last, prefix = given[0], given[-1], placeholders[0]
    match shape:
        case ["key", "=", ":v"]:
            return (lambda name: name == first), prefix
        case ["begins_with", "(", "key", ",", ":v", ")"]:
            return (lambda name: name.startswith(first)), prefix
        case ["contains", "(", "key", ",", ":v", ")"]:
            return (lambda name: first in name), ""
        case ["key", sign, ":v"] if sign in _COMPARE:
            return partial(_COMPARE[sign], first), ""
        case ["key", word, ":v", _, ":v"] if word.upper() == "BETWEEN" and first <= last:
            return (lambda name: first <= name <= last), ""
        case ["key", word, "(", *listed, ")"] if word.upper() == "IN" and {*listed} <= {":v", ","}:
            return (lambda name: name in given), ""
    return None
