"""What the TTL of a cached route costs, and how soon a raise reaches the writers."""

from __future__ import annotations

from random import Random

from hotpartition.core.route import EMPTY_ROUTE, Generation, Route
from hotpartition.engine.route_cache import RouteCache
from tools.quantiles import nearest_rank

HOT_WCU = 4_000.0
ENVIRONMENTS = 1_000
PARTITION_WCU = 1_000.0
BIN_MS = 250
ON_SHARDS = 0.95
HOT_BEFORE_MS = 800.0
"""From the onset to the raise."""
ASKING_MS = 1.0

_RAISED = Route(frozenset({Generation(since_ms=0, shard_count=8)}))


def seconds_to_shards(ttl_seconds: float, seed: int, *, is_ttl_brief_after_throttle: bool = True) -> float:
    """Compute how soon after a raise is in Redis 95 % of what is stored lies on shards, to a quarter of a second.

    4,000 writes a second meet 1,000 environments at random; each has the project's own `RouteCache`. The base key's
    partition takes 1,000 writes a second. A write that it refuses asks Redis at once, as the writer does, and lands on
    a shard if the raise is there. The response is used for a short while, as in the product, or for a whole TTL.
    """
    random = Random(f"cache-{ttl_seconds}-{seed}")
    caches = [RouteCache(ttl_seconds=ttl_seconds, max_entries=4, random=random.random) for _ in range(ENVIRONMENTS)]
    for cache in caches:  # each has asked at some moment of its own, up to a TTL ago
        cache.learn("c", EMPTY_ROUTE, -int(random.random() * ttl_seconds * 1000))
    raised_ms = HOT_BEFORE_MS
    at_ms, saved, stored, on_shards, bin_end_ms = 0.0, 0.0, 0, 0, raised_ms + BIN_MS
    while True:
        gap_ms = random.expovariate(HOT_WCU / 1000)
        at_ms += gap_ms
        saved = min(PARTITION_WCU, saved + gap_ms * PARTITION_WCU / 1000)
        if at_ms >= bin_end_ms:
            if on_shards >= ON_SHARDS * stored:
                return (bin_end_ms - raised_ms) / 1000
            stored, on_shards, bin_end_ms = 0, 0, bin_end_ms + BIN_MS
        cache, now_ms = random.choice(caches), int(at_ms)
        known = EMPTY_ROUTE if at_ms < raised_ms else _RAISED
        route = cache.get_fresh("c", now_ms)
        if route is None:
            route = cache.learn("c", known, now_ms, cost_ms=ASKING_MS)
        if not route and saved < 1:
            route = cache.learn("c", known, now_ms, cost_ms=ASKING_MS, is_brief=is_ttl_brief_after_throttle)
        if at_ms < raised_ms:
            saved = max(0.0, saved - 1)
        elif route:
            stored, on_shards = stored + 1, on_shards + 1
        elif saved >= 1:
            saved, stored = saved - 1, stored + 1


def typical_seconds_to_shards(ttl_seconds: float, seeds: range, *, is_ttl_brief_after_throttle: bool = True) -> float:
    """Compute the median over some seeds."""
    return nearest_rank(
        sorted(
            seconds_to_shards(ttl_seconds, s, is_ttl_brief_after_throttle=is_ttl_brief_after_throttle) for s in seeds
        ),
        0.5,
    )
