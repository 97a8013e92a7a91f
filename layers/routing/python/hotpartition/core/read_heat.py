"""The detector of read heat: from the fleet's read reports to a decision, as a pure function.

State is `(slot, source, collection) -> (RCU, pages)`, written by assignment, as the write detector's. It counts offered
load: the RCU of pages, cached or not. So a cache that works does not cool the pages that it serves.

A collection is read-hot at once when one second of slots exceeds `hot_at_once_rcu`, and when the mean of five seconds
exceeds `hot_sustained_rcu`. It stays so until no five seconds within the horizon had a mean above `cooled_rcu`, which
is lower, and no second was hot at once. Its number of copies follows the pages a second as if every page were taken
from Redis, and only grows until it has cooled. So neither flaps. Both may be wrong at no cost but a page's staleness or
its units.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from math import ceil

from hotpartition.core.detector import (
    HORIZON_SLOTS,
    MAX_SLOTS_AHEAD,
    ROUNDING_MARGIN,
    SLOTS_PER_SECOND,
    SUSTAINED_SECONDS,
    SUSTAINED_SLOTS,
    TRIGGER_SLOTS,
)
from hotpartition.core.reports import ReadReport
from hotpartition.core.sampler import slot_of

MAX_COPIES = 64
"""Copies of one page that are ever decided on; each of them is written whenever the page is read anew."""


@dataclass(frozen=True, slots=True)
class ReadThresholds:
    """The decision's numbers; defaults are in `Settings`, loads in RCU/s."""

    hot_at_once_rcu: float
    hot_sustained_rcu: float
    cooled_rcu: float
    pages_per_copy: float


class ReadReason(StrEnum):
    """The reason of a decision about reads."""

    READ_HOT = "read-hot"
    COOLED = "cooled"  # it was read-hot, and is not any more
    BELOW_THRESHOLD = "below-threshold"


class Trigger(StrEnum):
    """Why a collection is read-hot."""

    AT_ONCE = "at-once"
    SUSTAINED = "sustained"
    WARM = "warm"  # it was read-hot, and has not cooled


@dataclass(frozen=True, slots=True)
class ReadDecision:
    """The decision about the reads of one collection, and its reason.

    `copies` is in how many copies its newest page is to be kept, 0 unless it is read-hot. `rcu_per_second` is the
    load of the hottest second of late where `trigger` says at once, else of the hottest five seconds; pages are always
    those of a second. `per_slot_rcu` are the slots of the last five seconds, oldest first.
    """

    collection: str
    reason: ReadReason
    copies: int = 0
    trigger: Trigger | None = None
    rcu_per_second: float = 0.0
    pages_per_second: float = 0.0
    per_slot_rcu: tuple[float, ...] = ()


class _Slot:
    """The read reports of one collection in one slot."""

    __slots__ = ("_values", "pages", "rcu")

    def __init__(self) -> None:
        # by source, the largest value and its pages
        self._values: dict[str, tuple[float, float]] = {}
        self.rcu = 0.0
        self.pages = 0.0

    def add(self, source: str, value_rcu: float, pages: float) -> None:
        known = self._values.get(source, (0.0, 0.0))
        if value_rcu > known[0]:
            self._values[source] = value_rcu, pages
            self.rcu += value_rcu - known[0]
            self.pages += pages - known[1]


_EMPTY = _Slot()


class CollectionReads:
    """The read reports of one collection within the horizon."""

    __slots__ = ("_slots",)

    def __init__(self) -> None:
        self._slots: dict[int, _Slot] = {}

    def add(self, report: ReadReport) -> float:
        """Take a report in; a repetition changes nothing. Return the sum of its slot by now, in RCU."""
        slot = self._slots.get(report.slot)
        if slot is None:
            slot = self._slots[report.slot] = _Slot()
        slot.add(report.source, report.value_rcu, report.pages)
        return slot.rcu

    def forget_before(self, slot: int) -> None:
        """Drop all slots before this one."""
        for dropped in [number for number in self._slots if number < slot]:
            del self._slots[dropped]

    def load(self, first_slot: int, last_slot: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """List the RCU, and the pages, of slots, both ends included."""
        slots = [self._slots.get(number, _EMPTY) for number in range(first_slot, last_slot + 1)]
        return tuple([slot.rcu for slot in slots]), tuple([slot.pages for slot in slots])

    def __bool__(self) -> bool:
        return bool(self._slots)


def decide_reads(
    collection: str, reads: CollectionReads, copies: int, thresholds: ReadThresholds, *, now_ms: int
) -> ReadDecision:
    """Decide whether a collection is read-hot.

    `copies` is the last decision, as far as known; 0: it was not read-hot.
    """
    current = slot_of(now_ms)
    rcu, pages = reads.load(current - HORIZON_SLOTS, current)
    five_seconds = [total / SUSTAINED_SECONDS for total in _sums(rcu, SUSTAINED_SLOTS)]
    seconds = _sums(rcu, SLOTS_PER_SECOND)
    second, mean = max(seconds[-TRIGGER_SLOTS:]), max(five_seconds[-TRIGGER_SLOTS:])
    pages_per_second = max(_sums(pages, SLOTS_PER_SECOND)[-TRIGGER_SLOTS:])
    trigger = None
    if second > thresholds.hot_at_once_rcu:
        trigger = Trigger.AT_ONCE
    elif mean > thresholds.hot_sustained_rcu:
        trigger = Trigger.SUSTAINED
    elif copies and (max(five_seconds) > thresholds.cooled_rcu or max(seconds) > thresholds.hot_at_once_rcu):
        trigger = Trigger.WARM
    if trigger is None:
        reason, copies = ReadReason.COOLED if copies else ReadReason.BELOW_THRESHOLD, 0
    else:
        needed = max(1, ceil(pages_per_second / thresholds.pages_per_copy))
        reason, copies = ReadReason.READ_HOT, max(copies, min(needed, MAX_COPIES))
    rate = second if trigger is Trigger.AT_ONCE else mean
    return ReadDecision(collection, reason, copies, trigger, rate, pages_per_second, rcu[-SUSTAINED_SLOTS:])


def _sums(values: Sequence[float], width: int) -> list[float]:
    """Sum up each run of `width` values."""
    totals = list(accumulate(values, initial=0.0))
    return [end - start for start, end in zip(totals, totals[width:], strict=False)]


class ReadWindow:
    """All read reports within the horizon, by collection."""

    def __init__(self, thresholds: ReadThresholds | None = None) -> None:
        """Start empty. `to_judge` leaves out collections below the `thresholds`; None: it lists all."""
        self._quiet_rcu = -1.0
        if thresholds is not None:
            # A load above a threshold for a second, or in the mean of five, has a slot with more than this.
            lowest = min(thresholds.hot_at_once_rcu, thresholds.hot_sustained_rcu, thresholds.cooled_rcu)
            self._quiet_rcu = lowest / SLOTS_PER_SECOND * ROUNDING_MARGIN
        self._collections: dict[str, CollectionReads] = {}
        # by collection, the last slot that is not quiet
        self._loud: dict[str, int] = {}

    def add(self, report: ReadReport, now_ms: int) -> bool:
        """Take a report in; return False for one outside the horizon (late, or from a broken clock): it is left out."""
        if not -HORIZON_SLOTS <= report.slot - slot_of(now_ms) <= MAX_SLOTS_AHEAD:
            return False
        reads = self._collections.get(report.collection)
        if reads is None:
            reads = self._collections[report.collection] = CollectionReads()
        if reads.add(report) > self._quiet_rcu:
            self._loud[report.collection] = max(report.slot, self._loud.get(report.collection, report.slot))
        return True

    def forget(self, now_ms: int) -> None:
        """Drop slots that have left the horizon."""
        oldest = slot_of(now_ms) - HORIZON_SLOTS
        for reads in self._collections.values():
            reads.forget_before(oldest)
        self._collections = {c: reads for c, reads in self._collections.items() if reads}
        self._loud = {c: slot for c, slot in self._loud.items() if slot >= oldest}

    def to_judge(self) -> Sequence[str]:
        """List the collections that may be read-hot; of the others only those must be judged that were."""
        return list(self._loud)

    def get(self, collection: str) -> CollectionReads:
        """Return the reports of a collection."""
        return self._collections.get(collection) or CollectionReads()

    def items(self) -> Iterable[tuple[str, CollectionReads]]:
        """List the collections that have reports."""
        return self._collections.items()
