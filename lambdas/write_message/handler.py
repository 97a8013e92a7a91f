"""The write function: `POST /conversations/{conversation_id}/messages`; `PATCH` and `DELETE …/{message_id}`."""

from __future__ import annotations

import os
from http import HTTPStatus
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
    build_response,
    message_response,
    received_ms,
    remaining_ms,
    written_response,
)
from hotpartition_messages.jobs import open_writer
from hotpartition_messages.write_requests import parse_delete, parse_edit, parse_write
from hotpartition_messages.writing import MessageWriter

import_modules("write", os.environ)


def build_routes(writer: MessageWriter, telemetry: Telemetry, *, sender_claim: str = "") -> dict[str, Serve]:
    """Build the function's routes around the job that writes; `sender_claim` names the sender's claim."""

    def write_message(event: Event, context: Any) -> Response:
        new = parse_write(event, sender_claim=sender_claim)
        written = writer.write(new, remaining_ms=remaining_ms(context), received_ms=received_ms(event))
        telemetry.count(MetricName.MESSAGES_REPLAYED if written.is_replay else MetricName.MESSAGES_WRITTEN)
        return written_response(written)

    def edit_message(event: Event, context: Any) -> Response:
        target, edit = parse_edit(event, sender_claim=sender_claim)
        message = writer.edit(target, edit, remaining_ms=remaining_ms(context))
        telemetry.count(MetricName.MESSAGES_EDITED)
        return message_response(message)

    def delete_message(event: Event, context: Any) -> Response:
        target = parse_delete(event, sender_claim=sender_claim)
        writer.delete(target, remaining_ms=remaining_ms(context))
        telemetry.count(MetricName.MESSAGES_DELETED)
        return build_response(HTTPStatus.NO_CONTENT)

    return {
        f"POST {MESSAGES_PATH}": write_message,
        f"PATCH {MESSAGE_PATH}": edit_message,
        f"DELETE {MESSAGE_PATH}": delete_message,
    }


def _open_routes(telemetry: Telemetry) -> dict[str, Serve]:
    writer, sender_claim = open_writer(os.environ, telemetry)
    return build_routes(writer, telemetry, sender_claim=sender_claim)


handler = build_handler(_open_routes)
