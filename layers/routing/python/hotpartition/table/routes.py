"""Where a `ShardedTable` has its routes from, and the writer that places its new items."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, ClassVar, Protocol

from hotpartition.core.backoff import Clock
from hotpartition.core.keys import MAX_SHARD_COUNT, KeyForm
from hotpartition.core.metrics import MetricName
from hotpartition.core.route import MAX_CHOICES, Generation, Route
from hotpartition.core.sampler import Crossing, LoadSampler
from hotpartition.dynamodb.calls import DynamoDBCalls
from hotpartition.dynamodb.python_values import PythonValuesCall
from hotpartition.dynamodb.stored_route import ROUTING_ATTRIBUTES
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.dynamodb.threads import ThreadedCalls
from hotpartition.engine.read_repair import ReadRepair
from hotpartition.engine.write_counting import Uncounted
from hotpartition.engine.writer import Writer
from hotpartition.runtime.building import build_journal_place
from hotpartition.runtime.settings import Settings
from hotpartition.table.cached_queries import CachedQueries
from hotpartition.table.schema import SHARDS, Schema, attributes_size_bytes

_logger = logging.getLogger(__name__)


class TableRoutes(ReadRepair):
    """The routes of a table's collections. Safe under threads."""

    choices: int
    """How many shards may hold an item under one N."""
    writer: Writer
    """Places new items, and counts all writes."""
    journal: JournalPlace | None = None
    """Where the routing items that reads need lie; None: the table has none, and `get` suffices."""
    cached: CachedQueries | None = None
    """Reads newest pages through the page cache; None: pages are not cached."""
    is_counted = False
    """Whether the units of all writes are counted."""
    left_sort_key: str | None = None
    """The sort key of routing items that an earlier way has left beside the items: no item of the owner's."""
    has_base = True
    """Whether items can lie at a base key."""

    def meet(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Learn from stored items that were read."""

    def marks_of(self, position: int) -> dict[str, int]:
        """Return the attributes that are added to a new item on a shard."""
        del position
        return {}

    def size_of(self, attributes: Mapping[str, Any]) -> int:
        """Return the bytes of a new item that are counted; 0 where they are not."""
        return attributes_size_bytes(attributes) if self.is_counted else 0


class Shards(Protocol):
    """How many shards a partition key has: the result of `fixed()`, `in_band()` and `adaptive()`."""

    finds_read_heat: ClassVar[bool]
    """Whether read-hot keys are known."""

    def build_routes(self, table: Any, schema: Schema, clock: Clock, budget_ms: float) -> TableRoutes:
        """Build the routes of a boto3 `Table`."""
        ...


class FixedRoutes(TableRoutes):
    """Routes that the code sets: the same for every partition key.

    Items on shards say under which N they were written. One that was written under a larger N than the code knows
    (by an instance of a newer version, or before a number was lowered) shows that there are items on shards that are
    not read: from then on they are, and a warning is logged, once for each N.
    """

    def __init__(self, shards: Fixed, form: KeyForm, clock: Clock, budget_ms: float) -> None:
        """Count nothing that is written."""
        telemetry = LoggedTelemetry()
        super().__init__(registry=None, routes=self, background=None, telemetry=telemetry, now_ms=clock.now_ms)
        self.choices = shards.choices
        self.has_base = shards.has_base
        self.is_folding = bool(shards.route) and not shards.written
        self.left_sort_key = Settings.defaults("in_band()").journal_sort_key if self.is_folding else None
        self._written = shards.written
        self._route = shards.route
        self._lock = Lock()
        self.writer = Writer(
            routes=self,
            counting=Uncounted(),
            telemetry=telemetry,
            clock=clock,
            budget_ms=budget_ms,
            form=form,
            choices=shards.choices,
        )

    def get(self, collection: str) -> Route:
        """Return the route that reads begin with: larger than that of writes, where there are more shards to read."""
        del collection
        return self._route

    def meet(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Implement `TableRoutes.meet`."""
        most = max((int(item.get(SHARDS, 0)) for item in items), default=0)
        if most <= self._route.max_shard_count:
            return
        with self._lock:
            known = self._route.max_shard_count
            if most > known:
                self._route = self._route.union(Route(frozenset({Generation(0, most)})))
                _logger.warning(
                    "items were written under more shards than fixed() names: name all numbers that were ever used",
                    extra={"written_under": most, "known": known},
                )

    def marks_of(self, position: int) -> dict[str, int]:
        """Implement `TableRoutes.marks_of`."""
        return {SHARDS: self._written.shard_count_at(position)}

    def get_route(self, collection: str, now_ms: int) -> Route:
        """Implement `Routes.get_route`."""
        del collection, now_ms
        return self._written

    def learn(self, collection: str, route: Route, now_ms: int) -> Route:
        """Implement `Routes.learn`: there is no journal."""
        del collection, route, now_ms
        return self._written

    def refresh_after_throttle(self, collection: str, now_ms: int) -> Route:
        """Implement `Routes.refresh_after_throttle`: nothing but the code changes it."""
        del collection, now_ms
        return self._written


class SharedSampler(LoadSampler):
    """A `LoadSampler` for several threads."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._lock = Lock()

    def record(self, collection: str, wcu: float, now_ms: int) -> Crossing | None:
        """Count one write, as `LoadSampler.record`."""
        with self._lock:
            return super().record(collection, wcu, now_ms)


class LoggedTelemetry:
    """`Telemetry` for a library: events go to Python's `logging`, metrics nowhere."""

    def count(self, metric: MetricName, value: float = 1.0) -> None:
        """Implement `Telemetry.count`."""

    def event(self, message: str, **facts: object) -> None:
        """Implement `Telemetry.event`."""
        _logger.info(message, extra=facts)

    def flush(self) -> None:
        """Implement `Telemetry.flush`."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """As many shards for every partition key as the code says."""

    route: Route
    """All generations that items may have been written under."""
    written: Route
    """Those that new items are written under."""
    choices: int = 1
    has_base: bool = True
    """Whether items can lie at a base key."""

    finds_read_heat: ClassVar[bool] = False

    def build_routes(self, table: Any, schema: Schema, clock: Clock, budget_ms: float) -> FixedRoutes:
        """Build the routes of a table, whichever it is."""
        del table
        return FixedRoutes(self, schema.form, clock, budget_ms)


def fixed(*shards: int, choices: int = 1, readable: int = 0, only_shards: bool = False) -> Fixed:
    """Spread every partition key over n shards. Needs no Redis and no deployment.

    The base key, without a suffix, is read as well: a table that has items already needs no rewriting. `fixed(0)`
    leaves all items there, for a table of which only an index is sharded.

    More shards later: name all numbers that were ever used, `fixed(4, 16)`. A number is never lowered: items on the
    shards left out could not be found.

    Args:
        shards: the number of shards, at first and after each raise.
        choices: how many of the shards may take one item: where its first one refuses, the next does.
        readable: a number that items are not written under yet, but read. For raising while instances of both versions
            run: `fixed(4, readable=16)` everywhere first, then `fixed(4, 16)`. And for the way out: `fixed(0,
            readable=16)` writes new items to the base key, and reads it last, so that items may be moved there.
        only_shards: nothing was ever stored at a base key, so none is read. An item has one place then, as long as one
            number was used: puts and changes go there without looking for it first.

    Raises:
        ValueError: no number, one out of range, or one that is lower than one before; or `only_shards` although the
            first number is 0.

    Example:
        >>> fixed(16)
    """
    if not shards:
        raise ValueError("fixed() needs the number of shards, for instance fixed(16)")
    for count in (*shards, readable):
        if not isinstance(count, int) or not 0 <= count <= MAX_SHARD_COUNT:
            raise ValueError(f"{count} shards: should be from 0 to {MAX_SHARD_COUNT}")
    check_choices(choices)
    if list(shards) != sorted(shards):
        raise ValueError(f"{shards}: numbers of shards are only raised. Name all that were used, the oldest first")
    if only_shards and not shards[0]:
        raise ValueError(f"only_shards=True: the first of {shards} leaves items at their base key")
    written = Route(frozenset(Generation(0, count) for count in shards if count))
    more = Route(frozenset({Generation(0, readable)})) if readable else Route()
    return Fixed(written.union(more), written, choices, not only_shards)


def check_choices(choices: int) -> None:
    """Refuse a number of shards that may take one item.

    Raises:
        ValueError: it is out of range.
    """
    if not 1 <= choices <= MAX_CHOICES:
        raise ValueError(f"choices={choices}: should be from 1 to {MAX_CHOICES}")


def find_place(settings: Settings, schema: Schema, way: str) -> JournalPlace:
    """Find the place of a table's routing items; `way` is the function that the owner called.

    Raises:
        NotImplementedError: the table's keys leave none.
    """
    place = build_journal_place(settings, schema.partition, schema.sort)
    if schema.sort_type != "S" and not place.is_apart:
        raise NotImplementedError(
            f"the sort key of {settings.table_name} ({schema.sort}) is no string, so no routing item can lie "
            f"beside its items. Give the routing items a table of their own: {way}(journal_table_name=...)"
        )
    taken = sorted({*ROUTING_ATTRIBUTES, "collections"} & {schema.partition, schema.sort})
    if taken and not place.is_apart:
        raise NotImplementedError(
            f"{taken[0]}, a key of {settings.table_name}, is an attribute of routing items as well. Give those a "
            f"table of their own: {way}(journal_table_name=...)"
        )
    return place


def open_calls(table: Any) -> DynamoDBCalls:
    """Send single requests through the client of a boto3 `Table`."""
    return ThreadedCalls(PythonValuesCall(table.meta.client))
