"""How long a cached value is fresh, how long it may be served at all, and which copy of it a process reads. Pure.

A value's age counts from before its load began. Two limits hold for it: after the TTL it is loaded anew, after the
staleness bound it is not served. Two clocks measure it, and no process's wall clock does. **Redis's**: the lease to
load the value says when it was taken, and the value expires a fixed time after that, however late it arrives. **A
process's monotonic clock**: for `CacheLimits.l1_ms` after it asked, it serves the value from Redis. The two times
together are the bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from math import log
from typing import NamedTuple

TTL_JITTER = 0.2
"""Share of its TTL by which a value's TTL varies, so that processes do not all find it stale at once."""
EARLY_REFRESH_BETA = 1.0
"""Eagerness of early refreshes; 1 is optimal for exponentially growing odds (XFetch, section 3.2)."""
MOST_EARLY = 0.5
"""Share of its TTL by which a value is refreshed early at most, however long its load takes."""
L1_SHARE = 0.25
"""For how much of the TTL a process keeps a value from Redis."""
LEASE_MS = 250
"""For how long no other process fills the cache. The lease is never given back: the fleet fills at most four times a
second, and a holder that dies costs no more than this."""
COPIES = 3
"""In how many copies Redis holds a value: they divide a node's network traffic."""


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """The TTL and the staleness bound of cached values. REQUIRES: the bound is at least twice the TTL."""

    ttl_ms: float
    bound_ms: float

    @property
    def l1_ms(self) -> float:
        """How long a process may serve a value from Redis."""
        return self.ttl_ms * L1_SHARE

    @property
    def keep_ms(self) -> int:
        """For how long after the lease Redis keeps a value: the bound without the processes' part."""
        return int(self.bound_ms - self.l1_ms)

    @property
    def lease_ms(self) -> int:
        """How long a lease lasts."""
        return int(min(LEASE_MS, self.ttl_ms))


class Freshness(NamedTuple):
    """When a value's load began, at the earliest, until when it is fresh, and until when it may be served.

    All in ms of one process's monotonic clock.
    """

    read_at_ms: float
    fresh_until_ms: float
    usable_until_ms: float

    def is_fresh_at(self, now_ms: float) -> bool:
        """Say whether no process needs to look for a newer one."""
        return now_ms < self.fresh_until_ms

    def is_usable_at(self, now_ms: float) -> bool:
        """Say whether it may be served while another process loads a newer one, or where that fails."""
        return now_ms < self.usable_until_ms


def freshness_of_load(
    limits: CacheLimits, *, read_at_ms: float, cost_ms: float, random: Callable[[], float]
) -> Freshness:
    """Decide how long a process serves a value that it loaded itself.

    The TTL is shortened at random by up to a fifth, and by about what the value costs to load, so that one process
    refreshes it before the others find it stale. Source: Vattani, Chierichetti, Lowenstein, "Optimal Probabilistic
    Cache Stampede Prevention", VLDB 2015. There each request draws. Here a value is drawn for once, when a process gets
    it: its requests come one after another, and the earliest of many processes is as early as the earliest of many
    requests.
    """
    ttl_ms = limits.ttl_ms * (1 - TTL_JITTER * random())
    early_ms = -cost_ms * EARLY_REFRESH_BETA * log(1.0 - random())
    fresh_until_ms = read_at_ms + ttl_ms - min(early_ms, MOST_EARLY * limits.ttl_ms)
    return Freshness(read_at_ms, fresh_until_ms, read_at_ms + limits.bound_ms)


def freshness_of_copy(
    limits: CacheLimits, *, asked_at_ms: float, age_ms: float, cost_ms: float, random: Callable[[], float]
) -> Freshness:
    """Decide how long a process serves a value that Redis gave it.

    Redis was asked at `asked_at_ms`: its response is younger, so the value is no older than it is taken for. `age_ms`
    is the age that Redis reported.
    """
    freshness = freshness_of_load(limits, read_at_ms=asked_at_ms - age_ms, cost_ms=cost_ms, random=random)
    until_ms = asked_at_ms + limits.l1_ms
    return freshness._replace(
        fresh_until_ms=min(freshness.fresh_until_ms, until_ms), usable_until_ms=min(freshness.usable_until_ms, until_ms)
    )


def choose_copy(process_id: str) -> int:
    """Choose which copy a process reads: always the same one."""
    return int.from_bytes(blake2b(process_id.encode(), digest_size=8).digest()) % COPIES
