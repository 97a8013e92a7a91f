"""How the read function's job is put together from its settings."""

from __future__ import annotations

from hotpartition.dynamodb.item_store import DynamoDBItemStore
from hotpartition.ports import Telemetry
from hotpartition.runtime.settings import ReaderSettings
from hotpartition.runtime.wiring import wall_clock_ms
from hotpartition.runtime.wiring_reader import build_reading, open_reading
from hotpartition_messages.keys import describe_table, position_of
from hotpartition_messages.messages import Message
from hotpartition_messages.page_codec import MessagePageCodec
from hotpartition_messages.reading import CACHED_LIMITS, MessageReader


def build_message_reader(settings: ReaderSettings, telemetry: Telemetry) -> MessageReader:
    """Build the read function's job."""
    table = describe_table(settings.table_name)
    store = DynamoDBItemStore(open_reading(settings), table, Message.from_item)
    gatherer, newest = build_reading(
        settings,
        telemetry,
        store=store,
        form=table.keys,
        position_of=position_of,
        codec=MessagePageCodec(),
        cached_limits=CACHED_LIMITS,
    )
    return MessageReader(gatherer, now_ms=wall_clock_ms, settle_ms=settings.settle_seconds * 1000, newest=newest)
