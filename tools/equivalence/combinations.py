"""The axes of a `ShardedTable`, and every combination of them that is compared with boto3's `Table`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from hotpartition.core.ports import ReadRoute
from hotpartition.core.reports import Report
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
from tools.world.product import SimulatedShards

PARTITION, SORT, ATTRIBUTE = "PK", "SK", "device"
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


def _wrap(combination: Combination, table: Any, shards: Shards) -> ShardedTable:
    """Build the table under test."""
    buckets = [TimeBuckets("hour", index=INDEX)] if combination.has_buckets else []
    by_colour = [ShardedIndex("by-colour", hash="colour", shards=fixed(4))] if combination.has_sharded_index else []
    transport = curl() if combination.is_curl else None
    cache = ReadCache(seconds=0) if combination.is_cached else None
    options: Any = {"hashed": HASHED[combination.hashed](), "transport": transport, "cache": cache}
    kind = CachedTable if combination.is_cached else ShardedTable
    return kind(table, shards=shards, indexes=[*buckets, *by_colour], **options)


@dataclass(slots=True)
class FixedSubject:
    """A table of fixed shards is raised by naming one more number in its owner's code, for all collections."""

    combination: Combination
    table: Any
    counts: list[int]

    def build(self) -> ShardedTable:
        """Build the table anew."""
        shards = fixed(*self.counts, only_shards=self.combination.only_shards)
        return _wrap(self.combination, self.table, shards)

    def raise_to(self, collection: str, count: int) -> ShardedTable:
        """Name one more number; smaller ones change nothing."""
        del collection
        if count > self.counts[-1]:
            self.counts.append(count)
        return self.build()


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

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} is asked by consumers alone")


@dataclass(slots=True)
class RaisedSubject:
    """A table with a journal is raised as a consumer does it: the journal first, then the registry.

    The registry is in memory, and a table that finds hot keys in band has none. It begins with no shards at all.
    """

    combination: Combination
    table: Any
    registry: MemoryRegistry = field(default_factory=MemoryRegistry)

    def build(self) -> ShardedTable:
        """Build the table anew."""
        shards: Shards = in_band(environ={}, journal_sort_key=ROUTING_SORT_KEY)
        if self.combination.shards == "adaptive":
            shards = _routes_in_memory(self.table, self.registry)
        return _wrap(self.combination, self.table, shards)

    def raise_to(self, collection: str, count: int) -> ShardedTable:
        """Add a generation to journal and registry."""
        generation = Generation(since_ms=0, shard_count=count)
        self.table.meta.client.update_item(
            TableName=self.table.name,
            Key={PARTITION: collection, SORT: ROUTING_SORT_KEY},
            UpdateExpression="ADD generations :g",
            ExpressionAttributeValues={":g": {generation.encode()}},
        )
        self.registry.add(collection, [generation])
        return self.build()


Subject = FixedSubject | RaisedSubject
"""The table under test, and how it is raised."""


def build_subject(combination: Combination, table: Any, shards: int) -> Subject:
    """Build the table under test, which begins with so many shards."""
    if combination.shards == "fixed":
        return FixedSubject(combination, table, [shards])
    return RaisedSubject(combination, table)


class NoReports:
    """Nobody listens: raises come from the state machine."""

    def send(self, report: Report) -> None:
        """Drop a report."""

    def take_dropped(self) -> int:
        """None was to be sent."""
        return 0


class AtOnce:
    """Runs work beside the request in it."""

    def submit(self, work: Callable[[], None]) -> bool:
        """Run it."""
        work()
        return True


def _routes_in_memory(table: Any, registry: MemoryRegistry) -> SimulatedShards:
    """Build what `adaptive()` builds, with a registry in memory instead of Redis."""
    place = JournalPlace(table.name, PARTITION, SORT, ROUTING_SORT_KEY)
    ends = Ends(
        registry=registry,
        repairs=registry,
        reports=NoReports(),
        background=AtOnce(),
        telemetry=LoggedTelemetry(),
        clock=REAL_CLOCK,
        timer=time.monotonic,
        environment_id="equivalence",
        journal=DynamoDBJournal(open_calls(table), place),
    )
    settings = Settings.defaults("adaptive()", route_cache_seconds=0.0)
    return SimulatedShards(ends=ends, settings=settings, options={"place": place})
