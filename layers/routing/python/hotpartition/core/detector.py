"""The detector: from the fleet's reports and the known route to a decision, as a pure function.

State is `(slot, source, collection) -> values`, written by assignment, so redelivered, reordered and doubled
reports change nothing, and all consumers that read the same stream decide the same.

Load is judged against what the route already gives. Messages whose N(t) is m form one *load class*; `max(m, 1)` keys
serve it. It is hot at once when one second of slots exceeds `hot_at_once_wcu` for each of these keys, and hot when
the mean of five seconds exceeds `hot_sustained_wcu` for each. The shard count is sized from one whole slot after the
trigger, so that a step in load of any size takes one raise (docs/architecture.md; how many, decision 31).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from math import ceil
from operator import itemgetter
from typing import NamedTuple, Self

from hotpartition.core.closes import WARM_SHARE
from hotpartition.core.reports import WriteReport
from hotpartition.core.route import Generation, Route
from hotpartition.core.sampler import SLOT_MS, slot_of

SLOTS_PER_SECOND = 1000 // SLOT_MS
SUSTAINED_SECONDS = 5
SUSTAINED_SLOTS = SUSTAINED_SECONDS * SLOTS_PER_SECOND

HORIZON_SLOTS = 15 * SLOTS_PER_SECOND
"""How far back reports are kept: longer than any trigger looks, so a consumer that starts anew misses nothing."""
MAX_SLOTS_AHEAD = 2 * SLOTS_PER_SECOND
"""Reports from further ahead come from a broken clock and are left out."""
TRIGGER_SLOTS = SUSTAINED_SLOTS
"""How far back a trigger still counts: heat that ended earlier needs no new shards."""

REPORT_DELAY_MS = 150
"""How long after a slot's end its reports have arrived: one XADD, and the consumer's poll of 100 ms."""

SINCE_QUANTILE = 0.01
MIN_SAMPLES_FOR_QUANTILE = 3

BACKFILL_REACH = 2
"""How many times the age of a backfill's messages a raise for them reaches back."""

EVIDENCE_SLOTS = 2 * SLOTS_PER_SECOND
EVIDENCE_MIN_SAMPLES = 4
"""Fewer are a few large items: two of those on one shard are too much for it, on any number (decision 30)."""
EVIDENCE_MIN_SLOTS = 2
"""Slots of the last two seconds that must have throttles; in fewer they may be a passing burst."""
EVIDENCE_LOAD_SHARE = 0.4
"""Own load, as a share of what the route is sized for, below which a throttle is a neighbour's doing."""
EVIDENCE_THROTTLED_SHARE = 0.05
"""Share of the own load; below it, throttled writes are stored a moment later, and new shards would cost every page."""
EVIDENCE_PAUSE_MS = 5_000

ROUNDING_MARGIN = 1 - 1e-9
"""A sum of floats depends on their order; a load that is not judged must be below the thresholds in any order."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The decision's numbers; defaults are in `Settings`, all in WCU/s."""

    hot_at_once_wcu: float
    hot_sustained_wcu: float
    target_shard_wcu: float
    max_shard_count: int


def size_route(wcu_per_second: float, thresholds: Thresholds) -> int:
    """Size a route: how many shards a load is to have, at least 2, whatever the cap is.

    Several shards can fall onto one physical partition and be more than it takes; refused writes go to the
    messages' next choices, so that N grows with the load and not with its square (decision 31 has the figures).
    """
    return max(2, ceil(wcu_per_second / thresholds.target_shard_wcu))


class Reason(StrEnum):
    """The reason of a decision."""

    RAISED = "raised"
    UNLUCKY_PARTITION = "unlucky-partition"  # raised: throttled although the load is covered
    SIZING = "sizing"  # hot; the slot that sets the size is not over yet
    COVERED = "covered"  # more than a base key serves, and the route's shards serve it
    AT_CAP = "at-cap"
    TOO_MANY = "too-many"  # hot, and the hour's raises are used up
    SWITCHED_OFF = "switched-off"  # hot, and `is_raising` is false
    NO_EVIDENCE = "no-evidence"  # throttled, but not by its own load
    STILL_WARM = "still-warm"  # raised: a close is pending, and the load is back
    COOLING_DOWN = "cooling-down"  # throttled although covered, so soon after a raise
    BELOW_THRESHOLD = "below-threshold"


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about one load class of one collection, and its reason.

    `generation` is set when the route is to be raised; `rate_wcu_per_second` is the load that decided, `per_slot_wcu`
    the slots it came from (oldest first), `shard_count` the m of the load class, `later_wcu_per_second` the load of
    later messages that the same shards serve and that counts for the size.
    """

    collection: str
    reason: Reason
    shard_count: int = 0
    rate_wcu_per_second: float = 0.0
    later_wcu_per_second: float = 0.0
    throttled_wcu: float = 0.0
    trigger_slot: int | None = None
    per_slot_wcu: tuple[float, ...] = ()
    generation: Generation | None = None

    @property
    def keeps_n(self) -> bool:
        """Whether the raise only keeps N unchanged, behind a pending close."""
        return self.generation is not None and self.generation.shard_count == self.shard_count


class _Sample(NamedTuple):
    """One crossing: the WCU it stands for, and the message that stands for them."""

    slot: int
    wcu: float
    position: int
    placed_under: int
    is_throttled: bool


# Skips a named tuple's handling of its arguments, which takes longer than making the tuple.
_new_tuple = tuple.__new__


class _Share(NamedTuple):
    """Samples of one slot, and their sum."""

    samples: tuple[_Sample, ...]
    wcu: float
    first_time_ms: int
    last_time_ms: int

    @classmethod
    def of(cls, samples: Iterable[_Sample]) -> Self:
        listed = tuple(samples)
        _, wcu, times, _, _ = zip(*listed, strict=True)
        return cls(listed, sum(wcu), min(times), max(times))


_Crossing = tuple[float, int, int, bool]
"""The kept part of a report: its value in WCU, position in ms, N and whether it was throttled.

A plain tuple, without the names that the dictionaries above it hold: a busy consumer keeps half a million of them.
"""


class _Slot:
    """The reports of one collection in one slot. REQUIRES: at least one is added before they are asked for."""

    __slots__ = ("_crossings", "_share", "wcu")

    def __init__(self) -> None:
        # source -> its crossings by rising value; the same value of the same source is the same crossing. Most sources
        # cross once, so a tuple takes a third of what a dictionary would.
        self._crossings: dict[str, tuple[_Crossing, ...]] = {}
        self._share: _Share | None = None
        self.wcu = 0.0

    def add(self, source: str, crossing: _Crossing) -> None:
        value = crossing[0]
        known = self._crossings.get(source)
        if known is None:
            self._crossings[source] = (crossing,)
            self.wcu += value
        elif value > known[-1][0]:
            self._crossings[source] = (*known, crossing)
            self.wcu += value - known[-1][0]
        elif not self._insert(source, known, crossing):
            return
        self._share = None

    def _insert(self, source: str, known: tuple[_Crossing, ...], crossing: _Crossing) -> bool:
        """Add a value that is not the source's largest, or a repetition; say whether that changes anything."""
        at = bisect_left(known, crossing[0], key=itemgetter(0))
        is_repetition = known[at][0] == crossing[0]
        if is_repetition and not crossing[3]:
            return False
        self._crossings[source] = (*known[:at], crossing, *known[at + is_repetition :])
        return True

    def share(self, slot: int) -> _Share:
        """Sum the slot up, once until it changes: a consumer decides ten times a second, most slots are complete."""
        if self._share is None:
            self._share = _Share.of(self._samples(slot))
        return self._share

    def _samples(self, slot: int) -> list[_Sample]:
        """List the samples in a fixed order; each stands for the WCU since its source's last one."""
        samples = []
        for source in sorted(self._crossings):
            known = self._crossings[source]
            samples.append(_new_tuple(_Sample, (slot, *known[0])))
            if len(known) > 1:
                samples += [_Sample(slot, after[0] - before[0], *after[1:]) for before, after in pairwise(known)]
        return samples


class CollectionReports:
    """The reports of one collection within the horizon."""

    __slots__ = ("_slots", "first_slot")

    def __init__(self) -> None:
        self._slots: dict[int, _Slot] = {}
        # no slot is older
        self.first_slot = 0

    def add(self, report: WriteReport) -> None:
        """Take a report in; a repetition changes nothing, except that it may add that the write was throttled."""
        _, number, source, value, position, shard_count, is_throttled = report
        self.add_crossing(number, source, (value, position, shard_count, is_throttled))

    def add_crossing(self, number: int, source: str, crossing: _Crossing) -> float:
        """Take in the kept part of a report; return the sum of its slot by now, in WCU."""
        slot = self._slots.get(number)
        if slot is None:
            self.first_slot = min(self.first_slot, number) if self._slots else number
            slot = self._slots[number] = _Slot()
        slot.add(source, crossing)
        return slot.wcu

    def forget_before(self, slot: int) -> None:
        """Drop all slots before this one."""
        if self.first_slot >= slot:
            return
        for dropped in [s for s in self._slots if s < slot]:
            del self._slots[dropped]
        self.first_slot = min(self._slots, default=slot)

    def mean_wcu(self, slot: int) -> float:
        """Return the mean load of the five seconds that end with a slot, in WCU/s."""
        slots = (self._slots.get(number) for number in range(slot - SUSTAINED_SLOTS + 1, slot + 1))
        return sum([each.wcu for each in slots if each]) / SUSTAINED_SECONDS

    def __bool__(self) -> bool:
        return bool(self._slots)

    def shares(self, since_slot: int) -> list[tuple[int, _Share]]:
        """List the sums of the slots from one on, oldest first."""
        return [(number, self._slots[number].share(number)) for number in sorted(self._slots) if number >= since_slot]


def decide(
    collection: str,
    reports: CollectionReports,
    route: Route,
    thresholds: Thresholds,
    *,
    now_ms: int,
    raised_at_ms: int | None = None,
) -> tuple[Decision, ...]:
    """Decide about each load class of a collection that asks for a raise or waits for one, or else about it as a whole.

    `route` is the one in the journal, as far as known: a stale one can only lead to a raise that is already there, or
    is larger than needed. `raised_at_ms` is when it last grew, Unix ms.
    """
    route = route.as_announced  # as writers place by it
    current = slot_of(now_ms)
    classes = _split_by_class(reports.shares(current - HORIZON_SLOTS), route)
    loads = [_LoadClass(m, shares) for m, shares in sorted(classes.items())]
    for load in loads:
        load.later = [other for other in loads if other.shard_count > load.shard_count]
        load.is_backfill = route.shard_count_at(None) > load.shard_count
    decisions = [_judge(collection, load, thresholds, now_ms=now_ms, raised_at_ms=raised_at_ms) for load in loads]
    urgent = [d for d in decisions if d.generation or d.reason in {Reason.SIZING, Reason.AT_CAP}]
    # A raise holds behind the pending close by itself; the rest is decided in the next pass.
    if route.closes and not any(d.generation for d in urgent):
        warm_wcu = thresholds.hot_sustained_wcu * WARM_SHARE
        if kept := keep_open(collection, reports.mean_wcu(current), route, warm_wcu, now_ms=now_ms):
            urgent.append(kept)
    if urgent:
        return tuple(urgent)
    rest = [d for d in decisions if d.reason is not Reason.BELOW_THRESHOLD] or decisions
    return (max(rest, key=lambda d: d.rate_wcu_per_second, default=Decision(collection, Reason.BELOW_THRESHOLD)),)


def keep_open(collection: str, wcu_per_second: float, route: Route, warm_wcu: float, *, now_ms: int) -> Decision | None:
    """Decide whether a collection that has become warm again keeps its N behind a pending close.

    Its shards serve the load, so nothing else raises it, and at the close all writers would go to the base key at once.

    `wcu_per_second` is all of its load; with less than `warm_wcu` it may be closed. `route` is as writers place by it.
    """
    generation = route.undone_after(now_ms) if wcu_per_second >= warm_wcu else None
    if generation is None:
        return None
    return Decision(
        collection,
        Reason.STILL_WARM,
        shard_count=generation.shard_count,
        rate_wcu_per_second=wcu_per_second,
        generation=generation,
    )


def _split_by_class(shares: Iterable[tuple[int, _Share]], route: Route) -> dict[int, dict[int, _Share]]:
    """Split the sums of slots by the N(t) of their messages: load class -> slot -> share."""
    starts = [since for since, _ in reversed(route.steps)]
    # The N(t) before the first of them, and from each of them on.
    counts = [0, *(shard_count for _, shard_count in reversed(route.steps))]
    classes: dict[int, dict[int, _Share]] = {}
    for slot, share in shares:
        first, last = bisect_right(starts, share.first_time_ms), bisect_right(starts, share.last_time_ms)
        lowest = counts[first]
        # Without closes N(t) never falls: it is the same in between.
        if first == last or (lowest == counts[last] and not route.closes):
            classes.setdefault(lowest, {})[slot] = share
            continue
        parts: dict[int, list[_Sample]] = {}
        for sample in share.samples:
            parts.setdefault(counts[bisect_right(starts, sample.position)], []).append(sample)
        for shard_count, samples in parts.items():
            classes.setdefault(shard_count, {})[slot] = _Share.of(samples)
    return classes


class _LoadClass:
    """The load of the messages whose N(t) is m.

    `later` are the classes of later messages, which have more shards: those include all that this class can get.
    `is_backfill` says that a generation for later messages exists, so these are older ones.
    """

    def __init__(self, shard_count: int, shares: Mapping[int, _Share]) -> None:
        self.shard_count = shard_count
        self.key_count = max(shard_count, 1)
        self.later: Sequence[_LoadClass] = ()
        self.is_backfill = False
        self._shares = shares

    def samples(self, first_slot: int, last_slot: int) -> list[_Sample]:
        return [s for slot, share in self._shares.items() if first_slot <= slot <= last_slot for s in share.samples]

    def throttled_wcu(self, first_slot: int) -> float:
        later = (share for slot, share in self._shares.items() if slot >= first_slot)
        return sum(s.wcu for share in later for s in share.samples if s.is_throttled)

    def wcu(self, slot: int) -> float:
        share = self._shares.get(slot)
        return share.wcu if share else 0.0

    def sum(self, first_slot: int, last_slot: int) -> float:
        return sum(self.per_slot(first_slot, last_slot))

    def per_slot(self, first_slot: int, last_slot: int) -> tuple[float, ...]:
        shares = self._shares
        return tuple([shares[s].wcu if s in shares else 0.0 for s in range(first_slot, last_slot + 1)])

    def is_at_most(self, wcu: float) -> bool:
        """Say whether the sum of all shares is at most `wcu`, whatever the rounding."""
        return sum([share.wcu for share in self._shares.values()]) <= wcu * ROUNDING_MARGIN


@dataclass(frozen=True, slots=True)
class _Trigger:
    """The first slot at which a load class was hot, and the window that made it so.

    `heat_slot` is where the heat began: the window's first slot, or an earlier one when a consumer that starts late
    finds windows before it hot as well.
    """

    slot: int
    first_slot: int
    rate_wcu_per_second: float
    heat_slot: int


def _find_trigger(load: _LoadClass, thresholds: Thresholds, current_slot: int) -> _Trigger | None:
    at_once = thresholds.hot_at_once_wcu * load.key_count
    sustained = thresholds.hot_sustained_wcu * load.key_count
    enough = min(at_once, sustained * SUSTAINED_SECONDS)
    if load.is_at_most(enough):
        return None  # as for most load classes: all of it together would not be enough
    first = current_slot - HORIZON_SLOTS - SUSTAINED_SLOTS
    wcu = load.per_slot(first, current_slot)
    if sum(wcu) <= enough:
        return None

    def judge_window(slot: int) -> tuple[int, float] | None:
        """Return the first slot and the rate of a hot window that ends with a slot."""
        end = slot - first + 1
        one_second = sum(wcu[end - SLOTS_PER_SECOND : end])
        if one_second > at_once:
            return slot - SLOTS_PER_SECOND + 1, one_second
        mean = sum(wcu[end - SUSTAINED_SLOTS : end]) / SUSTAINED_SECONDS
        return (slot - SUSTAINED_SLOTS + 1, mean) if mean > sustained else None

    for slot in range(current_slot - TRIGGER_SLOTS, current_slot + 1):
        window = judge_window(slot)
        if window:
            break
    else:
        return None
    heat_slot = window[0]
    for earlier in range(slot - 1, current_slot - HORIZON_SLOTS, -1):
        hot = judge_window(earlier)
        if hot is None:
            break
        heat_slot = min(heat_slot, hot[0])
    return _Trigger(slot, *window, heat_slot)


def _judge(
    collection: str, load: _LoadClass, thresholds: Thresholds, *, now_ms: int, raised_at_ms: int | None
) -> Decision:
    current = slot_of(now_ms)
    trigger = _find_trigger(load, thresholds, current)
    if trigger is None:
        return _judge_throttles(collection, load, thresholds, now_ms=now_ms, raised_at_ms=raised_at_ms)
    sizing_slot = trigger.slot + 1
    hot = Decision(
        collection,
        Reason.SIZING,
        shard_count=load.shard_count,
        rate_wcu_per_second=trigger.rate_wcu_per_second,
        throttled_wcu=load.throttled_wcu(trigger.first_slot),
        trigger_slot=trigger.slot,
        per_slot_wcu=load.per_slot(trigger.first_slot, sizing_slot),
    )
    if load.shard_count >= thresholds.max_shard_count:
        return replace(hot, reason=Reason.AT_CAP)
    if now_ms < (sizing_slot + 1) * SLOT_MS + REPORT_DELAY_MS:
        return hot
    rate = max(load.wcu(sizing_slot) * SLOTS_PER_SECOND, trigger.rate_wcu_per_second)
    # The new shards serve later messages as well, where those have as many.
    later = sum(other.wcu(sizing_slot) for other in load.later) * SLOTS_PER_SECOND
    count = min(size_route(rate + later, thresholds), thresholds.max_shard_count)
    since_ms = _choose_since(load, trigger.heat_slot, sizing_slot, now_ms)
    return replace(
        hot,
        reason=Reason.RAISED,
        rate_wcu_per_second=rate,
        later_wcu_per_second=later,
        generation=_generation(count, load, since_ms),
    )


def _judge_throttles(
    collection: str, load: _LoadClass, thresholds: Thresholds, *, now_ms: int, raised_at_ms: int | None
) -> Decision:
    current = slot_of(now_ms)
    last_second = load.sum(current - SLOTS_PER_SECOND, current - 1)
    # Only writes placed under the present N are evidence about the present shards.
    evidence = [
        s
        for s in load.samples(current - EVIDENCE_SLOTS + 1, current + MAX_SLOTS_AHEAD)
        if s.is_throttled and s.placed_under == load.shard_count
    ]
    cool = Decision(
        collection,
        Reason.BELOW_THRESHOLD,
        shard_count=load.shard_count,
        rate_wcu_per_second=last_second,
        throttled_wcu=sum(s.wcu for s in evidence),
        per_slot_wcu=load.per_slot(current - SLOTS_PER_SECOND, current),
    )
    slots = {s.slot for s in evidence}
    found = Evidence(
        shard_count=load.shard_count,
        samples=len(evidence),
        slots=len(slots),
        throttled_wcu=cool.throttled_wcu,
        recent_wcu=load.sum(current - EVIDENCE_SLOTS + 1, current + MAX_SLOTS_AHEAD),
        last_second_wcu=last_second,
    )
    reason = weigh_evidence(found, thresholds, now_ms=now_ms, raised_at_ms=raised_at_ms)
    if reason is not Reason.UNLUCKY_PARTITION:
        return replace(cool, reason=reason)
    # Its shards share partitions: it gets twice as many.
    count = min(2 * load.key_count, thresholds.max_shard_count)
    since_ms = _choose_since(load, min(slots), max(slots), now_ms)
    generation = _generation(count, load, since_ms)
    return replace(cool, reason=Reason.UNLUCKY_PARTITION, generation=generation)


class Evidence(NamedTuple):
    """Throttles of one load class in the last two seconds, and its own load."""

    shard_count: int
    samples: int
    """How many samples were throttled wherever they may go, and in how many different slots."""
    slots: int
    throttled_wcu: float
    recent_wcu: float
    """The load of the same time, in WCU."""
    last_second_wcu: float


def weigh_evidence(evidence: Evidence, thresholds: Thresholds, *, now_ms: int, raised_at_ms: int | None) -> Reason:
    """Say whether throttles show that shards which are enough for the load share a partition."""
    m, last_second_wcu = evidence.shard_count, evidence.last_second_wcu
    key_count = max(m, 1)
    is_scarce = evidence.samples < EVIDENCE_MIN_SAMPLES or evidence.slots < EVIDENCE_MIN_SLOTS
    if is_scarce or evidence.throttled_wcu < EVIDENCE_THROTTLED_SHARE * evidence.recent_wcu:
        is_covered = m > 0 and last_second_wcu > thresholds.hot_sustained_wcu
        return Reason.COVERED if is_covered else Reason.BELOW_THRESHOLD
    if last_second_wcu < EVIDENCE_LOAD_SHARE * key_count * thresholds.target_shard_wcu:
        return Reason.NO_EVIDENCE
    if m >= thresholds.max_shard_count:
        return Reason.AT_CAP
    if raised_at_ms is not None and now_ms - raised_at_ms < EVIDENCE_PAUSE_MS:
        return Reason.COOLING_DOWN
    return Reason.UNLUCKY_PARTITION


def _generation(count: int, load: _LoadClass, since_ms: int) -> Generation:
    return Generation(since_ms=since_ms, shard_count=max(count, load.shard_count + 1, 2))


def _choose_since(load: _LoadClass, first_slot: int, last_slot: int, now_ms: int) -> int:
    """Choose where the new generation begins, Unix ms.

    A low quantile of the hot messages' times, so that messages refused before the raise, slow clients and backfills
    find the new shards; robust, so that one lone ancient id does not drag it back; and never later than the start of
    the first slot of the heat. An early `since` is always safe: it costs readers of that time some empty queries.

    A backfill may run backwards in time, always just ahead of the last `since`. So each raise of older messages reaches
    back twice as far as they do: the number of raises grows with the logarithm of their age only.
    """
    hot = load.samples(first_slot, last_slot)
    times = sorted(s.position for s in hot)
    skipped = max(1, int(len(times) * SINCE_QUANTILE)) if len(times) >= MIN_SAMPLES_FOR_QUANTILE else 0
    since_ms = min(times[skipped], min(s.slot for s in hot) * SLOT_MS)
    if load.is_backfill:
        since_ms = now_ms - BACKFILL_REACH * (now_ms - since_ms)
    return max(0, since_ms)


class ReportWindow:
    """All reports within the horizon, by collection.

    Memory is proportional to what the streams hold of 15 s.
    """

    def __init__(self, thresholds: Thresholds | None = None) -> None:
        """Start empty. `to_judge` leaves out collections below the `thresholds`; None: it lists all."""
        self._loud_wcu = 0.0
        if thresholds is not None:
            # A load that is hot or warm, for a second or in the mean of five, has a slot with as much as this.
            lowest = min(thresholds.hot_at_once_wcu, thresholds.hot_sustained_wcu * WARM_SHARE)
            self._loud_wcu = lowest / SLOTS_PER_SECOND * ROUNDING_MARGIN
        self._collections: dict[str, CollectionReports] = {}
        # by collection, the last slot that is loud or has a throttled write
        self._loud: dict[str, int] = {}
        # The sources of late, so that their names are held once and not once a report.
        self._sources: dict[str, str] = {}

    def add(self, report: WriteReport, now_ms: int) -> bool:
        """Take a report in; return False for one outside the horizon (late, or from a broken clock): it is left out."""
        collection, number, source, value, position, shard_count, is_throttled = report
        ahead = number - now_ms // SLOT_MS
        if not -HORIZON_SLOTS <= ahead <= MAX_SLOTS_AHEAD:
            return False
        reports = self._collections.get(collection)
        if reports is None:
            reports = self._collections[collection] = CollectionReports()
        source = self._sources.setdefault(source, source)
        crossing = (value, position, shard_count, is_throttled)
        if reports.add_crossing(number, source, crossing) >= self._loud_wcu or is_throttled:
            self._loud[collection] = max(number, self._loud.get(collection, number))
        return True

    def forget(self, now_ms: int) -> None:
        """Drop slots that have left the horizon."""
        oldest = slot_of(now_ms) - HORIZON_SLOTS
        aged = [(c, reports) for c, reports in self._collections.items() if reports.first_slot < oldest]
        for collection, reports in aged:
            reports.forget_before(oldest)
            if not reports:
                del self._collections[collection]
        self._sources.clear()
        self._loud = {c: slot for c, slot in self._loud.items() if slot >= oldest}

    def to_judge(self) -> Sequence[str]:
        """List the collections about which `decide` may say anything but `below-threshold`.

        The rest, nearly all, have had no slot with a share of what makes warm, and no throttled write. A consumer
        decides ten times a second, so it cannot look at each collection that was written to at all.
        """
        return list(self._loud)

    def list_warm(self, wcu_per_second: float, now_ms_of: Callable[[str], int]) -> Sequence[str]:
        """List the collections with a mean load of `wcu_per_second` or more over five seconds, up to the last read."""
        known = self._collections.items()
        return [c for c, reports in known if reports.mean_wcu(slot_of(now_ms_of(c))) >= wcu_per_second]

    def items(self) -> Iterable[tuple[str, CollectionReports]]:
        """List the collections that have reports."""
        return self._collections.items()

    def as_mapping(self) -> Mapping[str, CollectionReports]:
        """Show the reports by collection."""
        return self._collections
