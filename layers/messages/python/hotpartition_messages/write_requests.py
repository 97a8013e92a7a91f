"""The requests to the write function: messages to store, to edit and to delete."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from hotpartition.core.errors import InvalidRequestError
from hotpartition_messages.attributes import EncodedAttributes, encode_attributes
from hotpartition_messages.errors import NotTheSenderError
from hotpartition_messages.message_ids import MAX_TIME_MS
from hotpartition_messages.requests import (
    ENTITY_TAG,
    ConversationPath,
    MessageId,
    MessagePath,
    Query,
    Request,
    find_header,
    leave_out_unknown,
    parse_body,
    parse_time_ms,
    path_and_query,
    validate,
)
from hotpartition_messages.writing import Edit, NewMessage, Target

MAX_SENDER_LENGTH = 256

_ENTITY_TAGS = rf"^(\*|{ENTITY_TAG}( *, *{ENTITY_TAG})*)$"


def _parse_expiry_s(text: object) -> object:
    """Parse an RFC 3339 time to Unix seconds, rounded up: a message is shown until then."""
    return -(-parse_time_ms(text if isinstance(text, str) else "") // 1000)


def _parse_tags(text: object) -> object:
    """Parse `If-Match`: None for `*`, which any message matches. A weak tag matches none (RFC 9110, 13.1.1)."""
    if not isinstance(text, str) or not re.fullmatch(_ENTITY_TAGS, text.strip()):
        raise ValueError("should be `*`, or entity tags as `ETag` has them, with their quotation marks")
    if text.strip() == "*":
        return None
    return frozenset(found[0] for found in re.finditer(ENTITY_TAG, text) if not found[0].startswith("W/"))


def _encoded(attributes: dict[str, Any]) -> EncodedAttributes:
    try:
        return encode_attributes(attributes)
    except InvalidRequestError as error:
        (problem,) = error.problems
        facts = {"field": problem.field, "message": problem.message}
        raise PydanticCustomError("not_storable", "{message}", facts) from error


_Attributes = Annotated[dict[str, Any], AfterValidator(_encoded)]
_ExpiryS = Annotated[int, BeforeValidator(_parse_expiry_s), Field(ge=0, le=MAX_TIME_MS // 1000)]


class NewMessageBody(Request):
    """A message to store."""

    model_config = ConfigDict(extra="forbid", strict=True)

    sender: Annotated[str, Field(min_length=1, max_length=MAX_SENDER_LENGTH)]
    body: str
    message_id: MessageId | None = None
    attributes: _Attributes = Field({}, validate_default=True)
    expires_at: _ExpiryS | None = None


class MessageEditBody(Request):
    """What is new about a message. At least one of them."""

    model_config = ConfigDict(extra="forbid", strict=True)

    body: str = Field(default_factory=str)
    attributes: _Attributes = Field(default_factory=dict)


class ChangeHeader(Request):
    """The headers that a change looks at."""

    if_match: Annotated[frozenset[str] | None, BeforeValidator(_parse_tags)] = Field(None, alias="If-Match")


class WriteRequest(Request):
    """Store a message."""

    path: ConversationPath
    query: Query
    body: NewMessageBody


class MessageEditRequest(Request):
    """Edit a message."""

    path: MessagePath
    query: Query
    header: ChangeHeader
    body: MessageEditBody


class MessageDeleteRequest(Request):
    """Delete a message."""

    path: MessagePath
    query: Query
    header: ChangeHeader


def find_sender(event: Mapping[str, Any], claim: str) -> str | None:
    """Find the caller: a claim of the token that API Gateway has verified, or of a Lambda authorizer's context.

    `claim` names it; empty: the caller's identity does not matter, and None is returned.

    Raises:
        NotTheSenderError: the caller has no such claim, or one that cannot be a sender.
    """
    if not claim:
        return None
    authorizer = event["requestContext"].get("authorizer") or {}
    known = (authorizer.get("jwt") or {}).get("claims") or authorizer.get("lambda") or {}
    sender = known.get(claim)
    if not isinstance(sender, str) or not 1 <= len(sender) <= MAX_SENDER_LENGTH:
        raise NotTheSenderError(f"the caller's {claim} should be a text of 1 to {MAX_SENDER_LENGTH} characters")
    return sender


def parse_write(event: Mapping[str, Any], *, sender_claim: str = "") -> NewMessage:
    """Read the message to store from an event.

    `sender_claim` names the caller's claim that is the sender; empty: the body names the sender.

    Raises:
        NotTheSenderError: the caller has no such claim, or the body names another sender.
        InvalidRequestError: naming every wrong field.
        HotPartitionError: what `parse_body` raises.
    """
    sender = find_sender(event, sender_claim)
    body, unlisted = leave_out_unknown(parse_body(event), NewMessageBody)
    if sender is not None and isinstance(body, dict) and body.setdefault("sender", sender) != sender:
        raise NotTheSenderError(f"the message's sender should be the caller's {sender_claim}, or be left out")
    request = validate(WriteRequest, {**path_and_query(event), "body": body}, unlisted)
    message = request.body
    return NewMessage(
        conversation_id=request.path.conversation_id,
        sender=message.sender,
        body=message.body,
        attributes=message.attributes,  # type: ignore[arg-type]  # encoded by its validator
        message_id=message.message_id,
        expires_at_s=message.expires_at,
    )


def parse_edit(event: Mapping[str, Any], *, sender_claim: str = "") -> tuple[Target, Edit]:
    """Read from an event which message is to be edited, and how.

    `sender_claim` names the caller's claim that must be the sender; empty: every caller may edit.

    Raises:
        NotTheSenderError: the caller has no such claim.
        InvalidRequestError: naming every wrong field.
        HotPartitionError: what `parse_body` raises.
    """
    sender = find_sender(event, sender_claim)
    body, unlisted = leave_out_unknown(parse_body(event), MessageEditBody)
    content = {**path_and_query(event), "header": find_header(event, "If-Match"), "body": body}
    request = validate(MessageEditRequest, content, unlisted)
    new = request.body
    if not new.model_fields_set:
        raise InvalidRequestError.of("body", "should have a new body, new attributes, or both")
    edit = Edit(
        body=new.body if "body" in new.model_fields_set else None,
        attributes=new.attributes if "attributes" in new.model_fields_set else None,  # type: ignore[arg-type]  # encoded by its validator
    )
    return _target(request.path, request.header, sender), edit


def parse_delete(event: Mapping[str, Any], *, sender_claim: str = "") -> Target:
    """Read from an event which message is to be deleted.

    `sender_claim` names the caller's claim that must be the sender; empty: every caller may delete.

    Raises:
        NotTheSenderError: the caller has no such claim.
        InvalidRequestError: naming every wrong field.
    """
    sender = find_sender(event, sender_claim)
    request = validate(MessageDeleteRequest, {**path_and_query(event), "header": find_header(event, "If-Match")})
    return _target(request.path, request.header, sender)


def _target(path: MessagePath, header: ChangeHeader, sender: str | None) -> Target:
    return Target(
        conversation_id=path.conversation_id,
        message_id=path.message_id,
        if_match=header.if_match,
        sender=sender,
    )
