"""Retries inside a request's budget: exponential with full jitter.

Source: "Exponential Backoff and Jitter", AWS Architecture Blog. The SDK's own retries are off: on a throttle they wait
for about a second, which a Lambda function's concurrency cannot afford (facts in docs/decisions/0004).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from hotpartition.core.errors import RetryLaterError

ResultT = TypeVar("ResultT")

BASE_DELAY_MS = 160.0
"""The first wait is long: a raise's own update lies on the hot partition, and must not starve behind the writes that it
relieves."""
MAX_DELAY_MS = 300.0


@dataclass(frozen=True, slots=True)
class Clock:
    """Time and chance as a job uses them. `now_ms` is Unix time; `sleep` takes seconds; `random` is in [0, 1)."""

    now_ms: Callable[[], int]
    sleep: Callable[[float], None]
    random: Callable[[], float]


class Budget:
    """The time that one request may spend on trying again.

    It counts from now, or from the first refusal: a library's call may read for any time before it.
    """

    def __init__(self, clock: Clock, budget_ms: float, *, from_refusal: bool = False) -> None:
        self._clock = clock
        self._budget_ms = budget_ms
        self._deadline_ms = None if from_refusal else clock.now_ms() + budget_ms
        self._attempts = 0

    def wait(self) -> bool:
        """Wait before the next attempt; return False, at once, when the budget does not last until then."""
        ceiling_ms = min(MAX_DELAY_MS, BASE_DELAY_MS * 2**self._attempts)
        delay_ms = self._clock.random() * ceiling_ms
        if self._deadline_ms is None:
            self._deadline_ms = self._clock.now_ms() + self._budget_ms
        if self._clock.now_ms() + delay_ms >= self._deadline_ms:
            return False
        self._attempts += 1
        self._clock.sleep(delay_ms / 1000)
        return True


def try_for(clock: Clock, budget_ms: float, call: Callable[[], ResultT]) -> ResultT:
    """Call, and call again within a budget while DynamoDB refuses.

    Raises:
        RetryLaterError: that of the last attempt.
    """
    budget = Budget(clock, budget_ms)
    while True:
        try:
            return call()
        except RetryLaterError:
            if not budget.wait():
                raise
