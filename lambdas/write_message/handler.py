"""The write function: `POST /conversations/{conversation_id}/messages`."""

from __future__ import annotations

from hotpartition.core.metrics import MetricName
from hotpartition.runtime import cold_start  # before all others

# isort: split
import os
import random
from functools import cache
from http import HTTPStatus
from typing import Annotated, Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.openapi.params import Body
from aws_lambda_powertools.metrics import MetricUnit
from pydantic import BaseModel, ConfigDict, Field

from hotpartition.runtime.settings import WriterSettings
from hotpartition.runtime.telemetry import PowertoolsTelemetry
from hotpartition.runtime.wiring import wall_clock_ms
from hotpartition.runtime.wiring_writer import build_writer
from hotpartition_messages import Message
from hotpartition_messages.api import (
    EXAMPLE_MESSAGE,
    INVALID_REQUEST,
    MESSAGE_CONFLICT,
    MESSAGE_TOO_LARGE,
    WRITE_LATER,
    Attributes,
    CanonicalMessageId,
    ConversationId,
    ConversationIdPath,
    Documented,
    MessageId,
    SentAt,
    create_resolver,
    json_content,
    json_response,
    normalize_event,
    problem_responses,
    remaining_ms,
)
from hotpartition_messages.writing import MessageWriter, NewMessage

MAX_SENDER_LENGTH = 256

_EXAMPLE = {name: EXAMPLE_MESSAGE[name] for name in ("sender", "body", "attributes")}
_ACKNOWLEDGED = {name: EXAMPLE_MESSAGE[name] for name in ("conversation_id", "message_id", "sent_at")}
_LINKS = {
    "ReadIt": {
        "operationId": "read_message",
        "parameters": {
            "conversation_id": "$response.body#/conversation_id",
            "message_id": "$response.body#/message_id",
        },
    }
}

logger = Logger()
metrics = Metrics()


class NewMessageBody(BaseModel):
    """A message to store."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [_EXAMPLE]})

    sender: Annotated[str, Field(min_length=1, max_length=MAX_SENDER_LENGTH)]
    body: str = Field(description="The text; with everything else the message may take 400 KiB in DynamoDB.")
    message_id: MessageId | None = None
    attributes: Attributes = {}


class Acknowledgement(Documented):
    """A message that is stored."""

    model_config = ConfigDict(json_schema_extra={"additionalProperties": False, "examples": [_ACKNOWLEDGED]})

    conversation_id: ConversationId
    message_id: CanonicalMessageId
    sent_at: SentAt


def build_app(writer: MessageWriter) -> APIGatewayHttpResolver:
    """Build the event handler around the message writer."""
    app = create_resolver("hotpartition: write", "Stores messages of conversations, however hot.")

    @app.post(
        "/conversations/<conversation_id>/messages",
        summary="Store a message",
        operation_id="write_message",
        responses={
            200: {
                "description": "Was stored before, with the same content",
                "content": json_content(Acknowledgement),
                "links": _LINKS,
            },
            201: {"description": "Stored", "content": json_content(Acknowledgement), "links": _LINKS},
            **problem_responses(INVALID_REQUEST, MESSAGE_CONFLICT, MESSAGE_TOO_LARGE, WRITE_LATER),
        },
    )
    def write_message(conversation_id: ConversationIdPath, message: Annotated[NewMessageBody, Body()]) -> Response[Any]:
        new = NewMessage(conversation_id, message.sender, message.body, message.attributes, message.message_id)
        written = writer.write(new, remaining_ms=remaining_ms(app.lambda_context))
        metrics.add_metric(
            name=MetricName.MESSAGES_REPLAYED if written.is_replay else MetricName.MESSAGES_WRITTEN,
            unit=MetricUnit.Count,
            value=1,
        )
        acknowledgement = {
            "conversation_id": written.message.conversation_id,
            "message_id": written.message.message_id,
            "sent_at": written.message.sent_at,
        }
        return json_response(HTTPStatus.OK if written.is_replay else HTTPStatus.CREATED, acknowledgement)

    return app


@cache
def _app() -> APIGatewayHttpResolver:
    telemetry = PowertoolsTelemetry(logger, metrics)
    writer = build_writer(WriterSettings.from_env(os.environ), telemetry, Message.from_item)
    bits = random.SystemRandom().getrandbits
    return build_app(MessageWriter(writer, now_ms=wall_clock_ms, random_bits=bits))


@metrics.log_metrics(capture_cold_start_metric=True)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Serve one request."""
    # Also refused ones: Powertools warns of an invocation that counts nothing.
    metrics.add_metric(name=MetricName.REQUESTS, unit=MetricUnit.Count, value=1)
    return _app().resolve(normalize_event(event), context)


cold_start.end()
