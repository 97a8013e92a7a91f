"""The write function: `POST /conversations/{conversation_id}/messages`."""

from __future__ import annotations

import json
import os
from functools import cache
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.event_handler.api_gateway import APIGatewayHttpResolver, Response
from aws_lambda_powertools.metrics import MetricUnit

from hotpartition.aws.credentials import prepare_snapshot
from hotpartition.core.metrics import MetricName
from hotpartition.runtime.settings import WriterSettings
from hotpartition.runtime.telemetry import PowertoolsTelemetry
from hotpartition_messages.api import MESSAGES_PATH, create_resolver, json_response, remaining_ms, route_event
from hotpartition_messages.requests import parse_write
from hotpartition_messages.wiring_writer import build_message_writer
from hotpartition_messages.writing import MessageWriter

logger = Logger()
metrics = Metrics()
prepare_snapshot(os.environ)


def build_app(writer: MessageWriter, *, sender_claim: str = "") -> APIGatewayHttpResolver:
    """Build the event handler around the message writer; `sender_claim` is what of a caller is the sender."""
    app = create_resolver()

    @app.post(MESSAGES_PATH)
    def write_message() -> Response[Any]:
        new = parse_write(app.current_event.raw_event, sender_claim=sender_claim)
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
        text = json.dumps(acknowledgement, separators=(",", ":"))
        return json_response(HTTPStatus.OK if written.is_replay else HTTPStatus.CREATED, text)

    return app


@cache
def _app() -> APIGatewayHttpResolver:
    telemetry = PowertoolsTelemetry(logger, metrics)
    settings = WriterSettings.from_env(os.environ)
    return build_app(build_message_writer(settings, telemetry), sender_claim=settings.sender_claim)


@metrics.log_metrics(capture_cold_start_metric=True)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Serve one request."""
    # Also refused ones: Powertools warns of an invocation that counts nothing.
    metrics.add_metric(name=MetricName.REQUESTS, unit=MetricUnit.Count, value=1)
    return _app().resolve(route_event(event), context)
