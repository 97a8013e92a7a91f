"""The write function: `POST /conversations/{conversation_id}/messages`, `PATCH`, `DELETE …/{message_id}`; counters."""

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
from hotpartition.runtime.calls import open_calls
from hotpartition.runtime.telemetry import PowertoolsTelemetry
from hotpartition_messages.api import (
    COUNTER_PATH,
    MESSAGE_PATH,
    MESSAGES_PATH,
    counter_response,
    create_resolver,
    json_response,
    message_response,
    remaining_ms,
    route_event,
)
from hotpartition_messages.changing import MessageChanger
from hotpartition_messages.counters import CounterWriter
from hotpartition_messages.settings import WriteSettings
from hotpartition_messages.wiring_writer import open_writers
from hotpartition_messages.write_requests import parse_addition, parse_delete, parse_edit, parse_write
from hotpartition_messages.writing import MessageWriter

logger = Logger()
metrics = Metrics()
prepare_snapshot(os.environ)


def build_app(
    writer: MessageWriter, changer: MessageChanger, counters: CounterWriter, *, sender_claim: str = ""
) -> APIGatewayHttpResolver:
    """Build the event handler around the jobs; `sender_claim` is what of a caller is the sender."""
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

    @app.patch(MESSAGE_PATH)
    def edit_message() -> Response[Any]:
        target, edit = parse_edit(app.current_event.raw_event, sender_claim=sender_claim)
        message = changer.edit(target, edit, remaining_ms=remaining_ms(app.lambda_context))
        metrics.add_metric(name=MetricName.MESSAGES_EDITED, unit=MetricUnit.Count, value=1)
        return message_response(message)

    @app.delete(MESSAGE_PATH)
    def delete_message() -> Response[Any]:
        target = parse_delete(app.current_event.raw_event, sender_claim=sender_claim)
        changer.delete(target, remaining_ms=remaining_ms(app.lambda_context))
        metrics.add_metric(name=MetricName.MESSAGES_DELETED, unit=MetricUnit.Count, value=1)
        return Response(status_code=int(HTTPStatus.NO_CONTENT), body="")

    @app.post(COUNTER_PATH)
    def add_to_counter() -> Response[Any]:
        new = parse_addition(app.current_event.raw_event)
        counters.add(new, remaining_ms=remaining_ms(app.lambda_context))
        metrics.add_metric(name=MetricName.COUNTER_ADDITIONS, unit=MetricUnit.Count, value=1)
        return counter_response(new.counter_id, amount=new.amount)

    return app


@cache
def _app() -> APIGatewayHttpResolver:
    telemetry = PowertoolsTelemetry(logger, metrics)
    settings = WriteSettings.from_env(os.environ)
    return build_app(*open_writers(settings, telemetry, open_calls(settings.store)), sender_claim=settings.sender_claim)


@metrics.log_metrics(capture_cold_start_metric=True)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Serve one request."""
    # Also refused ones: Powertools warns of an invocation that counts nothing.
    metrics.add_metric(name=MetricName.REQUESTS, unit=MetricUnit.Count, value=1)
    return _app().resolve(route_event(event), context)
