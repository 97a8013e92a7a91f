"""The adapters that consumer, operations and reconciliation use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from hotpartition.core.backoff import Clock, try_for
from hotpartition.core.closes import CloseTimes
from hotpartition.core.keys import KeyForm
from hotpartition.core.ports import Journal, Registry, ReportSource, RoutingItems, Telemetry
from hotpartition.engine.closing import Closer
from hotpartition.engine.raising import Raiser

RETRY_BUDGET_MS = 2_000.0

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEnds:
    """The routes, in the journal and in the registry if there is one, and the form of the table's partition keys."""

    journal: Journal
    routing_items: RoutingItems
    registry: Registry | None = None
    telemetry: Telemetry
    clock: Clock
    form: KeyForm

    def retry(self, call: Callable[[], ResultT]) -> ResultT:
        """Make a call for an operator, again and again for two seconds while DynamoDB refuses."""
        return try_for(self.clock, RETRY_BUDGET_MS, call)

    @property
    def raiser(self) -> Raiser:
        """What raises routes."""
        return Raiser(journal=self.journal, registry=self.registry, telemetry=self.telemetry, clock=self.clock)

    def build_closer(self, times: CloseTimes, *, has_positions: bool = True) -> Closer:
        """Build the `Closer`."""
        return Closer(
            journal=self.journal,
            raiser=self.raiser,
            telemetry=self.telemetry,
            times=times,
            has_positions=has_positions,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlEnds(JournalEnds):
    """The same with a registry, and the report streams."""

    source: ReportSource
    registry: Registry
    elapsed: Callable[[], float]
    """A monotonic clock, in seconds."""
