"""Routes: the grow-only sets that say where a collection's messages are, and the placement rule.

A route is a set of generations `(n, since)`: messages with time from `since` on *may* be spread over `n` shards.
N(t), the largest n among the generations with `since <= t`, never falls, neither with t nor as the set grows. That is
what makes every older route safe to write with: a reader that knows a larger set looks in every place that a
smaller one could have chosen (docs/architecture.md).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import NamedTuple

from hotpartition.core.keys import build_shard_key
from hotpartition.core.message_ids import MAX_TIME_MS, first_message_id_at, message_time_ms
from hotpartition.errors import MalformedGenerationError

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


@dataclass(frozen=True)
class Route:
    """A collection's generations. Routes only grow: they are merged by union, never replaced."""

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

    def shard_count_of(self, message_id: str) -> int:
        """Return N(t) for a message's time: as `shard_count_at`, by comparing ids, whose order is that of their times.

        REQUIRES: a canonical id.
        """
        for first_id, shard_count in self._steps:
            if message_id >= first_id:
                return shard_count
        return 0

    @cached_property
    def _steps(self) -> tuple[tuple[str, int], ...]:
        """The steps of N(t), latest first: the first id of each, and the N from there on. Worked out once a route."""
        # Of a generation from after the last id's time there is no first id.
        starts = {g.since_ms for g in self.generations if g.since_ms <= MAX_TIME_MS}
        return tuple((first_message_id_at(t), self.shard_count_at(t)) for t in sorted(starts, reverse=True))

    @property
    def max_shard_count(self) -> int:
        """The largest N of any time."""
        return self.shard_count_at(None)

    def __bool__(self) -> bool:
        """Say whether the collection was ever raised."""
        return bool(self.generations)


EMPTY_ROUTE = Route()
"""The route of a collection that was never hot: everything is on the base key."""


MAX_CHOICES = 3
"""How many shards may hold a message under one N: its first choice, and where it goes when that refuses."""


class Placement(NamedTuple):
    """Where one message goes: its partition key, and the N it was placed under (0: the base key)."""

    partition_key: str
    shard_count: int


_SUFFIXES = tuple(build_shard_key("", index) for index in range(MAX_SHARD_COUNT))
# Looked up once: half of a placement's time would go into finding these, and into making a hash anew.
_new_hash = blake2b(digest_size=8).copy
_new_next_hash = blake2b(digest_size=16, person=b"next choices").copy
_to_int = int.from_bytes
_new_tuple = tuple.__new__


def stable_hash(message_id: str) -> int:
    """Hash a message id to 64 bits, the same for ever and everywhere.

    BLAKE2b and not Python's `hash()`, which differs by process; and not the id itself modulo n, since ids that share
    their low bits leave most shards empty. Pinned by golden values: changing it would strand stored messages.
    """
    hashed = _new_hash()
    hashed.update(message_id.encode())
    return _to_int(hashed.digest())


def choose_shards(message_id: str, shard_count: int, *, choices: int = MAX_CHOICES) -> tuple[int, ...]:
    """Choose the shards that may hold a message under one N, in the order in which they are tried.

    They are distinct, so two shards give two choices and one gives one. Given the first, the second is any other shard
    with the same odds, and so is the third given both: what one shard refuses spreads over all others. Pinned by golden
    values, as `stable_hash` is.
    """
    first = stable_hash(message_id) % shard_count
    if choices == 1 or shard_count == 1:
        return (first,)
    hashed = _new_next_hash()
    hashed.update(message_id.encode())
    digest = hashed.digest()
    second = (first + 1 + _to_int(digest[:8]) % (shard_count - 1)) % shard_count
    if choices == 2 or shard_count == 2:
        return (first, second)
    third = _to_int(digest[8:]) % (shard_count - 2)  # among those that are left, which leave out the other two
    for taken in sorted((first, second)):
        third += third >= taken
    return (first, second, third)


def choose_placement(route: Route, collection: str, message_id: str) -> Placement:
    """Choose the first partition key to try for a write. Any older route gives one that readers still look at."""
    shard_count = route.shard_count_of(message_id)
    if not shard_count:
        return Placement(collection, 0)
    key = collection + _SUFFIXES[stable_hash(message_id) % shard_count]
    return _new_tuple(Placement, (key, shard_count))


def choose_placements(route: Route, collection: str, message_id: str) -> tuple[Placement, ...]:
    """List all partition keys that a write may go to, that of `choose_placement` first; the base key has no other."""
    shard_count = route.shard_count_of(message_id)
    if not shard_count:
        return (Placement(collection, 0),)
    shards = choose_shards(message_id, shard_count)
    return tuple([_new_tuple(Placement, (collection + _SUFFIXES[shard], shard_count)) for shard in shards])


def needed_keys(route: Route, collection: str, until_ms: int | None) -> tuple[str, ...]:
    """List the partition keys that can hold messages with time up to `until_ms`: base key, shards 0 … N(until)-1."""
    shard_count = route.shard_count_at(until_ms)
    return (collection, *(build_shard_key(collection, index) for index in range(shard_count)))


def candidate_keys(route: Route, collection: str, message_id: str, *, choices: int = MAX_CHOICES) -> tuple[str, ...]:
    """List the partition keys that can hold one message: base key, and its choices under every generation it may be of.

    All generations count, dominated ones too: a stale writer may have known only those.

    Args:
        route: what is known of the collection.
        collection: of which collection.
        message_id: which message.
        choices: 1 leaves out where a message lies only when its first choice refused it.
    """
    time_ms = message_time_ms(message_id)
    counts = sorted({g.shard_count for g in route.generations if g.since_ms <= time_ms})
    by_count = [choose_shards(message_id, count, choices=choices) for count in counts]
    shards = [ranked[rank] for rank in range(choices) for ranked in by_count if rank < len(ranked)]
    return tuple(dict.fromkeys((collection, *(build_shard_key(collection, shard) for shard in shards))))


def next_candidates(
    route: Route, collection: str, message_id: str, *, asked: Collection[str], is_found: bool
) -> tuple[str, ...]:
    """List the partition keys that a point read asks next: first choices, and the others if nothing was found there.

    Args:
        route: what is known of the collection by now.
        collection: of which collection.
        message_id: which message.
        asked: the keys that have answered.
        is_found: whether one of them holds it.

    Returns:
        None of them: what was not found is not stored.
    """
    for choices in (1,) if is_found else (1, MAX_CHOICES):
        keys = candidate_keys(route, collection, message_id, choices=choices)
        if unasked := tuple(key for key in keys if key not in asked):
            return unasked
    return ()
