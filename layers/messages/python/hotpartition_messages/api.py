"""HTTP for the two functions: events in, responses and problem documents out. Knows Powertools."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from math import ceil
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.event_handler.api_gateway import APIGatewayHttpResolver, Response

from hotpartition.errors import (
    InvalidRequestError,
    ItemTooLargeError,
    MalformedGenerationError,
    OutcomeUnknownError,
    Problem,
    RetryLaterError,
    TokenReusedError,
)
from hotpartition_messages.errors import (
    MessageChangedError,
    MessageConflictError,
    MessageGoneError,
    MessageNotFoundError,
    NotTheSenderError,
)
from hotpartition_messages.keys import MESSAGE_PREFIX, parse_sort_key
from hotpartition_messages.messages import Message
from hotpartition_messages.problems import (
    INVALID_REQUEST,
    MESSAGE_CHANGED,
    MESSAGE_CONFLICT,
    MESSAGE_GONE,
    MESSAGE_NOT_FOUND,
    MESSAGE_TOO_LARGE,
    NO_SUCH_RESOURCE,
    NOT_THE_SENDER,
    OUTCOME_UNKNOWN,
    PROBLEM_JSON,
    READ_LATER,
    TOKEN_REUSED,
    UNREADABLE_ROUTE,
    UNSUPPORTED_ENCODING,
    WRITE_LATER,
    ProblemKind,
)
from hotpartition_messages.requests import BodyTooLargeError, ContentEncodingError, is_among

if TYPE_CHECKING:
    from hotpartition_messages.reading import PageResult

MESSAGES_PATH = "/conversations/{conversation_id}/messages"
MESSAGE_PATH = MESSAGES_PATH + "/{message_id}"
COUNTER_PATH = "/counters/{counter_id}"
"""The routes as API Gateway knows them. It has matched them and decoded their parameters before we are asked."""

RESPONSE_MARGIN_MS = 3_000
"""Time that a function keeps for its response: an attempt that begins at the end of the budget may take 2.5 s."""

MAX_PAGE_BYTES = 4_500_000
"""A page ends before its response gets larger than Lambda's 6 MB, which holds it as an escaped string."""
_MAX_BYTES_PER_CHARACTER = 12  # outside the Basic Multilingual Plane, as two escapes
_SMALL_MESSAGE_CHARACTERS = 1_800
"""200 of these fit whatever they are made of, so the usual page is not measured."""
_ENVELOPE_BYTES = 800
_MAX_NAME_CHARACTERS = 200
"""Longer names of wrong fields are shortened."""


def create_resolver() -> APIGatewayHttpResolver:
    """Create the event handler with the error responses that all routes share."""
    app = APIGatewayHttpResolver()
    for error, respond in _RESPONSES.items():
        app.exception_handler(error)(respond)
    app.not_found(lambda _: problem_response(NO_SUCH_RESOURCE, NO_SUCH_RESOURCE.example["detail"]))
    return app


def route_event(event: Mapping[str, Any]) -> dict[str, Any]:
    """Prepare an HTTP API event (payload 2.0) for the event handler: its path is the route that the gateway matched.

    Were it the path that the client sent, the event handler's own patterns would refuse an id with `#` or `/`, or an
    empty one, with 404 before anybody could say what is wrong with it.
    """
    stage = event["requestContext"].get("stage", "$default")
    prefix = "" if stage == "$default" else f"/{stage}"
    return {**event, "rawPath": prefix + event["routeKey"].partition(" ")[2]}


def remaining_ms(context: Any) -> float:
    """Return how long a request may go on, in ms, so that its response is out before the function's timeout."""
    return max(0.0, float(context.get_remaining_time_in_millis()) - RESPONSE_MARGIN_MS)


def json_response(status: HTTPStatus, text: str) -> Response[Any]:
    """Build a response of JSON text."""
    return Response(status_code=int(status), content_type="application/json", body=text)


def counter_response(counter_id: str, **facts: int) -> Response[Any]:
    """Build a response about a counter."""
    return json_response(HTTPStatus.OK, json.dumps({"counter_id": counter_id, **facts}, separators=(",", ":")))


def message_response(message: Message) -> Response[Any]:
    """Build a response of one message, with its entity tag."""
    response = json_response(HTTPStatus.OK, message.json)
    response.headers["ETag"] = message.etag
    return response


def page_response(page: PageResult, *, if_none_match: str = "") -> Response[Any]:
    """Build a page's response: 304 without a body, if it is a newest page that the client has already."""
    if page.etag is not None and is_among(page.etag, if_none_match):
        response: Response[Any] = Response(status_code=int(HTTPStatus.NOT_MODIFIED), body="")
    else:
        text = page_text(page.messages, next_cursor=page.next_cursor, settled_until=page.settled_until)
        response = json_response(HTTPStatus.OK, text)
    if page.etag is not None:
        response.headers["ETag"] = page.etag
    if page.age_ms is not None:
        response.headers["Age"] = str(ceil(page.age_ms / 1000))
    return response


def page_text(messages: Sequence[Message], *, next_cursor: str | None, settled_until: str) -> str:
    """Build a page's JSON of its messages'."""
    listed = ",".join([message.json for message in messages])
    end = json.dumps({"next_cursor": next_cursor, "settled_until": settled_until}, separators=(",", ":"))
    return f'{{"messages":[{listed}],{end[1:]}'


def count_fitting(messages: Sequence[Message]) -> int:
    """Count how many of a page's messages fit into one response, in their order."""
    room = MAX_PAGE_BYTES
    for count, message in enumerate(messages):
        room -= _response_bytes(message)
        if room < 0:
            return count
    return len(messages)


def _response_bytes(message: Message) -> int:
    """Bound the bytes of a message in the function's response, where JSON is escaped once more as a string."""
    if not message.stored_attributes["M"]:
        characters = len(message.body) + len(message.sender)
        if characters < _SMALL_MESSAGE_CHARACTERS:
            return characters * _MAX_BYTES_PER_CHARACTER + _ENVELOPE_BYTES
    return len(json.dumps(message.json))


def problem_response(
    kind: ProblemKind, detail: str, *, errors: Sequence[Problem] = (), message_id: str | None = None
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


def _on_invalid_request(error: InvalidRequestError) -> Response[Any]:
    problems = [Problem(_shortened(problem.field), problem.message) for problem in error.problems]
    return problem_response(INVALID_REQUEST, str(InvalidRequestError(problems, more=error.more)), errors=problems)


def _on_retry_later(error: RetryLaterError) -> Response[Any]:
    detail = f"{error}; repeat the request"
    if not (error.sort_key or "").startswith(MESSAGE_PREFIX):
        return problem_response(READ_LATER, detail)  # of an addition as well
    detail += " with this message_id: that is safe, whatever became of this attempt"
    return problem_response(WRITE_LATER, detail, message_id=parse_sort_key(error.sort_key or ""))


def _on_too_large(error: ItemTooLargeError) -> Response[Any]:
    detail = f"the message needs {error.needs}; {error.limit_bytes} are allowed"
    return problem_response(MESSAGE_TOO_LARGE, detail)


def _shortened(name: str) -> str:
    return name if len(name) <= _MAX_NAME_CHARACTERS else f"{name[:_MAX_NAME_CHARACTERS]}…"


_RESPONSES: Mapping[type[Exception], Callable[[Any], Response[Any]]] = {
    InvalidRequestError: _on_invalid_request,
    NotTheSenderError: lambda error: problem_response(NOT_THE_SENDER, str(error)),
    ContentEncodingError: lambda error: problem_response(UNSUPPORTED_ENCODING, str(error)),
    MessageGoneError: lambda error: problem_response(MESSAGE_GONE, str(error)),
    MessageChangedError: lambda error: problem_response(MESSAGE_CHANGED, str(error)),
    MessageNotFoundError: lambda error: problem_response(MESSAGE_NOT_FOUND, str(error)),
    MessageConflictError: lambda e: problem_response(MESSAGE_CONFLICT, str(e), message_id=e.message_id),
    TokenReusedError: lambda error: problem_response(TOKEN_REUSED, str(error)),
    OutcomeUnknownError: lambda error: problem_response(OUTCOME_UNKNOWN, str(error)),
    ItemTooLargeError: _on_too_large,
    BodyTooLargeError: lambda error: problem_response(MESSAGE_TOO_LARGE, str(error)),
    RetryLaterError: _on_retry_later,
    MalformedGenerationError: lambda _: problem_response(UNREADABLE_ROUTE, UNREADABLE_ROUTE.example["detail"]),
}
