"""The read function: `GET /conversations/{conversation_id}/messages` and `…/messages/{message_id}`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit

from hotpartition.aws.credentials import prepare_snapshot
from hotpartition.core.metrics import MetricName
from hotpartition.jobs.reader import Reader
from hotpartition.runtime.settings import ReaderSettings
from hotpartition.runtime.telemetry import PowertoolsTelemetry
from hotpartition.runtime.wiring_reader import build_reader
from hotpartition_messages import Message
from hotpartition_messages.api import (
    MESSAGE_PATH,
    MESSAGES_PATH,
    Response,
    Route,
    count_fitting,
    json_response,
    page_text,
    serve,
)
from hotpartition_messages.requests import parse_message_read, parse_page_read

logger = Logger()
metrics = Metrics()
prepare_snapshot(os.environ)


def build_routes(reader: Reader[Message]) -> Mapping[str, Route]:
    """Build the function's routes around the read job."""

    def read_page(event: Mapping[str, Any], remaining_ms: float) -> Response:
        page = reader.read_page(parse_page_read(event), remaining_ms=remaining_ms, fits=count_fitting)
        metrics.add_metric(name=MetricName.PAGES_READ, unit=MetricUnit.Count, value=1)
        text = page_text(page.messages, next_cursor=page.next_cursor, settled_until=page.settled_until)
        return json_response(HTTPStatus.OK, text)

    def read_message(event: Mapping[str, Any], remaining_ms: float) -> Response:
        request = parse_message_read(event)
        message = reader.read_message(
            request.path.conversation_id,
            request.path.message_id,
            is_strong=request.query.consistency == "strong",
            remaining_ms=remaining_ms,
        )
        metrics.add_metric(name=MetricName.MESSAGES_READ, unit=MetricUnit.Count, value=1)
        return json_response(HTTPStatus.OK, message.json)

    return {f"GET {MESSAGES_PATH}": read_page, f"GET {MESSAGE_PATH}": read_message}


@cache
def _routes() -> Mapping[str, Route]:
    telemetry = PowertoolsTelemetry(logger, metrics)
    return build_routes(build_reader(ReaderSettings.from_env(os.environ), telemetry, Message.from_item))


@metrics.log_metrics(capture_cold_start_metric=True)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Serve one request."""
    # Also refused ones: Powertools warns of an invocation that counts nothing.
    metrics.add_metric(name=MetricName.REQUESTS, unit=MetricUnit.Count, value=1)
    return serve(_routes(), event, context)
