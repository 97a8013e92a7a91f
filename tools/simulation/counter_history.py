"""The history check for counters: pure, and knows nothing of shards.

The promise: a strong read holds every addition that was acknowledged before it began, once, and nothing that nobody had
tried by its end. What was under way may be in it or not. An addition is known by its amount alone, so a read is judged
by the least and the most that it may show; where everything was acknowledged, both are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

NEVER = float("inf")


@dataclass(slots=True)
class Attempted:
    """An addition: what a client wanted to add, since when it was tried, and when it was acknowledged, if ever."""

    amount: int
    began_at: float
    acknowledged_at: float = NEVER


class Read(NamedTuple):
    """A strong read of a counter."""

    counter: str
    began_at: float
    ended_at: float
    value: int


class Breach(NamedTuple):
    """A read that cannot be."""

    counter: str
    detail: str


@dataclass(slots=True)
class CounterHistory:
    """Everything that was added and read."""

    additions: dict[str, list[Attempted]] = field(default_factory=dict)
    reads: list[Read] = field(default_factory=list)

    def offer(self, counter: str, amount: int, now: float) -> Attempted:
        """Note that somebody begins to add."""
        attempted = Attempted(amount, now)
        self.additions.setdefault(counter, []).append(attempted)
        return attempted

    def acknowledged(self) -> int:
        """Count the additions that were acknowledged."""
        return sum(a.acknowledged_at < NEVER for additions in self.additions.values() for a in additions)


def check_counters(history: CounterHistory) -> tuple[Breach, ...]:
    """Judge a history."""
    return tuple(_check(history.reads, history.additions))


def _check(reads: Iterable[Read], additions: dict[str, list[Attempted]]) -> Iterator[Breach]:
    for read in reads:
        least, most = _bounds(additions.get(read.counter, ()), read)
        if not least <= read.value <= most:
            expected = str(least) if least == most else f"{least} to {most}"
            yield Breach(read.counter, f"{read.value} in a read from {read.began_at:.3f} on; should be {expected}")


def _bounds(additions: Sequence[Attempted], read: Read) -> tuple[int, int]:
    """Work out the least and the most that a read may show."""
    least = most = 0
    for addition in additions:
        if addition.began_at > read.ended_at:
            continue
        if addition.acknowledged_at < read.began_at:
            least += addition.amount
            most += addition.amount
        else:
            least += min(addition.amount, 0)
            most += max(addition.amount, 0)
    return least, most
