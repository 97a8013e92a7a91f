"""How the read function's jobs are put together from its settings."""

from __future__ import annotations

from hotpartition.dynamodb.calls import DynamoDBCalls
from hotpartition.dynamodb.counter_store import decode_cell
from hotpartition.dynamodb.item_store import DynamoDBItemStore
from hotpartition.engine.counters import Summer
from hotpartition.engine.gatherer import Gatherer
from hotpartition.ports import Telemetry
from hotpartition.runtime.settings import ReaderSettings
from hotpartition.runtime.wiring import system_clock, wall_clock_ms
from hotpartition.runtime.wiring_reader import build_reading
from hotpartition_messages.counters import CounterReader, describe_counter_table
from hotpartition_messages.keys import KEY_FORM, describe_table, position_of
from hotpartition_messages.messages import Message
from hotpartition_messages.page_codec import MessagePageCodec
from hotpartition_messages.reading import CACHED_LIMITS, MessageReader


def build_message_reader(settings: ReaderSettings, telemetry: Telemetry, calls: DynamoDBCalls) -> MessageReader:
    """Build the job that reads messages."""
    table = describe_table(settings.table_name)
    store = DynamoDBItemStore(calls, table, Message.from_item)
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


def build_counter_reader(
    settings: ReaderSettings, telemetry: Telemetry, messages: MessageReader, calls: DynamoDBCalls
) -> CounterReader:
    """Build the job that reads counters, on the connections and the routes of the one that reads messages."""
    gatherer = Gatherer(
        store=DynamoDBItemStore(calls, describe_counter_table(settings.table_name), decode_cell),
        routes=messages.gatherer.routes,
        telemetry=telemetry,
        clock=system_clock(),
        budget_ms=settings.request_budget_ms,
        form=KEY_FORM,
    )
    return CounterReader(Summer(gatherer, is_alone=True, form=KEY_FORM))
