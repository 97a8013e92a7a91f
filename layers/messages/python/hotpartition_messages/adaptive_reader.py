"""The read function where Redis has the routes, and the pages of read-hot conversations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotpartition.core.merge import Page
from hotpartition.core.ports import ItemStore, Telemetry
from hotpartition.dynamodb.calls import DynamoDBCalls
from hotpartition.dynamodb.counter_store import decode_cell
from hotpartition.dynamodb.item_store import DynamoDBItemStore
from hotpartition.engine.page_cache import PageCache, PageCodec
from hotpartition.runtime.building import Ends
from hotpartition.runtime.building_pages import build_reading
from hotpartition.runtime.calls import open_calls
from hotpartition.runtime.ends import connect_redis, open_ends
from hotpartition_messages.counters import CounterReader, build_counter_reader, describe_counter_table
from hotpartition_messages.keys import KEY_FORM, describe_table, position_of
from hotpartition_messages.messages import Message
from hotpartition_messages.page_codec import MessagePageCodec
from hotpartition_messages.reading import CACHED_LIMITS, MessageReader
from hotpartition_messages.settings import ReadSettings


def open_jobs(environ: Mapping[str, str], telemetry: Telemetry) -> tuple[MessageReader, CounterReader]:
    """Build the read function's jobs from its variables."""
    settings = ReadSettings.from_env(environ)
    return open_readers(settings, telemetry, open_calls(settings.store, settings.queries))


def open_readers(
    settings: ReadSettings, telemetry: Telemetry, calls: DynamoDBCalls
) -> tuple[MessageReader, CounterReader]:
    """Build the read function's jobs, on one connection to Redis. Call it on the first request, as `open_ends`."""
    connection = connect_redis(settings.registry, telemetry, "routes")
    ends = open_ends(settings, telemetry, connection, repairs=True)
    name = settings.store.table_name
    store = DynamoDBItemStore(calls, describe_table(name), Message.from_item)
    messages = build_message_reader(ends, settings, store)
    cells = DynamoDBItemStore(calls, describe_counter_table(name), decode_cell)
    budget_ms = settings.requests.request_budget_ms
    routes = messages.gatherer.routes
    return messages, build_counter_reader(cells, routes, telemetry=telemetry, clock=ends.clock, budget_ms=budget_ms)


def build_message_reader(
    ends: Ends,
    settings: ReadSettings,
    store: ItemStore[str, Message],
    *,
    codec: PageCodec[Page[str, Message]] | None = None,
    page_cache: type[PageCache[Any]] = PageCache,
) -> MessageReader:
    """Build the job that reads messages."""
    gatherer, newest = build_reading(
        ends,
        settings,
        store=store,
        form=KEY_FORM,
        position_of=position_of,
        codec=codec or MessagePageCodec(),
        cached_limits=CACHED_LIMITS,
        page_cache=page_cache,
    )
    settle_ms = settings.settle_seconds * 1000
    return MessageReader(gatherer, now_ms=ends.clock.now_ms, settle_ms=settle_ms, newest=newest)
