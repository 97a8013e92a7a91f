"""How long a cached page is fresh, how long it may be served at all, and who writes which copy of it. Pure.

A page's age counts from when its read began. Two limits hold for it: the TTL, after which somebody reads it anew, and
the staleness bound, after which nobody is served it. The bound is kept by lengths of time, not by comparing the clocks
of two environments: Redis drops a page after `PageLimits.keep_ms`, and an environment keeps what Redis gave it for
`PageLimits.l1_ms` at most. The two together are the bound, less what a page may take on its way to Redis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from math import log
from typing import NamedTuple

TTL_JITTER = 0.2
"""Share of its TTL by which a page's TTL varies, so that environments do not all find it stale at once."""
EARLY_REFRESH_BETA = 1.0
"""Eagerness of early refreshes; 1 is optimal for exponentially growing odds (XFetch, section 3.2)."""
MOST_EARLY = 0.5
"""Share of its TTL by which a page is refreshed early at most, however long its read takes."""
L1_SHARE = 0.25
"""For how much of the TTL an environment keeps what Redis gave it."""
UNDER_WAY_MS = 100
"""How long a page may be on its way to Redis without passing the bound: Redis counts from when it gets there."""
LEASE_MS = 250
"""For how long nobody else fills. It is not given back: so the fleet fills four times a second at most, whatever goes
wrong, and a holder that dies costs no more than this."""


@dataclass(frozen=True, slots=True)
class PageLimits:
    """The TTL and the staleness bound of cached pages. REQUIRES: the bound is at least twice the TTL."""

    ttl_ms: float
    bound_ms: float

    @property
    def l1_ms(self) -> float:
        """How long an environment may serve what Redis gave it."""
        return self.ttl_ms * L1_SHARE

    @property
    def lease_ms(self) -> int:
        """How long a lease lasts."""
        return int(min(LEASE_MS, self.ttl_ms))

    def keep_ms(self, read_ms: float) -> int:
        """Say how long Redis shall keep a page whose read began `read_ms` ago; 0: it is too old, or a clock jumped."""
        return max(0, int(self.bound_ms - self.l1_ms - UNDER_WAY_MS - read_ms)) if read_ms >= 0 else 0


class Freshness(NamedTuple):
    """From when, until when a page is fresh, and until when it may be served, Unix ms of one environment."""

    since_ms: float
    fresh_until_ms: float
    usable_until_ms: float

    def is_fresh_at(self, now_ms: float) -> bool:
        """Say whether nobody needs to look for a newer one. A clock that was set back makes it stale."""
        return self.since_ms <= now_ms < self.fresh_until_ms

    def is_usable_at(self, now_ms: float) -> bool:
        """Say whether it may be served while somebody else reads a newer one, or where that fails."""
        return self.since_ms <= now_ms < self.usable_until_ms


def freshness_of_read(
    limits: PageLimits, *, read_at_ms: float, cost_ms: float, random: Callable[[], float]
) -> Freshness:
    """Decide how long an environment keeps a page that it read itself, by its own clock alone.

    The TTL is shortened at random by up to a fifth, and by about what the page costs to read, so that one environment
    refreshes it before the others find it stale. Source: Vattani, Chierichetti, Lowenstein, "Optimal Probabilistic
    Cache Stampede Prevention", VLDB 2015. There each request draws. Here a page is drawn for once, when an environment
    gets it: its requests come one after another, and the earliest of many environments is as early as the earliest of
    many requests.

    Args:
        limits: TTL and bound.
        read_at_ms: when the read began.
        cost_ms: how long it took.
        random: returns uniform numbers in [0, 1).
    """
    ttl_ms = limits.ttl_ms * (1 - TTL_JITTER * random())
    early_ms = -cost_ms * EARLY_REFRESH_BETA * log(1.0 - random())
    fresh_until_ms = read_at_ms + ttl_ms - min(early_ms, MOST_EARLY * limits.ttl_ms)
    return Freshness(read_at_ms, fresh_until_ms, read_at_ms + limits.bound_ms)


def freshness_of_copy(
    limits: PageLimits, *, asked_at_ms: float, read_at_ms: float, cost_ms: float, random: Callable[[], float]
) -> Freshness:
    """Decide how long an environment keeps a page that Redis gave it.

    Args:
        limits: TTL and bound.
        asked_at_ms: when Redis was asked.
        read_at_ms: when the read began, by the clock of who read it. One that is ahead counts as now.
        cost_ms: how long the read took.
        random: returns uniform numbers in [0, 1).
    """
    read_at_ms = min(read_at_ms, asked_at_ms)
    freshness = freshness_of_read(limits, read_at_ms=read_at_ms, cost_ms=cost_ms, random=random)
    until_ms = asked_at_ms + limits.l1_ms
    return Freshness(asked_at_ms, min(freshness.fresh_until_ms, until_ms), min(freshness.usable_until_ms, until_ms))


def choose_page_copy(environment_id: str, copies: int) -> int:
    """Choose which copy an environment reads: always the same one while there are as many."""
    return int.from_bytes(blake2b(environment_id.encode(), digest_size=8).digest()) % copies
