"""The consumer job: read the report streams, decide, raise. Started each minute; runs until its successor is at work.

There is no acknowledgement, lease or hand-over protocol. The state is rebuilt from the last 15 s of the streams by
assignment, every reader of them decides the same, and a raise done twice is a raise done once. So a crash, an
overlap or a zombie consumer changes nothing (docs/architecture.md).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace

from hotpartition.control.cooling import Cooler, CoolingLimits
from hotpartition.control.decision_log import DecisionLog
from hotpartition.control.ends import ControlEnds
from hotpartition.control.read_marking import ReadMarker
from hotpartition.control.streams import StreamReader
from hotpartition.core.detector import Decision, Reason, Thresholds, decide
from hotpartition.core.errors import MalformedGenerationError, RegistryUnavailableError, RetryLaterError
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import JournalEntry, report_unreadable
from hotpartition.core.route import Generation
from hotpartition.core.route_history import Cause
from hotpartition.core.sampler import SLOT_MS
from hotpartition.core.window import HORIZON_SLOTS, ReportWindow, last_whole_slot
from hotpartition.engine.raising import RAISE_BUDGET_MS

POLL_MS = 100
"""How often the streams are read."""
CATCH_UP_MS = HORIZON_SLOTS * SLOT_MS
HOUSEKEEPING_MS = 1_000
REFRESH_MS = 5_000
"""How often the registry gets the known hot routes again: it may have lost them."""

GC_THRESHOLDS = (200_000, 20, 100)
"""For `gc.set_threshold`, where the process is a consumer's. What it keeps are tuples and dictionaries without cycles,
which their last reference frees; left alone, the collector looks through the half million of them again and again and
takes nearly as long as all the rest. Python 3.14 goes by the first two only: how many new objects there
are before it looks, and how slowly it goes through the old."""

REREAD_MS = 60_000
"""How long the route of a hot key is used before it is read again: it may have been closed, which takes far longer."""
REFUSED_MS = 5_000
"""How long a key that may not be raised is left alone before its route, and the hour's raises, are looked at again."""

MAX_AHEAD_MS = 60_000
"""A heartbeat from further ahead is ignored: clocks differ by less."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The results of one run, for its log line and return value."""

    entries: int = 0
    malformed: int = 0
    out_of_window: int = 0
    raises: int = 0
    ended: str = ""


@dataclass(slots=True)
class _State:
    """The state of one run. All of it can be lost."""

    reader: StreamReader
    log: DecisionLog
    routes: dict[str, JournalEntry] = field(default_factory=dict)
    # when each of them was read, or raised
    read_ms: dict[str, int] = field(default_factory=dict)
    # collections whose route in the journal may not be in Redis yet
    to_push: set[str] = field(default_factory=set)
    # the highest age of reports that were decided on since this was last counted
    lag_ms: int = 0
    # until when a collection is left alone whose raise was refused
    refused_until_ms: dict[str, int] = field(default_factory=dict)
    raises: int = 0

    @property
    def window(self) -> ReportWindow:
        """The reports of writes."""
        return self.reader.writes

    def forget_route(self, collection: str) -> None:
        """Forget a route that this consumer may have closed: it is read before anything is decided by it."""
        self.routes.pop(collection, None)
        self.read_ms.pop(collection, None)
        self.to_push.discard(collection)


@dataclass(frozen=True, slots=True)
class Consumer:
    """Sums the fleet's reports, raises hot collections, and marks those that are read-hot."""

    ends: ControlEnds
    _: KW_ONLY
    thresholds: Thresholds
    hot_at_once_rcu: float
    stream_partitions: int
    max_raises_per_hour: int
    """0: decisions are logged, and not carried out."""
    cooling: CoolingLimits | None = None
    """None: nothing is closed."""

    def run(self, run_ms: float) -> RunSummary:
        """Work on the streams until a successor has announced itself, or for `run_ms` at most."""
        started_ms = self.ends.clock.now_ms()
        marker = ReadMarker(self.ends, self.hot_at_once_rcu)
        reader = StreamReader(
            self.ends,
            streams=self.stream_partitions,
            since_ms=started_ms - CATCH_UP_MS,
            writes=ReportWindow(self.thresholds.loud_wcu),
            reads=marker.window,
        )
        state = _State(reader, DecisionLog(self.ends.telemetry, "decision"))
        cooler = None if self.cooling is None else Cooler(self.ends, self.cooling)
        next_housekeeping_ms = next_refresh_ms = started_ms
        has_announced = False
        while True:
            now_ms = self.ends.clock.now_ms()
            has_caught_up = not reader.read().streams
            # The successor announces itself only when it knows as much as its predecessor.
            if has_caught_up and not has_announced:
                has_announced = self._announce(started_ms)
            self._decide(state)
            self._push(state)
            marker.decide(reader.read_at_ms_of)
            state.lag_ms = max(state.lag_ms, self.ends.clock.now_ms() - reader.read_at_ms)
            if now_ms >= next_refresh_ms:
                next_refresh_ms = now_ms + REFRESH_MS
                self.ends.telemetry.count(MetricName.CONSUMER_LAG_MS, state.lag_ms)
                state.lag_ms = 0
                reader.log_skips_again()
                # Redis may have lost a route: the known ones are put there again.
                state.to_push.update(c for c, entry in state.routes.items() if entry.route)
            if cooler is not None and (closed := cooler.work(reader)):
                state.forget_route(closed)
            if now_ms >= next_housekeeping_ms:
                next_housekeeping_ms = now_ms + HOUSEKEEPING_MS
                state.window.forget(now_ms)
                # Not by the clock: while a stream is away, its load is not known to be low.
                marker.forget(reader.read_at_ms)
                self._forget_quiet(state)
                self.ends.telemetry.flush()
                if self._has_successor(started_ms):
                    ended = "successor"
                    break
            if self.ends.clock.now_ms() - started_ms >= run_ms:
                ended = "time"
                break
            elapsed_ms = self.ends.clock.now_ms() - now_ms
            if elapsed_ms < POLL_MS:
                self.ends.clock.sleep((POLL_MS - elapsed_ms) / 1000)
        return RunSummary(reader.entries, reader.malformed, reader.out_of_window, state.raises, ended)

    def _decide(self, state: _State) -> None:
        # All raises of one pass share the budget, since nothing is read meanwhile; the rest is decided again.
        deadline_ms = self.ends.clock.now_ms() + RAISE_BUDGET_MS
        # Also those whose heat was over ten seconds ago: what comes again is logged again.
        for collection in state.window.to_judge():
            is_stale = self.ends.clock.now_ms() - state.read_ms.get(collection, 0) >= REREAD_MS
            decisions = self._decide_one(state, collection)
            is_raise = any(d.generation for d in decisions)
            needs_route = self._is_warm(state, collection) or any(
                d.reason is not Reason.BELOW_THRESHOLD for d in decisions
            )
            is_refused = self.ends.clock.now_ms() < state.refused_until_ms.get(collection, 0)
            if (is_raise and not is_refused) or (is_stale and needs_route):
                # The known route may be stale or missing: read it, and decide again. A raise cannot wait for
                # the next pass, whose read may be refused as well.
                is_read = self._load_route(state, collection, deadline_ms if is_raise else 0.0)
                if not is_read and (is_raise or collection not in state.routes):
                    continue
                decisions = self._decide_one(state, collection)
            for decision in decisions:
                allowed = decision
                if decision.generation and not self._may_raise(decision, is_refused=is_refused):
                    reason = Reason.TOO_MANY if self.max_raises_per_hour else Reason.SWITCHED_OFF
                    allowed = replace(decision, reason=reason, generation=None)
                    if not is_refused:
                        state.refused_until_ms[collection] = self.ends.clock.now_ms() + REFUSED_MS
                self._say(state, allowed)
                if allowed.generation:
                    self._raise(state, allowed, allowed.generation, deadline_ms)

    def _say(self, state: _State, decision: Decision) -> None:
        """Log and count each decision but `below-threshold`."""
        place = (decision.collection, decision.shard_count)
        if decision.reason is Reason.BELOW_THRESHOLD:
            state.log.end(place)
            return
        is_act, now_ms = decision.generation is not None, self.ends.clock.now_ms()
        state.log.say(place, decision.reason, describe(decision), now_ms=now_ms, is_act=is_act)

    def _may_raise(self, decision: Decision, *, is_refused: bool) -> bool:
        """Count a raise of the hour, and say whether it may be made; where Redis cannot count it, it may.

        Raises that only keep N are not counted: there are at most as many as closes.
        """
        if not self.max_raises_per_hour or decision.keeps_n:
            return bool(self.max_raises_per_hour)
        if is_refused:
            return False
        try:
            return self.ends.registry.count_raise() <= self.max_raises_per_hour
        except RegistryUnavailableError:
            self.ends.telemetry.count(MetricName.REGISTRY_UNAVAILABLE)
            return True

    def _decide_one(self, state: _State, collection: str) -> tuple[Decision, ...]:
        return decide(
            collection,
            state.window.as_mapping()[collection],
            state.routes.get(collection, JournalEntry()).route,
            self.thresholds,
            now_ms=state.reader.read_at_ms_of(collection),
        )

    def _is_warm(self, state: _State, collection: str) -> bool:
        """Say whether a close of a collection would have to be undone: then its route must be known."""
        last_slot = last_whole_slot(state.reader.read_at_ms_of(collection))
        return state.window.as_mapping()[collection].mean(last_slot) >= self.thresholds.warm_wcu

    def _load_route(self, state: _State, collection: str, deadline_ms: float) -> bool:
        """Read a route in the journal, once at least, and again until the deadline while it refuses."""
        try:
            entry = self.ends.raiser.persist(
                lambda: self.ends.journal.get(collection, is_strong=True), deadline_ms=deadline_ms
            )
        except RetryLaterError:
            return False
        except MalformedGenerationError as error:
            report_unreadable(self.ends.telemetry, collection, reason=str(error))
            return False
        state.routes[collection], state.read_ms[collection] = entry, self.ends.clock.now_ms()
        if entry.route:
            state.to_push.add(collection)
        return True

    def _raise(self, state: _State, decision: Decision, generation: Generation, deadline_ms: int) -> None:
        """Raise a route; `_push` repeats what Redis does not take now."""
        collection = decision.collection
        load = round(decision.rate_wcu_per_second + decision.later_wcu_per_second)
        cause = Cause(decision.reason, rate_wcu_per_second=load)
        try:
            raised = self.ends.raiser.raise_route(collection, (generation,), cause=cause, deadline_ms=deadline_ms)
        except RetryLaterError:
            self.ends.telemetry.event("raise failed, to be decided again", collection=collection)
            return
        except MalformedGenerationError as error:
            report_unreadable(self.ends.telemetry, collection, reason=str(error))
            return
        state.routes[collection], state.read_ms[collection] = raised.entry, self.ends.clock.now_ms()
        if not raised.is_in_registry:
            state.to_push.add(collection)
        state.raises += 1
        self.ends.telemetry.count(MetricName.RAISES)

    def _push(self, state: _State) -> None:
        """Bring Redis up to the journal; failures are tried again next time."""
        for collection in sorted(state.to_push):
            if not self.ends.raiser.publish(collection, state.routes[collection].route):
                return
            state.to_push.discard(collection)

    def _has_successor(self, started_ms: int) -> bool:
        try:
            latest_ms = self.ends.source.latest_start_ms()
        except RegistryUnavailableError:
            return False
        return latest_ms is not None and started_ms < latest_ms <= self.ends.clock.now_ms() + MAX_AHEAD_MS

    def _forget_quiet(self, state: _State) -> None:
        """Drop collections that send no reports any more."""
        alive = state.window.as_mapping().keys() | state.to_push
        state.routes = {c: entry for c, entry in state.routes.items() if c in alive}
        state.read_ms = {c: read_ms for c, read_ms in state.read_ms.items() if c in alive}
        now_ms = self.ends.clock.now_ms()
        state.refused_until_ms = {c: until_ms for c, until_ms in state.refused_until_ms.items() if now_ms < until_ms}
        state.log.keep(alive)

    def _announce(self, started_ms: int) -> bool:
        try:
            self.ends.source.announce(started_ms)
        except RegistryUnavailableError:
            self.ends.telemetry.count(MetricName.REGISTRY_UNAVAILABLE)
            return False
        return True


def describe(decision: Decision) -> dict[str, object]:
    """Spell a decision out as log fields."""
    return {
        "collection": decision.collection,
        "reason": str(decision.reason),
        "load_class": decision.shard_count,
        "rate_wcu_per_second": round(decision.rate_wcu_per_second, 1),
        "later_wcu_per_second": round(decision.later_wcu_per_second, 1),
        "throttled_wcu": round(decision.throttled_wcu, 1),
        "per_slot_wcu": [round(wcu, 1) for wcu in decision.per_slot_wcu],
        "generation": decision.generation.encode() if decision.generation else None,
    }
