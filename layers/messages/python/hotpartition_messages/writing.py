"""Stores messages through the engine's writer: from a checked request to its acknowledgement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hotpartition.core.capacity import Item, item_size_bytes
from hotpartition.core.merge import choose_copy
from hotpartition.dynamodb.item_store import DynamoDBItemStore
from hotpartition.engine.writer import Writer
from hotpartition_messages.attributes import NO_ATTRIBUTES, EncodedAttributes
from hotpartition_messages.errors import MessageConflictError, MessageGoneError
from hotpartition_messages.keys import build_key, check_item_size
from hotpartition_messages.message_ids import MAX_MINTED_AHEAD_MS, check_not_ahead, message_time_ms, mint_message_id
from hotpartition_messages.messages import Message


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message to store. Without `message_id` the server mints one.

    `expires_at_s` is Unix time in s. REQUIRES: checked ids, the message's in canonical form.
    """

    conversation_id: str
    sender: str
    body: str
    attributes: EncodedAttributes = NO_ATTRIBUTES
    message_id: str | None = None
    expires_at_s: int | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """An acknowledged message. `is_replay`: it had been stored before, with the same content."""

    message: Message
    is_replay: bool


class MessageWriter:
    """Writes messages. One per execution environment; serves one request at a time."""

    def __init__(
        self,
        writer: Writer,
        store: DynamoDBItemStore[Message],
        *,
        now_ms: Callable[[], int],
        random_bits: Callable[[int], int],
        retention_days: int = 0,
    ) -> None:
        """Start with nothing stored. A message expires `retention_days` after its time at the latest; 0: never."""
        self._retention_s = retention_days * 86_400
        self.writer = writer
        self.store = store
        self._now_ms = now_ms
        self._random_bits = random_bits

    def write(self, new: NewMessage, *, remaining_ms: float = float("inf"), received_ms: int | None = None) -> Written:
        """Store a message, or find it stored already. `remaining_ms` is the time that the function has left.

        `received_ms` is when the gateway got the request, Unix ms by its clock. It bounds the time of an id that is
        made here: if this process's clock is ahead, the id is still one that every other process takes.

        Raises:
            InvalidRequestError: its id lies too far ahead.
            InvalidRequestError: sender or body is not valid Unicode.
            ItemTooLargeError: the item would pass DynamoDB's limit.
            MessageConflictError: its id is taken, at the same place, by other content.
            MessageGoneError: it was deleted, as far as its place shows, or it would have expired already.
            RetryLaterError: DynamoDB refused for the whole budget; `sort_key` has the id to repeat with.
        """
        message_id = self._choose_id(new.message_id, received_ms)
        expires_at_s = self._choose_expiry(message_id, new.expires_at_s)
        message = Message(
            new.conversation_id, message_id, new.sender, new.body, new.attributes.stored, expires_at_s=expires_at_s
        )
        if not message.is_shown_at(self._now_ms()):
            raise MessageGoneError(message.conversation_id, message_id)
        attributes = message.to_attributes()
        size_bytes = _size_bytes(attributes, new)
        check_item_size(size_bytes)
        key = build_key(message.conversation_id, message_id)

        def put(partition_key: str) -> Message | None:
            return self.store.create({"pk": {"S": partition_key}, **attributes})

        def find(partition_keys: Sequence[str]) -> Message | None:
            places = [(partition_key, key.sort_key) for partition_key in partition_keys]
            copies = self.store.get(places, is_strong=True).copies
            return choose_copy([copy.item for copy in copies]) if copies else None

        existing = self.writer.write(
            key,
            put=put,
            find=find,
            size_bytes=size_bytes,
            may_be_stored=new.message_id is not None,
            remaining_ms=remaining_ms,
        )
        if existing is None:
            return Written(message, is_replay=False)
        if existing.deleted_at is not None:
            raise MessageGoneError(message.conversation_id, message_id)
        if existing.has_same_content(message):
            # With an id minted here, the stored message is this request's own attempt, whose response was lost.
            return Written(existing, is_replay=new.message_id is not None)
        raise MessageConflictError(message.conversation_id, message.message_id)

    def _choose_expiry(self, message_id: str, wanted_s: int | None) -> int | None:
        """Choose when a message expires. The retention counts from its id's time, so a repetition has the same."""
        if not self._retention_s:
            return wanted_s
        kept_until_s = -(-message_time_ms(message_id) // 1000) + self._retention_s
        return kept_until_s if wanted_s is None else min(wanted_s, kept_until_s)

    def _choose_id(self, wanted: str | None, received_ms: int | None) -> str:
        now_ms = self._now_ms()
        if wanted is None:
            latest_ms = now_ms if received_ms is None else received_ms + MAX_MINTED_AHEAD_MS
            return mint_message_id(min(now_ms, latest_ms), self._random_bits)
        check_not_ahead(wanted, max(now_ms, received_ms or 0))
        return wanted


def _size_bytes(item: Item, new: NewMessage) -> int:
    """Measure an item at its base key; its attributes were measured when they were encoded."""
    key_bytes = len("pk") + len(new.conversation_id)
    if "attributes" not in item:
        return key_bytes + item_size_bytes(item)
    return key_bytes + item_size_bytes({**item, "attributes": {"S": ""}}) + new.attributes.size_bytes
