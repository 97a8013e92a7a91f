"""The read function: `GET /conversations/{conversation_id}/messages` and `…/messages/{message_id}`; counters."""

from __future__ import annotations

import os
from functools import cache
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
    count_fitting,
    counter_response,
    create_resolver,
    message_response,
    page_response,
    remaining_ms,
    route_event,
)
from hotpartition_messages.counters import CounterReader
from hotpartition_messages.read_requests import parse_counter_read, parse_message_read, parse_page_read
from hotpartition_messages.reading import MessageReader
from hotpartition_messages.settings import ReadSettings
from hotpartition_messages.wiring_reader import open_readers

logger = Logger()
metrics = Metrics()
prepare_snapshot(os.environ)


def build_app(reader: MessageReader, counters: CounterReader) -> APIGatewayHttpResolver:
    """Build the event handler around the read job."""
    app = create_resolver()

    @app.get(MESSAGES_PATH)
    def read_page() -> Response[Any]:
        request, if_none_match = parse_page_read(app.current_event.raw_event)
        page = reader.read_page(request, remaining_ms=remaining_ms(app.lambda_context), fits=count_fitting)
        metrics.add_metric(name=MetricName.PAGES_READ, unit=MetricUnit.Count, value=1)
        return page_response(page, if_none_match=if_none_match)

    @app.get(MESSAGE_PATH)
    def read_message() -> Response[Any]:
        request = parse_message_read(app.current_event.raw_event)
        message = reader.read_message(
            request.path.conversation_id,
            request.path.message_id,
            is_strong=request.query.consistency == "strong",
            remaining_ms=remaining_ms(app.lambda_context),
        )
        metrics.add_metric(name=MetricName.MESSAGES_READ, unit=MetricUnit.Count, value=1)
        return message_response(message)

    @app.get(COUNTER_PATH)
    def read_counter() -> Response[Any]:
        request = parse_counter_read(app.current_event.raw_event)
        counter_id, is_strong = request.path.counter_id, request.query.consistency == "strong"
        value = counters.read(counter_id, is_strong=is_strong, remaining_ms=remaining_ms(app.lambda_context))
        metrics.add_metric(name=MetricName.COUNTERS_READ, unit=MetricUnit.Count, value=1)
        return counter_response(counter_id, value=value)

    return app


@cache
def _app() -> APIGatewayHttpResolver:
    telemetry = PowertoolsTelemetry(logger, metrics)
    settings = ReadSettings.from_env(os.environ)
    return build_app(*open_readers(settings, telemetry, open_calls(settings.store, settings.queries)))


@metrics.log_metrics(capture_cold_start_metric=True)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Serve one request."""
    # Also refused ones: Powertools warns of an invocation that counts nothing.
    metrics.add_metric(name=MetricName.REQUESTS, unit=MetricUnit.Count, value=1)
    return _app().resolve(route_event(event), context)
