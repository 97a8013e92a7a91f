"""How the write function's job is put together from its settings."""

from __future__ import annotations

import random

from hotpartition.dynamodb.clients import open_dynamodb
from hotpartition.dynamodb.item_store import DynamoDBItemStore
from hotpartition.ports import Telemetry
from hotpartition.runtime.settings import WriterSettings
from hotpartition.runtime.wiring import wall_clock_ms
from hotpartition.runtime.wiring_writer import build_writer
from hotpartition_messages.keys import describe_table
from hotpartition_messages.messages import Message
from hotpartition_messages.writing import MessageWriter


def build_message_writer(settings: WriterSettings, telemetry: Telemetry) -> MessageWriter:
    """Build the write function's job. Call it on the first request: it makes the environment's id."""
    table = describe_table(settings.table_name)
    calls = open_dynamodb(settings.dynamodb_client, endpoint=settings.dynamodb_endpoint)
    return MessageWriter(
        build_writer(settings, telemetry, calls=calls, place=table.journal, form=table.keys),
        DynamoDBItemStore(calls, table, Message.from_item),
        now_ms=wall_clock_ms,
        random_bits=random.SystemRandom().getrandbits,
    )
