"""As many shards as the load asks for: the second way to say how many shards a partition key has.

Needs what raises the routes (stream consumer, Redis, schedule) deployed beside the table. Redis away, a table works on:
reads and changes ask the journal, as they do anyway, and puts that look for nothing (`append_only`) go where
the last known route says.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hotpartition.core.backoff import Clock
from hotpartition.core.route import MAX_CHOICES
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.engine.page_cache import PageCache
from hotpartition.engine.read_counting import ReadCounting
from hotpartition.engine.route_cache import RouteCache, RouteSource
from hotpartition.engine.writer import Writer
from hotpartition.ports import Background, JournalEntry, JournalReading, Registry, ReportSink, Telemetry
from hotpartition.table.cached_queries import CachedQueries, Document, QueryCodec
from hotpartition.table.item_store import key_of_journal, read_entries
from hotpartition.table.routes import LoggedTelemetry, SharedSampler, TableRoutes
from hotpartition.table.schema import Schema, attributes_size_bytes

REPORTS_PAUSE_SECONDS = 0.025
"""Between two sendings of reports: alone, each would take a fifth of a put's CPU. With it they still arrive within the
detector's `REPORT_DELAY_MS`."""


@dataclass(frozen=True)
class Adaptive:
    """As many shards for each partition key as its load asks for."""

    choices: int = MAX_CHOICES
    telemetry: Telemetry | None = None
    environ: Mapping[str, str] | None = None
    settings: Mapping[str, object] = field(default_factory=dict)

    def build_routes(self, table: Any, schema: Schema, clock: Clock, budget_ms: float) -> AdaptiveRoutes:
        """Build the routes of a boto3 `Table`. Nothing is opened yet; REQUIRES: not before a snapshot is taken.

        Raises:
            SettingsError: naming every setting that is missing or out of range.
        """
        # Only who is adaptive has redis-py and pydantic installed.
        from hotpartition.dynamodb.boto3_client import Boto3Call  # noqa: PLC0415
        from hotpartition.redis.pages import RedisPageStore  # noqa: PLC0415
        from hotpartition.redis.registry import RedisRegistry  # noqa: PLC0415
        from hotpartition.redis.reports import RedisReportSink  # noqa: PLC0415
        from hotpartition.runtime.background import BackgroundThread  # noqa: PLC0415
        from hotpartition.runtime.table_settings import AdaptiveSettings  # noqa: PLC0415
        from hotpartition.runtime.wiring import connect_redis  # noqa: PLC0415
        from hotpartition.runtime.wiring_pages import build_page_cache, build_read_counting  # noqa: PLC0415
        from hotpartition.runtime.wiring_table import build_journal_place  # noqa: PLC0415

        environ = os.environ if self.environ is None else self.environ
        settings = AdaptiveSettings.from_env(environ, **{**self.settings, "table_name": table.name})
        telemetry = self.telemetry or LoggedTelemetry()
        place = build_journal_place(settings, schema.partition, schema.sort)
        if schema.sort_type != "S" and not place.is_apart:
            raise NotImplementedError(
                f"the sort key of {table.name} ({schema.sort}) is no string, so no routing item can lie beside its "
                "items. Give the routing items a table of their own: adaptive(journal_table_name=...)"
            )
        connection = connect_redis(settings, telemetry, "table")
        background, process_id = BackgroundThread(), uuid.uuid4().hex
        reports = RedisReportSink(
            connection,
            settings.table_name,
            partitions=settings.stream_partitions,
            background=BackgroundThread(),
            now_ms=clock.now_ms,
            pause=lambda: clock.sleep(REPORTS_PAUSE_SECONDS),
        )
        pages = build_page_cache(
            settings,
            store=RedisPageStore(connection, settings.table_name, telemetry),
            codec=QueryCodec(),
            telemetry=telemetry,
            clock=clock,
            environment_id=process_id,
        )
        counting = build_read_counting(
            settings, reports=reports, telemetry=telemetry, clock=clock, environment_id=process_id
        )
        return AdaptiveRoutes(
            registry=RedisRegistry(connection, settings.table_name, telemetry),
            reports=reports,
            pages=pages if settings.page_cache else None,
            counting=counting,
            journal=TableJournal(Boto3Call(table.meta.client), place),
            place=place,
            background=background,
            telemetry=telemetry,
            clock=clock,
            schema=schema,
            choices=self.choices,
            limits=Limits(
                route_cache_seconds=settings.route_cache_seconds,
                route_cache_entries=settings.route_cache_entries,
                sampling_distance_wcu=settings.sampling_distance_wcu,
                budget_ms=budget_ms,
            ),
            timer=time.monotonic,
            process_id=process_id,
        )


def adaptive(
    *,
    choices: int = MAX_CHOICES,
    telemetry: Telemetry | None = None,
    environ: Mapping[str, str] | None = None,
    **settings: object,
) -> Adaptive:
    """Spread a partition key over as many shards as its load asks for; one that is never hot has none.

    Settings come from the environment (`HOTPARTITION_REGISTRY_HOST` and so on, which the construct sets) or are given
    here by name (`registry_host="..."`), which comes first.

    Args:
        choices: how many of the shards may take one item: where its first one refuses, the next does.
        telemetry: told of metrics and events; by default events are logged.
        environ: read instead of the process's own variables.
        settings: those of `AdaptiveSettings`, by name.

    Raises:
        ValueError: `choices` is out of range.

    Example:
        >>> adaptive(registry_host="redis.example", journal_table_name="readings-journal")
    """
    if not 1 <= choices <= MAX_CHOICES:
        raise ValueError(f"choices={choices}: should be from 1 to {MAX_CHOICES}")
    return Adaptive(choices, telemetry, environ, settings)


class TableJournal:
    """The journal read through a boto3 `Table`'s client, whose values are Python's."""

    def __init__(self, call: Any, place: JournalPlace) -> None:
        """Use a function that sends one request; `place` says where the routing items lie."""
        self._call = call
        self._place = place

    def get(self, collection: str, *, is_strong: bool) -> JournalEntry:
        """Implement `JournalReading.get`."""
        key = key_of_journal(self._place, collection)
        request = {"TableName": self._place.table_name, "Key": key, "ConsistentRead": is_strong}
        item = self._call("GetItem", request).get("Item")
        return read_entries({} if item is None else {collection: item}, [collection])[collection]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much is kept, and how long is waited."""

    route_cache_seconds: float
    route_cache_entries: int
    sampling_distance_wcu: float
    budget_ms: float


class AdaptiveRoutes(TableRoutes):
    """Routes that the journal holds and Redis tells. Safe under threads.

    Writes use a generation only once the journal has shown it to this process; reads take Redis's word and verify it.
    So each has a cache of its own.
    """

    is_counted = True

    def __init__(
        self,
        *,
        registry: Registry,
        reports: ReportSink,
        journal: JournalReading,
        place: JournalPlace,
        background: Background,
        telemetry: Telemetry,
        clock: Clock,
        schema: Schema,
        choices: int,
        limits: Limits,
        timer: Callable[[], float],
        process_id: str,
        pages: PageCache[Document] | None = None,
        counting: ReadCounting | None = None,
    ) -> None:
        """Start knowing nothing.

        Args:
            registry: the routes in Redis.
            reports: where crossings of the writes are told.
            journal: confirms what Redis tells writers.
            place: where the routing items lie.
            background: repairs Redis beside the request.
            telemetry: told of metrics and events.
            clock: time and chance.
            schema: the table's keys.
            choices: how many shards may hold an item under one N.
            limits: how much is kept, and how long is waited.
            timer: a monotonic clock in seconds.
            process_id: unique in the fleet.
            pages: the page cache, for queries that ask for it.
            counting: told of the pages of such queries.
        """
        self.choices = choices
        self.journal = place

        def source(confirmed_by: JournalReading | None) -> RouteSource:
            cache = RouteCache(
                ttl_seconds=limits.route_cache_seconds, max_entries=limits.route_cache_entries, random=clock.random
            )
            return RouteSource(cache=cache, registry=registry, telemetry=telemetry, timer=timer, journal=confirmed_by)

        reading = source(None)
        super().__init__(
            registry=registry, routes=reading, background=background, telemetry=telemetry, now_ms=clock.now_ms
        )
        if pages is not None and counting is not None:
            self.cached = CachedQueries(reading, pages, counting, clock.now_ms)
        self.writer = Writer(
            routes=source(journal),
            sampler=SharedSampler(
                environment_id=process_id,
                sampling_distance_wcu=limits.sampling_distance_wcu,
                random=clock.random,
            ),
            reports=reports,
            telemetry=telemetry,
            clock=clock,
            budget_ms=limits.budget_ms,
            form=schema.form,
            choices=choices,
        )

    def size_of(self, attributes: Mapping[str, Any]) -> int:
        """Implement `TableRoutes.size_of`."""
        return attributes_size_bytes(attributes)
