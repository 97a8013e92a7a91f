"""Routes: the grow-only sets that say where a conversation's messages are, and the placement rule.

A route is a set of generations `(n, since)`: messages with time from `since` on *may* be spread over `n` shards.
N(t), the largest n among the generations with `since <= t`, never falls, neither with t nor as the set grows. That is
what makes every older route safe to write with: a reader that knows a larger set looks in every place that a
smaller one could have chosen (design.md, section 5).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from hotpartition.errors import MalformedGenerationError
from hotpartition.keys import build_shard_key
from hotpartition.message_ids import message_time_ms

MAX_SHARD_COUNT = 1024
"""Largest N that can be stored: a garbled member must not make every reader ask a million keys."""

_GENERATION = re.compile(r"([1-9][0-9]{0,5})@(0|[1-9][0-9]{0,14})")


@dataclass(frozen=True, slots=True, order=True)
class Generation:
    """One raise: messages with time from `since_ms` (Unix ms) on may be spread over `shard_count` shards."""

    since_ms: int
    shard_count: int

    def encode(self) -> str:
        """Build the stored form, `<shard count>@<since, ms>`: a storage contract, pinned by golden tests."""
        return f"{self.shard_count}@{self.since_ms}"

    @classmethod
    def decode(cls, text: str) -> Generation:
        """Parse the stored form.

        Raises:
            MalformedGenerationError: it is not of that form.
        """
        match = _GENERATION.fullmatch(text)
        if match is None or int(match[1]) > MAX_SHARD_COUNT:
            expected = f"<shard count, at most {MAX_SHARD_COUNT}>@<since, ms>"
            raise MalformedGenerationError(f"{text!r} is no generation; expected {expected}")
        return cls(shard_count=int(match[1]), since_ms=int(match[2]))


@dataclass(frozen=True, slots=True)
class Route:
    """A conversation's generations. Routes only grow: they are merged by union, never replaced."""

    generations: frozenset[Generation] = frozenset()

    @classmethod
    def decode(cls, members: Iterable[str]) -> Route:
        """Build a route from stored members.

        Raises:
            MalformedGenerationError: one of them cannot be read. A reader must not go on without it.
        """
        return cls(frozenset(Generation.decode(member) for member in members))

    def encode(self) -> frozenset[str]:
        """Build the stored members."""
        return frozenset(generation.encode() for generation in self.generations)

    def union(self, other: Route) -> Route:
        """Merge two views of the route."""
        return self if other.generations <= self.generations else Route(self.generations | other.generations)

    def covers(self, other: Route) -> bool:
        """Say whether this view knows everything that the other does."""
        return other.generations <= self.generations

    def minus(self, other: Route) -> frozenset[Generation]:
        """List what this view knows and the other does not."""
        return self.generations - other.generations

    def shard_count_at(self, time_ms: int | None) -> int:
        """Compute N(t): the shards in use for messages up to a time; `None` means without bound. 0: base key only."""
        return max(
            (g.shard_count for g in self.generations if time_ms is None or g.since_ms <= time_ms),
            default=0,
        )

    @property
    def max_shard_count(self) -> int:
        """The largest N of any time."""
        return self.shard_count_at(None)

    def __bool__(self) -> bool:
        """Say whether the conversation was ever raised."""
        return bool(self.generations)


EMPTY_ROUTE = Route()
"""The route of a conversation that was never hot: everything is on the base key."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one message goes: its partition key, and the N it was placed under (0: the base key)."""

    partition_key: str
    shard_count: int


def stable_hash(message_id: str) -> int:
    """Hash a message id to 64 bits, the same for ever and everywhere.

    BLAKE2b and not Python's `hash()`, which differs by process; and not the id itself modulo n, since ids that share
    their low bits leave most shards empty. Pinned by golden values: changing it would strand stored messages.
    """
    return int.from_bytes(hashlib.blake2b(message_id.encode(), digest_size=8).digest())


def choose_placement(route: Route, conversation_id: str, message_id: str) -> Placement:
    """Choose the partition key for a write. Any older route gives a place that readers still look at."""
    shard_count = route.shard_count_at(message_time_ms(message_id)) if route else 0
    if not shard_count:
        return Placement(conversation_id, 0)
    return Placement(build_shard_key(conversation_id, stable_hash(message_id) % shard_count), shard_count)


def needed_keys(route: Route, conversation_id: str, until_ms: int | None) -> tuple[str, ...]:
    """List the partition keys that can hold messages with time up to `until_ms`: base key, shards 0 … N(until)-1."""
    shard_count = route.shard_count_at(until_ms)
    return (conversation_id, *(build_shard_key(conversation_id, index) for index in range(shard_count)))


def candidate_keys(route: Route, conversation_id: str, message_id: str) -> tuple[str, ...]:
    """List the partition keys that can hold one message: base key, and its shard under every generation it may be of.

    All generations count, dominated ones too: a stale writer may have known only those.
    """
    time_ms, hashed = message_time_ms(message_id), stable_hash(message_id)
    counts = sorted({g.shard_count for g in route.generations if g.since_ms <= time_ms})
    keys = [conversation_id, *(build_shard_key(conversation_id, hashed % count) for count in counts)]
    return tuple(dict.fromkeys(keys))
