"""Hedged requests: a query that takes longer than most is asked a second time, and the first response is taken.

One read waits for the slowest of all its shards, so at N = 16 a delay that hits one query in a hundred hits one read in
seven. Source: Dean, Barroso, "The Tail at Scale", CACM 56 (2013). A budget bounds the added load, so that a
DynamoDB that is slow everywhere is not asked twice for everything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from threading import Lock
from typing import Generic, NamedTuple, Protocol, TypeVar

from hotpartition.core.errors import RetryLaterError

ResultT = TypeVar("ResultT")
ResultT_co = TypeVar("ResultT_co", covariant=True)

BUDGET_SHARE = 0.05
"""Hedges, as a share of all requests, over any longer time."""
MAX_SAVED_HEDGES = 4.0
"""Hedges that may be saved up, so that a cold start or a pause does not allow a burst."""
LATENCY_WINDOW = 256
MIN_LATENCIES = 32
"""With fewer recent latencies it is not known which call is slow."""
MIN_DELAY_SECONDS = 0.002
STRAGGLERS_SHARE = 1 / 8
MIN_STRAGGLERS = 2
"""How many calls of a round may be missing when one is asked again. Where more are, all is slow, or this process:
asking again would not help, and would spend what the next straggler needs."""
HEDGE_CONNECTIONS = 4
"""Connections, and for a client that blocks threads, beside those of a round: a hedge does not wait for its turn."""


class HedgePolicy:
    """Says after which delay to ask again, from recent latencies, and whether the budget allows it. Thread-safe."""

    def __init__(self, *, quantile: float) -> None:
        """Start without experience; `quantile` is the share of recent queries that were faster than the delay."""
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
        """Return how long to wait before asking again; None while nothing is known yet."""
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


class Attempt(NamedTuple):
    """One attempt at one call of a round. A hedge begins later than the first one, so the two differ."""

    call: int
    """The call's place in the round."""
    began: float
    """By the round's timer, in seconds."""


class Transport(Protocol[ResultT_co]):
    """Sends the attempts of one round, and waits for them."""

    def start(self, attempt: Attempt) -> None:
        """Begin an attempt; it does not block."""

    def wait(self, timeout_seconds: float | None) -> Sequence[tuple[Attempt, ResultT_co | RetryLaterError]]:
        """Wait until attempts end, or for this long; return those that ended, with their outcomes.

        Raises:
            Exception: an attempt failed in a way that a repetition would not cure; the round ends with it.
        """

    def abandon(self, attempt: Attempt) -> None:
        """Forget an attempt, if it has not ended: its result is not needed any more, and `wait` does not return it."""


@dataclass(slots=True)
class _Round(Generic[ResultT]):
    """One round of calls: which are settled, which attempts are under way, and when the next hedge is due."""

    count: int
    transport: Transport[ResultT]
    timer: Callable[[], float]
    policy: HedgePolicy | None
    results: dict[int, ResultT | RetryLaterError] = field(default_factory=dict)
    running: set[Attempt] = field(default_factory=set)
    hedged: int = 0
    due: dict[int, float] = field(default_factory=dict)
    """When each call that has begun, and has no hedge yet, will have taken too long."""

    def start(self, call: int) -> float:
        """Begin an attempt at a call; return when that was."""
        attempt = Attempt(call, self.timer())
        self.running.add(attempt)
        self.transport.start(attempt)
        return attempt.began

    def next_straggler(self) -> int | None:
        """Return the call whose hedge is due first; None where none is left, or the round is late as a whole."""
        if self.count - len(self.results) > max(MIN_STRAGGLERS, int(self.count * STRAGGLERS_SHARE)):
            return None
        return min(self.due, key=self.due.__getitem__, default=None)

    def wait(self) -> Sequence[tuple[Attempt, ResultT | RetryLaterError]]:
        """Wait until attempts end, or the next hedge is due; return those that ended."""
        call = self.next_straggler()
        return self.transport.wait(None if call is None else max(0.0, self.due[call] - self.timer()))

    def hedge(self) -> None:
        """Ask a call again if that is due, and pay for it."""
        call = self.next_straggler()
        if call is None or self.due[call] > self.timer():
            return
        if self.policy is None or not self.policy.try_spend():
            self.due.clear()  # nothing is left to spend in this round
            return
        del self.due[call]
        self.hedged += 1
        self.start(call)

    def end(self, attempt: Attempt, result: ResultT | RetryLaterError) -> None:
        """Take in the outcome of an attempt, and abandon the call's other one, if that is not needed any more.

        A failed one counts only when its call has no other attempt.
        """
        if attempt not in self.running:
            return  # the call's other attempt ended at the same time
        self.running.discard(attempt)
        other = next((other for other in self.running if other.call == attempt.call), None)
        is_failure = isinstance(result, RetryLaterError)
        if is_failure and other is not None:
            return
        if not is_failure:  # a refusal comes fast, and says nothing about how long responses take
            self._learn(attempt)
        self.results[attempt.call] = result
        self.due.pop(attempt.call, None)
        if other is not None:
            self.running.discard(other)
            self._learn(other)  # it took at least this long
            self.transport.abandon(other)

    def _learn(self, attempt: Attempt) -> None:
        if self.policy is not None:
            self.policy.record(self.timer() - attempt.began)


def run_round(
    count: int,
    transport: Transport[ResultT],
    *,
    timer: Callable[[], float],
    parallel: int,
    policy: HedgePolicy | None = None,
) -> tuple[list[ResultT | RetryLaterError], int]:
    """Run a round of idempotent calls, and ask those that are slower than most again, once, within the budget.

    `timer` is a monotonic clock in seconds. Hedges come on top of the `parallel` attempts that run at the same time.
    Returned are the results in the order of the calls, and how many hedges were sent.
    """
    current: _Round[ResultT] = _Round(count, transport, timer, policy)
    delay, waiting = policy.delay_seconds() if policy else None, iter(range(count))
    try:
        while True:
            for call in islice(waiting, max(0, parallel - len(current.running))):
                began = current.start(call)
                if delay is not None:
                    current.due[call] = began + delay
            if len(current.results) == count:
                return [current.results[call] for call in range(count)], current.hedged
            ended = current.wait()
            for attempt, result in ended:
                current.end(attempt, result)
            # A result may have come while this thread was busy: hedges are sent, one by one, when nothing is left to
            # read.
            if not ended:
                current.hedge()
    finally:
        for attempt in current.running:
            transport.abandon(attempt)
