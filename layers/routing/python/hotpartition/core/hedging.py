"""Hedged requests: a query that takes longer than most is asked a second time, and the first answer is taken.

One read waits for the slowest of all its shards, so at N = 16 a delay that hits one query in a hundred hits one read in
seven. Source: Dean, Barroso, "The Tail at Scale", CACM 56 (2013). What hedges add is bounded by a budget, so that a
DynamoDB that is slow everywhere is not asked twice for everything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from threading import Lock
from typing import Any, Generic, TypeVar

ResultT = TypeVar("ResultT")

Wait = Callable[..., tuple[Collection[Future[Any]], Collection[Future[Any]]]]
"""`concurrent.futures.wait`, or what stands for it where there are no threads."""

BUDGET_SHARE = 0.05
"""Hedges, as a share of all requests, over any longer time."""
MAX_SAVED_HEDGES = 4.0
"""Hedges that may be saved up, so that a cold start or a pause does not allow a burst."""
LATENCY_WINDOW = 256
MIN_LATENCIES = 32
"""Below so many recent latencies nobody can say what is slow."""
MIN_DELAY_SECONDS = 0.002
HEDGE_CONNECTIONS = 4
"""Connections, and for a client that blocks threads, beside those of a round: a hedge does not wait for its turn."""


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


class RoundState(Generic[ResultT]):
    """One round of calls: which are settled, which have attempts under way, and when the next hedge is due.

    For whoever runs all attempts on one thread. No I/O, and no clock: times come as arguments, in seconds.
    """

    def __init__(self, count: int, policy: HedgePolicy | None) -> None:
        """Begin a round.

        Args:
            count: how many calls it has.
            policy: when to hedge; None for never.
        """
        self._policy = policy
        self._delay = policy.delay_seconds() if policy else None
        self._results: dict[int, ResultT] = {}
        self._count = count
        self._attempts: dict[int, int] = {}
        self._due: dict[int, float] = {}
        """When each call that has begun, and has no hedge yet, will have taken too long."""
        self.hedged = 0

    @property
    def is_complete(self) -> bool:
        """Every call has its result."""
        return len(self._results) == self._count

    def is_settled(self, index: int) -> bool:
        """Say whether a call has its result."""
        return index in self._results

    def results(self) -> list[ResultT]:
        """Return the results in the order of the calls. REQUIRES: the round is complete."""
        return [self._results[index] for index in range(self._count)]

    def begin(self, index: int, now: float) -> None:
        """Take note that a call's attempt begins."""
        self._attempts[index] = self._attempts.get(index, 0) + 1
        if self._delay is not None and self._attempts[index] == 1:
            self._due[index] = now + self._delay

    def next_due(self) -> float | None:
        """Return when the next hedge is due, None while none is to be expected."""
        return min(self._due.values(), default=None)

    def take_hedge(self, now: float) -> int | None:
        """Return a call that is to be asked again now, and pay for it; None for none."""
        index = next((index for index, due in self._due.items() if due <= now), None)
        if index is None:
            return None
        if self._policy is None or not self._policy.try_spend():
            self._due.clear()  # nothing is left to spend in this round
            return None
        del self._due[index]
        self.hedged += 1
        return index

    def end(self, index: int, result: ResultT, *, is_failure: bool, seconds: float) -> None:
        """Take in what became of an attempt; a failed one counts only when no other attempt is left.

        Args:
            index: the call's place.
            result: the attempt's.
            is_failure: another attempt's answer would be better.
            seconds: how long the attempt took. A refusal comes fast, and says nothing about how long answers take.
        """
        self._attempts[index] -= 1
        if self._policy is not None and not is_failure:
            self._policy.record(seconds)
        if not is_failure or not self._attempts[index]:
            self._results.setdefault(index, result)
            self._due.pop(index, None)

    def abandon(self, index: int, *, seconds: float) -> None:
        """Take note that an attempt is given up for another one's answer; it took at least so long."""
        self._attempts[index] -= 1
        if self._policy is not None:
            self._policy.record(seconds)


class Hedger:
    """Runs rounds of idempotent calls, and asks those that are slower than most again, once, within the budget."""

    def __init__(
        self, policy: HedgePolicy, executor: Executor, timer: Callable[[], float], *, wait: Wait = wait
    ) -> None:
        """Put it together.

        Args:
            policy: when to hedge.
            executor: runs the hedges; its own threads, so that none queues behind what it hedges.
            timer: a monotonic clock in seconds.
            wait: waits for the first of several futures.
        """
        self._policy = policy
        self._executor = executor
        self._timer = timer
        self._wait = wait

    def run(
        self, executor: Executor, calls: Sequence[Callable[[], ResultT]], *, is_failure: Callable[[ResultT], bool]
    ) -> tuple[list[ResultT], int]:
        """Run calls at the same time.

        Args:
            executor: runs the first attempts.
            calls: what to run; what they raise is raised.
            is_failure: says of a result that another attempt's answer would be better.

        Returns:
            The results in the order of the calls, and how many hedges were sent.
        """
        current = _Round(executor, calls, self._policy, self._timer, self._wait, is_failure)
        delay = self._policy.delay_seconds()
        hedged: set[int] = set()
        while current.open:
            due = current.next_due(delay, hedged)
            if due is None:
                current.wait(None)
            elif (remaining := due[0] - self._timer()) > 0:
                current.wait(remaining)
            else:
                hedged.add(due[1])
                if self._policy.try_spend():
                    current.start(due[1], self._executor)
                else:
                    delay = None  # nothing is left to spend in this round
        return current.results(), current.attempts - len(calls)


class _Round(Generic[ResultT]):
    """One round's calls while they run: when each began, its attempts under way, and its result once there is one."""

    def __init__(
        self,
        executor: Executor,
        calls: Sequence[Callable[[], ResultT]],
        policy: HedgePolicy,
        timer: Callable[[], float],
        wait_for: Wait,
        is_failure: Callable[[ResultT], bool],
    ) -> None:
        self._calls = calls
        self._policy = policy
        self._timer = timer
        self._wait_for = wait_for
        self._is_failure = is_failure
        self._began: dict[int, float] = {}
        self._owner: dict[Future[ResultT], int] = {}
        self._results: dict[int, ResultT] = {}
        self.attempts = 0
        for index in range(len(calls)):
            self.start(index, executor)

    def start(self, index: int, executor: Executor) -> None:
        self.attempts += 1
        self._owner[executor.submit(self._attempt, index)] = index

    def _attempt(self, index: int) -> ResultT:
        began = self._timer()
        self._began.setdefault(index, began)
        result = self._calls[index]()
        if not self._is_failure(result):  # a refusal comes fast, and says nothing about how long an answer takes
            self._policy.record(self._timer() - began)
        return result

    @property
    def open(self) -> list[int]:
        return [index for index in range(len(self._calls)) if index not in self._results]

    def results(self) -> list[ResultT]:
        return [self._results[index] for index in range(len(self._calls))]

    def next_due(self, delay: float | None, hedged: set[int]) -> tuple[float, int] | None:
        """Return when the next hedge is due and for which call: of those that have begun and have none yet."""
        if delay is None:
            return None
        begun = [(began + delay, index) for index, began in list(self._began.items())]
        return min((due for due in begun if due[1] not in self._results and due[1] not in hedged), default=None)

    def wait(self, timeout_seconds: float | None) -> None:
        """Wait for the next attempt to end; a failed one counts only when no other attempt is left."""
        done, _ = self._wait_for(self._owner, timeout=timeout_seconds, return_when=FIRST_COMPLETED)
        for future in done:
            index = self._owner.pop(future)
            result = future.result()
            if not self._is_failure(result) or index not in self._owner.values():
                self._results.setdefault(index, result)
        for future in [f for f, index in self._owner.items() if index in self._results]:
            future.cancel()  # one that has not begun; one that runs is left to end by itself
            del self._owner[future]
