"""As many shards as the load asks for, found by a consumer (`adaptive`) or by what DynamoDB refuses (`in_band`).

`adaptive` needs what raises the routes (stream consumer, Redis, schedule) deployed beside the table. Redis away, a
table works on: reads and changes ask the journal, as they do anyway, and puts that look for nothing (`append_only`) go
where the last known route says.

`in_band` needs boto3, and nothing beside the table. Routing items and load items lie in the table itself where its sort
keys are strings, or in a second table. A key that was never throttled costs what it costs without shards
(`engine/in_band.py`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, ClassVar

from hotpartition.core.backoff import Clock
from hotpartition.core.closes import TIMES, CloseTimes
from hotpartition.core.ports import JournalReading, Telemetry
from hotpartition.core.route import MAX_CHOICES
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.engine.in_band import InBandCounting
from hotpartition.engine.journal_routes import JournalReads
from hotpartition.runtime.building import Ends, build_routes, build_writer
from hotpartition.runtime.building_in_band import (
    InBandEnds,
    build_in_band_routes,
    build_in_band_writer,
    open_in_band,
)
from hotpartition.runtime.building_pages import build_page_cache, build_read_counting
from hotpartition.runtime.settings import Settings
from hotpartition.table.cached_queries import CachedQueries, QueryCodec
from hotpartition.table.routes import (
    LoggedTelemetry,
    SharedSampler,
    TableRoutes,
    check_choices,
    find_place,
    open_calls,
)
from hotpartition.table.schema import Schema

REPORTS_PAUSE_SECONDS = 0.025
"""Between two sendings of reports: alone, each would take a fifth of a put's CPU. With it they still arrive within the
detector's `REPORT_DELAY_MS`."""


@dataclass(frozen=True)
class _ByLoad:
    """The options of both ways."""

    choices: int = MAX_CHOICES
    telemetry: Telemetry | None = None
    environ: Mapping[str, str] | None = None
    settings: Mapping[str, object] = field(default_factory=dict)
    closing: bool = False

    def read_settings(self, way: str, table_name: str) -> Settings:
        """Read the settings of a table; `way` is the function that the owner called.

        Raises:
            SettingsError: naming every setting that is missing or out of range.
        """
        environ = os.environ if self.environ is None else self.environ
        return Settings.from_env(environ, way, **{**self.settings, "table_name": table_name})


@dataclass(frozen=True)
class Adaptive(_ByLoad):
    """As many shards for each partition key as its load asks for."""

    finds_read_heat: ClassVar[bool] = True

    def build_routes(self, table: Any, schema: Schema, clock: Clock, budget_ms: float) -> AdaptiveRoutes:
        """Build the routes of a boto3 `Table`. Nothing is opened yet; REQUIRES: not before a snapshot is taken."""
        # Only a table that adapts needs redis-py.
        from hotpartition.runtime.ends import connect_redis, open_ends  # noqa: PLC0415

        settings = self.read_settings("adaptive()", table.name)
        telemetry = self.telemetry or LoggedTelemetry()
        place = find_place(settings, schema, "adaptive")
        ends = open_ends(
            settings,
            telemetry,
            connect_redis(settings, telemetry, "table"),
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


@dataclass(frozen=True)
class InBand(_ByLoad):
    """As many shards for each partition key as what DynamoDB refuses asks for."""

    finds_read_heat: ClassVar[bool] = False

    def build_routes(self, table: Any, schema: Schema, clock: Clock, budget_ms: float) -> InBandRoutes:
        """Build the routes of a boto3 `Table`."""
        settings = self.read_settings("in_band()", table.name)
        place = find_place(settings, schema, "in_band")
        ends = open_in_band(open_calls(table), place, self.telemetry or LoggedTelemetry(), clock)
        return InBandRoutes(
            ends, settings, place=place, schema=schema, choices=self.choices, budget_ms=budget_ms, closing=self.closing
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
        telemetry: gets metrics and events; by default events are logged.
        environ: read instead of the process's own variables.
        settings: those that docs/configuration.md lists for `adaptive()`, by name.

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


def in_band(
    *,
    choices: int = MAX_CHOICES,
    closing: bool = False,
    telemetry: Telemetry | None = None,
    environ: Mapping[str, str] | None = None,
    **settings: object,
) -> InBand:
    """Spread a partition key over as many shards as its load asks for, as soon as DynamoDB refuses its writes.

    Needs boto3 and nothing else. Writers need the right to update routing items and load items (docs/security.md).
    Settings come from the environment or are given here by name, which comes first.

    Args:
        choices: how many of the shards may take one item: where its first one refuses, the next does.
        closing: whether keys that have cooled may be closed, so that their newest pages are cheap again: positions are
            times of the present, in Unix ms (docs/sharded-table.md says when to switch it on).
        telemetry: gets metrics and events; by default events are logged.
        environ: read instead of the process's own variables.
        settings: those that docs/configuration.md lists for `in_band()`, by name: `journal_table_name` for routing
                and load items in a table of their own, `max_shard_count` for the largest N.

    Raises:
        ValueError: `choices` is out of range.

    Example:
        >>> table = ShardedTable(boto3.resource("dynamodb").Table("readings"), shards=in_band())
    """
    check_choices(choices)
    return InBand(choices, telemetry, environ, settings, closing)


class AdaptiveRoutes(TableRoutes):
    """Routes that the journal holds and Redis caches. Safe under threads.

    Writes use a generation only once the journal has shown it to this process; reads use the route from Redis and
    compare it. So each has a cache of its own.
    """

    is_counted = True

    def __init__(
        self,
        ends: Ends,
        settings: Settings,
        *,
        journal: JournalReading,
        place: JournalPlace,
        schema: Schema,
        choices: int,
        budget_ms: float,
        closing: bool = False,
        times: CloseTimes = TIMES,
    ) -> None:
        """Start knowing nothing; `journal` confirms routes from Redis for writers."""
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
        if ends.page_store is not None and settings.page_cache:
            pages = build_page_cache(ends, settings, ends.page_store, QueryCodec())
            self.cached = CachedQueries(reading, pages, build_read_counting(ends, settings), ends.clock.now_ms)
        self.writer = build_writer(
            ends,
            settings,
            journal=journal,
            form=schema.form,
            choices=choices,
            budget_ms=budget_ms,
            sampler=SharedSampler,
            closing=closing,
            times=times,
        )


class InBandRoutes(JournalReads, TableRoutes):
    """Routes as the journal showed them to this process. Safe under threads."""

    is_counted = True

    def __init__(
        self,
        ends: InBandEnds,
        settings: Settings,
        *,
        place: JournalPlace,
        schema: Schema,
        choices: int,
        budget_ms: float,
        counting: type[InBandCounting] = InBandCounting,
        closing: bool = False,
        times: CloseTimes = TIMES,
    ) -> None:
        """Start knowing nothing; `counting` finds hot keys."""
        self.choices = choices
        self.journal = place
        routes = build_in_band_routes(ends)
        super().__init__(routes, ends.telemetry, ends.clock.now_ms)
        self.writer = build_in_band_writer(
            ends,
            routes,
            settings,
            form=schema.form,
            budget_ms=budget_ms,
            choices=choices,
            counting=counting,
            closing=closing,
            times=times,
        )
