"""Routes of a table of one's own, from a registry in memory and a journal on moto."""

from __future__ import annotations

from typing import Any

from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.runtime.build import Ends
from hotpartition.runtime.settings import Settings
from hotpartition.table.by_load import build_table_routes
from hotpartition.table.routes import TableRoutes, open_calls
from support.fakes import FakeClock, FakeTelemetry, InlineBackground
from support.world import Registry, Reports


class AdaptiveShards:
    """What `ShardedTable` and `ShardedCounter` take as `shards`: by default no route is cached."""

    finds_read_heat = True

    def __init__(
        self, place: JournalPlace, *, route_cache_seconds: float = 0.0, sampling_distance_wcu: float = 1.0
    ) -> None:
        self.place = place
        self.route_cache_seconds, self.sampling_distance_wcu = route_cache_seconds, sampling_distance_wcu
        self.clock, self.telemetry = FakeClock(), FakeTelemetry()
        self.registry, self.reports = Registry(self.clock), Reports(self.clock)

    def build_routes(
        self, table: Any, schema: Any, clock: Any, budget_ms: float, *, process_id: str = "p", page_store: Any = None
    ) -> TableRoutes:
        """Build one process's routes."""
        settings = Settings.defaults(
            "adaptive()",
            route_cache_seconds=self.route_cache_seconds,
            sampling_distance_wcu=self.sampling_distance_wcu,
            read_sampling_distance_rcu=0.5,
        )
        ends = Ends(
            registry=self.registry,
            repairs=self.registry,
            reports=self.reports,
            background=InlineBackground(),
            telemetry=self.telemetry,
            clock=clock,
            timer=lambda: clock.now_ms() / 1000,
            page_store=page_store,
            environment_id=process_id,
            journal=DynamoDBJournal(open_calls(table), self.place),
        )
        return build_table_routes(
            ends,
            settings,
            place=self.place,
            schema=schema,
            choices=3,
            budget_ms=budget_ms,
        )
