"""Builds the jobs of the write function on messages and counters, on any writer."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from hotpartition.core.backoff import Clock
from hotpartition.core.ports import CounterStore, JournalReading, Telemetry
from hotpartition.dynamodb.calls import DynamoDBCalls
from hotpartition.dynamodb.counter_store import DynamoDBCounterStore
from hotpartition.engine.counters import Adder
from hotpartition.engine.gatherer import Gatherer
from hotpartition.engine.writer import Writer
from hotpartition_messages.changing import MessageChanger
from hotpartition_messages.counters import CounterWriter, describe_counter_table
from hotpartition_messages.keys import KEY_FORM
from hotpartition_messages.messages import Message
from hotpartition_messages.settings import InBandWriteSettings, WriteSettings
from hotpartition_messages.writing import MessageStore, MessageWriter


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
    store: MessageStore,
    journal: JournalReading,
    *,
    telemetry: Telemetry,
    clock: Clock,
) -> WriteJobs:
    """Build all jobs of the function, given the gatherer by the writer's routes."""
    random_bits = random.SystemRandom().getrandbits
    messages = build_message_writer(writer, settings, store, clock=clock, random_bits=random_bits)
    cells = DynamoDBCounterStore(calls, describe_counter_table(settings.store.table_name))
    return WriteJobs(
        messages,
        build_message_changer(messages, settings, gatherer, telemetry=telemetry, clock=clock),
        build_counter_writer(messages, settings, cells, journal, clock=clock),
        settings.sender_claim,
    )


def build_message_writer(
    writer: Writer,
    settings: WriteSettings | InBandWriteSettings,
    store: MessageStore,
    *,
    clock: Clock,
    random_bits: Callable[[int], int],
) -> MessageWriter:
    """Build the job that writes messages."""
    return MessageWriter(
        writer, store, now_ms=clock.now_ms, random_bits=random_bits, retention_days=settings.retention_days
    )


def build_counter_writer(
    messages: MessageWriter,
    settings: WriteSettings | InBandWriteSettings,
    cells: CounterStore,
    journal: JournalReading,
    *,
    clock: Clock,
    adder: type[Adder] = Adder,
) -> CounterWriter:
    """Build the job that adds to counters, by the writer of the one that writes messages."""
    budget_ms = settings.requests.request_budget_ms
    adding = adder(messages.writer, cells, journal=journal, form=KEY_FORM, clock=clock, budget_ms=budget_ms)
    return CounterWriter(adding, settings.store.table_name)


def build_message_changer(
    messages: MessageWriter,
    settings: WriteSettings | InBandWriteSettings,
    gatherer: Gatherer[str, Message],
    *,
    telemetry: Telemetry,
    clock: Clock,
    kind: type[MessageChanger] = MessageChanger,
) -> MessageChanger:
    """Build the job that edits and deletes, given the gatherer by the routes of the one that writes."""
    return kind(messages, gatherer, telemetry=telemetry, clock=clock, budget_ms=settings.requests.request_budget_ms)
