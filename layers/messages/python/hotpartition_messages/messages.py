"""Messages and their stored form.

Message item, attributes as stored (`pk` and `sk` as in `keys.py`); written once, never changed:

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

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hotpartition.core.capacity import AttributeValue, Item
from hotpartition.core.timestamps import format_time
from hotpartition_messages.attributes import NO_ATTRIBUTES, check_text, decode_attributes, encode_attributes
from hotpartition_messages.keys import build_sort_key
from hotpartition_messages.message_ids import message_time_ms

MESSAGE_ATTRIBUTES = ("pk", "sk", "conversation_id", "message_id", "sender", "body", "sent_at", "attributes")
"""Every attribute of a message item, as described above: what may be put, and no more."""


@dataclass(frozen=True)
class Message:
    """One message. REQUIRES: a canonical message id.

    `stored_attributes` are the client's attributes in DynamoDB's form, equal for equal content.
    """

    conversation_id: str
    message_id: str
    sender: str
    body: str
    stored_attributes: AttributeValue = field(default_factory=lambda: NO_ATTRIBUTES.stored)

    @cached_property
    def sent_at(self) -> str:
        """The message's time, RFC 3339."""
        return format_time(message_time_ms(self.message_id))

    @cached_property
    def sort_key(self) -> str:
        """The message's sort key: what pages are sorted by."""
        return build_sort_key(self.message_id)

    @cached_property
    def attributes(self) -> Mapping[str, Any]:
        """The client's attributes as JSON values."""
        return decode_attributes(self.stored_attributes)

    @cached_property
    def json(self) -> str:
        """The message as clients see it: no key, no shard."""
        document = {
            "conversation_id": self.conversation_id,
            "message_id": self.message_id,
            "sender": self.sender,
            "body": self.body,
            "sent_at": self.sent_at,
            "attributes": self.attributes,
        }
        return json.dumps(document, ensure_ascii=False, separators=(",", ":"))

    @property
    def rank(self) -> tuple[str, str, str]:
        """What orders copies of different content, so that every reader chooses the same one."""
        return self.sender, self.body, repr(sorted(self.attributes.items()))

    def has_same_content(self, other: Message) -> bool:
        """Say whether both carry the same content, as opposed to only the same id."""
        return self.sender == other.sender and self.body == other.body and self._has_same_attributes(other)

    def _has_same_attributes(self, other: Message) -> bool:
        if self.stored_attributes == other.stored_attributes:
            return True
        # DynamoDB may spell a number in another way than it was put.
        return encode_attributes(self.attributes).stored == encode_attributes(other.attributes).stored

    def to_item(self, partition_key: str) -> Item:
        """Build the stored item at its place.

        Raises:
            InvalidRequestError: sender or body is no valid Unicode.
        """
        return {"pk": {"S": partition_key}, **self.to_attributes()}

    def to_attributes(self) -> Item:
        """Build the stored item without its partition key.

        Raises:
            InvalidRequestError: sender or body is no valid Unicode.
        """
        item: dict[str, AttributeValue] = {
            "sk": {"S": self.sort_key},
            "conversation_id": {"S": self.conversation_id},
            "message_id": {"S": self.message_id},
            "sender": {"S": check_text(self.sender, "sender")},
            "body": {"S": check_text(self.body, "body")},
            "sent_at": {"S": self.sent_at},
        }
        if self.stored_attributes["M"]:
            item["attributes"] = self.stored_attributes
        return item

    @classmethod
    def from_item(cls, item: Item) -> Message:
        """Read a stored item. REQUIRES: an item written by `to_item`."""
        return cls(
            conversation_id=item["conversation_id"]["S"],
            message_id=item["message_id"]["S"],
            sender=item["sender"]["S"],
            body=item["body"]["S"],
            stored_attributes=item.get("attributes", NO_ATTRIBUTES.stored),
        )
