"""The API's description, as data: its operations and the documents that it responds with.

Requests are described by the models that check them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from hotpartition_messages.api import COUNTER_PATH, MESSAGE_PATH, MESSAGES_PATH
from hotpartition_messages.cursor import CURSOR_PATTERN
from hotpartition_messages.keys import CONVERSATION_ID_PATTERN
from hotpartition_messages.message_ids import CANONICAL_MESSAGE_ID_PATTERN
from hotpartition_messages.problems import (
    ADD_LATER,
    CHANGE_LATER,
    INVALID_REQUEST,
    MESSAGE_CHANGED,
    MESSAGE_CONFLICT,
    MESSAGE_GONE,
    MESSAGE_NOT_FOUND,
    MESSAGE_TOO_LARGE,
    NOT_THE_SENDER,
    OUTCOME_UNKNOWN,
    READ_LATER,
    TOKEN_REUSED,
    UNREADABLE_ROUTE,
    UNSUPPORTED_ENCODING,
    WRITE_LATER,
    ProblemKind,
)
from hotpartition_messages.read_requests import CounterReadRequest, MessageReadRequest, PageReadRequest
from hotpartition_messages.reading import MAX_LIMIT
from hotpartition_messages.requests import (
    EXAMPLE_COUNTER_ID,
    EXAMPLE_MESSAGE,
    MAX_PROBLEMS,
)
from hotpartition_messages.write_requests import AddRequest, MessageDeleteRequest, MessageEditRequest, WriteRequest

ConversationId = Annotated[str, Field(json_schema_extra={"pattern": CONVERSATION_ID_PATTERN})]
CanonicalMessageId = Annotated[
    str,
    Field(
        description="In its canonical form, an upper-case ULID.",
        json_schema_extra={"pattern": CANONICAL_MESSAGE_ID_PATTERN},
    ),
]
SentAt = Annotated[
    str, Field(description="The message id's time, RFC 3339.", json_schema_extra={"format": "date-time"})
]


def _closed(**more: Any) -> ConfigDict:
    """Configure a model that has no other members than its own."""
    return ConfigDict(json_schema_extra={"additionalProperties": False, **more})


class Documented(BaseModel):
    """Base of models that only describe responses."""

    model_config = _closed()


class FieldProblem(Documented):
    """One wrong field."""

    field: str = Field(description="Its name; inside `attributes`, its path.")
    message: str


class ProblemDocument(Documented):
    """An error (RFC 9457)."""

    type: str = Field(description="A URN that names the kind of problem.", pattern="^urn:hotpartition:[a-z-]+$")
    title: str = Field(description="The status in words.")
    status: int = Field(description="The HTTP status.", ge=400, le=599)
    detail: str = Field(description="What is wrong with this request.")


class InvalidRequestDocument(ProblemDocument):
    """A request that cannot be served, and why."""

    errors: list[FieldProblem] = Field(
        description=f"Every wrong field; of more than {MAX_PROBLEMS}, the first ones.", min_length=1
    )


class MessageProblemDocument(ProblemDocument):
    """A message that was not stored."""

    message_id: CanonicalMessageId


def _absent_time(schema: dict[str, Any]) -> None:
    """Describe a time that is there or not, and never null."""
    del schema["default"]
    schema["format"] = "date-time"


class StoredMessage(Documented):
    """A message as it is read."""

    model_config = _closed(examples=[EXAMPLE_MESSAGE])

    conversation_id: ConversationId
    message_id: CanonicalMessageId
    sender: str
    body: str
    sent_at: SentAt
    attributes: dict[str, Any] = Field(description="As it was sent; numbers keep their value, not their spelling.")
    edited_at: Annotated[str | SkipJsonSchema[None], Field(json_schema_extra=_absent_time)] = Field(
        None, description="When it was edited last; absent if it never was."
    )
    expires_at: Annotated[str | SkipJsonSchema[None], Field(json_schema_extra=_absent_time)] = Field(
        None, description="From when on it is not shown; absent if it stays."
    )


_ACKNOWLEDGED = {name: EXAMPLE_MESSAGE[name] for name in ("conversation_id", "message_id", "sent_at")}
_EXAMPLE_PAGE: dict[str, Any] = {
    "messages": [EXAMPLE_MESSAGE],
    "next_cursor": None,
    "settled_until": "2025-11-21T09:30:05.000Z",
}


class Acknowledgement(Documented):
    """A message that is stored."""

    model_config = _closed(examples=[_ACKNOWLEDGED])

    conversation_id: ConversationId
    message_id: CanonicalMessageId
    sent_at: SentAt


class MessagePage(Documented):
    """One page of a conversation, complete."""

    model_config = _closed(examples=[_EXAMPLE_PAGE])

    messages: list[StoredMessage] = Field(max_length=MAX_LIMIT)
    next_cursor: Annotated[str, Field(json_schema_extra={"pattern": CURSOR_PATTERN})] | None = Field(
        description="Continues after this page; null on the last one."
    )
    settled_until: str = Field(
        description="A client that polls oldest-first passes this as `after` the next time.",
        json_schema_extra={"format": "date-time"},
    )


class Added(Documented):
    """An addition that is counted."""

    model_config = _closed(examples=[{"counter_id": EXAMPLE_COUNTER_ID, "amount": 1}])

    counter_id: ConversationId
    amount: int


class CounterValue(Documented):
    """What a counter has counted."""

    model_config = _closed(examples=[{"counter_id": EXAMPLE_COUNTER_ID, "value": 42}])

    counter_id: ConversationId
    value: int = Field(description="0 for a counter that was never added to.")


@dataclass(frozen=True, slots=True)
class Success:
    """A good response, and which operations a client may go on with."""

    description: str
    document: type[Documented] | None
    links: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    optional_headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation. `request` has the models of its parts: `path`, `query`, `header`, `body`."""

    method: str
    path: str
    summary: str
    operation_id: str
    request: type[BaseModel]
    successes: Mapping[int, Success]
    problems: tuple[ProblemKind, ...]


def document_of(kind: ProblemKind) -> type[ProblemDocument]:
    """Return what describes a problem's document, by the members that it has beside those of all."""
    if "errors" in kind.example:
        return InvalidRequestDocument
    return MessageProblemDocument if "message_id" in kind.example else ProblemDocument


_READ_IT = {
    "ReadIt": {
        "operationId": "read_message",
        "parameters": {
            "conversation_id": "$response.body#/conversation_id",
            "message_id": "$response.body#/message_id",
        },
    }
}
_NEXT_PAGE = {
    "NextPage": {
        "operationId": "read_page",
        "parameters": {
            "conversation_id": "$request.path.conversation_id",
            "cursor": "$response.body#/next_cursor",
        },
        "description": "With the same `order`, if it was given, until `next_cursor` is null.",
    }
}

_MESSAGE_TAG = {"ETag": "The message's entity tag."}
_NEWEST_PAGE = {
    "ETag": "The page's entity tag, of the newest page without bounds, eventually consistent.",
    "Age": "How many seconds old the page is, rounded up, if it was cached.",
}

OPERATIONS = (
    Operation(
        method="post",
        path=MESSAGES_PATH,
        summary="Store a message",
        operation_id="write_message",
        request=WriteRequest,
        successes={
            200: Success("Was stored before, with the same content: nothing was stored now", Acknowledgement, _READ_IT),
            201: Success(
                "Stored. A repetition may get it too, when the message has another place by now; reads show it once",
                Acknowledgement,
                _READ_IT,
            ),
        },
        problems=(
            *(INVALID_REQUEST, NOT_THE_SENDER, MESSAGE_CONFLICT, MESSAGE_GONE, MESSAGE_TOO_LARGE),
            *(UNSUPPORTED_ENCODING, WRITE_LATER),
        ),
    ),
    Operation(
        method="get",
        path=MESSAGES_PATH,
        summary="Read a page of messages",
        operation_id="read_page",
        request=PageReadRequest,
        successes={
            200: Success("A complete page", MessagePage, _NEXT_PAGE, optional_headers=_NEWEST_PAGE),
            304: Success("The newest page, which the client has", None, optional_headers=_NEWEST_PAGE),
        },
        problems=(INVALID_REQUEST, UNREADABLE_ROUTE, READ_LATER),
    ),
    Operation(
        method="get",
        path=MESSAGE_PATH,
        summary="Read one message",
        operation_id="read_message",
        request=MessageReadRequest,
        successes={200: Success("The message", StoredMessage, headers=_MESSAGE_TAG)},
        problems=(INVALID_REQUEST, MESSAGE_NOT_FOUND, MESSAGE_GONE, UNREADABLE_ROUTE, READ_LATER),
    ),
    Operation(
        method="patch",
        path=MESSAGE_PATH,
        summary="Edit a message",
        operation_id="edit_message",
        request=MessageEditRequest,
        successes={200: Success("The message as it is now", StoredMessage, headers=_MESSAGE_TAG)},
        problems=(
            *(INVALID_REQUEST, NOT_THE_SENDER, MESSAGE_NOT_FOUND, MESSAGE_GONE, MESSAGE_CHANGED, MESSAGE_TOO_LARGE),
            *(UNSUPPORTED_ENCODING, UNREADABLE_ROUTE, CHANGE_LATER),
        ),
    ),
    Operation(
        method="delete",
        path=MESSAGE_PATH,
        summary="Delete a message",
        operation_id="delete_message",
        request=MessageDeleteRequest,
        successes={204: Success("Deleted, now or before; nothing brings it back", None)},
        problems=(
            *(INVALID_REQUEST, NOT_THE_SENDER, MESSAGE_NOT_FOUND, MESSAGE_CHANGED, UNREADABLE_ROUTE, CHANGE_LATER),
        ),
    ),
    Operation(
        method="post",
        path=COUNTER_PATH,
        summary="Add to a counter",
        operation_id="add_to_counter",
        request=AddRequest,
        successes={200: Success("Counted; with a token: once, now or before", Added)},
        problems=(
            *(INVALID_REQUEST, TOKEN_REUSED, MESSAGE_TOO_LARGE, UNSUPPORTED_ENCODING),
            *(UNREADABLE_ROUTE, ADD_LATER, OUTCOME_UNKNOWN),
        ),
    ),
    Operation(
        method="get",
        path=COUNTER_PATH,
        summary="Read a counter",
        operation_id="read_counter",
        request=CounterReadRequest,
        successes={200: Success("Its value", CounterValue)},
        problems=(INVALID_REQUEST, UNREADABLE_ROUTE, READ_LATER),
    ),
)
