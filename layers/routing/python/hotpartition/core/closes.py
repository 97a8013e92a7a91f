"""Closes: when one may be announced, at which time, and whether it was announced early enough. Pure.

A close at c begins an era with fewer shards (`route.py`). It takes two steps. *Announce*: `closing@c`, which writers
obey. *Confirm*: `closed@c`, which readers obey, added only if the announcement was stored before c - D - margin by
DynamoDB's own clock, the `Date` of its response; otherwise the announcement stays void.

Why nothing is lost: a writer that placed an item of time t >= c on a shard had a lease, so it read the journal,
strongly consistent, after t - D >= c - D. It saw the announcement and used an era that begins at c or later. The
generations that it used are in the journal and belong to that era, so its shard is below N(t). The margin covers how
much the clocks of DynamoDB's servers differ, and the time between a read and its `Date`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hotpartition.core.route import MAX_SETTLED_MEMBERS, Close, Route
from hotpartition.core.times import SECOND_MS

WARM_SHARE = 0.5
"""Share of the hot threshold: with less load a key has cooled."""


@dataclass(frozen=True, slots=True)
class CloseTimes:
    """The times of the protocol, in ms. REQUIRES: no writer of the fleet has a lease longer than `lease_ms`."""

    lease_ms: int
    margin_ms: int
    pause_ms: int = 0
    """Least time between two closes of one collection, void ones included."""


TIMES = CloseTimes(lease_ms=600_000, margin_ms=60_000, pause_ms=3_600_000)
"""The times by which keys are closed. How long a lease is comes from the settings, if they say."""


class Refusal(StrEnum):
    """Why a collection is not closed now."""

    NO_POSITIONS = "no-positions"
    """Its positions are not times."""
    NO_LEASES = "no-leases"
    """Its writers place items without leases."""
    NOT_RAISED = "not-raised"
    """Its newest items are on the base key, or will be from a confirmed close on."""
    PENDING = "pending"
    """A close is announced, and its time has not come."""
    TOO_SOON = "too-soon"
    """Too little time has passed since its last close, confirmed or void."""
    FULL = "full"
    """Its route has too many members."""
    NO_DATE = "no-date"
    """DynamoDB's response had no `Date`."""
    GREW = "grew"
    """Its route has grown while the close was decided: something else was faster."""


def plan_close(route: Route, date_ms: int | None, times: CloseTimes) -> Close | Refusal:
    """Choose the announcement of a close, given a route that was read strongly consistent and the read's `Date`."""
    if not times.lease_ms:
        return Refusal.NO_LEASES
    if date_ms is None:
        return Refusal.NO_DATE
    if not route.shard_count_at(None):
        return Refusal.NOT_RAISED
    if len(route.members) >= MAX_SETTLED_MEMBERS:
        return Refusal.FULL
    if any(close.at_ms > date_ms for close in route.closes):
        return Refusal.PENDING
    # Announcing may take one more margin until it is too late.
    at_ms = date_ms + SECOND_MS + times.lease_ms + 2 * times.margin_ms
    latest = max((close.at_ms for close in route.closes), default=None)
    if latest is not None and at_ms - latest < times.pause_ms:
        return Refusal.TOO_SOON
    return Close(at_ms, is_confirmed=False)


def may_confirm(close: Close, announced_ms: int | None, times: CloseTimes) -> bool:
    """Say whether an announcement was stored early enough, given the `Date` of its response: a second, rounded down."""
    return announced_ms is not None and announced_ms + SECOND_MS + times.lease_ms + times.margin_ms <= close.at_ms


def is_leased(position: int, read_ms: int, lease_ms: int) -> bool:
    """Say whether an item may lie on a shard, given the `Date` of the writer's last strongly consistent read."""
    return position - read_ms < lease_ms
