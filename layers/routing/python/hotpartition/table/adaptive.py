"""As many shards as the load asks for: the second way to say how many shards a partition key has.

Needs what raises the routes (stream consumer, Redis, schedule) deployed beside the table. Redis away, a table works on:
reads and changes ask the journal, as they do anyway, and puts that look for nothing (`append_only`) go where
the last known route says.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, ClassVar

from hotpartition.core.backoff import Clock
from hotpartition.core.ports import JournalReading, Telemetry
from hotpartition.core.route import MAX_CHOICES
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.runtime.building import Ends, build_routes, build_writer
from hotpartition.runtime.building_pages import build_page_cache, build_read_counting
from hotpartition.runtime.settings import AdaptiveSettings
from hotpartition.table.cached_queries import CachedQueries, QueryCodec
from hotpartition.table.routes import LoggedTelemetry, SharedSampler, TableRoutes, check_choices, find_place, open_calls
from hotpartition.table.schema import Schema, attributes_size_bytes
from hotpartition.table.unrouted import UnroutedItems

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
    closing: bool = False

    finds_read_heat: ClassVar[bool] = True

    def build_routes(self, table: Any, schema: Schema, clock: Clock, budget_ms: float) -> AdaptiveRoutes:
        """Build the routes of a boto3 `Table`. Nothing is opened yet; REQUIRES: not before a snapshot is taken.

        Raises:
            SettingsError: naming every setting that is missing or out of range.
        """
        # Only a table that adapts needs redis-py.
        from hotpartition.runtime.ends import connect_redis, open_ends  # noqa: PLC0415

        environ = os.environ if self.environ is None else self.environ
        settings = AdaptiveSettings.from_env(environ, **{**self.settings, "table_name": table.name})
        telemetry = self.telemetry or LoggedTelemetry()
        place = find_place(settings, schema, "adaptive")
        connection = connect_redis(settings.registry, telemetry, "table")
        ends = open_ends(
            settings,
            telemetry,
            connection,
            repairs=True,
            clock=clock,
            pause=lambda: clock.sleep(REPORTS_PAUSE_SECONDS),
        )
        return AdaptiveRoutes(
            ends,
            settings,
            journal=DynamoDBJournal(open_calls(table), place),
            place=place,
            schema=schema,
            choices=self.choices,
            budget_ms=budget_ms,
            closing=self.closing,
        )


def adaptive(
    *,
    choices: int = MAX_CHOICES,
    closing: bool = False,
    telemetry: Telemetry | None = None,
    environ: Mapping[str, str] | None = None,
    **settings: object,
) -> Adaptive:
    """Spread a partition key over as many shards as its load asks for; one that is never hot has none.

    Settings come from the environment (`HOTPARTITION_REGISTRY_HOST` and so on, which the construct sets) or are given
    here by name (`registry_host="..."`), which comes first.

    Args:
        choices: how many of the shards may take one item: where its first one refuses, the next does.
        closing: whether keys that have cooled may be closed, so that their newest pages are cheap again: positions are
            times of the present, in Unix ms (docs/sharded-table.md says when to switch it on).
        telemetry: told of metrics and events; by default events are logged.
        environ: read instead of the process's own variables.
        settings: those of `AdaptiveSettings`, by name.

    Raises:
        ValueError: `choices` is out of range.
        ImportError: redis-py is not installed.

    Example:
        >>> adaptive(registry_host="redis.example", journal_table_name="readings-journal")
    """
    check_choices(choices)
    if find_spec("redis") is None:
        raise ImportError("adaptive() needs redis-py: pip install 'hotpartition[adaptive]'")
    return Adaptive(choices, telemetry, environ, settings, closing)


class AdaptiveRoutes(TableRoutes):
    """Routes that the journal holds and Redis tells. Safe under threads.

    Writes use a generation only once the journal has shown it to this process; reads take Redis's word and compare it.
    So each has a cache of its own.
    """

    is_counted = True

    def __init__(
        self,
        ends: Ends,
        settings: AdaptiveSettings,
        *,
        journal: JournalReading,
        place: JournalPlace,
        schema: Schema,
        choices: int,
        budget_ms: float,
        closing: bool = False,
    ) -> None:
        """Start knowing nothing.

        Args:
            ends: what the engine stands on.
            settings: how much is kept and counted.
            journal: confirms what Redis tells writers.
            place: where the routing items lie.
            schema: the table's keys.
            choices: how many shards may hold an item under one N.
            budget_ms: how long a write is tried for.
            closing: whether positions are times of the present, so that keys that have cooled may be closed.
        """
        self.choices = choices
        self.journal = place
        reading = build_routes(ends, settings)
        super().__init__(
            registry=ends.repairs,
            routes=reading,
            background=ends.background,
            telemetry=ends.telemetry,
            now_ms=ends.clock.now_ms,
        )
        self.unrouted = UnroutedItems(journal, schema.form, ends.telemetry, ends.clock.now_ms)
        if ends.page_store is not None and settings.pages.page_cache:
            pages = build_page_cache(ends, settings.pages, ends.page_store, QueryCodec())
            self.cached = CachedQueries(reading, pages, build_read_counting(ends, settings.pages), ends.clock.now_ms)
        self.writer = build_writer(
            ends,
            settings,
            journal=journal,
            form=schema.form,
            choices=choices,
            budget_ms=budget_ms,
            sampler=SharedSampler,
            closing=closing,
        )

    def size_of(self, attributes: Mapping[str, Any]) -> int:
        """Implement `TableRoutes.size_of`."""
        return attributes_size_bytes(attributes)
