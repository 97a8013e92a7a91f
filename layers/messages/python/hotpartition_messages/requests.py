"""Requests: their way from an HTTP API event to checked values, and the parts that several models share.

Size comes before work: a body that cannot become an item is refused by its length, then by a count of its separators,
before it is parsed; attributes are measured while they are encoded, once.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from hotpartition.core.capacity import ITEM_LIMIT_BYTES
from hotpartition.core.errors import HotPartitionError, InvalidRequestError, ItemTooLargeError, Problem
from hotpartition_messages.keys import CONVERSATION_ID_RULE, parse_conversation_id
from hotpartition_messages.message_ids import parse_message_id

MAX_BODY_CHARACTERS = 6 * ITEM_LIMIT_BYTES + 42_400
"""2.5 million: every character of the largest item as an escape of six, and room for the JSON around it."""
MAX_PROBLEMS = 20
"""Wrong fields that a response names; how many more there are is only said."""

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)", re.IGNORECASE | re.ASCII)
ENTITY_TAG = r'(W/)?"[!#-~]*"'
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
    """Parse an RFC 3339 time with its offset to Unix ms; finer parts of a ms are cut off.

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


def _checked_by(parse: Callable[[str], str]) -> AfterValidator:
    def check(text: str) -> str:
        try:
            return parse(text)
        except InvalidRequestError as error:
            raise ValueError(error.problems[0].message) from error

    return AfterValidator(check)


MessageId = Annotated[str, _checked_by(parse_message_id)]


class Request(BaseModel):
    """Base of all requests' models: a function builds those that it uses, when it first does."""

    model_config = ConfigDict(defer_build=True)


class ConversationPath(Request):
    """The path of a conversation's messages."""

    conversation_id: Annotated[str, _checked_by(parse_conversation_id)]


class MessagePath(ConversationPath):
    """The path of one message."""

    message_id: MessageId


class Query(Request):
    """A query string: empty, unless a request has parameters. Others are refused."""

    model_config = ConfigDict(extra="forbid")


def find_header(event: Mapping[str, Any], wanted: str) -> dict[str, str]:
    """Find a header by its name, however that is spelled."""
    for name, value in (event.get("headers") or {}).items():
        if name.lower() == wanted.lower():
            return {wanted: value}
    return {}


def is_among(etag: str, tags: str) -> bool:
    """Say whether an entity tag is among those of `If-None-Match`, compared weakly (RFC 9110, 13.1.2)."""
    if not tags:
        return False
    opaque = etag.removeprefix("W/")
    return tags.strip() == "*" or any(found[0].removeprefix("W/") == opaque for found in re.finditer(ENTITY_TAG, tags))


def parse_json(text: str) -> Any:
    """Parse a request's body.

    Raises:
        json.JSONDecodeError: it is not JSON, or JSON that no reader here takes (nested too deep, numbers too long).
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        if isinstance(error, json.JSONDecodeError):
            raise
        raise json.JSONDecodeError("nested too deep, or with too long a number", text, 0) from error


def path_and_query(event: Mapping[str, Any]) -> dict[str, Mapping[str, str]]:
    """Return an event's path and query parameters, without those of a signature."""
    query = event.get("queryStringParameters") or {}
    return {
        "path": event.get("pathParameters") or {},
        "query": {name: text for name, text in query.items() if not name.lower().startswith(_SIGNATURE_PREFIX)},
    }


def parse_body(event: Mapping[str, Any]) -> Any:
    """Return the body's JSON; for a body that is not JSON None, which is not a message either.

    Raises:
        BodyTooLargeError: it is longer than that of any message that can be stored.
        ItemTooLargeError: it cannot become an item.
        ContentEncodingError: it is compressed.
    """
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


def leave_out_unknown(body: Any, model: type[BaseModel]) -> tuple[Any, int]:
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


def validate(model: type[RequestT], content: Mapping[str, Any], unlisted: int = 0) -> RequestT:
    """Check a request's parts; `unlisted` unknown fields of its body were left out.

    Raises:
        InvalidRequestError: naming every wrong field.
    """
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
    if field == "conversation_id":
        message = f"should be {CONVERSATION_ID_RULE}"
    return Problem(field, message)


def _allowed(model: type[BaseModel], part: str) -> str:
    described = model.model_fields[part].annotation
    names = described.model_fields if isinstance(described, type) and issubclass(described, BaseModel) else ()
    return f"allowed are {', '.join(names)}" if names else "no query parameter is allowed here"
