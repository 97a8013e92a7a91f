"""The detector of read heat: from the fleet's read reports to a decision, as a pure function.

It judges offered load: the RCU of pages, cached or not. So a cache that works does not cool the pages that it serves. A
collection is read-hot when one second of the last five exceeds `hot_at_once_rcu`. The mark that follows lasts a minute,
so nothing flaps. It may be wrong at no cost but a page's staleness or its units.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate

from hotpartition.core.sampler import slot_of
from hotpartition.core.window import SLOTS_PER_SECOND, SUSTAINED_SLOTS, CollectionReports

PAGE_COPIES = 3
"""In how many copies Redis keeps a page of what is read-hot, so that no node sends all of them."""


class ReadReason(StrEnum):
    """The reason of a decision about reads."""

    READ_HOT = "read-hot"
    BELOW_THRESHOLD = "below-threshold"


@dataclass(frozen=True, slots=True)
class ReadDecision:
    """The decision about the reads of one collection, and its reason.

    `rcu_per_second` is the load of the hottest second of the last five, `per_slot_rcu` their slots, oldest first.
    """

    collection: str
    reason: ReadReason
    rcu_per_second: float = 0.0
    per_slot_rcu: tuple[float, ...] = ()


def loud_rcu(hot_at_once_rcu: float) -> float:
    """Return what a slot has at least in a second that is hot."""
    return hot_at_once_rcu / SLOTS_PER_SECOND


def decide_reads(collection: str, reads: CollectionReports, hot_at_once_rcu: float, *, now_ms: int) -> ReadDecision:
    """Decide whether a collection is read-hot, by what was read up to `now_ms`."""
    last = slot_of(now_ms)
    rcu = reads.units(last - SUSTAINED_SLOTS - SLOTS_PER_SECOND + 2, last)
    totals = list(accumulate(rcu, initial=0.0))
    second = max(end - begin for begin, end in zip(totals, totals[SLOTS_PER_SECOND:], strict=False))
    reason = ReadReason.READ_HOT if second > hot_at_once_rcu else ReadReason.BELOW_THRESHOLD
    return ReadDecision(collection, reason, second, rcu[-SUSTAINED_SLOTS:])
