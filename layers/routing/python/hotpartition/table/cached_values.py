"""How the read cache writes, copies and measures Python values: those of JSON and those of DynamoDB."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from copy import deepcopy
from decimal import Decimal
from sys import getsizeof
from types import NoneType
from typing import Any

from boto3.dynamodb.types import Binary

from hotpartition.core.errors import MalformedPageError

_TAG = "$"
"""What a value that JSON does not have is called by: an object with this name and one kind."""
_UNCHANGEABLE = (str, int, float, bytes, Decimal, NoneType)
"""Types of values that their callers may share."""


class ValueCodec:
    """`Codec` of Python values. Each comes back as the same type: a whole number is not made a `Decimal`."""

    def encode(self, value: Any) -> str:
        """Implement `Codec.encode`.

        Raises:
            TypeError: naming a value that cannot be written, and what to do.
        """
        return json.dumps(_tag(value), separators=(",", ":"))

    def decode(self, text: str) -> Any:
        """Implement `Codec.decode`."""
        try:
            return json.loads(text, object_hook=_untag)
        except (ValueError, KeyError, TypeError, ArithmeticError) as error:
            raise MalformedPageError(f"not a cached value: {error!r}") from error

    def copy(self, value: Any) -> Any:
        """Implement `Codec.copy`."""
        if isinstance(value, _UNCHANGEABLE):
            return value
        if type(value) is dict:
            return {name: self.copy(each) for name, each in value.items()}
        if type(value) is list:
            return [self.copy(each) for each in value]
        return deepcopy(value)

    def size_bytes(self, value: Any) -> int:
        """Implement `Codec.size_bytes`."""
        size = getsizeof(value)
        if isinstance(value, dict):
            return size + sum(self.size_bytes(name) + self.size_bytes(each) for name, each in value.items())
        if isinstance(value, list | tuple | set | frozenset):
            return size + sum(self.size_bytes(each) for each in value)
        return size


def _tag(value: Any) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list():
            return [_tag(each) for each in value]
        case dict() if all(isinstance(name, str) for name in value):
            tagged = {name: _tag(each) for name, each in value.items()}
            return {_TAG: "dict", "of": list(tagged.items())} if _TAG in tagged else tagged
        case Decimal():
            return {_TAG: "decimal", "of": str(value)}
        case Binary():
            return {_TAG: "binary", "of": b64encode(value.value).decode()}  # type: ignore[attr-defined]  # stubs lack it
        case bytes() | bytearray():
            return {_TAG: type(value).__name__, "of": b64encode(value).decode()}
        case set():
            return {_TAG: "set", "of": [_tag(each) for each in value]}
    raise TypeError(
        f"ReadCache cannot write {value!r:.80}, a {type(value).__name__}, for other processes: load what JSON and"
        " DynamoDB have (text, numbers, bytes, True, False, None; lists, sets, and dicts with texts as keys), or give"
        " ReadCache a codec= with encode, decode, copy and size_bytes"
    )


_UNTAGGED: dict[str, Callable[[Any], Any]] = {
    "dict": dict,
    "decimal": Decimal,
    "binary": lambda text: Binary(b64decode(text)),
    "bytes": b64decode,
    "bytearray": lambda text: bytearray(b64decode(text)),
    "set": set,
}


def _untag(value: dict[str, Any]) -> Any:
    return _UNTAGGED[value[_TAG]](value["of"]) if _TAG in value else value
