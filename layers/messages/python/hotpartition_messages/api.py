"""HTTP for the two functions: a table of routes, responses, and problem documents for errors (RFC 9457).

Every error has one shape, `application/problem+json` with `type`, `title`, `status` and `detail`; `errors` names the
wrong fields, and `message_id` the id that a refused write should be repeated with (`docs/openapi.json`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from http import HTTPStatus
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from aws_lambda_powertools import Logger, Metrics

from hotpartition.core.errors import (
    InvalidRequestError,
    ItemTooLargeError,
    MalformedGenerationError,
    Problem,
    RetryLaterError,
)
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import Telemetry
from hotpartition.runtime.telemetry import PowertoolsTelemetry
from hotpartition_messages.cursor import build_cursor
from hotpartition_messages.errors import (
    MessageChangedError,
    MessageConflictError,
    MessageGoneError,
    MessageNotFoundError,
    NotTheSenderError,
)
from hotpartition_messages.keys import MESSAGE_PREFIX, parse_sort_key
from hotpartition_messages.messages import Message
from hotpartition_messages.requests import BodyTooLargeError, ContentEncodingError, is_among

if TYPE_CHECKING:
    from hotpartition_messages.reading import PageRequest, PageResult
    from hotpartition_messages.writing import Written

Event = Mapping[str, Any]
"""An event of API Gateway (HTTP API, payload 2.0)."""
Response = dict[str, Any]
"""A response to API Gateway."""
Serve = Callable[[Event, Any], Response]
"""Serves a request: its event, and Lambda's context."""

JSON = "application/json"
PROBLEM_JSON = "application/problem+json"
RETRY_AFTER_SECONDS = 1
MESSAGES_PATH = "/conversations/{conversation_id}/messages"
MESSAGE_PATH = MESSAGES_PATH + "/{message_id}"
"""The routes as API Gateway knows them: it matches them and decodes their parameters."""

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


class ProblemKind(NamedTuple):
    """One kind of error; its title is the status' phrase, unless that depends on the version of Python."""

    name: str
    status: HTTPStatus
    title: str = ""

    def members(self) -> dict[str, Any]:
        """Build the members that say which kind it is."""
        title = self.title or self.status.phrase
        return {"type": f"urn:hotpartition:{self.name}", "title": title, "status": int(self.status)}


INVALID_REQUEST = ProblemKind("invalid-request", HTTPStatus.BAD_REQUEST)
NOT_THE_SENDER = ProblemKind("not-the-sender", HTTPStatus.FORBIDDEN)
NO_SUCH_RESOURCE = ProblemKind("no-such-resource", HTTPStatus.NOT_FOUND)
MESSAGE_NOT_FOUND = ProblemKind("message-not-found", HTTPStatus.NOT_FOUND)
MESSAGE_CONFLICT = ProblemKind("message-conflict", HTTPStatus.CONFLICT)
MESSAGE_GONE = ProblemKind("message-gone", HTTPStatus.GONE)
MESSAGE_CHANGED = ProblemKind("message-changed", HTTPStatus.PRECONDITION_FAILED)
MESSAGE_TOO_LARGE = ProblemKind("message-too-large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "Content Too Large")
UNSUPPORTED_ENCODING = ProblemKind("unsupported-encoding", HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
UNREADABLE_ROUTE = ProblemKind("unreadable-route", HTTPStatus.INTERNAL_SERVER_ERROR)
RETRY_LATER = ProblemKind("retry-later", HTTPStatus.SERVICE_UNAVAILABLE)


def build_handler(open_routes: Callable[[Telemetry], Mapping[str, Serve]]) -> Serve:
    """Build a function's handler; the first request opens its routes: a snapshot must share no random numbers."""
    metrics = Metrics()
    telemetry = PowertoolsTelemetry(Logger(), metrics)
    routes = cache(lambda: open_routes(telemetry))

    @metrics.log_metrics(capture_cold_start_metric=True)
    def handler(event: Event, context: Any) -> Response:
        """Serve one request."""
        # Also refused ones: Powertools warns of an invocation that counts nothing.
        telemetry.count(MetricName.REQUESTS)
        return respond(routes(), event, context)

    serve: Serve = handler
    return serve


def respond(routes: Mapping[str, Serve], event: Event, context: Any) -> Response:
    """Serve a request by the route that API Gateway has matched; errors for clients become problem responses."""
    serve = routes.get(event["routeKey"])
    if serve is None:
        return problem_response(NO_SUCH_RESOURCE, "there is no such resource")
    try:
        return serve(event, context)
    except tuple(_RESPONSES) as error:
        known = next(kind for kind in type(error).__mro__ if kind in _RESPONSES)
        found = _RESPONSES[known]
        return problem_response(found, str(error)) if isinstance(found, ProblemKind) else found(error)


def remaining_ms(context: Any) -> float:
    """Return how long a request may go on, in ms, so that its response is out before the function's timeout."""
    return max(0.0, float(context.get_remaining_time_in_millis()) - RESPONSE_MARGIN_MS)


def received_ms(event: Event) -> int | None:
    """Return when API Gateway received a request, Unix ms by its clock; None: it does not say."""
    moment: int | None = event["requestContext"].get("timeEpoch")
    return moment


def build_response(
    status: HTTPStatus, text: str = "", headers: Mapping[str, str] | None = None, *, content_type: str = JSON
) -> Response:
    """Build a response; one without text has no content type, and no browser may guess another one."""
    typed = {"Content-Type": content_type} if text else {}
    all_headers = {**typed, "X-Content-Type-Options": "nosniff", **(headers or {})}
    return {"statusCode": int(status), "headers": all_headers, "body": text, "isBase64Encoded": False}


def message_response(message: Message) -> Response:
    """Build a response of one message, with its entity tag."""
    return build_response(HTTPStatus.OK, message.json, {"ETag": message.etag})


def written_response(written: Written) -> Response:
    """Build the acknowledgement of a message: 201, or 200 if it was stored before."""
    message = written.message
    acknowledgement = {
        "conversation_id": message.conversation_id,
        "message_id": message.message_id,
        "sent_at": message.sent_at,
    }
    text = json.dumps(acknowledgement, separators=(",", ":"))
    return build_response(HTTPStatus.OK if written.is_replay else HTTPStatus.CREATED, text)


def page_response(request: PageRequest, page: PageResult, *, if_none_match: str = "") -> Response:
    """Build a page's response: 304 without a body, if it is a newest page that the client has already."""
    headers = {} if page.etag is None else {"ETag": page.etag}
    if page.age_ms is not None:
        headers["Age"] = str(ceil(page.age_ms / 1000))
    if page.etag is not None and is_among(page.etag, if_none_match):
        return build_response(HTTPStatus.NOT_MODIFIED, headers=headers)
    cursor = build_cursor(request.conversation_id, page.next_cursor, newest_first=request.newest_first)
    text = page_text(page.messages, next_cursor=cursor, settled_until=page.settled_until)
    return build_response(HTTPStatus.OK, text, headers)


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
) -> Response:
    """Build a problem document's response; one that is worth repeating says when."""
    document = {**kind.members(), "detail": detail}
    if errors:
        document["errors"] = [{"field": problem.field, "message": problem.message} for problem in errors]
    if message_id:
        document["message_id"] = message_id
    # Escaped to ASCII: a refused field's name may hold text that no encoding takes.
    is_worth_repeating = kind.status is HTTPStatus.SERVICE_UNAVAILABLE
    headers = {"Retry-After": str(RETRY_AFTER_SECONDS)} if is_worth_repeating else {}
    return build_response(kind.status, json.dumps(document), headers, content_type=PROBLEM_JSON)


def _on_invalid_request(error: InvalidRequestError) -> Response:
    problems = [Problem(_shortened(problem.field), problem.message) for problem in error.problems]
    return problem_response(INVALID_REQUEST, str(InvalidRequestError(problems, more=error.more)), errors=problems)


def _on_retry_later(error: RetryLaterError) -> Response:
    detail = f"{error}; repeat the request"
    if not (error.sort_key or "").startswith(MESSAGE_PREFIX):
        return problem_response(RETRY_LATER, detail)
    detail += " with this message_id: that is safe, whatever became of this attempt"
    return problem_response(RETRY_LATER, detail, message_id=parse_sort_key(error.sort_key or ""))


def _on_too_large(error: ItemTooLargeError) -> Response:
    detail = f"the message needs {error.needs}; {error.limit_bytes} are allowed"
    return problem_response(MESSAGE_TOO_LARGE, detail)


def _shortened(name: str) -> str:
    return name if len(name) <= _MAX_NAME_CHARACTERS else f"{name[:_MAX_NAME_CHARACTERS]}…"


def _on_unreadable_route(_: MalformedGenerationError) -> Response:
    detail = "the conversation's routing item cannot be read, so a page could be incomplete; an operator must repair it"
    return problem_response(UNREADABLE_ROUTE, detail)


_RESPONSES: Mapping[type[Exception], ProblemKind | Callable[[Any], Response]] = {
    InvalidRequestError: _on_invalid_request,
    NotTheSenderError: NOT_THE_SENDER,
    ContentEncodingError: UNSUPPORTED_ENCODING,
    MessageGoneError: MESSAGE_GONE,
    MessageChangedError: MESSAGE_CHANGED,
    MessageNotFoundError: MESSAGE_NOT_FOUND,
    MessageConflictError: lambda e: problem_response(MESSAGE_CONFLICT, str(e), message_id=e.message_id),
    ItemTooLargeError: _on_too_large,
    BodyTooLargeError: MESSAGE_TOO_LARGE,
    RetryLaterError: _on_retry_later,
    MalformedGenerationError: _on_unreadable_route,
}
"""The kind of each error, with the error's own text as its `detail`; or what builds its response."""
