"""The write function where Redis has the routes and takes the reports."""

from __future__ import annotations

import random
from collections.abc import Mapping

from hotpartition.core.ports import Telemetry
from hotpartition.dynamodb.calls import DynamoDBCalls
from hotpartition.dynamodb.counter_store import DynamoDBCounterStore
from hotpartition.dynamodb.item_store import DynamoDBItemStore
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.runtime.building import build_gatherer, build_writer
from hotpartition.runtime.calls import open_calls
from hotpartition.runtime.ends import connect_redis, open_ends
from hotpartition_messages.counters import describe_counter_table
from hotpartition_messages.keys import KEY_FORM, describe_table, position_of
from hotpartition_messages.messages import Message
from hotpartition_messages.settings import WriteSettings
from hotpartition_messages.wiring_writer import (
    WriteJobs,
    build_counter_writer,
    build_message_changer,
    build_message_writer,
)


def open_jobs(environ: Mapping[str, str], telemetry: Telemetry) -> WriteJobs:
    """Build the write function's jobs from its variables."""
    settings = WriteSettings.from_env(environ)
    return open_writers(settings, telemetry, open_calls(settings.store))


def open_writers(settings: WriteSettings, telemetry: Telemetry, calls: DynamoDBCalls) -> WriteJobs:
    """Build the write function's jobs, on one connection to Redis. Call it on the first request, as `open_ends`."""
    name = settings.store.table_name
    # A writer repairs nothing: its user in Redis may not.
    ends = open_ends(settings, telemetry, connect_redis(settings.registry, telemetry, "routes"), repairs=False)
    table, counters = describe_table(name), describe_counter_table(name)
    store = DynamoDBItemStore(calls, table, Message.from_item)
    journal = DynamoDBJournal(calls, table.journal)
    writer = build_writer(ends, settings, journal=journal, form=KEY_FORM)
    gatherer = build_gatherer(ends, settings, writer.routes, store=store, form=KEY_FORM, position_of=position_of)
    random_bits = random.SystemRandom().getrandbits
    messages = build_message_writer(writer, settings, store, clock=ends.clock, random_bits=random_bits)
    return WriteJobs(
        messages,
        build_message_changer(messages, settings, gatherer, telemetry=telemetry, clock=ends.clock),
        build_counter_writer(messages, settings, DynamoDBCounterStore(calls, counters), journal, clock=ends.clock),
        settings.sender_claim,
    )
