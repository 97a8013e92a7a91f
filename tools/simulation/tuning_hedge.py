"""What asking slow queries again brings and costs: the project's own `HedgePolicy` on drawn latencies."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from random import Random

from hotpartition.core.hedging import HedgePolicy
from tools.partition_model.latency import READ_PROFILE, Latency
from tools.simulation.results import nearest_rank

STALL_MEDIAN_MS = 60.0
STALL_SPREAD = 0.6
"""What a stalled query takes, log-normally: a busy host, a lost packet (assumption)."""
STALL_SHARE = 0.01
"""One query in a hundred, as in the example that "The Tail at Scale" begins with (Dean, Barroso, CACM 56, 2013)."""
QUERIES = 9
"""A page of a conversation with N = 8: its shards and the base key."""
PAUSE_MS = 100.0
"""Between two pages that one environment reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hedged:
    """Latency of pages in ms, and queries asked a second time as a share of all."""

    p50_ms: float
    p99_ms: float
    p999_ms: float
    extra_share: float


class _Latencies:
    """Draws how long queries take, in ms: the DynamoDB model's reads, and a share that stalls."""

    def __init__(self, random: Random, stall_share: float) -> None:
        self._random = random
        self._stall_share = stall_share
        self._usual = Latency(READ_PROFILE, random)

    def draw(self) -> float:
        if self._stall_share and self._random.random() < self._stall_share:
            return STALL_MEDIAN_MS * self._random.lognormvariate(0.0, STALL_SPREAD)
        return self._usual.draw() * 1000


def read_pages(quantile: float, *, pages: int, seed: int, stall_share: float = 0.0) -> Hedged:
    """Read pages one after the other, as one environment does, and ask slow queries again.

    All queries of a page begin at once. One that is not answered after the policy's delay is asked again if the budget
    holds a hedge; when it holds none, this page sends no more (`Hedger.run`). The page is complete with the last
    query's first answer. Every answer counts as experience when it comes, the later of two as well.

    Args:
        quantile: `hedge_quantile`.
        pages: how many.
        seed: of the latencies.
        stall_share: share of queries that stall.
    """
    queries = _Latencies(Random(f"hedge-{seed}"), stall_share)
    policy = HedgePolicy(quantile=quantile)
    experience: list[tuple[float, float]] = []
    now_ms, hedges, latencies = 0.0, 0, []
    for _ in range(pages):
        while experience and experience[0][0] <= now_ms:
            policy.record(heappop(experience)[1])
        delay = policy.delay_seconds()
        delay_ms = None if delay is None else delay * 1000
        longest = 0.0
        for _ in range(QUERIES):
            first_ms = answered_ms = queries.draw()
            heappush(experience, (now_ms + first_ms, first_ms / 1000))
            if delay_ms is not None and first_ms > delay_ms:
                if policy.try_spend():
                    hedges += 1
                    second_ms = queries.draw()
                    heappush(experience, (now_ms + delay_ms + second_ms, second_ms / 1000))
                    answered_ms = min(first_ms, delay_ms + second_ms)
                else:
                    delay_ms = None
            longest = max(longest, answered_ms)
        latencies.append(longest)
        now_ms += PAUSE_MS
    ordered = sorted(latencies)
    return Hedged(
        p50_ms=nearest_rank(ordered, 0.5),
        p99_ms=nearest_rank(ordered, 0.99),
        p999_ms=nearest_rank(ordered, 0.999),
        extra_share=hedges / (pages * QUERIES),
    )
