"""Messages and their stored form.

Message item, attributes as stored (`pk` and `sk` as in `hotpartition.core.keys`); written once, never changed:

| attribute | type | content |
|---|---|---|
| conversation_id | S | base key |
| message_id | S | canonical ULID |
| sender, body | S | as sent |
| sent_at | S | the message id's time, RFC 3339 UTC with ms; for people, derived from the id |
| attributes | M | whatever else the client sent; absent when empty |

Numbers inside `attributes` are whole numbers of up to 38 digits, or doubles within DynamoDB's range.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Context, Decimal
from functools import cached_property
from math import isfinite
from typing import Any

from hotpartition.core.capacity import AttributeValue, Item
from hotpartition.core.keys import build_message_sort_key
from hotpartition.core.message_ids import message_time_ms
from hotpartition.core.timestamps import format_time
from hotpartition.errors import InvalidRequestError

MESSAGE_ATTRIBUTES = ("pk", "sk", "conversation_id", "message_id", "sender", "body", "sent_at", "attributes")
"""Every attribute of a message item, as described above: what may be put, and no more."""

MAX_NUMBER_DIGITS = 38
MAX_NUMBER_EXPONENT = 125
MIN_NUMBER_EXPONENT = -130
MAX_DEPTH = 30
"""Levels of nesting inside `attributes`; DynamoDB takes 32 for the whole item."""


_EXACT = Context(prec=MAX_NUMBER_DIGITS)  # the default context rounds to 28 digits


@dataclass(frozen=True)
class Message:
    """One message as clients see it. `attributes` holds JSON values. REQUIRES: a canonical message id."""

    conversation_id: str
    message_id: str
    sender: str
    body: str
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def sent_at(self) -> str:
        """The message's time, RFC 3339."""
        return format_time(message_time_ms(self.message_id))

    @cached_property
    def stored_attributes(self) -> AttributeValue:
        """The client's attributes in DynamoDB's form; equal for equal content.

        Raises:
            InvalidRequestError: naming the attribute that DynamoDB cannot hold.
        """
        return encode_attributes(self.attributes)

    @property
    def rank(self) -> tuple[str, str, str]:
        """What orders copies of different content, so that every reader chooses the same one."""
        return self.sender, self.body, repr(sorted(self.attributes.items()))

    def has_same_content(self, other: Message) -> bool:
        """Say whether both carry the same content, as opposed to only the same id."""
        return (
            self.sender == other.sender
            and self.body == other.body
            and self.stored_attributes == other.stored_attributes
        )

    def to_item(self, partition_key: str) -> Item:
        """Build the stored item at its place.

        Raises:
            InvalidRequestError: an attribute cannot be stored.
        """
        return {"pk": {"S": partition_key}, **self.to_attributes()}

    def to_attributes(self) -> Item:
        """Build the stored item without its partition key.

        Raises:
            InvalidRequestError: an attribute cannot be stored.
        """
        item: dict[str, AttributeValue] = {
            "sk": {"S": build_message_sort_key(self.message_id)},
            "conversation_id": {"S": self.conversation_id},
            "message_id": {"S": self.message_id},
            "sender": {"S": _check_text(self.sender, "sender")},
            "body": {"S": _check_text(self.body, "body")},
            "sent_at": {"S": self.sent_at},
        }
        if self.attributes:
            item["attributes"] = self.stored_attributes
        return item

    @classmethod
    def from_item(cls, item: Item) -> Message:
        """Read a stored item. REQUIRES: an item written by `to_item`."""
        attributes = item.get("attributes")
        return cls(
            conversation_id=item["conversation_id"]["S"],
            message_id=item["message_id"]["S"],
            sender=item["sender"]["S"],
            body=item["body"]["S"],
            attributes=_decode(attributes) if attributes else {},
        )


def encode_attributes(attributes: Mapping[str, Any]) -> AttributeValue:
    """Build the stored form of a client's attributes.

    Raises:
        InvalidRequestError: naming the attribute that DynamoDB cannot hold.
    """
    return {"M": {_check_name(k, "attributes"): _encode(v, f"attributes.{k}", 2) for k, v in attributes.items()}}


def _check_text(text: str, where: str) -> str:
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError.of(where, "should be valid Unicode, without lone surrogates") from error
    return text


def _check_name(name: str, where: str) -> str:
    if not name:
        raise InvalidRequestError.of(where, "should have no empty name")
    return _check_text(name, where)


def _encode(value: object, where: str, depth: int) -> AttributeValue:
    if depth > MAX_DEPTH:
        raise InvalidRequestError.of("attributes", f"should be nested at most {MAX_DEPTH} levels deep")
    match value:
        case None:
            return {"NULL": True}
        case bool():
            return {"BOOL": value}
        case str():
            return {"S": _check_text(value, where)}
        case int() | float() | Decimal():
            return {"N": _encode_number(value, where)}
        case list() | tuple():
            return {"L": [_encode(v, f"{where}[{index}]", depth + 1) for index, v in enumerate(value)]}
        case dict():
            return {"M": {_check_name(k, where): _encode(v, f"{where}.{k}", depth + 1) for k, v in value.items()}}
        case _:
            raise InvalidRequestError.of(where, f"should be a JSON value, not {type(value).__name__}")


def _encode_number(value: float | Decimal, where: str) -> str:
    """Normalize, so that equal numbers have one stored form: 1, 1.0 and 1e0 are all `1`."""
    if isinstance(value, float) and not isfinite(value):
        raise InvalidRequestError.of(where, "should be a finite number")
    # repr of a float is its shortest exact form; Decimal(float) would spell out the binary fraction.
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not number:
        return "0"
    digits = len(number.as_tuple().digits) if not isinstance(value, int) else len(str(abs(value)).rstrip("0"))
    if digits > MAX_NUMBER_DIGITS or not MIN_NUMBER_EXPONENT <= number.adjusted() <= MAX_NUMBER_EXPONENT:
        allowed = f"{MAX_NUMBER_DIGITS} digits, 1e{MIN_NUMBER_EXPONENT} to 1e{MAX_NUMBER_EXPONENT}"
        raise InvalidRequestError.of(where, f"should be a number that DynamoDB holds exactly ({allowed})")
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
