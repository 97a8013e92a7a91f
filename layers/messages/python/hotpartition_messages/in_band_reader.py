"""The read function where writers find hot conversations themselves: the journal alone has the routes."""

from __future__ import annotations

from collections.abc import Mapping

from hotpartition.core.ports import Telemetry
from hotpartition.dynamodb.item_store import DynamoDBItemStore
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.engine.gatherer import Gatherer
from hotpartition.engine.journal_routes import JournalReads, JournalRoutes
from hotpartition.engine.route_cache import MAX_ROUTES
from hotpartition.runtime.calls import open_calls
from hotpartition.runtime.clocks import system_clock
from hotpartition_messages.keys import KEY_FORM, describe_table, position_of
from hotpartition_messages.messages import Message
from hotpartition_messages.reading import MessageReader
from hotpartition_messages.settings import MessageSettings


def open_jobs(environ: Mapping[str, str], telemetry: Telemetry) -> MessageReader:
    """Build the read function's job. Call it on the first request: a snapshot would share its random numbers."""
    settings = MessageSettings.from_env(environ, "in-band read")
    calls, clock = open_calls(settings, sends_rounds=True), system_clock()
    table = describe_table(settings.table_name)
    routes = JournalRoutes(
        journal=DynamoDBJournal(calls, table.journal),
        telemetry=telemetry,
        random=clock.random,
        max_entries=MAX_ROUTES,
    )
    gatherer = Gatherer(
        store=DynamoDBItemStore(calls, table, Message.from_item),
        routes=JournalReads(routes, telemetry, clock.now_ms),
        telemetry=telemetry,
        clock=clock,
        budget_ms=settings.request_budget_ms,
        form=KEY_FORM,
        position_of=position_of,
    )
    return MessageReader(gatherer, now_ms=clock.now_ms, settle_ms=settings.settle_seconds * 1000)
