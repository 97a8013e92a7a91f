"""The read function where writers find hot conversations themselves: the journal alone has the routes."""

from __future__ import annotations

from collections.abc import Mapping

from hotpartition.core.ports import Telemetry
from hotpartition.dynamodb.counter_store import decode_cell
from hotpartition.dynamodb.item_store import DynamoDBItemStore
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.engine.gatherer import Gatherer
from hotpartition.engine.journal_routes import JournalReads, JournalRoutes
from hotpartition.runtime.calls import open_calls
from hotpartition.runtime.clocks import system_clock
from hotpartition_messages.counters import CounterReader, build_counter_reader, describe_counter_table
from hotpartition_messages.keys import KEY_FORM, describe_table, position_of
from hotpartition_messages.messages import Message
from hotpartition_messages.reading import MessageReader
from hotpartition_messages.settings import InBandReadSettings


def open_jobs(environ: Mapping[str, str], telemetry: Telemetry) -> tuple[MessageReader, CounterReader]:
    """Build the read function's jobs. Call it on the first request: a snapshot would share its random numbers."""
    settings = InBandReadSettings.from_env(environ)
    budget_ms, name = settings.requests.request_budget_ms, settings.store.table_name
    calls, clock = open_calls(settings.store, settings.queries), system_clock()
    table = describe_table(name)
    routes = JournalRoutes(
        journal=DynamoDBJournal(calls, table.journal),
        telemetry=telemetry,
        random=clock.random,
        max_entries=settings.requests.route_cache_entries,
    )
    reads = JournalReads(routes, telemetry, clock.now_ms)
    gatherer = Gatherer(
        store=DynamoDBItemStore(calls, table, Message.from_item),
        routes=reads,
        telemetry=telemetry,
        clock=clock,
        budget_ms=budget_ms,
        form=KEY_FORM,
        position_of=position_of,
    )
    messages = MessageReader(gatherer, now_ms=clock.now_ms, settle_ms=settings.settle_seconds * 1000)
    cells = DynamoDBItemStore(calls, describe_counter_table(name), decode_cell)
    return messages, build_counter_reader(cells, reads, telemetry=telemetry, clock=clock, budget_ms=budget_ms)
