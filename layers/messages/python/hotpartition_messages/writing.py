"""Stores messages through the engine's writer: from a checked request to its acknowledgement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hotpartition.core.capacity import Item, item_size_bytes
from hotpartition.core.message_ids import check_not_ahead, mint_message_id
from hotpartition.errors import MessageConflictError
from hotpartition.jobs.writer import Writer
from hotpartition_messages.attributes import NO_ATTRIBUTES, EncodedAttributes
from hotpartition_messages.messages import Message


@dataclass(frozen=True, slots=True)
class NewMessage:
    """What a client asks to store. Without `message_id` the server mints one.

    REQUIRES: checked ids, the message's in canonical form.
    """

    conversation_id: str
    sender: str
    body: str
    attributes: EncodedAttributes = NO_ATTRIBUTES
    message_id: str | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """An acknowledged message. `is_replay`: it had been stored before, with the same content."""

    message: Message
    is_replay: bool


class MessageWriter:
    """Writes messages. One per execution environment; serves one request at a time."""

    def __init__(
        self, writer: Writer[Message], *, now_ms: Callable[[], int], random_bits: Callable[[int], int]
    ) -> None:
        """Start with nothing stored.

        Args:
            writer: places and stores the items.
            now_ms: Unix time in ms.
            random_bits: so many random bits, for the ids of messages that come without one.
        """
        self._writer = writer
        self._now_ms = now_ms
        self._random_bits = random_bits

    def write(self, new: NewMessage, *, remaining_ms: float = float("inf")) -> Written:
        """Store a message, or find it stored already.

        Args:
            new: the message.
            remaining_ms: time the function has left; the budget never passes it.

        Raises:
            InvalidMessageIdError: its id lies too far ahead.
            InvalidRequestError: sender or body is no valid Unicode.
            MessageTooLargeError: the item would pass DynamoDB's limit.
            MessageConflictError: its id is taken, at the same place, by other content.
            RetryLaterError: DynamoDB refused for the whole budget; `message_id` is the id to repeat with.
        """
        message_id = self._choose_id(new.message_id)
        message = Message(new.conversation_id, message_id, new.sender, new.body, new.attributes.stored)
        item = message.to_attributes()
        size_bytes = _size_bytes(item, new.attributes)
        existing = self._writer.write(
            message.conversation_id,
            message_id,
            item,
            size_bytes=size_bytes,
            may_be_stored=new.message_id is not None,
            remaining_ms=remaining_ms,
        )
        if existing is None:
            return Written(message, is_replay=False)
        if existing.has_same_content(message):
            return Written(existing, is_replay=True)
        raise MessageConflictError(message.conversation_id, message.message_id)

    def _choose_id(self, wanted: str | None) -> str:
        now_ms = self._now_ms()
        if wanted is None:
            return mint_message_id(now_ms, self._random_bits)
        check_not_ahead(wanted, now_ms)
        return wanted


def _size_bytes(item: Item, attributes: EncodedAttributes) -> int:
    """Measure an item; its attributes were measured when they were encoded."""
    if "attributes" not in item:
        return item_size_bytes(item)
    return item_size_bytes({**item, "attributes": {"S": ""}}) + attributes.size_bytes
