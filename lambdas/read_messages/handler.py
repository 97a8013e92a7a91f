"""The read function: `GET /conversations/{conversation_id}/messages` and `…/messages/{message_id}`."""

from __future__ import annotations

import os
from typing import Any

from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import Telemetry
from hotpartition.runtime.connect import import_modules
from hotpartition_messages.api import (
    MESSAGE_PATH,
    MESSAGES_PATH,
    Event,
    Response,
    Serve,
    build_handler,
    count_fitting,
    message_response,
    page_response,
    remaining_ms,
)
from hotpartition_messages.jobs import open_reader
from hotpartition_messages.read_requests import parse_message_read, parse_page_read
from hotpartition_messages.reading import MessageReader

import_modules("read", os.environ)


def build_routes(reader: MessageReader, telemetry: Telemetry) -> dict[str, Serve]:
    """Build the function's routes around the job that reads."""

    def read_page(event: Event, context: Any) -> Response:
        request, if_none_match = parse_page_read(event)
        page = reader.read_page(request, remaining_ms=remaining_ms(context), fits=count_fitting)
        telemetry.count(MetricName.PAGES_READ)
        return page_response(request, page, if_none_match=if_none_match)

    def read_message(event: Event, context: Any) -> Response:
        request = parse_message_read(event)
        message = reader.read_message(
            request.path.conversation_id,
            request.path.message_id,
            is_strong=request.query.consistency == "strong",
            remaining_ms=remaining_ms(context),
        )
        telemetry.count(MetricName.MESSAGES_READ)
        return message_response(message)

    return {f"GET {MESSAGES_PATH}": read_page, f"GET {MESSAGE_PATH}": read_message}


handler = build_handler(lambda telemetry: build_routes(open_reader(os.environ, telemetry), telemetry))
