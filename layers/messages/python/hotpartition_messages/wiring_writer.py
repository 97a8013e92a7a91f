"""Builds what the write function does with messages and counters, on any ends."""

from __future__ import annotations

import random
from collections.abc import Callable

from hotpartition.core.ports import CounterStore, JournalReading, Telemetry
from hotpartition.dynamodb.calls import DynamoDBCalls
from hotpartition.dynamodb.counter_store import DynamoDBCounterStore
from hotpartition.dynamodb.item_store import DynamoDBItemStore
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.engine.counters import Adder
from hotpartition.runtime.building import Ends, build_gatherer, build_writer
from hotpartition.runtime.ends import connect_redis, open_ends
from hotpartition_messages.changing import MessageChanger
from hotpartition_messages.counters import CounterWriter, describe_counter_table
from hotpartition_messages.keys import KEY_FORM, describe_table, position_of
from hotpartition_messages.messages import Message
from hotpartition_messages.settings import WriteSettings
from hotpartition_messages.writing import MessageStore, MessageWriter


def open_writers(
    settings: WriteSettings, telemetry: Telemetry, calls: DynamoDBCalls
) -> tuple[MessageWriter, MessageChanger, CounterWriter]:
    """Build the write function's jobs, on one connection to Redis. Call it on the first request, as `open_ends`."""
    connection = connect_redis(settings.registry, telemetry, "routes")
    # A writer repairs nothing: its user in Redis may not.
    ends = open_ends(settings, telemetry, connection, repairs=False)
    table, counters = describe_table(settings.store.table_name), describe_counter_table(settings.store.table_name)
    store = DynamoDBItemStore(calls, table, Message.from_item)
    journal, random_bits = DynamoDBJournal(calls, table.journal), random.SystemRandom().getrandbits
    messages = build_message_writer(ends, settings, store, journal, random_bits)
    cells = DynamoDBCounterStore(calls, counters)
    counting = build_counter_writer(ends, settings, messages, cells, DynamoDBJournal(calls, counters.journal))
    return messages, build_message_changer(ends, settings, messages), counting


def build_message_writer(
    ends: Ends,
    settings: WriteSettings,
    store: MessageStore,
    journal: JournalReading,
    random_bits: Callable[[int], int],
) -> MessageWriter:
    """Build the job that writes messages."""
    return MessageWriter(
        build_writer(ends, settings, journal=journal, form=KEY_FORM),
        store,
        now_ms=ends.clock.now_ms,
        random_bits=random_bits,
        retention_days=settings.retention_days,
    )


def build_counter_writer(
    ends: Ends,
    settings: WriteSettings,
    messages: MessageWriter,
    cells: CounterStore,
    journal: JournalReading,
    *,
    adder: type[Adder] = Adder,
) -> CounterWriter:
    """Build the job that adds to counters, by the writer of the one that writes messages."""
    budget_ms = settings.requests.request_budget_ms
    adding = adder(messages.writer, cells, journal=journal, form=KEY_FORM, clock=ends.clock, budget_ms=budget_ms)
    return CounterWriter(adding, settings.store.table_name)


def build_message_changer(
    ends: Ends, settings: WriteSettings, messages: MessageWriter, *, kind: type[MessageChanger] = MessageChanger
) -> MessageChanger:
    """Build the job that edits and deletes, by the routes of the one that writes."""
    routes, budget_ms = messages.writer.routes, settings.requests.request_budget_ms
    gatherer = build_gatherer(ends, settings, routes, store=messages.store, form=KEY_FORM, position_of=position_of)
    return kind(messages, gatherer, telemetry=ends.telemetry, clock=ends.clock, budget_ms=budget_ms)
