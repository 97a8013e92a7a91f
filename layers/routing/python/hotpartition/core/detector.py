"""The detector of writes: from the fleet's reports and the known route to a decision, as a pure function.

Load is judged against what the route already gives. Messages whose N(t) is m form one *load class*; `max(m, 1)` keys
serve it. It is hot when its last whole second exceeds `hot_at_once_wcu` for each of these keys, or the mean of its last
five seconds `hot_sustained_wcu`; at the base key half of that is enough where writes were refused, since the partition
is shared with busy neighbours. N is sized by the largest of three rates: the second, the mean, and the newest slot,
which may not be whole. Nothing waits for a slot that has not ended.

There is no cool-down after a raise: it begins five seconds back at least, so new messages are of the new class, whose
limits are N times as high, and the old class gets old messages only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil

from hotpartition.core.closes import WARM_SHARE
from hotpartition.core.route import Generation, Route
from hotpartition.core.window import (
    SLOTS_PER_SECOND,
    SUSTAINED_SECONDS,
    SUSTAINED_SLOTS,
    CollectionReports,
    Sample,
    Share,
    last_whole_slot,
)

REFUSED_SHARE = 0.05
"""Share of the load at a base key that must have been refused for the lower limit."""
REFUSED_SLOTS = 2
"""Slots that must have such writes; in fewer they may be a passing burst."""
REFUSED_LIMIT_SHARE = 0.5
"""Share of `hot_sustained_wcu` that is hot then."""

SINCE_QUANTILE = 0.01
MIN_SAMPLES_FOR_QUANTILE = 3
BACKFILL_REACH = 2
"""How many times the age of a backfill's messages a raise for them reaches back. It may run backwards in time, always
just ahead of the last `since`: so the number of raises grows with the logarithm of its age only."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The decision's numbers; defaults are in `Settings`, all in WCU/s."""

    hot_at_once_wcu: float
    hot_sustained_wcu: float
    target_shard_wcu: float
    max_shard_count: int

    @property
    def warm_wcu(self) -> float:
        """With less load a collection has cooled."""
        return self.hot_sustained_wcu * WARM_SHARE

    @property
    def loud_wcu(self) -> float:
        """A load that is hot or warm, for a second or in the mean of five, has a slot with as much."""
        return min(self.hot_at_once_wcu, self.warm_wcu) / SLOTS_PER_SECOND


def size_route(wcu_per_second: float, thresholds: Thresholds) -> int:
    """Size a route: how many shards a load is to have, at least 2, whatever the cap is.

    Several shards can fall onto one physical partition and be more than it takes; refused writes go to the
    messages' next choices, so that N grows with the load and not with its square (decision 31 has the figures).
    """
    return max(2, ceil(wcu_per_second / thresholds.target_shard_wcu))


class Reason(StrEnum):
    """The reason of a decision."""

    RAISED = "raised"
    UNLUCKY_PARTITION = "unlucky-partition"  # raised in band: refused, and sized for too little
    AT_CAP = "at-cap"
    TOO_MANY = "too-many"  # hot, and the hour's raises are used up
    SWITCHED_OFF = "switched-off"  # hot, and `is_raising` is false
    STILL_WARM = "still-warm"  # raised: a close is pending, and the load is back
    BELOW_THRESHOLD = "below-threshold"


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about one load class of one collection, and its reason.

    `generation` is set when the route is to be raised; `rate_wcu_per_second` is the load that decided, `per_slot_wcu`
    the slots of the last five seconds (oldest first), `shard_count` the m of the load class, `throttled_wcu` what was
    refused of them, `later_wcu_per_second` the load of later messages that the same shards serve and that counts for
    the size.
    """

    collection: str
    reason: Reason
    shard_count: int = 0
    rate_wcu_per_second: float = 0.0
    later_wcu_per_second: float = 0.0
    throttled_wcu: float = 0.0
    per_slot_wcu: tuple[float, ...] = ()
    generation: Generation | None = None

    @property
    def keeps_n(self) -> bool:
        """Whether the raise only keeps N unchanged, behind a pending close."""
        return self.generation is not None and self.generation.shard_count == self.shard_count


class _LoadClass:
    """The load of the messages whose N(t) is m, in the five seconds that end with the last whole slot."""

    def __init__(self, shard_count: int, shares: dict[int, Share], last_slot: int) -> None:
        self.shard_count = shard_count
        self.key_count = max(shard_count, 1)
        slots = range(last_slot - SUSTAINED_SLOTS + 1, last_slot + 1)
        self.shares = [shares[n] for n in slots if n in shares]
        self.per_slot_wcu = tuple([shares[n].units if n in shares else 0.0 for n in slots])
        self.second_wcu = sum(self.per_slot_wcu[-SLOTS_PER_SECOND:])
        self.mean_wcu = sum(self.per_slot_wcu) / SUSTAINED_SECONDS
        # Later slots are not whole: they may show what a rush is going to be, and never too much.
        self.newest_wcu = max([self.per_slot_wcu[-1], *[s.units for n, s in shares.items() if n > last_slot]])
        self.throttled_wcu = sum([share.refused_units for share in self.shares])

    @property
    def rate_wcu(self) -> float:
        """The load that a raise is sized for, in WCU/s."""
        return max(self.second_wcu, self.mean_wcu, self.newest_wcu * SLOTS_PER_SECOND)

    def is_hot(self, thresholds: Thresholds) -> bool:
        sustained = thresholds.hot_sustained_wcu * self.key_count
        if not self.shard_count and self._is_refused():
            sustained *= REFUSED_LIMIT_SHARE
        return self.second_wcu > thresholds.hot_at_once_wcu * self.key_count or self.mean_wcu > sustained

    def _is_refused(self) -> bool:
        slots = sum(share.refused_units > 0 for share in self.shares)
        return slots >= REFUSED_SLOTS and self.throttled_wcu > REFUSED_SHARE * sum(self.per_slot_wcu)

    def oldest_position(self) -> int:
        """Find where the load begins: a low quantile, so that one lone ancient id does not draw it back."""
        positions = sorted(sample.position for share in self.shares for sample in share.samples)
        many = len(positions) >= MIN_SAMPLES_FOR_QUANTILE
        return positions[max(1, int(len(positions) * SINCE_QUANTILE)) if many else 0]


def decide(
    collection: str, reports: CollectionReports, route: Route, thresholds: Thresholds, *, now_ms: int
) -> tuple[Decision, ...]:
    """Decide about each load class of a collection that is hot, or else about it as a whole.

    `route` is the one in the journal, as far as known: a stale one can only lead to a raise that is already there, or
    is larger than needed. `now_ms` is up to when the reports were read.
    """
    route = route.as_announced  # as writers place by it
    last_slot = last_whole_slot(now_ms)
    shares = reports.shares(last_slot - SUSTAINED_SLOTS + 1)
    classes = [_LoadClass(m, by_slot, last_slot) for m, by_slot in sorted(_split_by_class(shares, route).items())]
    classes = [load for load in classes if load.shares]
    decided = [_judge(collection, load, classes, route, thresholds, now_ms) for load in classes]
    urgent = [decision for decision in decided if decision.reason is not Reason.BELOW_THRESHOLD]
    # A raise holds behind the pending close by itself.
    if route.closes and not any(decision.generation for decision in urgent):
        mean_wcu = sum(load.mean_wcu for load in classes)
        if kept := keep_open(collection, mean_wcu, route, thresholds.warm_wcu, now_ms=now_ms):
            urgent.append(kept)
    if urgent:
        return tuple(urgent)
    nothing = Decision(collection, Reason.BELOW_THRESHOLD)
    return (max(decided, key=lambda decision: decision.rate_wcu_per_second, default=nothing),)


def _judge(
    collection: str, load: _LoadClass, classes: list[_LoadClass], route: Route, thresholds: Thresholds, now_ms: int
) -> Decision:
    m = load.shard_count
    cool = Decision(
        collection,
        Reason.BELOW_THRESHOLD,
        shard_count=m,
        rate_wcu_per_second=load.second_wcu,
        throttled_wcu=load.throttled_wcu,
        per_slot_wcu=load.per_slot_wcu,
    )
    if not load.is_hot(thresholds):
        return cool
    hot = replace(cool, rate_wcu_per_second=load.rate_wcu)
    if m >= thresholds.max_shard_count:
        return replace(hot, reason=Reason.AT_CAP)
    # The new shards serve later messages as well, where those have as many.
    later_wcu = sum(other.per_slot_wcu[-1] for other in classes if other.shard_count > m) * SLOTS_PER_SECOND
    count = min(size_route(load.rate_wcu + later_wcu, thresholds), thresholds.max_shard_count)
    # Messages refused before the raise, slow clients and backfills find the new shards. An early `since` is always
    # safe: it costs readers of that time some empty queries.
    since_ms = min(now_ms - SUSTAINED_SECONDS * 1000, load.oldest_position())
    if route.shard_count_at(None) > m:
        since_ms = now_ms - BACKFILL_REACH * (now_ms - since_ms)
    generation = Generation(since_ms=max(0, since_ms), shard_count=max(count, m + 1))
    return replace(hot, reason=Reason.RAISED, later_wcu_per_second=later_wcu, generation=generation)


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


def _split_by_class(shares: Iterable[tuple[int, Share]], route: Route) -> dict[int, dict[int, Share]]:
    """Split the sums of slots by the N(t) of their messages: load class -> slot -> share."""
    starts = [since for since, _ in reversed(route.steps)]
    # The N(t) before the first of them, and from each of them on.
    counts = [0, *(shard_count for _, shard_count in reversed(route.steps))]
    classes: dict[int, dict[int, Share]] = {}
    for slot, share in shares:
        first, last = bisect_right(starts, share.first_position), bisect_right(starts, share.last_position)
        lowest = counts[first]
        # Without closes N(t) never falls: it is the same in between.
        if first == last or (lowest == counts[last] and not route.closes):
            classes.setdefault(lowest, {})[slot] = share
            continue
        parts: dict[int, list[Sample]] = {}
        for sample in share.samples:
            parts.setdefault(counts[bisect_right(starts, sample.position)], []).append(sample)
        for shard_count, samples in parts.items():
            classes.setdefault(shard_count, {})[slot] = Share.of(samples)
    return classes
