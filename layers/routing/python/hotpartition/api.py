"""What the two HTTP functions share: events in, RFC 9457 problem documents out. Knows Powertools and pydantic.

Every error has one shape, `application/problem+json` with `type`, `title`, `status` and `detail`; `errors` names every
wrong field, and `message_id` the id that a refused write should be repeated with.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import quote

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.openapi.exceptions import RequestValidationError
from aws_lambda_powertools.event_handler.openapi.params import Path
from aws_lambda_powertools.event_handler.openapi.types import OpenAPIResponse
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from hotpartition.errors import (
    InvalidRequestError,
    MalformedGenerationError,
    MessageConflictError,
    MessageNotFoundError,
    MessageTooLargeError,
    Problem,
    RetryLaterError,
)
from hotpartition.items import Message, encode_attributes
from hotpartition.keys import CONVERSATION_ID_PATTERN, CONVERSATION_ID_RULE, MAX_CONVERSATION_ID_LENGTH
from hotpartition.message_ids import MESSAGE_ID_RULE, parse_message_id

PROBLEM_JSON = "application/problem+json"
RETRY_AFTER_SECONDS = 1
RESPONSE_MARGIN_MS = 3_000
"""Time that a function keeps for its answer: an attempt that begins at the end of the budget may take 2.5 s."""

MAX_PAGE_BYTES = 4_500_000
"""A page ends before its answer gets larger than Lambda's 6 MB, which holds it as an escaped string."""
_MAX_BYTES_PER_CHARACTER = 12  # outside the Basic Multilingual Plane, as two escapes
_SMALL_MESSAGE_CHARACTERS = 1_800
"""200 of these fit whatever they are made of, so the usual page is not measured."""
_ENVELOPE_BYTES = 800
_EPOCH = datetime.fromtimestamp(0, UTC)

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)", re.IGNORECASE | re.ASCII)


def _not_dots(text: str) -> str:
    if text in {".", ".."}:
        raise ValueError(f"should be {CONVERSATION_ID_RULE}")
    return text


def _canonical(text: str) -> str:
    try:
        return parse_message_id(text)
    except InvalidRequestError as error:
        raise ValueError(error.problems[0].message) from error


def _storable(attributes: dict[str, Any]) -> dict[str, Any]:
    try:
        encode_attributes(attributes)
    except InvalidRequestError as error:
        (problem,) = error.problems
        facts = {"field": problem.field, "message": problem.message}
        raise PydanticCustomError("not_storable", "{message}", facts) from error
    return attributes


ConversationIdPath = Annotated[
    str,
    Path(
        description="The conversation.",
        pattern=CONVERSATION_ID_PATTERN,
        min_length=1,
        max_length=MAX_CONVERSATION_ID_LENGTH,
        # Checked through `pattern`, which Powertools leaves out of the OpenAPI document.
        json_schema_extra={"pattern": CONVERSATION_ID_PATTERN},
    ),
    AfterValidator(_not_dots),
]
MessageId = Annotated[
    str, Field(description=f"{MESSAGE_ID_RULE[0].upper()}{MESSAGE_ID_RULE[1:]}."), AfterValidator(_canonical)
]
Attributes = Annotated[
    dict[str, Any], Field(description="Whatever else belongs to the message."), AfterValidator(_storable)
]
MessageIdPath = Annotated[str, Path(description=f"The message's id: {MESSAGE_ID_RULE}."), AfterValidator(_canonical)]


class FieldProblem(BaseModel):
    """One wrong field."""

    field: str
    message: str


class ProblemDocument(BaseModel):
    """An error (RFC 9457)."""

    type: str = Field(description="A URN that names the kind of problem.")
    title: str
    status: int
    detail: str
    errors: list[FieldProblem] | None = Field(default=None, description="Every wrong field.")
    message_id: str | None = Field(default=None, description="The id to repeat a refused write with.")


class StoredMessage(BaseModel):
    """A message as it is read."""

    model_config = ConfigDict(json_schema_extra={"additionalProperties": False})

    conversation_id: str
    message_id: str
    sender: str
    body: str
    sent_at: str = Field(description="The message id's time, RFC 3339.")
    attributes: dict[str, Any]


def problem_responses(*statuses: HTTPStatus) -> dict[int, OpenAPIResponse]:
    """Build the OpenAPI description of an operation's errors."""
    return {
        int(status): {"description": status.phrase, "content": {PROBLEM_JSON: {"model": ProblemDocument}}}
        for status in statuses
    }


def json_response(status: HTTPStatus, content: Mapping[str, Any]) -> Response[Any]:
    """Build a JSON response."""
    return Response(status_code=int(status), content_type="application/json", body=_dump(content))


def problem_response(
    status: HTTPStatus,
    detail: str,
    *,
    kind: str,
    errors: tuple[Problem, ...] = (),
    message_id: str | None = None,
) -> Response[Any]:
    """Build a problem document's response; one that is worth repeating says when."""
    document: dict[str, Any] = {
        "type": f"urn:hotpartition:{kind}",
        "title": status.phrase,
        "status": int(status),
        "detail": detail,
    }
    if errors:
        document["errors"] = [{"field": problem.field, "message": problem.message} for problem in errors]
    if message_id:
        document["message_id"] = message_id
    # Escaped to ASCII: a refused field's name may hold what no encoding takes.
    headers = {"Retry-After": str(RETRY_AFTER_SECONDS)} if status is HTTPStatus.SERVICE_UNAVAILABLE else {}
    return Response(status_code=int(status), content_type=PROBLEM_JSON, body=json.dumps(document), headers=headers)


def render_message(message: Message) -> dict[str, Any]:
    """Show a message as clients see it: no key, no suffix."""
    return {
        "conversation_id": message.conversation_id,
        "message_id": message.message_id,
        "sender": message.sender,
        "body": message.body,
        "sent_at": message.sent_at,
        "attributes": dict(message.attributes),
    }


def create_resolver(title: str, description: str) -> APIGatewayHttpResolver:
    """Create the event handler with the error answers that all routes share."""
    app = APIGatewayHttpResolver(enable_validation=True, json_body_deserializer=parse_json)
    app.configure_openapi(title=title, version="1.0.0", description=description)
    app.exception_handler(RequestValidationError)(_on_validation_error)
    app.exception_handler(InvalidRequestError)(_on_invalid_request)
    app.exception_handler(MessageNotFoundError)(_on_message_not_found)
    app.exception_handler(MessageConflictError)(_on_conflict)
    app.exception_handler(MessageTooLargeError)(_on_too_large)
    app.exception_handler(RetryLaterError)(_on_retry_later)
    app.exception_handler(MalformedGenerationError)(_on_unreadable_route)
    app.not_found(_on_no_such_resource)
    return app


def normalize_event(event: Mapping[str, Any]) -> dict[str, Any]:
    """Bring an HTTP API event (payload 2.0) into the one form that the event handler takes.

    The path is rebuilt from the matched route with its parameters percent-encoded: the gateway decodes them, and the
    event handler's own patterns refuse an id with `#` or `/`, or an empty one, with 404 before anybody could say what
    is wrong with it. The body becomes text, and is JSON whatever the Content-Type says.
    """
    parameters = event.get("pathParameters") or {}
    path = event["routeKey"].partition(" ")[2]
    for name, value in parameters.items():
        # No valid id contains `%`, so an empty one becomes one that fails validation; so does what no encoding takes.
        path = path.replace(f"{{{name}}}", quote(value, safe=":@", errors="replace") or "%")
    stage = event["requestContext"].get("stage", "$default")
    prefix = "" if stage == "$default" else f"/{stage}"
    context = {**event["requestContext"], "http": {**event["requestContext"]["http"], "path": prefix + path}}
    headers = {k: v for k, v in (event.get("headers") or {}).items() if k.lower() != "content-type"}
    return {
        **event,
        "rawPath": prefix + path,
        "requestContext": context,
        "headers": {**headers, "content-type": "application/json"},
        "body": _body_text(event),
        "isBase64Encoded": False,
    }


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


def parse_time_ms(text: str) -> int:
    """Parse an RFC 3339 time with its offset to Unix ms, rounded up: a bound is compared with whole ms.

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
    return -(-since_epoch // timedelta(milliseconds=1))


def count_fitting(messages: Sequence[Message]) -> int:
    """Count how many of a page's messages fit into one answer, in their order."""
    room = MAX_PAGE_BYTES
    for count, message in enumerate(messages):
        room -= _answer_bytes(message)
        if room < 0:
            return count
    return len(messages)


def _answer_bytes(message: Message) -> int:
    """Bound the bytes of a message in the function's answer, where JSON is escaped once more as a string."""
    if not message.attributes:
        characters = len(message.body) + len(message.sender)
        if characters < _SMALL_MESSAGE_CHARACTERS:
            return characters * _MAX_BYTES_PER_CHARACTER + _ENVELOPE_BYTES
    return len(json.dumps(_dump(render_message(message))))


def remaining_ms(context: Any) -> float:
    """Return how long a request may go on, in ms, so that its answer is out before the function's timeout."""
    return max(0.0, float(context.get_remaining_time_in_millis()) - RESPONSE_MARGIN_MS)


def _on_validation_error(error: RequestValidationError) -> Response[Any]:
    return _bad_request(tuple(_field_problem(e) for e in error.errors()))


def _on_invalid_request(error: InvalidRequestError) -> Response[Any]:
    return _bad_request(error.problems)


def _on_message_not_found(error: MessageNotFoundError) -> Response[Any]:
    return problem_response(HTTPStatus.NOT_FOUND, str(error), kind="message-not-found")


def _on_conflict(error: MessageConflictError) -> Response[Any]:
    return problem_response(HTTPStatus.CONFLICT, str(error), kind="message-conflict", message_id=error.message_id)


def _on_too_large(error: MessageTooLargeError) -> Response[Any]:
    return problem_response(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(error), kind="message-too-large")


def _on_retry_later(error: RetryLaterError) -> Response[Any]:
    detail = f"{error}; repeat the request"
    if error.message_id:
        detail += " with this message_id: that is safe, whatever became of this attempt"
    return problem_response(HTTPStatus.SERVICE_UNAVAILABLE, detail, kind="retry-later", message_id=error.message_id)


def _on_unreadable_route(_: MalformedGenerationError) -> Response[Any]:
    detail = "the conversation's routing item cannot be read, so a page could be incomplete; an operator must repair it"
    return problem_response(HTTPStatus.INTERNAL_SERVER_ERROR, detail, kind="unreadable-route")


def _on_no_such_resource(_: Exception) -> Response[Any]:
    return problem_response(HTTPStatus.NOT_FOUND, "there is no such resource", kind="no-such-resource")


def _bad_request(problems: tuple[Problem, ...]) -> Response[Any]:
    detail = "; ".join(f"{problem.field}: {problem.message}" for problem in problems)
    return problem_response(HTTPStatus.BAD_REQUEST, detail, kind="invalid-request", errors=problems)


def _field_problem(error: Mapping[str, Any]) -> Problem:
    place = [str(part) for part in error["loc"]]
    field = ".".join(place[1:]) if len(place) > 1 and place[0] in {"body", "query", "path"} else ".".join(place)
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "json_invalid" or (place == ["body"] and error["type"] != "string_unicode"):
        # `body` is a field of a message as well: say which one is meant.
        return Problem("body", "the request's body should be a JSON object")
    if error["type"] == "not_storable":
        return Problem(error["ctx"]["field"], error["ctx"]["message"])
    if field == "conversation_id":
        message = f"should be {CONVERSATION_ID_RULE}"
    return Problem(field or "body", message)


def _body_text(event: Mapping[str, Any]) -> str | None:
    body: str | None = event.get("body")
    if not body or not event.get("isBase64Encoded"):
        return body
    try:
        return base64.b64decode(body, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return "not UTF-8"  # no JSON either, so that the answer says so


def _dump(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))
