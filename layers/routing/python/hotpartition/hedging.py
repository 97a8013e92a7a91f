"""Hedged requests: a query that takes longer than most is asked a second time, and the first answer is taken.

One read waits for the slowest of all its shards, so at N = 16 a delay that hits one query in a hundred hits one read in
seven. Source: Dean, Barroso, "The Tail at Scale", CACM 56 (2013). What hedges add is bounded by a budget, so that a
DynamoDB that is slow everywhere is not asked twice for everything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from threading import Lock
from typing import Generic, TypeVar

ResultT = TypeVar("ResultT")

BUDGET_SHARE = 0.05
"""Hedges, as a share of all requests, over any longer time."""
MAX_SAVED_HEDGES = 4.0
"""Hedges that may be saved up, so that a cold start or a pause does not allow a burst."""
LATENCY_WINDOW = 256
MIN_LATENCIES = 32
"""Below so many recent latencies nobody can say what is slow."""
MIN_DELAY_SECONDS = 0.002


class HedgePolicy:
    """Says after which delay to ask again, from recent latencies, and whether the budget allows it. Thread-safe."""

    def __init__(self, *, quantile: float) -> None:
        """Start without experience.

        Args:
            quantile: the share of recent queries that were faster than the delay; 0 turns hedging off.
        """
        self._quantile = quantile
        self._latencies: deque[float] = deque(maxlen=LATENCY_WINDOW)
        self._allowance = 0.0
        self._lock = Lock()

    def record(self, latency_seconds: float) -> None:
        """Take in how long a query took; each query earns its share of a hedge."""
        with self._lock:
            self._latencies.append(latency_seconds)
            self._allowance = min(MAX_SAVED_HEDGES, self._allowance + BUDGET_SHARE)

    def delay_seconds(self) -> float | None:
        """Return how long to wait before asking again; None while hedging is off, or nothing is known yet."""
        if not self._quantile:
            return None
        with self._lock:
            if len(self._latencies) < MIN_LATENCIES:
                return None
            ordered = sorted(self._latencies)
        return max(MIN_DELAY_SECONDS, ordered[min(len(ordered) - 1, int(len(ordered) * self._quantile))])

    def try_spend(self) -> bool:
        """Take one hedge from the budget, if it holds one."""
        with self._lock:
            if self._allowance < 1:
                return False
            self._allowance -= 1
            return True


class _Round(Generic[ResultT]):
    """One round's calls while they run: for each the attempts under way, and its result once there is one."""

    def __init__(self, executor: Executor, calls: Sequence[Callable[[], ResultT]]) -> None:
        self._executor = executor
        self._calls = calls
        self._owner: dict[Future[ResultT], int] = {}
        self.results: dict[int, ResultT] = {}
        for index in range(len(calls)):
            self.start(index)

    def start(self, index: int) -> None:
        self._owner[self._executor.submit(self._calls[index])] = index

    @property
    def open(self) -> list[int]:
        return [index for index in range(len(self._calls)) if index not in self.results]

    def wait(self, timeout_seconds: float | None, is_failure: Callable[[ResultT], bool]) -> bool:
        """Wait for the next attempt to end; a failed one counts only when no other attempt is left.

        Returns:
            False when none ended in time.
        """
        done, _ = wait(self._owner, timeout=timeout_seconds, return_when=FIRST_COMPLETED)
        for future in done:
            index = self._owner.pop(future)
            result = future.result()
            if not is_failure(result) or index not in self._owner.values():
                self.results.setdefault(index, result)
        for future in [f for f, index in self._owner.items() if index in self.results]:
            future.cancel()  # a hedge that has not begun; one that runs is left to end by itself
            del self._owner[future]
        return bool(done)


def run_hedged(
    executor: Executor,
    calls: Sequence[Callable[[], ResultT]],
    policy: HedgePolicy,
    *,
    is_failure: Callable[[ResultT], bool],
    timer: Callable[[], float],
) -> tuple[list[ResultT], int]:
    """Run idempotent calls at the same time; those slower than most are asked again, once, within the budget.

    Args:
        executor: runs the calls; it should be wider than one round, or hedges wait behind what they hedge.
        calls: what to run; what they raise is raised.
        policy: when to hedge.
        is_failure: says of a result that another attempt's answer would be better.
        timer: a monotonic clock in seconds.

    Returns:
        The results in the order of the calls, and how many hedges were sent.
    """
    started = timer()
    delay = policy.delay_seconds()
    running, hedges, hedge_at = _Round(executor, calls), 0, None if delay is None else started + delay
    while running.open:
        timeout = None if hedge_at is None else max(0.0, hedge_at - timer())
        if not running.wait(timeout, is_failure):
            hedge_at = None
            for index in running.open:
                if policy.try_spend():
                    hedges += 1
                    running.start(index)
    return [running.results[index] for index in range(len(calls))], hedges
