"""Where a `ShardedTable` has its routes from, and what follows from that."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from hotpartition.core.backoff import Clock
from hotpartition.core.metrics import MetricName
from hotpartition.core.route import MAX_CHOICES, Route
from hotpartition.dynamodb.calls import DynamoDBCalls
from hotpartition.dynamodb.python_values import PythonValuesCall
from hotpartition.dynamodb.table import JournalPlace
from hotpartition.dynamodb.threads import ThreadedCalls
from hotpartition.runtime.build import Engine
from hotpartition.table.schema import Schema, attributes_size_bytes

if TYPE_CHECKING:
    from hotpartition.table.fixed import FixedRoutes

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

    def count_read(self, collection: str, units: float) -> None:
        """Count what was read of a key as its heat, where that is known."""
        if self.engine.counting is not None and units:
            self.engine.counting.count(collection, units)

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
