"""Routes of a table of one's own, from a registry in memory and a journal on moto."""

from __future__ import annotations

from itertools import count
from typing import Any

from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.runtime.settings import Settings
from hotpartition.table.by_load import build_table_routes
from hotpartition.table.routes import TableRoutes, open_calls
from support.builders import World


class AdaptiveShards(World):
    """What `ShardedTable` and `ShardedCounter` take as `shards`: by default no route is cached."""

    finds_read_heat = True

    def __init__(
        self, place: JournalPlace, *, route_cache_seconds: float = 0.0, sampling_distance_wcu: float = 1.0
    ) -> None:
        super().__init__()
        self.place, self.ids = place, count()
        self.route_cache_seconds, self.sampling_distance_wcu = route_cache_seconds, sampling_distance_wcu

    def build_routes(self, table: Any, schema: Any, clock: Any, budget_ms: float) -> TableRoutes:
        """Build one process's routes."""
        settings = Settings.defaults(
            "adaptive()",
            route_cache_seconds=self.route_cache_seconds,
            sampling_distance_wcu=self.sampling_distance_wcu,
            read_sampling_distance_rcu=0.5,
        )
        journal = DynamoDBJournal(open_calls(table), self.place)
        parts = {"clock": clock, "timer": lambda: clock.now_ms() / 1000, "page_store": self.pages, "journal": journal}
        ends = self.ends(f"p{next(self.ids)}", **parts)
        return build_table_routes(ends, settings, place=self.place, schema=schema, choices=3, budget_ms=budget_ms)
