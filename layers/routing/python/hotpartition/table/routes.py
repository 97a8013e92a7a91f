"""Where a `ShardedTable` has its routes from, and the writer that places its new items."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from hotpartition.core.backoff import Clock
from hotpartition.core.keys import KeyForm
from hotpartition.core.metrics import MetricName
from hotpartition.core.reports import ReadReport, WriteReport
from hotpartition.core.route import Generation, Route
from hotpartition.core.sampler import Crossing, LoadSampler
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.engine.writer import Writer
from hotpartition.errors import MalformedGenerationError
from hotpartition.ports import JournalEntry
from hotpartition.table.cached_queries import CachedQueries
from hotpartition.table.schema import SHARDS

if TYPE_CHECKING:
    from hotpartition.table.shards import Fixed

_logger = logging.getLogger(__name__)


class Routes(Protocol):
    """The routes of a table's collections. Safe under threads."""

    choices: int
    """How many shards may hold an item under one N."""
    writer: Writer
    """Places new items, and counts all writes."""
    journal: JournalPlace | None
    """Where the routing items lie that reads must look at; None: there are none, and `get` tells all."""
    cached: CachedQueries | None
    """Reads newest pages through the page cache; None: there is none."""

    def get(self, collection: str) -> Route:
        """Return what a read begins with."""
        ...

    def verify(self, collection: str, hint: Route, entry: JournalEntry, *, is_strong: bool) -> Route:
        """Take in what the journal says beside a hint of `get`, and return it."""
        ...

    def name_unreadable(self, collection: str, error: MalformedGenerationError) -> None:
        """Be told that a routing item cannot be read: the read fails, since it could be incomplete."""
        ...

    def meet(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Learn from stored items that were read."""
        ...

    def marks_of(self, position: int) -> dict[str, int]:
        """Return the attributes of ours that a new item on a shard gets."""
        ...

    def size_of(self, attributes: Mapping[str, Any]) -> int:
        """Return the bytes of a new item that are counted; 0 where nobody counts."""
        ...

    @property
    def is_counted(self) -> bool:
        """Whether the units of all writes are counted."""
        ...


class FixedRoutes:
    """Routes that the code tells: the same for every partition key.

    Items on shards say under which N they were written. One that was written under a larger N than the code knows
    (by an instance of a newer version, or before a number was lowered) says that others lie where nobody looks: from
    then on it is looked there too, and a warning is logged, once for each N.
    """

    journal: JournalPlace | None = None
    cached: CachedQueries | None = None
    is_counted = False

    def __init__(self, shards: Fixed, form: KeyForm, clock: Clock, budget_ms: float) -> None:
        """Place items as the code says; what is written is counted nowhere."""
        self.choices = shards.choices
        self._written = shards.written
        self._route = shards.route
        self._lock = Lock()
        self.writer = Writer(
            routes=self,
            sampler=SharedSampler(environment_id="", sampling_distance_wcu=_NEVER_WCU, random=clock.random),
            reports=NoReports(),
            telemetry=LoggedTelemetry(),
            clock=clock,
            budget_ms=budget_ms,
            form=form,
            choices=shards.choices,
        )

    def get(self, collection: str) -> Route:
        """Implement `Routes.get`."""
        del collection
        return self._route

    def verify(self, collection: str, hint: Route, entry: JournalEntry, *, is_strong: bool) -> Route:
        """Implement `Routes.verify`: there is no journal."""
        del collection, entry, is_strong
        return hint

    def name_unreadable(self, collection: str, error: MalformedGenerationError) -> None:
        """Implement `Routes.name_unreadable`: there is none."""

    def meet(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Implement `Routes.meet`."""
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
        """Implement `Routes.marks_of`."""
        return {SHARDS: self._written.shard_count_at(position)}

    def size_of(self, attributes: Mapping[str, Any]) -> int:
        """Implement `Routes.size_of`."""
        del attributes
        return 0

    def get_route(self, collection: str, now_ms: int) -> Route:
        """Implement `WriterRoutes.get_route`."""
        del collection, now_ms
        return self._written

    def learn(self, collection: str, route: Route, now_ms: int) -> Route:
        """Implement `KnownRoutes.learn`: there is no journal."""
        del collection, route, now_ms
        return self._written

    def refresh_after_throttle(self, collection: str, now_ms: int) -> Route:
        """Implement `WriterRoutes.refresh_after_throttle`: nothing but the code changes it."""
        del collection, now_ms
        return self._written


_NEVER_WCU = 1e300
"""Write units between two reports, where nobody is told any."""


class SharedSampler(LoadSampler):
    """A `LoadSampler` for several threads."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._lock = Lock()

    def record(self, collection: str, wcu: float, now_ms: int) -> Crossing | None:
        """Count one write, as `LoadSampler.record`."""
        with self._lock:
            return super().record(collection, wcu, now_ms)


class NoReports:
    """A `ReportSink` that nobody reads."""

    def send(self, report: WriteReport | ReadReport) -> None:
        """Implement `ReportSink.send`."""

    def take_dropped(self) -> int:
        """Implement `ReportSink.take_dropped`."""
        return 0


class LoggedTelemetry:
    """`Telemetry` for a library: events go to Python's `logging`, metrics nowhere."""

    def count(self, metric: MetricName, value: float = 1.0) -> None:
        """Implement `Telemetry.count`."""

    def event(self, message: str, **facts: object) -> None:
        """Implement `Telemetry.event`."""
        _logger.info(message, extra=facts)

    def flush(self) -> None:
        """Implement `Telemetry.flush`."""
