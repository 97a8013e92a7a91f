"""The operations job: an operator's questions to the running system, and raises and closes by hand.

Nothing here is on a request's path. A raise by hand goes the way of all raises, the journal first and the registry
second: repeated, interrupted or done by two people at once, it does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass

from hotpartition.control.ends import JournalEnds
from hotpartition.control.hot_keys import HotKeys, RouteRow, build_row
from hotpartition.control.reconcile import Reconciler
from hotpartition.core.closes import CloseTimes
from hotpartition.core.errors import InvalidCollectionError, InvalidRequestError, Problem, RegistryUnavailableError
from hotpartition.core.keys import MAX_SHARD_COUNT
from hotpartition.core.metrics import MetricName
from hotpartition.core.route import Generation, Route
from hotpartition.core.route_history import BY_HAND, Cause
from hotpartition.core.times import format_time
from hotpartition.engine.closing import Closing

MIN_SHARD_COUNT = 2
"""One shard would serve no more than the base key does."""

SINCE_AGO_MS = 5_000
"""How far before now a raise by hand begins by default: it includes messages whose ids clients minted a moment ago."""
MAX_SINCE_AHEAD_MS = 24 * 3_600_000
"""A generation is for ever, so a `since` that is far ahead is taken for a mistake."""
HELD_MS = 24 * 3_600_000
"""For how long after its beginning a raise by hand is not closed, written to or not: the event may be late."""
LONG_AGO_MS = 24 * 3_600_000
"""How far back a raise by hand reaches before it is warned of: older pages get dearer to read."""


@dataclass(frozen=True, slots=True)
class RoutePage:
    """Some routes of the journal, in no particular order."""

    rows: tuple[RouteRow, ...]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class RaiseByHand:
    """A raise by hand's result: the generations of the route, and N of the messages from `since_ms` on.

    `shard_count_before` is the least N of them before it. `in_registry` None: there is no registry.
    """

    collection: str
    changed: bool
    shard_count: int
    shard_count_before: int
    since_ms: int
    in_registry: bool | None
    generations: tuple[Generation, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationsLimits:
    """The settings of the other functions that are shown to an operator."""

    max_shard_count: int
    route_cache_seconds: float
    """How long a writer uses a route before it looks for a newer one."""
    has_positions: bool = True
    """Whether positions are times; else a raise by hand holds for all items."""
    close_times: CloseTimes | None = None
    """Those of the table's writers; None: nothing is closed."""


@dataclass(frozen=True, slots=True)
class Operations:
    """Serves operators."""

    ends: JournalEnds
    hot_keys: HotKeys
    limits: OperationsLimits

    @property
    def reconciler(self) -> Reconciler:
        """What compares the routes of journal and registry."""
        return Reconciler(self.ends)

    def list_routes(self, cursor: str | None, limit: int) -> RoutePage:
        """List some routes of the journal, without their heat.

        Raises:
            InvalidRequestError: the cursor is not valid.
            RetryLaterError: the journal could not be read.
        """
        now_ms = self.ends.clock.now_ms()
        items, following = self.ends.retry(lambda: self.ends.routing_items.page(cursor, limit))
        key_wcu = self.hot_keys.key_wcu
        return RoutePage(tuple(build_row(item, None, now_ms, key_wcu=key_wcu) for item in items), following)

    def raise_by_hand(
        self, collection: str, shard_count: int, *, since_ms: int | None = None, by: str | None = None
    ) -> RaiseByHand:
        """Spread a collection's messages from an instant on over `shard_count` shards, unless it has them.

        Raises:
            InvalidRequestError: naming every wrong field.
            MalformedGenerationError: the stored route cannot be read.
            RetryLaterError: the journal refused for seconds; whatever became of it, repeating it is safe.
        """
        now_ms = self.ends.clock.now_ms()
        if since_ms is None:
            since_ms = now_ms - SINCE_AGO_MS if self.limits.has_positions else 0
        self._check_raise(collection, shard_count, since_ms, now_ms)
        generation = Generation(since_ms=since_ms, shard_count=shard_count)
        route = self.ends.raiser.persist(lambda: self.ends.journal.get(collection, is_strong=True)).route
        starts = (since_ms, *[missing.since_ms for missing in route.complete_raise([generation])])
        # As writers place: a raise that a pending close would undo does not hold.
        before = min(route.as_announced.shard_count_at(start) for start in starts)
        is_changed = shard_count > before
        if is_changed:
            raised = self.ends.raiser.raise_route(collection, (generation,), cause=Cause(BY_HAND, by=by))
            route, is_in_registry = raised.entry.route, raised.is_in_registry
            self.ends.telemetry.count(MetricName.RAISES)
        else:
            is_in_registry = self.ends.raiser.publish(collection, route)
        self._hold(collection, since_ms + HELD_MS - now_ms)
        self.ends.telemetry.event(
            "raise by hand",
            collection=collection,
            generation=generation.encode(),
            changed=is_changed,
            shard_count_before=before,
            by=by,
            in_registry=is_in_registry,
        )
        warnings = self._raise_warnings(route, generation, now_ms, is_changed=is_changed, is_in_registry=is_in_registry)
        return RaiseByHand(
            collection=collection,
            changed=is_changed,
            shard_count=max(shard_count, before),
            shard_count_before=before,
            since_ms=since_ms,
            in_registry=None if self.ends.registry is None else is_in_registry,
            generations=tuple(sorted(route.generations)),
            warnings=warnings,
        )

    def close_by_hand(
        self, collection: str, *, is_dry_run: bool = False, is_timed: bool = False, by: str | None = None
    ) -> Closing:
        """Close a collection that has cooled: its items go to the base key again, from some minutes ahead on.

        With `is_dry_run` it is only planned. `is_timed`: the operator, named `by`, says that its positions are times.

        Raises:
            InvalidRequestError: the collection is malformed, or nothing is closed here.
            MalformedGenerationError: the stored route cannot be read.
            RetryLaterError: the journal refused for seconds; whatever became of it, repeating it is safe.
        """
        self.ends.form.check(collection)
        times = self.limits.close_times
        if times is None:
            raise InvalidRequestError.of("command", "nothing is closed here: is_closing is false, or lease_seconds 0")
        closer = self.ends.build_closer(times, has_positions=self.limits.has_positions or is_timed)
        closing = closer.plan(collection, cause=Cause(BY_HAND, by=by))
        if not is_dry_run:
            closing = closer.confirm(closer.announce(closing))
            facts = {"step": str(closing.step), "refusal": closing.refusal and str(closing.refusal)}
            self.ends.telemetry.event("close by hand", collection=collection, by=by, **facts)
        return closing

    def _raise_warnings(
        self, route: Route, generation: Generation, now_ms: int, *, is_changed: bool, is_in_registry: bool
    ) -> tuple[str, ...]:
        warnings = []
        n, since = generation.shard_count, format_time(generation.since_ms)
        if is_changed:
            warnings.append(
                f"Each read of items from {since} on now queries {route.shard_count_at(generation.since_ms)} shard"
                f" keys beside the base key, {self._how_long()}."
            )
            seconds = self.limits.route_cache_seconds
            warnings.append(
                f"Writers use the new shards within {seconds:g} s: so long a route is cached."
                if self.ends.registry is not None
                else f"Writers that know a route of this key use the new shards within {seconds:g} s, all others as"
                " soon as DynamoDB refuses them a write: they learn it no earlier."
            )
        if n > self.limits.max_shard_count:
            warnings.append(
                f"{n} is more than detection itself ever decides (max_shard_count is {self.limits.max_shard_count}):"
                " it will not raise this collection any further."
            )
        if is_changed and self.limits.has_positions and generation.since_ms < now_ms - LONG_AGO_MS:
            warnings.append(
                f"Pages as old as {since} get dearer to read as well, though their items stay where they are."
            )
        if is_changed and generation.since_ms > now_ms:
            warnings.append(
                f"Items from before {since} go where they went so far; the newest pages get dearer at once."
            )
        if not is_in_registry:
            warnings.append(
                "Redis did not respond, so writers do not learn of it yet: the journal has it; run"
                " `hotpartition verify --mend` once Redis responds."
            )
        return tuple(warnings)

    def _how_long(self) -> str:
        if not self._is_closing:
            return "for ever: nothing is closed here"
        if self.ends.registry is None:
            return "until it is closed"
        return "until it is closed: a day from then at the earliest, or once its load was high and is low again"

    def _hold(self, collection: str, keep_ms: int) -> None:
        """Keep the consumer from closing a collection that was raised for an event that has not begun."""
        if self.ends.registry is None or not self._is_closing or keep_ms <= 0:
            return
        try:
            self.ends.registry.mark_warm(collection, keep_ms)
        except RegistryUnavailableError:
            self.ends.telemetry.count(MetricName.REGISTRY_UNAVAILABLE)

    @property
    def _is_closing(self) -> bool:
        return self.limits.has_positions and self.limits.close_times is not None

    def _check_raise(self, collection: str, shard_count: int, since_ms: int, now_ms: int) -> None:
        """Check the values of a raise by hand.

        Raises:
            InvalidRequestError: naming every wrong field.
        """
        problems: list[Problem] = []
        try:
            self.ends.form.check(collection)
        except InvalidCollectionError as error:
            problems += error.problems
        if not MIN_SHARD_COUNT <= shard_count <= MAX_SHARD_COUNT:
            problems.append(Problem("shard_count", f"should be from {MIN_SHARD_COUNT} to {MAX_SHARD_COUNT}"))
        if not 0 <= since_ms <= now_ms + MAX_SINCE_AHEAD_MS:
            problems.append(Problem("since", "should be after 1970 and at most a day ahead"))
        if problems:
            raise InvalidRequestError(problems)
