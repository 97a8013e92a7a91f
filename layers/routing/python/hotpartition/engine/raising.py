"""Raising a route: the journal first, the registry second. All raises go this way.

Sets only grow and merge by union, so a raise that is repeated, interrupted or made twice at once does no harm. A
failure between both leaves the journal ahead: readers see it there, and the registry is brought up to it later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from hotpartition.core.backoff import Clock
from hotpartition.core.errors import RegistryForeignError, RegistryUnavailableError, RetryLaterError
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import Journal, JournalEntry, Registry, Telemetry
from hotpartition.core.route import Generation, Route
from hotpartition.core.route_history import Cause

RAISE_RETRY_MS = 2
RAISE_BUDGET_MS = 5_000
"""The journal item shares the very partition that is hot: its update is repeated fast, for seconds."""

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Raised:
    """The result of a raise: the routing item, whether the registry has it, and whether this raise changed the item.

    It is not, where another one came first and `pause_ms` kept this one away.
    """

    entry: JournalEntry
    is_in_registry: bool
    is_made: bool = True


@dataclass(eq=False, repr=False, kw_only=True)
class Raiser:
    """Adds generations to routes, at their beginning and at each close that lies behind it."""

    journal: Journal
    registry: Registry | None
    """None: the journal is the only store."""
    telemetry: Telemetry
    clock: Clock
    budget_ms: float = RAISE_BUDGET_MS
    """How long a journal that refuses is asked again, unless a call says until when."""

    def raise_route(
        self,
        collection: str,
        generations: Iterable[Generation],
        *,
        cause: Cause,
        deadline_ms: float | None = None,
        pause_ms: int = 0,
    ) -> Raised:
        """Add generations to a route: to the journal, and then all that the journal has to the registry.

        With `pause_ms`, a route that has grown in so short a time before is left unchanged. A journal that refuses is
        asked again until `deadline_ms`, Unix ms; by default for `budget_ms`.

        Raises:
            MalformedGenerationError: the stored route cannot be read.
            RetryLaterError: the journal refused until the deadline; repeating the raise is safe.
        """
        added, tried_ms = tuple(generations), [0]

        def add() -> JournalEntry:
            tried_ms[0] = self.clock.now_ms()
            return self.journal.add(collection, added, cause=cause, now_ms=tried_ms[0], pause_ms=pause_ms)

        entry = self.persist(add, deadline_ms=deadline_ms)
        is_made = not pause_ms or entry.updated_at_ms == tried_ms[0]
        if is_made and (missing := entry.route.complete_raise(added)):
            # A close lies behind its beginning: from there on, items would go to the base key again.
            added, pause_ms = tuple(missing), 0
            entry = self.persist(add, deadline_ms=deadline_ms)
        return Raised(entry, self.publish(collection, entry.route), is_made)

    def publish(self, collection: str, route: Route) -> bool:
        """Put a route that the journal has into the registry; say whether that can be left so.

        It can also where the place is taken by what an operator has to remove.
        """
        if self.registry is None:
            return True
        try:
            self.registry.add(collection, route.members)
        except RegistryForeignError:
            return True
        except RegistryUnavailableError:
            self.telemetry.count(MetricName.REGISTRY_UNAVAILABLE)
            return False
        return True

    def persist(self, call: Callable[[], ResultT], *, deadline_ms: float | None = None) -> ResultT:
        """Call the journal until it responds, or until the deadline (Unix ms).

        Raises:
            RetryLaterError: it refused until the deadline.
        """
        if deadline_ms is None:
            deadline_ms = self.clock.now_ms() + self.budget_ms
        while True:
            try:
                return call()
            except RetryLaterError:
                self.telemetry.count(MetricName.JOURNAL_UPDATE_RETRIED)
                if self.clock.now_ms() >= deadline_ms:
                    raise
                self.clock.sleep(RAISE_RETRY_MS / 1000)
