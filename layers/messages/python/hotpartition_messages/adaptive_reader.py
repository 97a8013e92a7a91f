"""The read function where Redis has the routes, and the pages of read-hot conversations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotpartition.core.merge import Page
from hotpartition.core.ports import ItemStore, Telemetry
from hotpartition.dynamodb.calls import DynamoDBCalls
from hotpartition.dynamodb.item_store import DynamoDBItemStore
from hotpartition.engine.newest_pages import NewestPages
from hotpartition.engine.read_cache import Codec, ReadCache
from hotpartition.runtime.building import Ends, build_gatherer, build_routes
from hotpartition.runtime.building_pages import build_page_cache, build_read_counting
from hotpartition.runtime.calls import open_calls
from hotpartition.runtime.ends import connect_redis, open_ends
from hotpartition_messages.keys import KEY_FORM, describe_table, position_of
from hotpartition_messages.messages import Message, MessagePageCodec
from hotpartition_messages.reading import CACHED_LIMITS, MessageReader
from hotpartition_messages.settings import MessageSettings


def open_jobs(environ: Mapping[str, str], telemetry: Telemetry) -> MessageReader:
    """Build the read function's job from its variables."""
    settings = MessageSettings.from_env(environ, "read")
    return open_reader(settings, telemetry, open_calls(settings, sends_rounds=True))


def open_reader(settings: MessageSettings, telemetry: Telemetry, calls: DynamoDBCalls) -> MessageReader:
    """Build the read function's job, on one connection to Redis. Call it on the first request, as `open_ends`."""
    connection = connect_redis(settings, telemetry, "routes")
    ends = open_ends(settings, telemetry, connection, repairs=True)
    store = DynamoDBItemStore(calls, describe_table(settings.table_name), Message.from_item)
    return build_message_reader(ends, settings, store)


def build_message_reader(
    ends: Ends,
    settings: MessageSettings,
    store: ItemStore[str, Message],
    *,
    codec: Codec[Page[str, Message]] | None = None,
    page_cache: type[ReadCache[Any]] = ReadCache,
) -> MessageReader:
    """Build the job that reads messages."""
    routes, counting = build_routes(ends, settings), build_read_counting(ends, settings)
    gatherer = build_gatherer(
        ends, settings, routes, store=store, form=KEY_FORM, position_of=position_of, counting=counting
    )
    newest, now_ms = None, ends.clock.now_ms
    if ends.page_store is not None and settings.page_cache:
        cache = build_page_cache(ends, settings, ends.page_store, codec or MessagePageCodec(), kind=page_cache)
        newest = NewestPages(
            gatherer, routes=routes, cache=cache, limits=CACHED_LIMITS, counting=counting, now_ms=now_ms
        )
    return MessageReader(gatherer, now_ms=now_ms, settle_ms=settings.settle_seconds * 1000, newest=newest)
