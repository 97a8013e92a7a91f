"""Builds the jobs of the write function on messages and counters, on any writer."""

from __future__ import annotations

import random
from typing import NamedTuple

from hotpartition.core.backoff import Clock
from hotpartition.core.ports import JournalReading, Telemetry
from hotpartition.dynamodb.calls import DynamoDBCalls
from hotpartition.dynamodb.counter_store import DynamoDBCounterStore
from hotpartition.dynamodb.item_store import DynamoDBItemStore
from hotpartition.engine.counters import Adder
from hotpartition.engine.gatherer import Gatherer
from hotpartition.engine.writer import Writer
from hotpartition_messages.changing import MessageChanger
from hotpartition_messages.counters import CounterWriter, describe_counter_table
from hotpartition_messages.keys import KEY_FORM
from hotpartition_messages.messages import Message
from hotpartition_messages.settings import InBandWriteSettings, WriteSettings
from hotpartition_messages.writing import MessageWriter


class WriteJobs(NamedTuple):
    """The write function's jobs, and which of a caller's claims is the sender."""

    messages: MessageWriter
    changer: MessageChanger
    counters: CounterWriter
    sender_claim: str


def build_jobs(
    writer: Writer,
    gatherer: Gatherer[str, Message],
    settings: WriteSettings | InBandWriteSettings,
    calls: DynamoDBCalls,
    store: DynamoDBItemStore[Message],
    journal: JournalReading,
    *,
    telemetry: Telemetry,
    clock: Clock,
) -> WriteJobs:
    """Build all jobs of the function, given the gatherer by the writer's routes."""
    messages = MessageWriter(
        writer,
        store,
        now_ms=clock.now_ms,
        random_bits=random.SystemRandom().getrandbits,
        retention_days=settings.retention_days,
    )
    budget_ms, name = settings.requests.request_budget_ms, settings.store.table_name
    cells = DynamoDBCounterStore(calls, describe_counter_table(name))
    adder = Adder(writer, cells, journal=journal, form=KEY_FORM, clock=clock, budget_ms=budget_ms)
    return WriteJobs(
        messages,
        MessageChanger(messages, gatherer, telemetry=telemetry, clock=clock, budget_ms=budget_ms),
        CounterWriter(adder, name),
        settings.sender_claim,
    )
