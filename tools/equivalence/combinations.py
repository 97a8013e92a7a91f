"""The axes of a `ShardedTable`, and every combination of them that is compared with boto3's `Table`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace
from typing import Any

from hotpartition.core.ports import ReadRoute
from hotpartition.core.route import EMPTY_ROUTE, Generation, Member, Route
from hotpartition.dynamodb.journal import DynamoDBJournal
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.runtime.build import Ends
from hotpartition.runtime.settings import Settings
from hotpartition.table import (
    ReadCache,
    ShardedIndex,
    ShardedTable,
    TimeBuckets,
    at_random,
    by_attribute,
    by_sort_key,
    curl,
    fixed,
    in_band,
)
from hotpartition.table.routes import LoggedTelemetry, Shards, open_calls
from hotpartition.table.sharded_table import REAL_CLOCK
from tools.world.product import shards_on

PARTITION, SORT, ATTRIBUTE = "PK", "SK", "device"
COLLECTIONS = ("room-1", "room-2", "über#x")
ROUTING_SORT_KEY = "~route"
HASHED: Mapping[str, Any] = {
    "by_sort_key": by_sort_key,
    "by_attribute": lambda: by_attribute(ATTRIBUTE),
    "at_random": at_random,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """One point in the space: how many shards, what is hashed, and the type of the sort key."""

    shards: str
    hashed: str
    sort_type: str = "S"
    has_buckets: bool = False
    has_sharded_index: bool = False
    only_shards: bool = False
    is_curl: bool = False
    is_cached: bool = False
    """Whether everything that may be is asked for from a cache, which keeps nothing."""

    @property
    def name(self) -> str:
        """What it is called in results."""
        more = {
            "time buckets": self.has_buckets,
            "sharded index": self.has_sharded_index,
            "only shards": self.only_shards,
            "libcurl": self.is_curl,
            "cached": self.is_cached,
        }
        return ", ".join(
            [self.shards, self.hashed, *(name for name in more if more[name]), f"sort key {self.sort_type}"]
        )


INDEX = "by-time"
"""The global index of combinations with time buckets: hash key `bucket`, range key the sort key."""

COMBINATIONS: Sequence[Combination] = (
    *(
        Combination(shards=shards, hashed=hashed, has_buckets=has_buckets)
        for shards, hashed, has_buckets in product(("fixed", "in_band", "adaptive"), HASHED, (False, True))
    ),
    *(Combination(shards="fixed", hashed="by_sort_key", sort_type=kind, only_shards=kind == "B") for kind in "NB"),
    Combination(shards="fixed", hashed="by_sort_key", only_shards=True, has_sharded_index=True),
    Combination(shards="fixed", hashed="at_random", has_sharded_index=True, is_curl=True),
    Combination(shards="in_band", hashed="by_attribute", has_buckets=True, has_sharded_index=True),
    Combination(shards="adaptive", hashed="by_sort_key", has_sharded_index=True, is_curl=True),
    Combination(shards="fixed", hashed="by_attribute", sort_type="N", only_shards=True, is_curl=True),
    Combination(shards="fixed", hashed="by_sort_key", has_sharded_index=True, is_cached=True),
    Combination(shards="in_band", hashed="by_attribute", has_buckets=True, is_cached=True),
    Combination(shards="adaptive", hashed="at_random", is_cached=True),
)


class CachedTable(ShardedTable):
    """A table that is asked for cached values wherever it may be."""

    def get_item(self, **request: Any) -> Any:
        """Read an item."""
        return super().get_item(cache=not request.get("ConsistentRead"), **request)

    def get_items(self, keys: Iterable[Mapping[str, Any]], **request: Any) -> Any:
        """Read items."""
        return super().get_items(keys, cache=not request.get("ConsistentRead"), **request)

    def query(self, **request: Any) -> Any:
        """Read a page."""
        return super().query(cache=not request.get("ConsistentRead"), **request)


class MemoryRegistry:
    """The routes as Redis would hold them, in this process: as much of `Registry` as a table asks."""

    def __init__(self) -> None:
        self._routes: dict[str, Route] = {}

    def get(self, collection: str) -> Route:
        """Read a route."""
        return self._routes.get(collection, EMPTY_ROUTE)

    def get_for_reading(self, collection: str) -> ReadRoute:
        """Read a route; nothing is read-hot here."""
        return ReadRoute(self.get(collection))

    def add(self, collection: str, members: Iterable[Member]) -> None:
        """Add generations and closes."""
        self._routes[collection] = self.get(collection).union(Route.of(members))


class Subject:
    """The table under test, and how it is raised.

    One of fixed shards is raised by one more number in its owner's code. The others begin with no shards at all, and
    are raised as a consumer does it: the journal first, then the registry, which is in memory.
    """

    def __init__(self, combination: Combination, table: Any, shards: int) -> None:
        self._combination, self._table, self._counts = combination, table, [shards]
        self._registry = MemoryRegistry()

    def build(self) -> ShardedTable:
        """Build the table anew."""
        combination, shards = self._combination, self._find_shards()
        buckets = [TimeBuckets("hour", index=INDEX)] if combination.has_buckets else []
        by_colour = [ShardedIndex("by-colour", hash="colour", shards=fixed(4))] if combination.has_sharded_index else []
        transport = curl() if combination.is_curl else None
        cache = ReadCache(seconds=0) if combination.is_cached else None
        options: Any = {"hashed": HASHED[combination.hashed](), "transport": transport, "cache": cache}
        kind = CachedTable if combination.is_cached else ShardedTable
        return kind(self._table, shards=shards, indexes=[*buckets, *by_colour], **options)

    def raise_to(self, count: int) -> ShardedTable:
        """Raise all collections; for a table of fixed shards, a smaller number changes nothing."""
        if count > self._counts[-1]:
            self._counts.append(count)
        generation = Generation(since_ms=0, shard_count=count)
        for collection in () if self._combination.shards == "fixed" else COLLECTIONS:
            self._table.update_item(
                Key={PARTITION: collection, SORT: ROUTING_SORT_KEY},
                UpdateExpression="ADD generations :g",
                ExpressionAttributeValues={":g": {generation.encode()}},
            )
            self._registry.add(collection, [generation])
        return self.build()

    def _find_shards(self) -> Shards:
        match self._combination.shards:
            case "fixed":
                return fixed(*self._counts, only_shards=self._combination.only_shards)
            case "in_band":
                return in_band(environ={}, journal_sort_key=ROUTING_SORT_KEY)
        return _routes_in_memory(self._table, self._registry)


def _routes_in_memory(table: Any, registry: Any) -> Shards:
    """Build what `adaptive()` builds, with a registry in memory instead of Redis, and without a consumer."""
    place = JournalPlace(table.name, PARTITION, SORT, ROUTING_SORT_KEY)
    reports: Any = SimpleNamespace(send=lambda _: None, take_dropped=lambda: 0)
    background: Any = SimpleNamespace(submit=lambda work: work() is None)
    ends = Ends(
        registry=registry,
        repairs=registry,
        reports=reports,
        background=background,
        telemetry=LoggedTelemetry(),
        clock=REAL_CLOCK,
        timer=time.monotonic,
        environment_id="equivalence",
        journal=DynamoDBJournal(open_calls(table), place),
    )
    settings = Settings.defaults("adaptive()", route_cache_seconds=0.0)
    return shards_on(ends, settings, place=place)
