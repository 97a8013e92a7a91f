"""A client's attributes: any JSON object, in the form in which DynamoDB stores it, and back."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Context, Decimal
from math import isfinite
from typing import Any, NamedTuple

from hotpartition.core.capacity import (
    CONTAINER_OVERHEAD_BYTES,
    ELEMENT_OVERHEAD_BYTES,
    ITEM_LIMIT_BYTES,
    AttributeValue,
    number_size_bytes,
    text_size_bytes,
)
from hotpartition.core.errors import InvalidRequestError, ItemTooLargeError

MAX_NUMBER_DIGITS = 38
MAX_NUMBER_EXPONENT = 125
MIN_NUMBER_EXPONENT = -130
MAX_DEPTH = 30
"""Levels of nesting inside `attributes`; DynamoDB takes 32 for the whole item."""

_EXACT = Context(prec=MAX_NUMBER_DIGITS)  # the default context rounds to 28 digits
_LARGEST_INTEGER = 10**MAX_NUMBER_DIGITS
_PLAIN_FLOATS = (1e-4, 1e15)
"""Between these, a double's shortest form has no exponent and no digits that DynamoDB would not keep."""


class EncodedAttributes(NamedTuple):
    """Attributes in DynamoDB's form, and the bytes that DynamoDB counts for them."""

    stored: AttributeValue
    size_bytes: int


def encode_attributes(attributes: Mapping[str, Any]) -> EncodedAttributes:
    """Build the stored form of a client's attributes, and measure it; stop as soon as no item could hold it.

    Raises:
        InvalidRequestError: naming the attribute that DynamoDB cannot hold.
        ItemTooLargeError: they alone take more than an item may.
    """
    encoder = _Encoder()
    try:
        stored = encoder.encode_map(attributes, depth=1)
    except _NotStorableError as error:
        where = "attributes" if error.is_about_all else "attributes" + "".join(reversed(error.path))
        raise InvalidRequestError.of(where, error.message) from error
    return EncodedAttributes(stored, encoder.size_bytes)


def decode_attributes(stored: AttributeValue) -> dict[str, Any]:
    """Read the stored form. REQUIRES: `encode_attributes` made it."""
    return {name: _decode(element) for name, element in stored["M"].items()}


def check_text(text: str, where: str) -> str:
    """Return a text that has a UTF-8 form.

    Raises:
        InvalidRequestError: it has none.
    """
    if not _has_utf8(text):
        raise InvalidRequestError.of(where, NO_UTF8)
    return text


NO_UTF8 = "should be valid Unicode, without lone surrogates"


class _NotStorableError(Exception):
    """DynamoDB cannot hold a value. The path to it is put together, from its end, only where this is raised."""

    def __init__(self, message: str, *, is_about_all: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.is_about_all = is_about_all
        self.path: list[str] = []


class _Encoder:
    """Encodes one client's attributes and adds up their size."""

    def __init__(self) -> None:
        self.size_bytes = 0

    def encode_map(self, content: Mapping[str, Any], depth: int) -> AttributeValue:
        self._add(CONTAINER_OVERHEAD_BYTES)
        encoded: dict[str, AttributeValue] = {}
        for name, value in content.items():
            if not name:
                raise _NotStorableError("should have no empty name")
            if not _has_utf8(name):
                raise _NotStorableError(NO_UTF8)
            self._add(ELEMENT_OVERHEAD_BYTES + text_size_bytes(name))
            try:
                encoded[name] = self._encode(value, depth + 1)
            except _NotStorableError as error:
                error.path.append(f".{name}")
                raise
        return {"M": encoded}

    def _encode_list(self, content: list[Any] | tuple[Any, ...], depth: int) -> AttributeValue:
        self._add(CONTAINER_OVERHEAD_BYTES)
        encoded: list[AttributeValue] = []
        try:
            for value in content:
                self._add(ELEMENT_OVERHEAD_BYTES)
                encoded.append(self._encode(value, depth + 1))
        except _NotStorableError as error:
            error.path.append(f"[{len(encoded)}]")
            raise
        return {"L": encoded}

    def _encode(self, value: object, depth: int) -> AttributeValue:
        if depth > MAX_DEPTH:
            message = f"should be nested at most {MAX_DEPTH} levels deep"
            raise _NotStorableError(message, is_about_all=True)
        match value:
            case str():
                if not _has_utf8(value):
                    raise _NotStorableError(NO_UTF8)
                self._add(text_size_bytes(value))
                return {"S": value}
            case None:
                self._add(1)
                return {"NULL": True}
            case bool():
                self._add(1)
                return {"BOOL": value}
            case int() | float() | Decimal():
                number = _encode_number(value)
                self._add(number_size_bytes(number))
                return {"N": number}
            case list() | tuple():
                return self._encode_list(value, depth)
            case dict():
                return self.encode_map(value, depth)
            case _:
                raise _NotStorableError(f"should be a JSON value, not {type(value).__name__}")

    def _add(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        if self.size_bytes > ITEM_LIMIT_BYTES:
            raise ItemTooLargeError(self.size_bytes, ITEM_LIMIT_BYTES, is_least=True)


def _has_utf8(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _encode_number(value: float | Decimal) -> str:
    """Normalize, so that equal numbers have one stored form: 1, 1.0 and 1e0 are all `1`."""
    if isinstance(value, int) and -_LARGEST_INTEGER < value < _LARGEST_INTEGER:
        return str(value)
    if isinstance(value, float):
        if not isfinite(value):
            raise _NotStorableError("should be a finite number")
        if _PLAIN_FLOATS[0] <= abs(value) < _PLAIN_FLOATS[1]:
            return str(int(value)) if value.is_integer() else repr(value)
    # repr of a float is its shortest exact form; Decimal(float) would spell out the binary fraction.
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not number:
        return "0"
    digits = len(number.as_tuple().digits) if not isinstance(value, int) else len(str(abs(value)).rstrip("0"))
    if digits > MAX_NUMBER_DIGITS or not MIN_NUMBER_EXPONENT <= number.adjusted() <= MAX_NUMBER_EXPONENT:
        allowed = f"{MAX_NUMBER_DIGITS} digits, 1e{MIN_NUMBER_EXPONENT} to 1e{MAX_NUMBER_EXPONENT}"
        raise _NotStorableError(f"should be a number that DynamoDB holds exactly ({allowed})")
    return f"{number.normalize(_EXACT):f}"


def _decode(value: AttributeValue) -> Any:
    ((kind, content),) = value.items()
    match kind:
        case "S" | "BOOL":
            return content
        case "NULL":
            return None
        case "N":
            number = Decimal(content)
            return int(number) if number == number.to_integral_value() else float(number)
        case "L":
            return [_decode(element) for element in content]
        case "M":
            return {name: _decode(element) for name, element in content.items()}
        case _:
            raise ValueError(f"unexpected DynamoDB type {kind!r} in a message")


NO_ATTRIBUTES = encode_attributes({})
