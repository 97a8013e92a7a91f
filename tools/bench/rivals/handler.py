"""What one would write without us: the same API, validation and metrics around a bare `put_item` and one query."""

from __future__ import annotations

import json
import os
import time
import uuid
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import boto3
import redis  # noqa: F401 - a service with a cache imports its client
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.openapi.params import Body, Path, Query
from aws_lambda_powertools.metrics import MetricUnit
from botocore.config import Config
from pydantic import BaseModel, ConfigDict, Field

logger = Logger()
metrics = Metrics()
app = APIGatewayHttpResolver(enable_validation=True)
client = boto3.client(
    "dynamodb",
    config=Config(
        retries={"total_max_attempts": 1, "mode": "standard"}, connect_timeout=0.5, read_timeout=2.0, tcp_keepalive=True
    ),
)
table_name = os.environ["TABLE_NAME"]

ConversationId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_.:@-]{1,256}$", min_length=1, max_length=256)]
Limit = Annotated[int, Query(ge=1, le=200)]


class NewMessage(BaseModel):
    """A message to store."""

    model_config = ConfigDict(extra="forbid", strict=True)

    sender: Annotated[str, Field(min_length=1, max_length=256)]
    body: str
    message_id: Annotated[str, Field(pattern=r"^[0-9A-Z]{26}$")] | None = None
    attributes: dict[str, Any] = {}


class StoredMessage(BaseModel):
    """A message as it is read."""

    conversation_id: str
    message_id: str
    sender: str
    body: str
    sent_at: str


@app.post("/conversations/<conversation_id>/messages")
def write_message(conversation_id: ConversationId, message: Annotated[NewMessage, Body()]) -> Response[Any]:
    """Store a message."""
    message_id = message.message_id or f"{time.time_ns() // 1_000_000:012X}{uuid.uuid4().hex[:14].upper()}"
    sent_at = datetime.now(UTC).isoformat(timespec="milliseconds")
    client.put_item(
        TableName=table_name,
        Item={
            "pk": {"S": conversation_id},
            "sk": {"S": f"m#{message_id}"},
            "conversation_id": {"S": conversation_id},
            "message_id": {"S": message_id},
            "sender": {"S": message.sender},
            "body": {"S": message.body},
            "sent_at": {"S": sent_at},
        },
    )
    metrics.add_metric(name="MessagesWritten", unit=MetricUnit.Count, value=1)
    response = {"conversation_id": conversation_id, "message_id": message_id, "sent_at": sent_at}
    return Response(status_code=201, content_type="application/json", body=json.dumps(response))


@app.get("/conversations/<conversation_id>/messages")
def read_page(
    conversation_id: ConversationId, limit: Limit = 50, order: Literal["newest", "oldest"] = "newest"
) -> Response[Any]:
    """Read a page."""
    response = client.query(
        TableName=table_name,
        KeyConditionExpression="pk = :pk",
        ExpressionAttributeValues={":pk": {"S": conversation_id}},
        ScanIndexForward=order == "oldest",
        Limit=limit,
    )
    messages = [
        StoredMessage(**{name: item[name]["S"] for name in StoredMessage.model_fields}).model_dump()
        for item in response["Items"]
        if "body" in item
    ]
    metrics.add_metric(name="PagesRead", unit=MetricUnit.Count, value=1)
    return Response(status_code=200, content_type="application/json", body=json.dumps({"messages": messages}))


@metrics.log_metrics(capture_cold_start_metric=True)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Serve one request."""
    return app.resolve(event, context)
