"""Several DynamoDB requests at the same time for a client that blocks: on threads, hedged by `hedging.Hedger`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any

from hotpartition.core.hedging import Hedger
from hotpartition.dynamodb.calls import Answer, Call, Round
from hotpartition.errors import RetryLaterError

Outcome = Answer | RetryLaterError


class ThreadedCalls:
    """`DynamoDBCalls` over a function that sends one request and waits for its answer."""

    def __init__(
        self,
        call: Callable[[str, Mapping[str, Any]], Answer],
        executor: Executor | None = None,
        *,
        hedger: Hedger | None = None,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        """Put it together.

        Args:
            call: as `DynamoDBCalls.call`; runs on several threads.
            executor: runs the calls of a round; without it they run one after the other.
            hedger: asks slow ones again; None for never.
            close: closes what `call` and the executor hold open.
        """
        self._call = call
        self._executor = executor
        self._hedger = hedger
        self._close = close

    def call(self, operation: str, request: Mapping[str, Any]) -> Answer:
        """See `DynamoDBCalls.call`."""
        return self._call(operation, request)

    def call_many(self, calls: Sequence[Call], *, is_hedged: bool) -> Round:
        """See `DynamoDBCalls.call_many`."""
        if self._executor is None:
            return Round([self._attempt(call) for call in calls])
        if self._hedger is not None and is_hedged:
            attempts = [partial(self._attempt, call) for call in calls]
            return Round(*self._hedger.run(self._executor, attempts, is_failure=_is_failure))
        if not calls:
            return Round([])
        futures = [self._executor.submit(self._attempt, call) for call in calls[:-1]]
        last = self._attempt(calls[-1])  # the calling thread is one of those that work
        return Round([*(future.result() for future in futures), last])

    def close(self) -> None:
        """See `DynamoDBCalls.close`."""
        self._close()

    def _attempt(self, call: Call) -> Outcome:
        try:
            return self._call(call.operation, call.request)
        except RetryLaterError as error:
            return error


def _is_failure(outcome: Outcome) -> bool:
    return isinstance(outcome, RetryLaterError)
