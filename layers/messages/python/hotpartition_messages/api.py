"""What the two HTTP functions share: events in, RFC 9457 problem documents out. Knows Powertools and pydantic.

Every error has one shape, `application/problem+json` with `type`, `title`, `status` and `detail`; `errors` names every
wrong field, and `message_id` the id that a refused write should be repeated with.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

from hotpartition import __version__
from hotpartition.core.keys import CONVERSATION_ID_PATTERN, CONVERSATION_ID_RULE, MAX_CONVERSATION_ID_LENGTH
from hotpartition.core.message_ids import (
    CANONICAL_MESSAGE_ID_PATTERN,
    MAX_FUTURE_MS,
    MESSAGE_ID_PATTERN,
    MESSAGE_ID_RULE,
    parse_message_id,
)
from hotpartition.errors import (
    InvalidRequestError,
    MalformedGenerationError,
    MessageConflictError,
    MessageNotFoundError,
    MessageTooLargeError,
    Problem,
    RetryLaterError,
)
from hotpartition_messages.messages import MAX_DEPTH, Message, encode_attributes

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


EXAMPLE_MESSAGE: dict[str, Any] = {
    "conversation_id": "room-1",
    "message_id": "01KAJVZHE0FZ5C1S9TQJ0V3YXM",
    "sender": "ann",
    "body": "hello",
    "sent_at": "2025-11-21T09:30:00.000Z",
    "attributes": {"likes": 3, "tags": ["greeting"]},
}

ConversationIdPath = Annotated[
    str,
    Path(
        description=f"The conversation: {CONVERSATION_ID_RULE}.",
        pattern=CONVERSATION_ID_PATTERN,
        min_length=1,
        max_length=MAX_CONVERSATION_ID_LENGTH,
        examples=[EXAMPLE_MESSAGE["conversation_id"]],
        # Checked through `pattern`, which Powertools leaves out of the OpenAPI document.
        json_schema_extra={"pattern": CONVERSATION_ID_PATTERN, "not": {"enum": [".", ".."]}},
    ),
    AfterValidator(_not_dots),
]
MessageId = Annotated[
    str,
    Field(
        description=f"{MESSAGE_ID_RULE[0].upper()}{MESSAGE_ID_RULE[1:]}, at most {MAX_FUTURE_MS / 1000:g} s ahead: the "
        "message's identity and time, so that a repetition is safe. Without it the server mints one.",
        json_schema_extra={"pattern": MESSAGE_ID_PATTERN},
    ),
    AfterValidator(_canonical),
]
Attributes = Annotated[
    dict[str, Any],
    Field(
        description="Whatever else belongs to the message. Whole numbers keep 38 digits, others are doubles; names are "
        f"not empty; at most {MAX_DEPTH} levels deep.",
        json_schema_extra={"propertyNames": {"minLength": 1}},
    ),
    AfterValidator(_storable),
]
MessageIdPath = Annotated[
    str,
    Path(
        description=f"The message's id: {MESSAGE_ID_RULE}.",
        examples=[EXAMPLE_MESSAGE["message_id"]],
        json_schema_extra={"pattern": MESSAGE_ID_PATTERN},
    ),
    AfterValidator(_canonical),
]
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


class Documented(BaseModel):
    """Base of models that only describe answers: nothing is built of them before somebody asks for the description."""

    model_config = ConfigDict(defer_build=True, json_schema_extra={"additionalProperties": False})


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

    errors: list[FieldProblem] = Field(description="Every wrong field.", min_length=1)


class MessageProblemDocument(ProblemDocument):
    """A message that was not stored."""

    message_id: CanonicalMessageId


class StoredMessage(Documented):
    """A message as it is read."""

    model_config = ConfigDict(json_schema_extra={"additionalProperties": False, "examples": [EXAMPLE_MESSAGE]})

    conversation_id: ConversationId
    message_id: CanonicalMessageId
    sender: str
    body: str
    sent_at: SentAt
    attributes: dict[str, Any] = Field(description="As it was sent; numbers keep their value, not their spelling.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemKind:
    """One kind of error: what is answered, and what the API's description says about it.

    `example` holds the members that every document of this kind has beside `type`, `title` and `status`.
    """

    name: str
    status: HTTPStatus
    meaning: str
    example: Mapping[str, Any]
    document: type[ProblemDocument] = ProblemDocument
    title: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """Headers of such an answer."""
        is_worth_repeating = self.status is HTTPStatus.SERVICE_UNAVAILABLE
        return {"Retry-After": str(RETRY_AFTER_SECONDS)} if is_worth_repeating else {}

    def members(self) -> dict[str, Any]:
        """Build the members that say which kind it is."""
        title = self.title or self.status.phrase
        return {"type": f"urn:hotpartition:{self.name}", "title": title, "status": int(self.status)}


INVALID_REQUEST = ProblemKind(
    name="invalid-request",
    status=HTTPStatus.BAD_REQUEST,
    meaning="The request is wrong; every wrong field is named",
    document=InvalidRequestDocument,
    example={
        "detail": "limit: Input should be less than or equal to 200",
        "errors": [{"field": "limit", "message": "Input should be less than or equal to 200"}],
    },
)
MESSAGE_NOT_FOUND = ProblemKind(
    name="message-not-found",
    status=HTTPStatus.NOT_FOUND,
    meaning="No such message is stored",
    example={"detail": "no message with this id is stored in this conversation"},
)
NO_SUCH_RESOURCE = ProblemKind(
    name="no-such-resource",
    status=HTTPStatus.NOT_FOUND,
    meaning="There is no such path",
    example={"detail": "there is no such resource"},
)
MESSAGE_CONFLICT = ProblemKind(
    name="message-conflict",
    status=HTTPStatus.CONFLICT,
    meaning="The id is taken by other content",
    document=MessageProblemDocument,
    example={
        "detail": "a message with this id and other content is already stored",
        "message_id": EXAMPLE_MESSAGE["message_id"],
    },
)
MESSAGE_TOO_LARGE = ProblemKind(
    name="message-too-large",
    status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    title="Content Too Large",  # its phrase depends on the version of Python
    meaning="The message would need more than DynamoDB's 400 KiB",
    example={"detail": "the message needs 410215 bytes in storage; 409600 are allowed"},
)
WRITE_LATER = ProblemKind(
    name="retry-later",
    status=HTTPStatus.SERVICE_UNAVAILABLE,
    meaning="DynamoDB refused for the whole budget; repeat the request with this `message_id`",
    document=MessageProblemDocument,
    example={
        "detail": "DynamoDB throttled the request (TableWriteKeyRangeThroughputExceeded); repeat the request with this "
        "message_id: that is safe, whatever became of this attempt",
        "message_id": EXAMPLE_MESSAGE["message_id"],
    },
)
READ_LATER = ProblemKind(
    name="retry-later",
    status=HTTPStatus.SERVICE_UNAVAILABLE,
    meaning="A part of the answer could not be read within the budget; repeat the request",
    example={
        "detail": "DynamoDB throttled the request (TableReadKeyRangeThroughputExceeded); repeat the request",
    },
)
UNREADABLE_ROUTE = ProblemKind(
    name="unreadable-route",
    status=HTTPStatus.INTERNAL_SERVER_ERROR,
    meaning="The conversation's routing item was damaged from outside; an operator must repair it",
    example={
        "detail": "the conversation's routing item cannot be read, so a page could be incomplete; an operator must "
        "repair it"
    },
)


def json_content(model: type[BaseModel]) -> dict[str, Any]:
    """Build the OpenAPI description of a good answer's content."""
    return {"application/json": {"model": model}}


def problem_responses(*kinds: ProblemKind) -> dict[int, OpenAPIResponse]:
    """Build the OpenAPI description of an operation's errors."""
    return {int(kind.status): _describe(kind) for kind in kinds}


def _describe(kind: ProblemKind) -> OpenAPIResponse:
    example = {"value": kind.members() | dict(kind.example)}
    response: OpenAPIResponse = {
        "description": kind.meaning,
        "content": {PROBLEM_JSON: {"model": kind.document, "examples": {kind.name: example}}},
    }
    if kind.headers:
        schema = {"type": "integer", "minimum": 1}
        response["headers"] = {"Retry-After": {"description": "Seconds to wait.", "schema": schema}}
    return response


def json_response(status: HTTPStatus, content: Mapping[str, Any]) -> Response[Any]:
    """Build a JSON response."""
    return Response(status_code=int(status), content_type="application/json", body=_dump(content))


def problem_response(
    kind: ProblemKind, detail: str, *, errors: tuple[Problem, ...] = (), message_id: str | None = None
) -> Response[Any]:
    """Build a problem document's response; one that is worth repeating says when."""
    document = {**kind.members(), "detail": detail}
    if errors:
        document["errors"] = [{"field": problem.field, "message": problem.message} for problem in errors]
    if message_id:
        document["message_id"] = message_id
    return Response(
        status_code=int(kind.status),
        content_type=PROBLEM_JSON,
        # Escaped to ASCII: a refused field's name may hold what no encoding takes.
        body=json.dumps(document),
        headers=dict(kind.headers),
    )


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
    app.configure_openapi(title=title, version=__version__, description=description)
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
    return problem_response(MESSAGE_NOT_FOUND, str(error))


def _on_conflict(error: MessageConflictError) -> Response[Any]:
    return problem_response(MESSAGE_CONFLICT, str(error), message_id=error.message_id)


def _on_too_large(error: MessageTooLargeError) -> Response[Any]:
    return problem_response(MESSAGE_TOO_LARGE, str(error))


def _on_retry_later(error: RetryLaterError) -> Response[Any]:
    detail = f"{error}; repeat the request"
    if not error.message_id:
        return problem_response(READ_LATER, detail)
    detail += " with this message_id: that is safe, whatever became of this attempt"
    return problem_response(WRITE_LATER, detail, message_id=error.message_id)


def _on_unreadable_route(_: MalformedGenerationError) -> Response[Any]:
    return problem_response(UNREADABLE_ROUTE, UNREADABLE_ROUTE.example["detail"])


def _on_no_such_resource(_: Exception) -> Response[Any]:
    return problem_response(NO_SUCH_RESOURCE, NO_SUCH_RESOURCE.example["detail"])


def _bad_request(problems: tuple[Problem, ...]) -> Response[Any]:
    detail = "; ".join(f"{problem.field}: {problem.message}" for problem in problems)
    return problem_response(INVALID_REQUEST, detail, errors=problems)


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
    except ValueError:  # no base64, or no UTF-8
        return "not UTF-8"  # no JSON either, so that the answer says so


def _dump(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))
