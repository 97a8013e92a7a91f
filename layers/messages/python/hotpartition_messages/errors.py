"""Errors of requests for messages, beside the engine's own.

HotPartitionError (the engine's)
├── MessageConflictError             reject the request: the id is taken by other content
├── MessageNotFoundError             the message does not exist, or no more: it has expired
├── MessageGoneError                 the message was deleted; for a write also: it would have expired already
├── MessageChangedError              reject the request: the message is in another state than the client says
└── NotTheSenderError                reject the request: the caller may not write as this sender
"""

from __future__ import annotations

from hotpartition.core.errors import HotPartitionError


class _MessageError(HotPartitionError):
    """An error of one message; `detail` describes it."""

    detail: str

    def __init__(self, conversation_id: str, message_id: str) -> None:
        super().__init__(self.detail)
        self.conversation_id = conversation_id
        self.message_id = message_id


class MessageConflictError(_MessageError):
    """A message with this id and other content is already stored at the same place."""

    detail = "a message with this id and other content is already stored"


class MessageGoneError(_MessageError):
    """The message was deleted, or its time is over."""

    detail = "the message was deleted or has expired; nothing brings it back"


class MessageNotFoundError(_MessageError):
    """No message with this id is stored in the conversation."""

    detail = "no message with this id is stored in this conversation"


class MessageChangedError(HotPartitionError):
    """The message is in another state than the one that the client wants to change."""

    def __init__(self, etag: str) -> None:
        super().__init__("the message was changed since; read it again")
        self.etag = etag


class NotTheSenderError(HotPartitionError):
    """The caller may not write as this sender, or cannot be named."""
