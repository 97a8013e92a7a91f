"""Several DynamoDB requests at the same time for a client that blocks: on threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from typing import Any

from hotpartition.core.errors import RetryLaterError
from hotpartition.core.hedging import Attempt, HedgePolicy, run_round
from hotpartition.dynamodb.calls import Call, Outcome, Response, Round

Wait = Callable[..., tuple[Collection[Future[Any]], Collection[Future[Any]]]]
"""`concurrent.futures.wait`, or its replacement where there are no threads."""


class ThreadedCalls:
    """`DynamoDBCalls` over a function that sends one request and waits for its response."""

    def __init__(
        self,
        call: Callable[[str, Mapping[str, Any]], Response],
        executor: Executor | None = None,
        *,
        parallel: int = 1,
        policy: HedgePolicy | None = None,
        timer: Callable[[], float] = time.monotonic,
        wait: Wait = wait,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        """Start nothing yet.

        `call` runs on several threads, of which `executor` has `HEDGE_CONNECTIONS` more than `parallel`, the calls of a
        round that run at the same time; without it they run one after the other. `close` closes what both hold open.
        """
        self._call = call
        self._executor = executor
        self._parallel = parallel
        self._policy = policy
        self._timer = timer
        self._wait = wait
        self._close = close

    def call(self, operation: str, request: Mapping[str, Any]) -> Response:
        """Implement `DynamoDBCalls.call`."""
        return self._call(operation, request)

    def call_many(self, calls: Sequence[Call], *, is_hedged: bool) -> Round:
        """Implement `DynamoDBCalls.call_many`."""
        if self._executor is None:
            return Round([self._attempt(call) for call in calls])
        transport = _ThreadedRound(self._executor, self._attempt, calls, self._wait)
        policy = self._policy if is_hedged else None
        return Round(*run_round(len(calls), transport, timer=self._timer, parallel=self._parallel, policy=policy))

    def close(self) -> None:
        """Implement `DynamoDBCalls.close`."""
        self._close()

    def _attempt(self, call: Call) -> Outcome:
        try:
            return self._call(call.operation, call.request)
        except RetryLaterError as error:
            # The traceback's frames refer to the future that holds the error: a circle, and throttles come in masses.
            return error.with_traceback(None)


class _ThreadedRound:
    """The `Transport` of one round: each attempt is a future."""

    def __init__(
        self, executor: Executor, attempt: Callable[[Call], Outcome], calls: Sequence[Call], wait_for: Wait
    ) -> None:
        self._executor = executor
        self._attempt = attempt
        self._calls = calls
        self._wait_for = wait_for
        self._attempts: dict[Future[Outcome], Attempt] = {}

    def start(self, attempt: Attempt) -> None:
        self._attempts[self._executor.submit(self._attempt, self._calls[attempt.call])] = attempt

    def wait(self, timeout_seconds: float | None) -> list[tuple[Attempt, Outcome]]:
        done, _ = self._wait_for(self._attempts, timeout=timeout_seconds, return_when=FIRST_COMPLETED)
        return [(self._attempts.pop(future), future.result()) for future in done]

    def abandon(self, attempt: Attempt) -> None:
        for future in [future for future, other in self._attempts.items() if other == attempt]:
            future.cancel()  # one that has not begun; one that runs is left to end by itself
            del self._attempts[future]
