"""`CoalescingCounter`: additions are summed up in the process, and counted every 100 ms."""

from __future__ import annotations

import atexit
import logging
import os
import secrets
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Self
from weakref import WeakMethod

from hotpartition.core.backoff import Clock
from hotpartition.core.errors import HotPartitionError, InvalidRequestError
from hotpartition.table.counters import MAX_AMOUNT, ShardedCounter, check_amount
from hotpartition.table.sharded_table import REAL_CLOCK

INTERVAL_SECONDS = 0.1
MAX_ADDITIONS = 100
GIVEN_UP_SECONDS = 540.0
"""A batch that is not confirmed by then is given up: soon DynamoDB would forget its token, and count it twice."""

_LAMBDA_VARIABLE = "AWS_LAMBDA_FUNCTION_NAME"
_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Batch:
    """The additions to one key that are counted together, and since when that has been tried."""

    amount: int
    token: str
    began_ms: int
    is_logged: bool = False
    """Whether an error that is not the package's own was logged."""

    def split(self) -> list[tuple[int, str]]:
        """List the additions that it takes, each with its token: many large amounts are more than one takes."""
        most = MAX_AMOUNT if self.amount > 0 else -MAX_AMOUNT
        count, rest = divmod(self.amount, most)
        return [(amount, f"{self.token}{number}") for number, amount in enumerate([most] * count + [rest]) if amount]


class CoalescingCounter:
    """Sums additions up in the process, and adds the sums every 100 ms or 100 additions. For long-lived processes.

    **What can be lost:** additions since the last flush, at most 100 ms and 100 additions, if the process is
    killed. While DynamoDB refuses, a flush keeps its amounts and tries again, and a killed process loses all that waits
    then. Each batch is added with a token of its own, so a flush whose response was lost counts once. A batch that
    could not be confirmed for nine minutes is given up and logged: it may be counted or not.

    `add` never fails for DynamoDB's sake, and reads lag by the waiting amounts. Flushed at the interpreter's exit, by
    `with`, and by `close`. Safe under threads; in the child of a fork it begins with nothing added: the parent flushes
    what waited. Not for Lambda, which freezes a process between two requests: additions would be late, or lost.

    Example:
        >>> views = CoalescingCounter(ShardedCounter(table, fixed(16)))
        >>> views.add("page-1")
    """

    def __init__(
        self,
        counter: ShardedCounter,
        *,
        interval_seconds: float = INTERVAL_SECONDS,
        max_additions: int = MAX_ADDITIONS,
        clock: Clock = REAL_CLOCK,
        environ: Mapping[str, str] | None = None,
        wait: Callable[[Event, float], bool] = Event.wait,
    ) -> None:
        """Start with nothing added.

        Args:
            counter: gets the sums.
            interval_seconds: how long an addition waits, at most, while DynamoDB takes flushes.
            max_additions: how many additions wait, at most: the last flushes all, and its caller waits for that.
            clock: time, for tests.
            environ: read instead of the process's own variables, for tests.
            wait: waits for an event, or for a number of seconds; returns whether it happened. For tests.

        Raises:
            RuntimeError: the process is a Lambda function.
            ValueError: the interval or the number is out of range.
        """
        variables = os.environ if environ is None else environ
        if _LAMBDA_VARIABLE in variables:
            raise RuntimeError(
                f"this is the Lambda function {variables[_LAMBDA_VARIABLE]}, which is frozen between two requests: "
                "additions that wait would be late, or lost. Use ShardedCounter itself"
            )
        if interval_seconds <= 0 or max_additions < 1:
            raise ValueError("interval_seconds should be more than 0, and max_additions at least 1")
        self._counter = counter
        self._interval_seconds = interval_seconds
        self._max_additions = max_additions
        self._clock = clock
        self._wait = wait
        self._is_closed = Event()
        self._begin()
        begin = WeakMethod(self._begin)
        if hasattr(os, "register_at_fork"):  # not on Windows
            os.register_at_fork(after_in_child=lambda: (again := begin()) and again())

    def _begin(self) -> None:
        """Begin with nothing added."""
        self._lock = Lock()
        self._flushing = Lock()
        self._sums: defaultdict[str, int] = defaultdict(int)
        self._additions = 0
        self._batches: dict[str, _Batch] = {}
        self._thread: Thread | None = None

    def add(self, key: str, amount: int | Decimal = 1) -> None:
        """Add to a counter, soon.

        Raises:
            InvalidRequestError: the amount is not a whole number, or too large.
            RuntimeError: it was closed.

        Example:
            >>> views.add("page-1")
        """
        amount = check_amount(amount)
        with self._lock:
            if self._is_closed.is_set():
                raise RuntimeError("this CoalescingCounter is closed: nothing would flush what is added now")
            self._sums[key] += amount
            self._additions += 1
            is_full = self._additions >= self._max_additions
            if self._thread is None:
                self._start()
        if is_full:
            self._flush(is_waiting=False)

    def flush(self) -> bool:
        """Add what waits. Say whether nothing waits any more; what DynamoDB refused does, and is tried again later.

        Example:
            >>> views.flush()
            True
        """
        return self._flush(is_waiting=True)

    def close(self) -> None:
        """Flush, and take nothing more. Amounts that could not be flushed then are lost, and logged.

        Example:
            >>> views.close()
        """
        with self._lock:
            if self._is_closed.is_set():
                return
            self._is_closed.set()
        atexit.unregister(self.close)
        # Twice: a batch that waited for its confirmation goes first, then the additions behind it.
        if not self.flush() and not self.flush():
            lost = {key: batch.amount for key, batch in self._batches.items()}
            for key, amount in self._sums.items():
                lost[key] = lost.get(key, 0) + amount
            _logger.error("additions were lost, DynamoDB did not take them: %s", lost, extra={"lost": lost})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> None:
        """Begin to flush: with the first addition, so that an instance made before a fork works after it."""
        atexit.register(self.close)
        self._thread = Thread(target=self._flush_regularly, name="hotpartition-counter-flush", daemon=True)
        self._thread.start()

    def _flush_regularly(self) -> None:
        while not self._wait(self._is_closed, self._interval_seconds):
            self._flush(is_waiting=True)

    def _flush(self, *, is_waiting: bool) -> bool:
        """Add waiting amounts, one flush at a time; with another under way, wait for it or leave it to that."""
        if not self._flushing.acquire(blocking=is_waiting):
            return False
        try:
            self._take()
            for key, batch in list(self._batches.items()):
                if self._add(key, batch):
                    del self._batches[key]
        finally:
            self._flushing.release()
        with self._lock:
            return not self._batches and not self._sums

    def _take(self) -> None:
        """Make batches of waiting amounts; a key whose last batch is not confirmed yet waits on."""
        with self._lock:
            for key in [key for key in self._sums if key not in self._batches]:
                amount = self._sums.pop(key)
                if amount:
                    self._batches[key] = _Batch(amount, secrets.token_hex(16), self._clock.now_ms())
            self._additions = 0

    def _add(self, key: str, batch: _Batch) -> bool:
        """Add a batch; say whether it is over and done with."""
        try:
            for amount, token in batch.split():
                self._counter.add(key, amount, token=token)
        except InvalidRequestError:
            facts = {"key": key, "amount": batch.amount}
            _logger.exception("additions to %s cannot be counted: %d", key, batch.amount, extra=facts)
            return True
        except Exception as error:  # the thread that flushes outlives boto3's errors, and those of `once`
            if self._clock.now_ms() - batch.began_ms < GIVEN_UP_SECONDS * 1000:
                if not isinstance(error, HotPartitionError) and not batch.is_logged:
                    batch.is_logged = True
                    _logger.exception("additions to %s wait: %d", key, batch.amount, extra={"key": key})
                return False
            _logger.exception(
                "additions were given up: they may be counted or not", extra={"key": key, "amount": batch.amount}
            )
            return True
        return True
