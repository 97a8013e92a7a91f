"""As many shards as the load asks for, found by what DynamoDB refuses: boto3, and nothing beside the table.

Routing items and load items lie in the table itself where its sort keys are strings, or in a second table. A key that
was never throttled costs what it costs without shards (`engine/in_band.py`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from hotpartition.core.backoff import Clock
from hotpartition.core.ports import Telemetry
from hotpartition.core.route import MAX_CHOICES
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.engine.in_band import InBandCounting
from hotpartition.engine.journal_reads import JournalReads
from hotpartition.runtime.building_in_band import (
    InBandEnds,
    build_in_band_cooling,
    build_in_band_routes,
    build_in_band_writer,
    open_in_band,
)
from hotpartition.runtime.settings import InBandSettings
from hotpartition.table.routes import LoggedTelemetry, TableRoutes, check_choices, find_place, open_calls
from hotpartition.table.schema import Schema, attributes_size_bytes
from hotpartition.table.unrouted import UnroutedItems


@dataclass(frozen=True)
class InBand:
    """As many shards for each partition key as what DynamoDB refuses asks for."""

    choices: int = MAX_CHOICES
    telemetry: Telemetry | None = None
    environ: Mapping[str, str] | None = None
    settings: Mapping[str, object] = field(default_factory=dict)
    closing: bool = False

    finds_read_heat: ClassVar[bool] = False

    def build_routes(self, table: Any, schema: Schema, clock: Clock, budget_ms: float) -> InBandRoutes:
        """Build the routes of a boto3 `Table`.

        Raises:
            SettingsError: naming every setting that is missing or out of range.
        """
        environ = os.environ if self.environ is None else self.environ
        settings = InBandSettings.from_env(environ, **{**self.settings, "table_name": table.name})
        place = find_place(settings, schema, "in_band")
        telemetry = self.telemetry or LoggedTelemetry()
        ends = open_in_band(open_calls(table), place, telemetry, clock)
        return InBandRoutes(
            ends, settings, place=place, schema=schema, choices=self.choices, budget_ms=budget_ms, closing=self.closing
        )


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
        telemetry: told of metrics and events; by default events are logged.
        environ: read instead of the process's own variables.
        settings: those of `InBandSettings`, by name: `journal_table_name` for routing and load items in a table of
            their own, `max_shard_count` for the largest N.

    Raises:
        ValueError: `choices` is out of range.

    Example:
        >>> table = ShardedTable(boto3.resource("dynamodb").Table("readings"), shards=in_band())
    """
    check_choices(choices)
    return InBand(choices, telemetry, environ, settings, closing)


class InBandRoutes(JournalReads, TableRoutes):
    """Routes as the journal showed them to this process. Safe under threads."""

    is_counted = True

    def __init__(
        self,
        ends: InBandEnds,
        settings: InBandSettings,
        *,
        place: JournalPlace,
        schema: Schema,
        choices: int,
        budget_ms: float,
        counting: type[InBandCounting] = InBandCounting,
        closing: bool = False,
    ) -> None:
        """Start knowing nothing.

        Args:
            ends: what the engine stands on.
            settings: how much is kept, and what is hot.
            place: where the routing items lie.
            schema: the table's keys.
            choices: how many shards may hold an item under one N.
            budget_ms: how long a write is tried for.
            counting: finds what is hot.
            closing: whether positions are times of the present, so that keys that have cooled may be closed.
        """
        self.choices = choices
        self.journal = place
        routes = build_in_band_routes(ends, max_entries=settings.requests.route_cache_entries)
        super().__init__(routes, ends.telemetry, ends.clock.now_ms)
        self.unrouted = UnroutedItems(ends.journal, schema.form, ends.telemetry, ends.clock.now_ms)
        cooling = None
        if closing:
            cooling = build_in_band_cooling(ends, load=settings.load, leases=settings.leases, closing=settings.closing)
        self.writer = build_in_band_writer(
            ends,
            routes,
            load=settings.load,
            size=settings.size,
            form=schema.form,
            budget_ms=budget_ms,
            leases=settings.leases if closing else None,
            max_entries=settings.requests.route_cache_entries,
            choices=choices,
            counting=counting,
            is_raising=settings.raising.is_raising,
            cooling=cooling,
        )

    def size_of(self, attributes: Mapping[str, Any]) -> int:
        """Implement `TableRoutes.size_of`."""
        return attributes_size_bytes(attributes)
