"""The read function: `GET /conversations/{conversation_id}/messages` and `…/messages/{message_id}`."""

from __future__ import annotations

from hotpartition.runtime import cold_start  # before all others

# isort: split
import os
from functools import cache
from http import HTTPStatus
from typing import Annotated, Any, Literal

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.openapi.params import Query
from aws_lambda_powertools.metrics import MetricUnit
from pydantic import AfterValidator, ConfigDict, Field

from hotpartition.core.cursor import CURSOR_PATTERN
from hotpartition.core.metrics import MetricName
from hotpartition.jobs.reader import DEFAULT_LIMIT, MAX_LIMIT, PageRequest, Reader
from hotpartition.runtime.settings import ReaderSettings
from hotpartition.runtime.telemetry import PowertoolsTelemetry
from hotpartition.runtime.wiring_reader import build_reader
from hotpartition_messages import Message
from hotpartition_messages.api import (
    EXAMPLE_MESSAGE,
    INVALID_REQUEST,
    MESSAGE_NOT_FOUND,
    READ_LATER,
    UNREADABLE_ROUTE,
    ConversationIdPath,
    Documented,
    MessageIdPath,
    StoredMessage,
    count_fitting,
    create_resolver,
    json_content,
    json_response,
    normalize_event,
    parse_time_ms,
    problem_responses,
    remaining_ms,
    render_message,
)

logger = Logger()
metrics = Metrics()


def _time(text: str) -> str:
    parse_time_ms(text)
    return text


_TIME_FORMAT: dict[str, Any] = {"format": "date-time"}
_CURSOR_FORMAT: dict[str, Any] = {"pattern": CURSOR_PATTERN}

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Messages on a page, at most.")]
After = Annotated[
    str,
    Query(description="Only messages at or after this time (RFC 3339).", json_schema_extra=_TIME_FORMAT),
    AfterValidator(_time),
]
Before = Annotated[
    str,
    Query(description="Only messages before this time (RFC 3339).", json_schema_extra=_TIME_FORMAT),
    AfterValidator(_time),
]
Order = Annotated[Literal["newest", "oldest"], Query(description="Which end to begin with.")]
Cursor = Annotated[
    str,
    Query(description="`next_cursor` of the last page, with the same order.", json_schema_extra=_CURSOR_FORMAT),
]
Consistency = Annotated[
    Literal["strong", "eventual"],
    Query(description="`strong`: with everything acknowledged before the request. `eventual`: half the price."),
]


_EXAMPLE_PAGE: dict[str, Any] = {
    "messages": [EXAMPLE_MESSAGE],
    "next_cursor": None,
    "settled_until": "2025-11-21T09:30:05.000Z",
}
_NEXT_PAGE = {
    "operationId": "read_page",
    "description": "With the same `order`, if it was given, until `next_cursor` is null.",
    "parameters": {
        "conversation_id": "$request.path.conversation_id",
        "cursor": "$response.body#/next_cursor",
    },
}


class MessagePage(Documented):
    """One page of a conversation, complete."""

    model_config = ConfigDict(json_schema_extra={"additionalProperties": False, "examples": [_EXAMPLE_PAGE]})

    messages: list[StoredMessage] = Field(max_length=MAX_LIMIT)
    next_cursor: Annotated[str, Field(json_schema_extra=_CURSOR_FORMAT)] | None = Field(
        description="Continues after this page; null on the last one."
    )
    settled_until: str = Field(
        description="A client that polls oldest-first passes this as `after` the next time.",
        json_schema_extra=_TIME_FORMAT,
    )


def build_app(reader: Reader[Message]) -> APIGatewayHttpResolver:
    """Build the event handler around the read job."""
    app = create_resolver("hotpartition: read", "Reads conversations, wherever their messages are stored.")

    @app.get(
        "/conversations/<conversation_id>/messages",
        summary="Read a page of messages",
        operation_id="read_page",
        responses={
            200: {
                "description": "A complete page",
                "content": json_content(MessagePage),
                "links": {"NextPage": _NEXT_PAGE},
            },
            **problem_responses(INVALID_REQUEST, UNREADABLE_ROUTE, READ_LATER),
        },
    )
    def read_page(
        conversation_id: ConversationIdPath,
        limit: Limit = DEFAULT_LIMIT,
        after: After | None = None,
        before: Before | None = None,
        order: Order = "newest",
        cursor: Cursor | None = None,
        consistency: Consistency = "eventual",
    ) -> Response[Any]:
        request = PageRequest(
            conversation_id=conversation_id,
            newest_first=order == "newest",
            limit=limit,
            after_ms=parse_time_ms(after) if after is not None else None,
            before_ms=parse_time_ms(before) if before is not None else None,
            cursor=cursor,
            is_strong=consistency == "strong",
        )
        page = reader.read_page(request, remaining_ms=remaining_ms(app.lambda_context), fits=count_fitting)
        metrics.add_metric(name=MetricName.PAGES_READ, unit=MetricUnit.Count, value=1)
        return json_response(
            HTTPStatus.OK,
            {
                "messages": [render_message(message) for message in page.messages],
                "next_cursor": page.next_cursor,
                "settled_until": page.settled_until,
            },
        )

    @app.get(
        "/conversations/<conversation_id>/messages/<message_id>",
        summary="Read one message",
        operation_id="read_message",
        responses={
            200: {"description": "The message", "content": json_content(StoredMessage)},
            **problem_responses(INVALID_REQUEST, MESSAGE_NOT_FOUND, UNREADABLE_ROUTE, READ_LATER),
        },
    )
    def read_message(
        conversation_id: ConversationIdPath, message_id: MessageIdPath, consistency: Consistency = "eventual"
    ) -> Response[Any]:
        message = reader.read_message(
            conversation_id,
            message_id,
            is_strong=consistency == "strong",
            remaining_ms=remaining_ms(app.lambda_context),
        )
        metrics.add_metric(name=MetricName.MESSAGES_READ, unit=MetricUnit.Count, value=1)
        return json_response(HTTPStatus.OK, render_message(message))

    return app


@cache
def _app() -> APIGatewayHttpResolver:
    telemetry = PowertoolsTelemetry(logger, metrics)
    return build_app(build_reader(ReaderSettings.from_env(os.environ), telemetry, Message.from_item))


@metrics.log_metrics(capture_cold_start_metric=True)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Serve one request."""
    # Also refused ones: Powertools warns of an invocation that counts nothing.
    metrics.add_metric(name=MetricName.REQUESTS, unit=MetricUnit.Count, value=1)
    return _app().resolve(normalize_event(event), context)


cold_start.end()
