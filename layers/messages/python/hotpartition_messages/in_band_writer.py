"""The write function where writers find hot conversations themselves: nothing but the table."""

from __future__ import annotations

from collections.abc import Mapping

from hotpartition.core.ports import Telemetry
from hotpartition.dynamodb.item_store import DynamoDBItemStore
from hotpartition.engine.gatherer import Gatherer
from hotpartition.engine.journal_routes import JournalReads
from hotpartition.runtime.building_in_band import (
    build_in_band_routes,
    build_in_band_writer,
    open_in_band,
)
from hotpartition.runtime.calls import open_calls
from hotpartition.runtime.clocks import system_clock
from hotpartition_messages.keys import KEY_FORM, describe_table, position_of
from hotpartition_messages.messages import Message
from hotpartition_messages.settings import MessageSettings
from hotpartition_messages.wiring_writer import WriteJobs, build_jobs


def open_jobs(environ: Mapping[str, str], telemetry: Telemetry) -> WriteJobs:
    """Build the write function's jobs. Call it on the first request: a snapshot would share its random numbers."""
    settings = MessageSettings.from_env(environ, "in-band write")
    calls, clock = open_calls(settings), system_clock()
    table = describe_table(settings.table_name)
    ends = open_in_band(calls, table.journal, telemetry, clock)
    routes = build_in_band_routes(ends)
    writer = build_in_band_writer(ends, routes, settings, form=KEY_FORM)
    store = DynamoDBItemStore(calls, table, Message.from_item)
    gatherer = Gatherer(
        store=store,
        routes=JournalReads(routes, telemetry, clock.now_ms),
        telemetry=telemetry,
        clock=clock,
        budget_ms=settings.request_budget_ms,
        form=KEY_FORM,
        position_of=position_of,
    )
    return build_jobs(writer, gatherer, settings, store, telemetry=telemetry, clock=clock)
