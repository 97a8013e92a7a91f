"""The fleet's own load on one key, from its load item, and the decision that follows. Pure.

Load item: one for each collection that was throttled of late, under a partition key of its own (never the hot one),
and up to two more where that is throttled too.
Each sample adds its WCU to one of two attributes, and removes old ones: a ring that needs no clean-up.

| attribute | type | content |
|---|---|---|
| `<slot>n<N>` | N | WCU that were offered in a slot of 250 ms, and were placed under N shards (0: the base key) |
| `<slot>t<N>` | N | WCU of those that were refused wherever they may go |

| `w<bucket>` | N | WCU that were offered to it while raised, in a bucket of `close_after_seconds`; three are kept |

A slot is Unix time in ms of DynamoDB's clock, divided by 250, in hexadecimal; a bucket likewise. A process counts
from its first refusal on. So a load is a little more than its load item says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from hotpartition.core.closes import WARM_SHARE
from hotpartition.core.detector import BACKFILL_REACH, Decision, Reason, Thresholds, keep_open, size_route
from hotpartition.core.route import Generation, Route
from hotpartition.core.sampler import SLOT_MS, slot_of
from hotpartition.core.window import SLOTS_PER_SECOND

HOT_WINDOWS = ((2, 2.0), (4, 1.6), (6, 1.35), (7, 1.1), (12, 1.0))
"""A window is hot when its load, in WCU/s, is more than the limit of a key times its factor: the number of slots, and
the factor where a single key serves the load. Samples are few in a short window, so that it must show more: a key with
600 WCU/s is taken for one with 1,000 once in thousands of hours (docs/decisions/0051-in-band.md)."""
WARM_SLOTS = HOT_WINDOWS[-1][0]
"""How long a load is warm before a pending close is kept from undoing N."""
SHORT_SLOTS = 4
"""In windows of at most this many slots the load may still rise, or its counting: a last slot with more sets the size.
It is whole if there was something to count in the slot before it."""
LOAD_PLACES = 3
"""Load items of a collection. All processes use the first. Where its partition is hot and refuses, each process uses
the next one."""
KEPT_SLOTS = 16
"""How long a slot is kept: longer than any window looks back."""
MAX_SLOTS_AHEAD = 8
WAITING_MS = 2_000
"""How long before the window that decided a raise begins: writes refused since then find the new shards."""
SAMPLE_WCU = 25.0
SAMPLED_SHARDS = 5
"""On at most this number of shards, `SAMPLE_WCU` lie between two samples. On more shards it is more WCU: a load that
just fits its shards has as many samples a second, whatever their number."""
EVIDENCE_SLOTS = 2 * SLOTS_PER_SECOND
EVIDENCE_MIN_SAMPLES = 4
"""Fewer are a few large items: two of those on one shard are too much for it, on any number."""
EVIDENCE_MIN_SLOTS = 2
"""Slots of the last two seconds that must have throttles; in fewer they may be a passing burst."""
EVIDENCE_LOAD_SHARE = 0.4
"""Own load, as a share of what the route is sized for, below which a throttle is a neighbour's doing."""
EVIDENCE_THROTTLED_SHARE = 0.05
"""Share of the own load; below it, throttled writes are stored a moment later, and new shards would cost every page."""
EVIDENCE_PAUSE_MS = 5_000
"""How long after a raise throttles are no evidence: not all processes know of it yet."""

_NAME = re.compile(r"([0-9a-f]{1,12})([nt])(0|[1-9][0-9]{0,3})")
_BUCKET = re.compile(r"w([0-9a-f]{1,12})")


class Cell(NamedTuple):
    """The load that one attribute of a load item counts."""

    slot: int
    shard_count: int
    is_throttled: bool

    @property
    def name(self) -> str:
        """The attribute's name: a storage contract."""
        return f"{self.slot:x}{'t' if self.is_throttled else 'n'}{self.shard_count}"

    @classmethod
    def parse(cls, name: str) -> Cell | None:
        """Parse an attribute's name; None for another's."""
        match = _NAME.fullmatch(name)
        return None if match is None else cls(int(match[1], 16), int(match[3]), match[2] == "t")


def bucket_name(bucket: int) -> str:
    """Build the attribute's name of a bucket: a storage contract."""
    return f"w{bucket:x}"


def parse_bucket(name: str) -> int | None:
    """Parse the attribute's name of a bucket; None for another's."""
    match = _BUCKET.fullmatch(name)
    return None if match is None else int(match[1], 16)


FleetLoad = Mapping[Cell, float]
"""The WCU in each cell of a load item."""


def widen(sample_wcu: float, shard_count: int) -> float:
    """Return the WCU between two samples of writes that were placed under `shard_count` shards; 0: the base key."""
    return sample_wcu * max(SAMPLED_SHARDS, shard_count) / SAMPLED_SHARDS


def list_stale(load: Iterable[Cell], now_ms: int) -> list[Cell]:
    """List the cells that no window looks at any more, and those that a broken clock wrote ahead of time."""
    now = slot_of(now_ms)
    return sorted(cell for cell in load if not -KEPT_SLOTS <= cell.slot - now <= MAX_SLOTS_AHEAD)


def decide_in_band(
    collection: str,
    load: FleetLoad,
    route: Route,
    thresholds: Thresholds,
    *,
    position: int,
    now_ms: int,
    raised_at_ms: int | None = None,
    is_stuck: bool = False,
) -> Decision:
    """Decide about the load class of an item that is written now. All processes that see the same load decide the same.

    `position` is the item's, `thresholds.hot_at_once_wcu` the load that one key serves, `now_ms` DynamoDB's time, and
    `raised_at_ms` when the route last grew, Unix ms. `is_stuck`: the base key has refused all writes of a process for
    seconds, which then offers little, so that the load says nothing.
    """
    route = route.as_announced  # as writers place by it
    m, now = route.shard_count_at(position), slot_of(now_ms)
    window = _find_hot_window(load, m, now, thresholds.hot_at_once_wcu)
    first_slot = now - EVIDENCE_SLOTS
    decision = Decision(collection, Reason.BELOW_THRESHOLD, shard_count=m)
    if window is not None:
        slots, rate = window
        if slots <= SHORT_SLOTS and (last := _rate(load, m, now, 1)) > rate:
            slots, rate = 1, last
        # The new shards serve later items as well, where those have as many.
        later = sum(_rate(load, each, now, slots) for each in {c.shard_count for c in load} if each > m)
        decision = replace(decision, rate_wcu_per_second=rate, later_wcu_per_second=later)
        count, first_slot = size_route(rate + later, thresholds), now - window[0]
        reason = Reason.RAISED if m < thresholds.max_shard_count else Reason.AT_CAP
    else:
        rate, throttled = _rate(load, m, now, SLOTS_PER_SECOND), _sum_evidence(load, m, now)
        decision = replace(decision, rate_wcu_per_second=rate, throttled_wcu=throttled)
        # A first raise may have been too small, since processes count from their first refusal on; and some do not know
        # of it yet.
        everywhere = sum(_rate(load, each, now, SLOTS_PER_SECOND) for each in {cell.shard_count for cell in load})
        count = min(size_route(everywhere, thresholds), thresholds.max_shard_count)
        is_own = rate >= EVIDENCE_LOAD_SHARE * max(m, 1) * thresholds.target_shard_wcu
        is_settled = raised_at_ms is None or now_ms - raised_at_ms >= EVIDENCE_PAUSE_MS
        is_raised = (is_stuck and not m) or (count > m and throttled and is_own and is_settled)
        reason = Reason.UNLUCKY_PARTITION if is_raised else Reason.BELOW_THRESHOLD
    decision = replace(decision, reason=reason)
    if reason not in {Reason.RAISED, Reason.UNLUCKY_PARTITION}:
        offered = sum(_rate(load, each, now, WARM_SLOTS) for each in {cell.shard_count for cell in load})
        warm_wcu = thresholds.hot_at_once_wcu * WARM_SHARE
        return keep_open(collection, offered, route, warm_wcu, now_ms=now_ms) or decision
    count = max(min(count, thresholds.max_shard_count), m + 1, 2)
    since_ms = first_slot * SLOT_MS - WAITING_MS
    if position < since_ms:
        # An older item, or one of a table whose positions are not times.
        since_ms = now_ms - BACKFILL_REACH * (now_ms - position) if route.shard_count_at(None) > m else position
    return replace(decision, generation=Generation(max(0, since_ms), count))


def _find_hot_window(load: FleetLoad, shard_count: int, now: int, limit_wcu: float) -> tuple[int, float] | None:
    """Find the shortest hot window of whole slots: how many they are, and their load in WCU/s."""
    if not load.get(Cell(now - 2, shard_count, is_throttled=False)):
        return None
    keys = max(shard_count, 1)
    for slots, factor in HOT_WINDOWS:
        rate = _rate(load, shard_count, now, slots)
        # The more samples a load has, the less chance makes of it.
        if rate > limit_wcu * keys * (1 + (factor - 1) / keys**0.5):
            return slots, rate
    return None


def _sum(load: FleetLoad, shard_count: int, first: int, end: int) -> float:
    return sum(load.get(Cell(slot, shard_count, False), 0.0) for slot in range(first, end))


def _rate(load: FleetLoad, shard_count: int, now: int, slots: int) -> float:
    return _sum(load, shard_count, now - slots, now) * SLOTS_PER_SECOND / slots


def _sum_evidence(load: FleetLoad, shard_count: int, now: int) -> float:
    """Sum up what was refused in the last two seconds, in WCU; 0 where that is too little to be evidence."""
    first = now - EVIDENCE_SLOTS + 1
    refused = [load.get(Cell(slot, shard_count, True), 0.0) for slot in range(first, now + 1)]
    is_scarce = sum(wcu > 0 for wcu in refused) < EVIDENCE_MIN_SLOTS
    is_scarce = is_scarce or round(sum(refused) / widen(SAMPLE_WCU, shard_count)) < EVIDENCE_MIN_SAMPLES
    offered = _sum(load, shard_count, first, now + 1)
    return 0.0 if is_scarce or sum(refused) < EVIDENCE_THROTTLED_SHARE * offered else sum(refused)
