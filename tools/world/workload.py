"""What clients write, and when: flows of messages whose load is a function of time. Open loop: nobody waits.

A shape says how many WCU/s a flow offers at an instant; arrivals are a Poisson process of that rate, by thinning
(Lewis, Shedler, "Simulation of Nonhomogeneous Poisson Processes by Thinning", 1979).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import accumulate
from math import ceil
from operator import attrgetter
from random import Random
from typing import Any, NamedTuple

ITEM_OVERHEAD_BYTES = 150
"""About what an item holds beside its body."""
WCU_BYTES = 1024


class Arrival(NamedTuple):
    """A message that a client wants to write, `at` seconds into the run. It is `age_seconds` old by its own time."""

    at: float
    conversation_id: str
    sender: str
    body_bytes: int
    age_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """From one load to another, and back at `end`."""

    before: float
    after: float
    onset: float
    end: float = float("inf")

    @property
    def highest(self) -> float:
        """A bound of the load, WCU/s."""
        return max(self.before, self.after)

    def rate(self, at: float) -> float:
        """The load at an instant, WCU/s."""
        return self.after if self.onset <= at < self.end else self.before


def constant(wcu: float) -> Step:
    """Build the same load all the time."""
    return Step(before=wcu, after=wcu, onset=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationFlow:
    """One conversation; bodies are of a random size, messages of a random age, both evenly between two bounds."""

    conversation_id: str
    shape: Step
    body_bytes: tuple[int, int] = (100, 800)
    age_seconds: tuple[float, float] = (0.0, 0.0)
    backwards_seconds: float = 0.0
    """For a backfill that runs from new to old: how much older its messages get with each second."""
    start: float = 0.0
    end: float = float("inf")

    def arrivals(self, duration: float, random: Random) -> Iterator[Arrival]:
        """Yield its messages in the order of time."""
        low, high = self.body_bytes
        units = _mean_units(low, high)
        for at in _instants(self.shape, units, self.start, min(duration, self.end), random):
            age = random.uniform(*self.age_seconds) + (at - self.start) * self.backwards_seconds
            yield Arrival(at, self.conversation_id, f"user-{random.randrange(500)}", random.randint(low, high), age)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZipfFlow:
    """Many conversations, the k-th most popular of which gets a share of 1 / k to the power of `exponent`."""

    conversations: int
    shape: Step
    exponent: float = 1.0
    body_bytes: tuple[int, int] = (100, 800)
    prefix: str = "room"

    def arrivals(self, duration: float, random: Random) -> Iterator[Arrival]:
        """Yield its messages in the order of time."""
        low, high = self.body_bytes
        shares = list(accumulate((k + 1) ** -self.exponent for k in range(self.conversations)))
        for at in _instants(self.shape, _mean_units(low, high), 0.0, duration, random):
            place = bisect_left(shares, random.random() * shares[-1])
            sender = f"user-{random.randrange(500)}"
            yield Arrival(at, f"{self.prefix}-{place}", sender, random.randint(low, high), 0.0)


def stepping(
    conversation_id: str, *, loads: tuple[float, float], between: tuple[float, float], **others: Any
) -> ConversationFlow:
    """Build a conversation with the second load `between` two instants, else the first; `others` as it takes them."""
    (before, after), (onset, end) = loads, between
    shape = Step(before=before, after=after, onset=onset, end=end)
    return ConversationFlow(conversation_id=conversation_id, shape=shape, **others)


Flow = ConversationFlow | ZipfFlow
"""A source of messages."""


def list_arrivals(flows: Iterable[Flow], duration: float, seed: int) -> Iterator[Arrival]:
    """Yield all messages of several flows in the order of time; the same for the same seed, whatever the store does."""
    arrivals = (flow.arrivals(duration, Random(f"{seed}/flow-{index}")) for index, flow in enumerate(flows))
    return merge(*arrivals, key=attrgetter("at"))


def name_for(name: str, seed: int) -> str:
    """Put the seed into a conversation's name, if it has a place for it."""
    return name.replace("{seed}", str(seed))


def _mean_units(low: int, high: int) -> float:
    """Return the mean WCU of an item whose body has so many bytes."""
    sizes = range(low, high + 1, max(1, (high - low) // 64))
    return sum(ceil((size + ITEM_OVERHEAD_BYTES) / WCU_BYTES) for size in sizes) / len(sizes)


def _instants(shape: Step, units: float, start: float, end: float, random: Random) -> Iterator[float]:
    highest = shape.highest / units
    if highest <= 0:
        return
    at = start
    while True:
        at += random.expovariate(highest)
        if at >= end:
            return
        if random.random() * highest < shape.rate(at) / units:
            yield at
