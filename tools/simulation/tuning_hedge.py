"""What asking slow queries again brings and costs: the reader's own rounds and hedges on drawn latencies."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from random import Random

from hotpartition.core.hedging import Attempt, HedgePolicy, run_round
from tools.partition_model.latency import READ_PROFILE, Latency
from tools.quantiles import nearest_rank

STALL_MEDIAN_MS = 60.0
STALL_SPREAD = 0.6
"""What a stalled query takes, log-normally: a busy host, a lost packet (assumption)."""
STALL_SHARE = 0.01
"""One query in a hundred, as in the example that "The Tail at Scale" begins with (Dean, Barroso, CACM 56, 2013)."""
QUERIES = 9
"""A page of a conversation with N = 8: its shards and the base key."""


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


class _DrawnQueries:
    """Sends queries whose latencies are drawn: the `Transport` of rounds on a clock of its own, in seconds."""

    def __init__(self, latencies: _Latencies) -> None:
        self._latencies = latencies
        self._under_way: list[tuple[float, Attempt]] = []
        self.now = 0.0

    def start(self, attempt: Attempt) -> None:
        heappush(self._under_way, (self.now + self._latencies.draw() / 1000, attempt))

    def wait(self, timeout_seconds: float | None) -> list[tuple[Attempt, None]]:
        ends_at, attempt = self._under_way[0]
        if timeout_seconds is not None and ends_at > self.now + timeout_seconds:
            self.now += timeout_seconds
            return []
        heappop(self._under_way)
        self.now = ends_at
        return [(attempt, None)]

    def abandon(self, attempt: Attempt) -> None:
        self._under_way = [(ends_at, other) for ends_at, other in self._under_way if other != attempt]
        heapify(self._under_way)


def read_pages(quantile: float, *, pages: int, seed: int, stall_share: float = 0.0) -> Hedged:
    """Read pages one after the other, as one environment does, and ask slow queries again: the reader's own rounds.

    `quantile` is `hedge_quantile`, 0 for never; `stall_share` of the queries stall; `seed` is that of the latencies.
    """
    queries = _DrawnQueries(_Latencies(Random(f"hedge-{seed}"), stall_share))
    policy = HedgePolicy(quantile=quantile) if quantile else None
    hedges, latencies = 0, []
    for _ in range(pages):
        began = queries.now
        _, hedged = run_round(QUERIES, queries, timer=lambda: queries.now, parallel=QUERIES, policy=policy)
        hedges += hedged
        latencies.append((queries.now - began) * 1000)
    ordered = sorted(latencies)
    return Hedged(
        p50_ms=nearest_rank(ordered, 0.5),
        p99_ms=nearest_rank(ordered, 0.99),
        p999_ms=nearest_rank(ordered, 0.999),
        extra_share=hedges / (pages * QUERIES),
    )
