"""The write function: `POST /conversations/{conversation_id}/messages`, `PATCH`, `DELETE …/{message_id}`."""

from __future__ import annotations

import json
import os
from functools import cache
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools import Logger, Metrics

from hotpartition.aws.credentials import prepare_snapshot
from hotpartition.core.metrics import MetricName
from hotpartition.runtime.settings import is_in_band
from hotpartition.runtime.telemetry import PowertoolsTelemetry
from hotpartition_messages.api import (
    MESSAGE_PATH,
    MESSAGES_PATH,
    Event,
    Response,
    Serve,
    build_response,
    message_response,
    remaining_ms,
    respond,
)
from hotpartition_messages.changing import MessageChanger
from hotpartition_messages.write_requests import parse_delete, parse_edit, parse_write
from hotpartition_messages.writing import MessageWriter

if is_in_band(os.environ):
    from hotpartition_messages.in_band_writer import open_jobs
else:
    from hotpartition_messages.adaptive_writer import open_jobs

logger = Logger()
metrics = Metrics()
telemetry = PowertoolsTelemetry(logger, metrics)
prepare_snapshot(os.environ)


def build_routes(writer: MessageWriter, changer: MessageChanger, *, sender_claim: str = "") -> dict[str, Serve]:
    """Build the function's routes around the jobs that write; `sender_claim` names the sender's claim."""

    def write_message(event: Event, context: Any) -> Response:
        new = parse_write(event, sender_claim=sender_claim)
        written = writer.write(new, remaining_ms=remaining_ms(context))
        telemetry.count(MetricName.MESSAGES_REPLAYED if written.is_replay else MetricName.MESSAGES_WRITTEN)
        acknowledgement = {
            "conversation_id": written.message.conversation_id,
            "message_id": written.message.message_id,
            "sent_at": written.message.sent_at,
        }
        text = json.dumps(acknowledgement, separators=(",", ":"))
        return build_response(HTTPStatus.OK if written.is_replay else HTTPStatus.CREATED, text)

    def edit_message(event: Event, context: Any) -> Response:
        target, edit = parse_edit(event, sender_claim=sender_claim)
        message = changer.edit(target, edit, remaining_ms=remaining_ms(context))
        telemetry.count(MetricName.MESSAGES_EDITED)
        return message_response(message)

    def delete_message(event: Event, context: Any) -> Response:
        target = parse_delete(event, sender_claim=sender_claim)
        changer.delete(target, remaining_ms=remaining_ms(context))
        telemetry.count(MetricName.MESSAGES_DELETED)
        return build_response(HTTPStatus.NO_CONTENT)

    return {
        f"POST {MESSAGES_PATH}": write_message,
        f"PATCH {MESSAGE_PATH}": edit_message,
        f"DELETE {MESSAGE_PATH}": delete_message,
    }


@cache
def _routes() -> dict[str, Serve]:
    jobs = open_jobs(os.environ, telemetry)
    return build_routes(jobs.messages, jobs.changer, sender_claim=jobs.sender_claim)


@metrics.log_metrics(capture_cold_start_metric=True)
def handler(event: Event, context: Any) -> Response:
    """Serve one request."""
    # Also refused ones: Powertools warns of an invocation that counts nothing.
    telemetry.count(MetricName.REQUESTS)
    return respond(_routes(), event, context)
