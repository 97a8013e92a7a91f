"""Messages and their stored form.

Message item, attributes as stored (`pk` and `sk` as in `keys.py`):

| attribute | type | content |
|---|---|---|
| conversation_id | S | base key |
| message_id | S | canonical ULID |
| sender, body | S | as sent, or as edited last; empty in a tombstone |
| sent_at | S | the message id's time, RFC 3339 UTC with ms; for people, derived from the id |
| attributes | M | whatever else the client sent; absent when empty |
| expires_at | N | the table's TTL attribute: Unix time in s from which on it is not shown; absent: never |
| version | N | counts edits and the deletion; absent: 1, as the client sent it |
| edited_at | S | when it was edited last, RFC 3339; absent before |
| first_content | S | digest of the content before its first edit, by which a repetition of the write is known |
| deleted_at | S | when it was deleted, RFC 3339: the item is a tombstone, has no content, and never expires |

Of several stored copies the tombstone counts, else the highest version (`writing.py` says why that is enough).

Numbers inside `attributes` are whole numbers of up to 38 digits, or doubles within DynamoDB's range.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any

from hotpartition.core.capacity import AttributeValue, Item
from hotpartition.core.errors import MalformedPageError
from hotpartition.core.merge import Page
from hotpartition.core.times import format_time
from hotpartition_messages.attributes import NO_ATTRIBUTES, check_text, decode_attributes, encode_attributes
from hotpartition_messages.keys import build_sort_key
from hotpartition_messages.message_ids import message_time_ms

TTL_ATTRIBUTE = "expires_at"
MESSAGE_ATTRIBUTES = (
    *("pk", "sk", "conversation_id", "message_id", "sender", "body", "sent_at", "attributes"),
    *(TTL_ATTRIBUTE, "version", "edited_at", "first_content", "deleted_at"),
)
"""Every attribute of a message item, as described above; no others may be put."""


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
    expires_at_s: int | None = None
    version: int = 1
    edited_at: str | None = None
    first_content: str | None = None
    deleted_at: str | None = None

    @property
    def sent_at(self) -> str:
        """The message's time, RFC 3339."""
        return format_time(message_time_ms(self.message_id))

    @property
    def sort_key(self) -> str:
        """The message's sort key, which sorts pages."""
        return build_sort_key(self.message_id)

    @cached_property
    def attributes(self) -> Mapping[str, Any]:
        """The client's attributes as JSON values."""
        return decode_attributes(self.stored_attributes)

    @cached_property
    def json(self) -> str:
        """The message as JSON for clients: without key and shard."""
        document = {
            "conversation_id": self.conversation_id,
            "message_id": self.message_id,
            "sender": self.sender,
            "body": self.body,
            "sent_at": self.sent_at,
            "attributes": self.attributes,
        }
        if self.edited_at is not None:
            document["edited_at"] = self.edited_at
        if self.expires_at_s is not None:
            document["expires_at"] = format_time(self.expires_at_s * 1000)
        return json.dumps(document, ensure_ascii=False, separators=(",", ":"))

    @property
    def rank(self) -> tuple[bool, int, str, str, str]:
        """Orders copies, so that every reader chooses the same one: a tombstone, else the highest version."""
        content = self.sender, self.body, repr(sorted(self.attributes.items()))
        return self.deleted_at is None, -self.version, *content

    @property
    def etag(self) -> str:
        """The HTTP entity tag of this state of the message."""
        return f'"{self.version}-{self.digest_content()[:8]}"'

    def is_shown_at(self, now_ms: int) -> bool:
        """Say whether it is there for readers: neither deleted nor expired."""
        return self.deleted_at is None and (self.expires_at_s is None or now_ms < self.expires_at_s * 1000)

    def digest_content(self) -> str:
        """Digest the content, equal for equal content however DynamoDB spells its numbers."""
        attributes = encode_attributes(self.attributes).stored
        content = json.dumps([self.sender, self.body, attributes], sort_keys=True).encode()
        return blake2b(content, digest_size=16).hexdigest()

    def edit(self, *, body: str, stored_attributes: AttributeValue, edited_at: str) -> Message:
        """Build the edited message."""
        return replace(
            self,
            body=body,
            stored_attributes=stored_attributes,
            version=self.version + 1,
            edited_at=edited_at,
            first_content=self.first_content or self.digest_content(),
        )

    def delete(self, *, deleted_at: str) -> Message:
        """Build the tombstone that takes the message's place."""
        return Message(self.conversation_id, self.message_id, "", "", version=self.version + 1, deleted_at=deleted_at)

    def has_same_content(self, other: Message) -> bool:
        """Say whether both were stored with the same content, as opposed to only the same id.

        What became of it by edits does not count. REQUIRES: neither is a tombstone, which does not know.
        """
        if self.version == other.version == 1:
            return self.has_equal_content(other)
        one, two = (message.first_content or message.digest_content() for message in (self, other))
        return one == two

    def has_equal_content(self, other: Message) -> bool:
        """Say whether both carry the same content now."""
        return self.sender == other.sender and self.body == other.body and self._has_same_attributes(other)

    def _has_same_attributes(self, other: Message) -> bool:
        if self.stored_attributes == other.stored_attributes:
            return True
        # DynamoDB may spell a number in another way than it was put.
        return encode_attributes(self.attributes).stored == encode_attributes(other.attributes).stored

    def to_item(self, partition_key: str) -> Item:
        """Build the stored item at its place.

        Raises:
            InvalidRequestError: sender or body is not valid Unicode.
        """
        return {"pk": {"S": partition_key}, **self.to_attributes()}

    def to_attributes(self) -> Item:
        """Build the stored item without its partition key.

        Raises:
            InvalidRequestError: sender or body is not valid Unicode.
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
        if self.expires_at_s is not None:
            item[TTL_ATTRIBUTE] = {"N": str(self.expires_at_s)}
        if self.version > 1:
            item["version"] = {"N": str(self.version)}
        for name in _LATER_TEXTS:
            if (text := getattr(self, name)) is not None:
                item[name] = {"S": text}
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
            **_read_later(item),
        )


class MessagePageCodec:
    """`Codec` of pages of messages: JSON of the stored items, without their partition keys."""

    def encode(self, page: Page[str, Message]) -> str:
        """Implement `Codec.encode`."""
        document = {
            "items": [message.to_attributes() for message in page.items],
            "hidden": [message.to_attributes() for message in page.hidden],
            "has_more": page.has_more,
            "last": page.last,
        }
        return json.dumps(document, separators=(",", ":"))

    def decode(self, text: str) -> Page[str, Message]:
        """Implement `Codec.decode`."""
        try:
            document = json.loads(text)
            return Page(
                items=tuple([Message.from_item(item) for item in document["items"]]),
                has_more=document["has_more"],
                last=document["last"],
                hidden=tuple([Message.from_item(item) for item in document["hidden"]]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise MalformedPageError(f"no page of messages: {error!r}") from error

    def copy(self, page: Page[str, Message]) -> Page[str, Message]:
        """Implement `Codec.copy`: no message changes."""
        return page

    def size_bytes(self, page: Page[str, Message]) -> int:
        """Implement `Codec.size_bytes`."""
        return len(self.encode(page))


_LATER_TEXTS = ("edited_at", "first_content", "deleted_at")


def _read_later(item: Item) -> dict[str, Any]:
    """Read the attributes that only messages have that expire, were edited or deleted."""
    if TTL_ATTRIBUTE not in item and "version" not in item:
        return {}
    later: dict[str, Any] = {name: item[name]["S"] for name in _LATER_TEXTS if name in item}
    if TTL_ATTRIBUTE in item:
        later["expires_at_s"] = int(item[TTL_ATTRIBUTE]["N"])
    if "version" in item:
        later["version"] = int(item["version"]["N"])
    return later
