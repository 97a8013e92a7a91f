"""Where a `ShardedTable` has its routes from, and what follows from that; and `fixed()`: from the code.

`fixed()` needs no Redis, no journal and no deployment.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, ClassVar, Protocol

from hotpartition.core.backoff import Clock
from hotpartition.core.keys import MAX_SHARD_COUNT, KeyForm
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import JournalEntry, ReadRoute
from hotpartition.core.route import MAX_CHOICES, Generation, Route
from hotpartition.dynamodb.calls import DynamoDBCalls
from hotpartition.dynamodb.python_values import PythonValuesCall
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.dynamodb.threads import ThreadedCalls
from hotpartition.runtime.build import Engine, build_fixed_engine
from hotpartition.runtime.settings import Settings
from hotpartition.table.schema import SHARDS, Schema, attributes_size_bytes

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRoutes:
    """The engine of a table, and what follows from its kind of routes. Safe under threads."""

    engine: Engine
    journal: JournalPlace | None = None
    """Where the routing items that reads need lie; None: the table has none, and `get` suffices."""
    is_counted: bool = False
    """Whether the units of all writes are counted."""
    is_folding: bool = False
    """Whether items may be moved to their base keys."""
    left_sort_key: str | None = None
    """The sort key of routing items that an earlier way has left beside the items: no item of the owner's."""
    marks: FixedRoutes | None = None
    """What items say of the number of shards, where no routing items do."""

    def get(self, collection: str) -> Route:
        """Return the route that reads begin by."""
        return self.engine.routes.for_read(collection).route

    def meet(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Learn from stored items that were read."""
        if self.marks is not None:
            self.marks.meet(items)

    def marks_of(self, position: int) -> dict[str, int]:
        """Return the attributes that are added to a new item on a shard."""
        return {} if self.marks is None else self.marks.marks_of(position)

    def size_of(self, attributes: Mapping[str, Any]) -> int:
        """Return the bytes of a new item that are counted; 0 where they are not."""
        return attributes_size_bytes(attributes) if self.is_counted else 0


class Shards(Protocol):
    """How many shards a partition key has: the result of `fixed()`, `in_band()` and `adaptive()`."""

    @property
    def finds_read_heat(self) -> bool:
        """Say whether read-hot keys are known."""
        ...

    def build_routes(self, table: Any, schema: Schema, clock: Clock, budget_ms: float) -> TableRoutes:
        """Build the routes of a boto3 `Table`. Nothing is opened yet."""
        ...


class LoggedTelemetry:
    """`Telemetry` for a library: events go to Python's `logging`, metrics nowhere."""

    def count(self, metric: MetricName, value: float = 1.0) -> None:
        """Implement `Telemetry.count`."""

    def event(self, message: str, **facts: object) -> None:
        """Implement `Telemetry.event`."""
        listed = ", ".join(f"{name}={fact}" for name, fact in facts.items())
        _logger.info("%s: %s", message, listed, extra=facts)

    def flush(self) -> None:
        """Implement `Telemetry.flush`."""


def check_shards(shards: Any) -> Shards:
    """Return what says how many shards a key has, or refuse anything else.

    Raises:
        TypeError: saying what to write.
    """
    if not hasattr(shards, "build_routes"):
        number = shards if isinstance(shards, int) else "n"
        raise TypeError(f"shards={shards!r}: should be fixed({number}), in_band() or adaptive()")
    checked: Shards = shards
    return checked


def check_choices(choices: int) -> None:
    """Refuse a number of shards that may take one item.

    Raises:
        ValueError: it is out of range.
    """
    if not 1 <= choices <= MAX_CHOICES:
        raise ValueError(f"choices={choices}: should be from 1 to {MAX_CHOICES}")


def open_calls(table: Any) -> DynamoDBCalls:
    """Send single requests through the client of a boto3 `Table`."""
    return ThreadedCalls(PythonValuesCall(table.meta.client))


class FixedRoutes:
    """`Routes` that the code sets: the same for every partition key.

    Items on shards say under which N they were written. One that was written under a larger N than the code knows
    (by an instance of a newer version, or before a number was lowered) shows that there are items on shards that are
    not read: from then on they are, and a warning is logged, once for each N.
    """

    def __init__(self, read: Route, written: Route) -> None:
        """Take the route that reads begin by, which covers the one that items are written under."""
        self._read = read
        self._written = written
        self._lock = Lock()

    def for_write(self, collection: str) -> Route:
        """Implement `Routes.for_write`."""
        del collection
        return self._written

    def for_read(self, collection: str) -> ReadRoute:
        """Implement `Routes.for_read`."""
        del collection
        return ReadRoute(self._read)

    def learn(
        self, collection: str, shown: JournalEntry, *, hint: Route | None = None, is_strong: bool = False
    ) -> Route:
        """Implement `Routes.learn`: there is no journal."""
        del collection, hint, is_strong
        return shown.route

    def refused(self, collection: str) -> Route:
        """Implement `Routes.refused`: nothing but the code changes it."""
        del collection
        return self._written

    def meet(self, items: Iterable[Mapping[str, Any]]) -> None:
        """Learn from stored items that were read."""
        most = max((int(item.get(SHARDS, 0)) for item in items), default=0)
        if most <= self._read.max_shard_count:
            return
        with self._lock:
            known = self._read.max_shard_count
            if most > known:
                self._read = self._read.union(Route(frozenset({Generation(0, most)})))
                _logger.warning(
                    "items were written under %d shards, fixed() names %d: name all numbers that were ever used",
                    most,
                    known,
                    extra={"written_under": most, "known": known},
                )

    def marks_of(self, position: int) -> dict[str, int]:
        """Return the attributes that are added to a new item on a shard."""
        return {SHARDS: self._written.shard_count_at(position)}


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
    suffix: str = KeyForm.separator
    """What stands between a base key and the number of its shard."""

    finds_read_heat: ClassVar[bool] = False

    def build_routes(self, table: Any, schema: Schema, clock: Clock, budget_ms: float) -> TableRoutes:
        """Build the routes of a table, whichever it is."""
        del table
        routes = FixedRoutes(self.route, self.written)
        form = replace(schema.form, has_base=self.has_base and schema.form.has_base, separator=self.suffix)
        is_folding = bool(self.route) and not self.written
        return TableRoutes(
            engine=build_fixed_engine(
                routes,
                telemetry=LoggedTelemetry(),
                clock=clock,
                form=form,
                choices=self.choices,
                budget_ms=budget_ms,
            ),
            is_folding=is_folding,
            left_sort_key=Settings.defaults("in_band()").journal_sort_key if is_folding else None,
            marks=routes,
        )


def fixed(
    *shards: int, choices: int = 1, readable: int = 0, only_shards: bool = False, suffix: str = KeyForm.separator
) -> Fixed:
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
        suffix: what stands between a key and the number of its shard, where keys were sharded by hand before: `#SHARD#`
            for `VIDEO-7#SHARD#3`. Needs `only_shards=True` and `hashed=at_random()`.

    Raises:
        ValueError: no number, one out of range, or one that is lower than one before; or `only_shards` although the
            first number is 0; or another suffix without `only_shards`.

    Example:
        >>> fixed(16)
    """
    if not shards:
        raise ValueError("fixed() needs the number of shards, for instance fixed(16)")
    for count in (*shards, readable):
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= MAX_SHARD_COUNT:
            raise ValueError(f"{count!r} shards: should be a whole number from 0 to {MAX_SHARD_COUNT}")
    check_choices(choices)
    if list(shards) != sorted(shards):
        raise ValueError(f"{shards}: numbers of shards are only raised. Name all that were used, the oldest first")
    if only_shards and not shards[0]:
        raise ValueError(f"only_shards=True: the first of {shards} leaves items at their base key")
    if suffix != KeyForm.separator and not (suffix and only_shards):
        raise ValueError(f"suffix={suffix!r}: should be a text, and needs only_shards=True")
    written = Route(frozenset(Generation(0, count) for count in shards if count))
    more = Route(frozenset({Generation(0, readable)})) if readable else Route()
    return Fixed(written.union(more), written, choices, not only_shards, suffix)
