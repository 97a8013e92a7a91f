"""The write function where Redis has the routes and takes the reports."""

from __future__ import annotations

from collections.abc import Mapping

from hotpartition.core.ports import Telemetry
from hotpartition.dynamodb.item_store import DynamoDBItemStore
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.runtime.building import build_gatherer, build_writer
from hotpartition.runtime.calls import open_calls
from hotpartition.runtime.ends import connect_redis, open_ends
from hotpartition_messages.keys import KEY_FORM, describe_table, position_of
from hotpartition_messages.messages import Message
from hotpartition_messages.settings import MessageSettings
from hotpartition_messages.wiring_writer import WriteJobs, build_jobs


def open_jobs(environ: Mapping[str, str], telemetry: Telemetry) -> WriteJobs:
    """Build the write function's jobs, on one connection to Redis. Call it on the first request, as `open_ends`."""
    settings = MessageSettings.from_env(environ, "write")
    calls = open_calls(settings)
    # A writer repairs nothing: its user in Redis may not.
    ends = open_ends(settings, telemetry, connect_redis(settings, telemetry, "routes"), repairs=False)
    table = describe_table(settings.table_name)
    store, journal = DynamoDBItemStore(calls, table, Message.from_item), DynamoDBJournal(calls, table.journal)
    writer = build_writer(ends, settings, journal=journal, form=KEY_FORM)
    gatherer = build_gatherer(ends, settings, writer.routes, store=store, form=KEY_FORM, position_of=position_of)
    return build_jobs(writer, gatherer, settings, store, telemetry=telemetry, clock=ends.clock)
