"""Changes an item where it lies, if it is still as it was found.

    locate ─> decide ─> change on condition ─┬─> done
      ^                                      └─> another call was faster, or DynamoDB refused
      └──────────────── while there is time ────────────────┘

The condition names what was found, so of two changes one comes first, and the other one looks again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

FoundT = TypeVar("FoundT")
ResultT = TypeVar("ResultT")


class RaceLostError(Exception):
    """An item was not changed as it was found, or this is unknown: it has to be located again.

    `reason` is the error that the caller gets when there is no time for that.
    """

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


def change_located(
    locate: Callable[[], FoundT],
    decide: Callable[[FoundT], Callable[[], ResultT]],
    *,
    may_repeat: Callable[[], bool],
) -> ResultT:
    """Locate an item, decide what becomes of it, and do that; begin anew while the race is lost.

    Args:
        locate: returns what there is of the item now, at every place that it can have.
        decide: returns the change on condition, or what returns the result if there is nothing to change.
        may_repeat: waits, and says whether there is time to begin anew.

    Raises:
        Exception: the reason why the last race was lost, and what the functions raise beside `RaceLostError`.
    """
    while True:
        try:
            return decide(locate())()
        except RaceLostError as lost:
            if not may_repeat():
                raise lost.reason from lost.reason.__cause__


def at_most(attempts: int) -> Callable[[], bool]:
    """Build a `may_repeat` that allows a number of attempts in all, without waits."""
    left = iter(range(attempts - 1))
    return lambda: next(left, None) is not None
