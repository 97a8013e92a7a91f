"""What can be wrong with a request for messages, beside the engine's own errors.

InvalidRequestError (the engine's)
├── InvalidConversationIdError
├── InvalidMessageIdError
└── InvalidCursorError
HotPartitionError (the engine's)
├── MessageConflictError             reject the request: the id is taken by other content
└── MessageNotFoundError             the message does not exist
"""

from __future__ import annotations

from hotpartition.errors import HotPartitionError, InvalidRequestError


class InvalidConversationIdError(InvalidRequestError):
    """The conversation id has the wrong length or characters."""


class InvalidMessageIdError(InvalidRequestError):
    """The message id is no ULID or UUIDv7, or lies too far in the future."""


class InvalidCursorError(InvalidRequestError):
    """The cursor was not issued by this API, or for another conversation or order."""


class MessageConflictError(HotPartitionError):
    """A message with this id and other content is already stored at the same place."""

    def __init__(self, conversation_id: str, message_id: str) -> None:
        super().__init__("a message with this id and other content is already stored")
        self.conversation_id = conversation_id
        self.message_id = message_id


class MessageNotFoundError(HotPartitionError):
    """No message with this id is stored in the conversation."""

    def __init__(self, conversation_id: str, message_id: str) -> None:
        super().__init__("no message with this id is stored in this conversation")
        self.conversation_id = conversation_id
        self.message_id = message_id
