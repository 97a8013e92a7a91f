"""Stores messages through the engine's writer: from what a client asks for to its acknowledgement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from hotpartition.core.capacity import Item
from hotpartition.core.keys import parse_conversation_id
from hotpartition.core.message_ids import check_not_ahead, mint_message_id, parse_message_id
from hotpartition.errors import InvalidRequestError, MessageConflictError, Problem
from hotpartition.jobs.writer import Writer
from hotpartition_messages.messages import Message

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class NewMessage:
    """What a client asks to store. Without `message_id` the server mints one."""

    conversation_id: str
    sender: str
    body: str
    attributes: Mapping[str, Any]
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
            InvalidRequestError: naming every wrong field.
            MessageTooLargeError: the item would pass DynamoDB's limit.
            MessageConflictError: its id is taken, at the same place, by other content.
            RetryLaterError: DynamoDB refused for the whole budget; `message_id` is the id to repeat with.
        """
        message, item = self._build(new)
        existing = self._writer.write(message.conversation_id, message.message_id, item, remaining_ms=remaining_ms)
        if existing is None:
            return Written(message, is_replay=False)
        if existing.has_same_content(message):
            return Written(existing, is_replay=True)
        raise MessageConflictError(message.conversation_id, message.message_id)

    def _build(self, new: NewMessage) -> tuple[Message, Item]:
        """Build the message and its item, without the partition key: that is the writer's to choose."""
        problems: list[Problem] = []
        conversation_id = _collect(problems, lambda: parse_conversation_id(new.conversation_id), default="")
        message_id = _collect(problems, lambda: self._message_id(new.message_id), default="0" * 26)
        message = Message(conversation_id, message_id, new.sender, new.body, new.attributes)
        item: Item = _collect(problems, message.to_attributes, default={})
        if problems:
            raise InvalidRequestError(problems)
        return message, item

    def _message_id(self, wanted: str | None) -> str:
        now_ms = self._now_ms()
        if wanted is None:
            return mint_message_id(now_ms, self._random_bits)
        message_id = parse_message_id(wanted)
        check_not_ahead(message_id, now_ms)
        return message_id


def _collect(problems: list[Problem], parse: Callable[[], ValueT], *, default: ValueT) -> ValueT:
    """Run one check; what it finds wrong joins the list, so that all wrong fields are named at once."""
    try:
        return parse()
    except InvalidRequestError as error:
        problems.extend(error.problems)
        return default
