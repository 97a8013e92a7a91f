"""What clients may ask: the requests' models, and their way from an HTTP API event to checked values.

Size comes before work: a body that cannot become an item is refused by its length, then by a count of its separators,
before it is parsed; attributes are measured while they are encoded, once.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from hotpartition.core.capacity import ITEM_LIMIT_BYTES
from hotpartition.errors import HotPartitionError, InvalidRequestError, ItemTooLargeError, Problem
from hotpartition_messages.attributes import MAX_DEPTH, EncodedAttributes, encode_attributes
from hotpartition_messages.callers import MAX_SENDER_LENGTH, find_sender
from hotpartition_messages.changing import Edit, Target
from hotpartition_messages.counters import MAX_AMOUNT, NewAddition
from hotpartition_messages.cursor import CURSOR_PATTERN, parse_cursor, split_cursor
from hotpartition_messages.errors import NotTheSenderError
from hotpartition_messages.keys import CONVERSATION_ID_PATTERN, CONVERSATION_ID_RULE, MAX_CONVERSATION_ID_LENGTH
from hotpartition_messages.message_ids import (
    MAX_FUTURE_MS,
    MAX_TIME_MS,
    MESSAGE_ID_PATTERN,
    MESSAGE_ID_RULE,
    parse_message_id,
)
from hotpartition_messages.reading import DEFAULT_LIMIT, MAX_LIMIT, PageRequest
from hotpartition_messages.writing import NewMessage

MAX_BODY_CHARACTERS = 6 * ITEM_LIMIT_BYTES + 42_400
"""2.5 million: every character of the largest item as an escape of six, and room for the JSON around it."""
MAX_PROBLEMS = 20
"""Wrong fields that a response names; how many more there are is only said."""

EXAMPLE_MESSAGE: dict[str, Any] = {
    "conversation_id": "room-1",
    "message_id": "01KAJVZHE0FZ5C1S9TQJ0V3YXM",
    "sender": "ann",
    "body": "hello",
    "sent_at": "2025-11-21T09:30:00.000Z",
    "attributes": {"likes": 3, "tags": ["greeting"]},
}
EXAMPLE_COUNTER_ID = "likes:room-1"
_EXAMPLE_BODY = {name: EXAMPLE_MESSAGE[name] for name in ("sender", "body", "attributes")}

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)", re.IGNORECASE | re.ASCII)
_ENTITY_TAG = r'(W/)?"[!#-~]*"'
_ENTITY_TAGS = rf"^(\*|{_ENTITY_TAG}( *, *{_ENTITY_TAG})*)$"
_WHOLE_NUMBER = re.compile(r"-?[0-9]+")
_SIGNATURE_PREFIX = "x-amz-"
"""Parameters of a signature that is part of the URL: the gateway's, not ours."""
_EPOCH = datetime.fromtimestamp(0, UTC)

RequestT = TypeVar("RequestT", bound=BaseModel)


class BodyTooLargeError(HotPartitionError):
    """A request's body is longer than that of any message that can be stored."""

    def __init__(self, characters: int) -> None:
        super().__init__(f"the request's body has {characters} characters; {MAX_BODY_CHARACTERS} are allowed")


class ContentEncodingError(HotPartitionError):
    """A request's body is compressed, or encoded in another way."""

    def __init__(self) -> None:
        super().__init__("the request's body should be sent as it is, without a Content-Encoding")


def parse_time_ms(text: str) -> int:
    """Parse an RFC 3339 time with its offset to Unix ms; what is finer than the ms it lies in is cut off.

    Raises:
        ValueError: saying what is expected.
    """
    try:
        moment = datetime.fromisoformat(text.upper()) if _TIME.fullmatch(text) else None
        since_epoch = moment - _EPOCH if moment else None
    except (ValueError, OverflowError):
        since_epoch = None
    if since_epoch is None:
        raise ValueError("should be a time with its offset, like 2026-11-21T09:30:00.000Z (RFC 3339)")
    return since_epoch // timedelta(milliseconds=1)


def _parse_expiry_s(text: object) -> object:
    """Parse an RFC 3339 time to Unix seconds, rounded up: what expires is shown until then."""
    return -(-parse_time_ms(text if isinstance(text, str) else "") // 1000)


def _not_dots(text: str) -> str:
    if text in {".", ".."}:
        raise ValueError(f"should be {CONVERSATION_ID_RULE}")
    return text


def _canonical(text: str) -> str:
    try:
        return parse_message_id(text)
    except InvalidRequestError as error:
        raise ValueError(error.problems[0].message) from error


def _parse_tags(text: object) -> object:
    """Parse `If-Match`: None for `*`, which any message matches. A weak tag matches none (RFC 9110, 13.1.1)."""
    if not isinstance(text, str) or not re.fullmatch(_ENTITY_TAGS, text.strip()):
        raise ValueError("should be `*`, or entity tags as `ETag` has them, with their quotation marks")
    if text.strip() == "*":
        return None
    return frozenset(found[0] for found in re.finditer(_ENTITY_TAG, text) if not found[0].startswith("W/"))


def _encoded(attributes: dict[str, Any]) -> EncodedAttributes:
    try:
        return encode_attributes(attributes)
    except InvalidRequestError as error:
        (problem,) = error.problems
        facts = {"field": problem.field, "message": problem.message}
        raise PydanticCustomError("not_storable", "{message}", facts) from error


def _whole_number(text: object) -> object:
    """Refuse what Python reads as a number and nobody else does, like `1_0` and ` 5`."""
    if isinstance(text, str) and not _WHOLE_NUMBER.fullmatch(text):
        raise ValueError("should be a whole number")
    return text


_ConversationId = Annotated[
    str,
    Field(
        description=f"The conversation: {CONVERSATION_ID_RULE}.",
        pattern=CONVERSATION_ID_PATTERN,
        min_length=1,
        max_length=MAX_CONVERSATION_ID_LENGTH,
        examples=[EXAMPLE_MESSAGE["conversation_id"]],
        json_schema_extra={"not": {"enum": [".", ".."]}},
    ),
    AfterValidator(_not_dots),
]
_CounterId = Annotated[
    str,
    Field(
        description=f"The counter: {CONVERSATION_ID_RULE}.",
        pattern=CONVERSATION_ID_PATTERN,
        min_length=1,
        max_length=MAX_CONVERSATION_ID_LENGTH,
        examples=[EXAMPLE_COUNTER_ID],
        json_schema_extra={"not": {"enum": [".", ".."]}},
    ),
    AfterValidator(_not_dots),
]
_MessageId = Annotated[str, AfterValidator(_canonical)]
_TimeMs = Annotated[int, BeforeValidator(parse_time_ms), WithJsonSchema({"type": "string", "format": "date-time"})]
_Consistency = Annotated[
    Literal["strong", "eventual"],
    Field(description="`strong`: with everything acknowledged before the request. `eventual`: half the price."),
]


class _Request(BaseModel):
    """Base of all requests' models: a function builds those that it uses, when it first does."""

    model_config = ConfigDict(defer_build=True)


_Attributes = Annotated[
    dict[str, Any],
    Field(
        description="Whatever else belongs to the message. Whole numbers keep 38 digits, others are doubles; "
        f"names are not empty; at most {MAX_DEPTH} levels deep.",
        json_schema_extra={"propertyNames": {"minLength": 1}},
    ),
    AfterValidator(_encoded),
]


class ConversationPath(_Request):
    """The path of a conversation's messages."""

    conversation_id: _ConversationId


class MessagePath(ConversationPath):
    """The path of one message."""

    message_id: Annotated[
        _MessageId,
        Field(
            description=f"The message's id: {MESSAGE_ID_RULE}.",
            examples=[EXAMPLE_MESSAGE["message_id"]],
            json_schema_extra={"pattern": MESSAGE_ID_PATTERN},
        ),
    ]


class NewMessageBody(_Request):
    """A message to store."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [_EXAMPLE_BODY]})

    sender: Annotated[
        str,
        Field(
            min_length=1,
            max_length=MAX_SENDER_LENGTH,
            description="Who sends it. Where the deployment takes the sender from the caller's token "
            "(`api.sender_claim`), it may be left out, and must not be another.",
        ),
    ]
    body: str = Field(description="The text; with everything else the message may take 400 KiB in DynamoDB.")
    message_id: (
        Annotated[
            _MessageId,
            Field(
                description=f"{MESSAGE_ID_RULE[0].upper()}{MESSAGE_ID_RULE[1:]}, at most {MAX_FUTURE_MS / 1000:g} s "
                "ahead: the message's identity and time, so that a repetition is safe. Without it the server mints "
                "one.",
                json_schema_extra={"pattern": MESSAGE_ID_PATTERN},
            ),
        ]
        | None
    ) = None
    attributes: Annotated[_Attributes, Field(validate_default=True)] = {}
    expires_at: (
        Annotated[
            int,
            BeforeValidator(_parse_expiry_s),
            Field(ge=0, le=MAX_TIME_MS // 1000),
            WithJsonSchema(
                {
                    "type": "string",
                    "format": "date-time",
                    "description": "From then on the message is not shown any more (RFC 3339; a part of a second is "
                    "rounded up). Nothing changes it later.",
                }
            ),
        ]
        | None
    ) = None


class MessageEditBody(_Request):
    """What is new about a message. At least one of them."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"minProperties": 1, "examples": [{"body": "hello, all"}]},
    )

    body: str = Field(default_factory=str, description="The new text.")
    attributes: _Attributes = Field(
        default_factory=dict, description="The new attributes, in place of all that there were."
    )


class ChangeHeader(_Request):
    """The headers that a change looks at."""

    if_match: (
        Annotated[
            frozenset[str] | None,
            BeforeValidator(_parse_tags),
            WithJsonSchema({"type": "string", "pattern": _ENTITY_TAGS, "examples": ['"1-5f2a9c04"', "*"]}),
        ]
        | None
    ) = Field(
        None,
        alias="If-Match",
        description="Change the message only if it has one of these entity tags: the `ETag` of reading it, or `*`.",
    )


class NoQuery(_Request):
    """The query string of a request that has none."""

    model_config = ConfigDict(extra="forbid")


class PageQuery(_Request):
    """The query string of a page."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, BeforeValidator(_whole_number)] = Field(
        DEFAULT_LIMIT, ge=1, le=MAX_LIMIT, description="Messages on a page, at most."
    )
    after: _TimeMs | None = Field(None, description="Only messages at or after this time (RFC 3339).")
    before: _TimeMs | None = Field(None, description="Only messages before this time (RFC 3339).")
    order: Literal["newest", "oldest"] = Field("newest", description="Which end to begin with.")
    cursor: str | None = Field(
        None,
        description="`next_cursor` of the last page, with the same order.",
        json_schema_extra={"pattern": CURSOR_PATTERN},
    )
    consistency: _Consistency = "eventual"

    @field_validator("cursor")
    @classmethod
    def check_cursor(cls, cursor: str | None, info: ValidationInfo) -> str | None:
        """Refuse a cursor that is none, or one of another conversation or order, beside whatever else is wrong."""
        if cursor is None:
            return None
        try:
            if "order" in info.data:
                parse_cursor(cursor, str(info.context), newest_first=info.data["order"] == "newest")
            else:
                split_cursor(cursor)
        except InvalidRequestError as error:
            raise ValueError(error.problems[0].message) from error
        return cursor


class MessageQuery(_Request):
    """The query string of one message."""

    model_config = ConfigDict(extra="forbid")

    consistency: _Consistency = "eventual"


class CounterPath(_Request):
    """The path of a counter."""

    counter_id: _CounterId


class AdditionBody(_Request):
    """What is added to a counter."""

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"examples": [{"amount": 1, "token": "ann:room-1"}]}
    )

    amount: int = Field(1, ge=-MAX_AMOUNT, le=MAX_AMOUNT, description="How much; a negative amount takes away.")
    token: (
        Annotated[
            str,
            Field(
                pattern=r"^[!-~]{1,128}$",
                description="1 to 128 characters out of ! to ~ (ASCII, no spaces): with the counter, the addition's "
                "identity. For ten minutes a repetition with it counts once, and with another amount is refused (409). "
                "Without it, nobody can tell a repetition from another addition.",
            ),
        ]
        | None
    ) = None


class CounterQuery(_Request):
    """The query string of reading a counter."""

    model_config = ConfigDict(extra="forbid")

    consistency: _Consistency = "strong"


class AddRequest(_Request):
    """Add to a counter."""

    path: CounterPath
    query: NoQuery
    body: AdditionBody


class CounterReadRequest(_Request):
    """Read a counter."""

    path: CounterPath
    query: CounterQuery


class WriteRequest(_Request):
    """Store a message."""

    path: ConversationPath
    query: NoQuery
    body: NewMessageBody


class MessageEditRequest(_Request):
    """Edit a message."""

    path: MessagePath
    query: NoQuery
    header: ChangeHeader
    body: MessageEditBody


class MessageDeleteRequest(_Request):
    """Delete a message."""

    path: MessagePath
    query: NoQuery
    header: ChangeHeader


class PageHeader(_Request):
    """The headers that reading a page looks at."""

    if_none_match: str = Field(
        "",
        alias="If-None-Match",
        description="Entity tags: a newest page that has one of them is not sent again (304). What is none is ignored.",
    )


class PageReadRequest(_Request):
    """Read a page."""

    path: ConversationPath
    query: PageQuery
    header: PageHeader


class MessageReadRequest(_Request):
    """Read one message."""

    path: MessagePath
    query: MessageQuery


def parse_write(event: Mapping[str, Any], *, sender_claim: str = "") -> NewMessage:
    """Read what is to be stored from an event.

    Args:
        event: what API Gateway sent.
        sender_claim: what of the caller is the sender; empty: the body names the sender.

    Raises:
        NotTheSenderError: the caller has no such claim, or the body names another sender.
        InvalidRequestError: naming every wrong field.
        BodyTooLargeError: the body is longer than that of any message that can be stored.
        ItemTooLargeError: the message cannot become an item.
        ContentEncodingError: the body is compressed.
    """
    sender = find_sender(event, sender_claim) if sender_claim else None
    body, unlisted = _listed_fields(_parse_body(event), NewMessageBody)
    if sender is not None and isinstance(body, dict) and body.setdefault("sender", sender) != sender:
        raise NotTheSenderError(f"the message's sender should be the caller's {sender_claim}, or be left out")
    request = _validate(WriteRequest, {**_path_and_query(event), "body": body}, unlisted)
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

    Args:
        event: what API Gateway sent.
        sender_claim: what of the caller is the sender, who alone may edit; empty: anybody may.

    Raises:
        NotTheSenderError: the caller has no such claim.
        InvalidRequestError: naming every wrong field.
        BodyTooLargeError: the body is longer than that of any message that can be stored.
        ItemTooLargeError: the message cannot become an item.
        ContentEncodingError: the body is compressed.
    """
    sender = find_sender(event, sender_claim) if sender_claim else None
    body, unlisted = _listed_fields(_parse_body(event), MessageEditBody)
    content = {**_path_and_query(event), "header": _header(event, "If-Match"), "body": body}
    request = _validate(MessageEditRequest, content, unlisted)
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

    Args:
        event: what API Gateway sent.
        sender_claim: what of the caller is the sender, who alone may delete; empty: anybody may.

    Raises:
        NotTheSenderError: the caller has no such claim.
        InvalidRequestError: naming every wrong field.
    """
    sender = find_sender(event, sender_claim) if sender_claim else None
    request = _validate(MessageDeleteRequest, {**_path_and_query(event), "header": _header(event, "If-Match")})
    return _target(request.path, request.header, sender)


def _target(path: MessagePath, header: ChangeHeader, sender: str | None) -> Target:
    return Target(
        conversation_id=path.conversation_id,
        message_id=path.message_id,
        if_match=header.if_match,
        sender=sender,
    )


def _header(event: Mapping[str, Any], wanted: str) -> dict[str, str]:
    """Find a header by its name, however that is spelled."""
    for name, value in (event.get("headers") or {}).items():
        if name.lower() == wanted.lower():
            return {wanted: value}
    return {}


def parse_page_read(event: Mapping[str, Any]) -> tuple[PageRequest, str]:
    """Read from an event which page is wanted, and the entity tags of what the client has (`If-None-Match`).

    Raises:
        InvalidRequestError: naming every wrong parameter.
    """
    content = {**_path_and_query(event), "header": _header(event, "If-None-Match")}
    request = _validate(PageReadRequest, content)
    query = request.query
    page = PageRequest(
        conversation_id=request.path.conversation_id,
        newest_first=query.order == "newest",
        limit=query.limit,
        after_ms=query.after,
        before_ms=query.before,
        cursor=query.cursor,
        is_strong=query.consistency == "strong",
    )
    return page, request.header.if_none_match


def is_among(etag: str, tags: str) -> bool:
    """Say whether an entity tag is among those of `If-None-Match`, compared weakly (RFC 9110, 13.1.2)."""
    if not tags:
        return False
    opaque = etag.removeprefix("W/")
    return tags.strip() == "*" or any(found[0].removeprefix("W/") == opaque for found in re.finditer(_ENTITY_TAG, tags))


def parse_message_read(event: Mapping[str, Any]) -> MessageReadRequest:
    """Read from an event which message is wanted.

    Raises:
        InvalidRequestError: naming every wrong parameter.
    """
    return _validate(MessageReadRequest, _path_and_query(event))


def parse_addition(event: Mapping[str, Any]) -> NewAddition:
    """Read from an event what is to be added to which counter.

    Raises:
        InvalidRequestError: naming every wrong field.
        BodyTooLargeError, ItemTooLargeError: the body is far longer than an addition.
        ContentEncodingError: the body is compressed.
    """
    body, unlisted = _listed_fields(_parse_body(event), AdditionBody)
    request = _validate(AddRequest, {**_path_and_query(event), "body": body}, unlisted)
    return NewAddition(request.path.counter_id, request.body.amount, request.body.token)


def parse_counter_read(event: Mapping[str, Any]) -> CounterReadRequest:
    """Read from an event which counter is wanted.

    Raises:
        InvalidRequestError: naming every wrong parameter.
    """
    return _validate(CounterReadRequest, _path_and_query(event))


def parse_json(text: str) -> Any:
    """Parse a request's body.

    Raises:
        json.JSONDecodeError: it is no JSON, or JSON that no reader here takes (nested too deep, numbers too long).
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        if isinstance(error, json.JSONDecodeError):
            raise
        raise json.JSONDecodeError("nested too deep, or with too long a number", text, 0) from error


def _path_and_query(event: Mapping[str, Any]) -> dict[str, Mapping[str, str]]:
    query = event.get("queryStringParameters") or {}
    return {
        "path": event.get("pathParameters") or {},
        "query": {name: text for name, text in query.items() if not name.lower().startswith(_SIGNATURE_PREFIX)},
    }


def _parse_body(event: Mapping[str, Any]) -> Any:
    """Return the body's JSON; None, which is no message either, for what is no JSON."""
    for name, value in (event.get("headers") or {}).items():
        if name.lower() == "content-encoding" and value.strip().lower() not in {"", "identity"}:
            raise ContentEncodingError
    text: str = event.get("body") or ""
    is_base64 = bool(event.get("isBase64Encoded"))
    characters = len(text) * 3 // 4 if is_base64 else len(text)
    if characters > MAX_BODY_CHARACTERS:
        raise BodyTooLargeError(characters)
    try:
        if is_base64:
            text = base64.b64decode(text, validate=True).decode()
        check_separators(text)
        return parse_json(text)
    except ValueError:  # no base64, no UTF-8, or no JSON
        return None


def check_separators(text: str) -> None:
    """Refuse a JSON text whose values are too many for one item.

    Each of these characters takes a byte in storage at least: in a text or a name as itself, between values as the
    overhead of an element, before one as its name or its container's overhead.

    Raises:
        ItemTooLargeError: there are more of them than an item has bytes.
    """
    least_bytes = sum(text.count(separator) for separator in ",:[{")
    if least_bytes > ITEM_LIMIT_BYTES:
        raise ItemTooLargeError(least_bytes, ITEM_LIMIT_BYTES, is_least=True)


def _listed_fields(body: Any, model: type[BaseModel]) -> tuple[Any, int]:
    """Leave out unknown fields past the first few, which are to be named; return also how many were left out."""
    if not isinstance(body, dict):
        return body, 0
    unknown = body.keys() - model.model_fields.keys()
    unlisted = len(unknown) - MAX_PROBLEMS
    if unlisted <= 0:
        return body, 0
    listed = [name for name in body if name in unknown][:MAX_PROBLEMS]
    known = [name for name in model.model_fields if name in body]
    return {name: body[name] for name in (*known, *listed)}, unlisted


def _validate(model: type[RequestT], content: Mapping[str, Any], unlisted: int = 0) -> RequestT:
    try:
        return model.model_validate(content, context=content["path"].get("conversation_id", ""))
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        problems = [_problem(detail, model) for detail in details[:MAX_PROBLEMS]]
        more = len(details) - len(problems) + unlisted
        raise InvalidRequestError(problems, more=more) from error


def _problem(error: ErrorDetails, model: type[BaseModel]) -> Problem:
    part, *place = [str(step) for step in error["loc"]]
    field = ".".join(place)
    message = error["msg"].removeprefix("Value error, ")
    if not place:
        # `body` is a field of a message as well: say which one is meant.
        return Problem(part, "the request's body should be a JSON object")
    if error["type"] == "not_storable":
        return Problem(error["ctx"]["field"], error["ctx"]["message"])
    if error["type"] == "extra_forbidden":
        return Problem(field, f"is unknown; {_allowed(model, part)}")
    if field in {"conversation_id", "counter_id"}:
        message = f"should be {CONVERSATION_ID_RULE}"
    return Problem(field, message)


def _allowed(model: type[BaseModel], part: str) -> str:
    described = model.model_fields[part].annotation
    names = described.model_fields if isinstance(described, type) and issubclass(described, BaseModel) else ()
    return f"allowed are {', '.join(names)}" if names else "no query parameter is allowed here"
