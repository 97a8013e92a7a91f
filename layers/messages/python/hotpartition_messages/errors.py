"""What can be wrong with a request for messages, beside the engine's own errors.

InvalidRequestError (the engine's)
├── InvalidConversationIdError
├── InvalidMessageIdError
└── InvalidCursorError
HotPartitionError (the engine's)
├── MessageConflictError             reject the request: the id is taken by other content
├── MessageNotFoundError             the message does not exist, or no more: it has expired
├── MessageGoneError                 the message was deleted; for a write also: it would have expired already
├── MessageChangedError              reject the request: the message is in another state than the client says
└── NotTheSenderError                reject the request: the caller may not write as this sender
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


class MessageGoneError(HotPartitionError):
    """The message was deleted, or its time is over."""

    def __init__(self, conversation_id: str, message_id: str) -> None:
        super().__init__("the message was deleted or has expired; nothing brings it back")
        self.conversation_id = conversation_id
        self.message_id = message_id


class MessageChangedError(HotPartitionError):
    """The message is in another state than the one that the client wants to change."""

    def __init__(self, etag: str) -> None:
        super().__init__("the message was changed since; read it again")
        self.etag = etag


class NotTheSenderError(HotPartitionError):
    """The caller may not write as this sender, or is nobody that could be named."""


class MessageNotFoundError(HotPartitionError):
    """No message with this id is stored in the conversation."""

    def __init__(self, conversation_id: str, message_id: str) -> None:
        super().__init__("no message with this id is stored in this conversation")
        self.conversation_id = conversation_id
        self.message_id = message_id
