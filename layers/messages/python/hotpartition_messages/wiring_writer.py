"""How the write function's jobs are put together from its settings."""

from __future__ import annotations

import random

from hotpartition.dynamodb.calls import DynamoDBCalls
from hotpartition.dynamodb.clients import open_dynamodb
from hotpartition.dynamodb.counter_store import DynamoDBCounterStore
from hotpartition.dynamodb.item_store import DynamoDBItemStore
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.engine.counters import Adder
from hotpartition.engine.gatherer import Gatherer
from hotpartition.engine.read_repair import ReadRepair
from hotpartition.ports import Telemetry
from hotpartition.runtime.settings import WriterSettings
from hotpartition.runtime.wiring import system_clock, wall_clock_ms
from hotpartition.runtime.wiring_writer import build_writer
from hotpartition_messages.changing import MessageChanger
from hotpartition_messages.counters import CounterWriter, describe_counter_table
from hotpartition_messages.keys import KEY_FORM, describe_table, position_of
from hotpartition_messages.messages import Message
from hotpartition_messages.writing import MessageWriter


def open_writing(settings: WriterSettings) -> DynamoDBCalls:
    """Open what the write function asks DynamoDB with."""
    return open_dynamodb(settings.dynamodb_client, endpoint=settings.dynamodb_endpoint)


def build_message_writer(settings: WriterSettings, telemetry: Telemetry, calls: DynamoDBCalls) -> MessageWriter:
    """Build the write function's job. Call it on the first request: it makes the environment's id."""
    table = describe_table(settings.table_name)
    return MessageWriter(
        build_writer(settings, telemetry, calls=calls, place=table.journal, form=table.keys),
        DynamoDBItemStore(calls, table, Message.from_item),
        now_ms=wall_clock_ms,
        random_bits=random.SystemRandom().getrandbits,
        retention_days=settings.retention_days,
    )


def build_counter_writer(settings: WriterSettings, messages: MessageWriter, calls: DynamoDBCalls) -> CounterWriter:
    """Build the job that adds to counters, on the connections and the routes of the one that writes messages."""
    table = describe_counter_table(settings.table_name)
    adder = Adder(
        messages.writer,
        DynamoDBCounterStore(calls, table),
        journal=DynamoDBJournal(calls, table.journal),
        form=KEY_FORM,
        clock=system_clock(),
        budget_ms=settings.request_budget_ms,
    )
    return CounterWriter(adder, settings.table_name)


def build_message_changer(settings: WriterSettings, telemetry: Telemetry, messages: MessageWriter) -> MessageChanger:
    """Build the job that edits and deletes, on the connections and the routes of the one that writes."""
    clock = system_clock()
    routes = ReadRepair(
        registry=None,  # a writer repairs nothing: its user in Redis may not
        routes=messages.writer.routes,
        background=None,
        telemetry=telemetry,
        now_ms=clock.now_ms,
    )
    gatherer = Gatherer(
        store=messages.store,
        routes=routes,
        telemetry=telemetry,
        clock=clock,
        budget_ms=settings.request_budget_ms,
        form=KEY_FORM,
        position_of=position_of,
    )
    return MessageChanger(messages, gatherer, telemetry=telemetry, clock=clock, budget_ms=settings.request_budget_ms)
