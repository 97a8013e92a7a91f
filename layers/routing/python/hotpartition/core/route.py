"""Routes: the grow-only sets that say where a collection's items are, and the placement rule.

A route is a set of generations `(n, since)` and of closes. Items at positions from `since` on *may* be spread over `n`
shards. A close at c begins a new era: N(t) is the largest n among the generations with `c <= since <= t`, where c is
the last close at or before t. Within an era N never falls, neither with t nor as its generations grow. That is what
makes every older route safe to write with: a reader that knows a larger set looks in every place that a smaller one
could have chosen. Closes make N smaller. So readers obey only confirmed ones, and only those that the journal showed
beside the items; writers obey announced ones too, under a lease (docs/architecture.md).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import NamedTuple

from hotpartition.core.errors import MalformedGenerationError
from hotpartition.core.items import ItemKey, KeyT
from hotpartition.core.keys import MAX_SHARD_COUNT, KeyForm

MAX_SETTLED_MEMBERS = 192
"""From this many generations and closes on, a route is closed no more, and raises of it are completed at its latest
closes only: the rest, up to the journal's and Redis's limit, is for raises."""
PRESENT_CLOSES = 2
"""The last closes: the one that the present era began with, and the one that is pending."""

_GENERATION = re.compile(r"([1-9][0-9]{0,5})@(0|[1-9][0-9]{0,14})")
_CLOSE = re.compile(r"(closing|closed)@(0|[1-9][0-9]{0,14})")


@dataclass(frozen=True, slots=True, order=True)
class Generation:
    """One raise: items at positions from `since_ms` on may be spread over `shard_count` shards.

    Positions are Unix ms where a table's are times.
    """

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


@dataclass(frozen=True, slots=True, order=True)
class Close:
    """The beginning of an era at a position, Unix ms: announced (`closing`), or confirmed (`closed`)."""

    at_ms: int
    is_confirmed: bool

    def encode(self) -> str:
        """Build the stored form: a storage contract, pinned by golden tests. Versions without closes refuse it."""
        return f"{'closed' if self.is_confirmed else 'closing'}@{self.at_ms}"


Member = Generation | Close


def decode_member(text: str) -> Member:
    """Parse the stored form of a generation or close.

    Raises:
        MalformedGenerationError: it is of neither form.
    """
    match = _CLOSE.fullmatch(text)
    return Generation.decode(text) if match is None else Close(int(match[2]), match[1] == "closed")


@dataclass(frozen=True)
class Route:
    """A collection's generations and closes. Routes only grow: they are merged by union, never replaced.

    An announced close changes nothing here: `as_announced` is the view that obeys it.
    """

    generations: frozenset[Generation] = frozenset()
    closes: frozenset[Close] = frozenset()

    @classmethod
    def of(cls, members: Iterable[Member]) -> Route:
        """Build a route from its members."""
        members = frozenset(members)
        closes = frozenset(member for member in members if isinstance(member, Close))
        return cls(frozenset(member for member in members if isinstance(member, Generation)), closes)

    @classmethod
    def decode(cls, members: Iterable[str]) -> Route:
        """Build a route from stored members.

        Raises:
            MalformedGenerationError: one of them cannot be read. A reader must not go on without it.
        """
        return cls.of(decode_member(member) for member in members)

    def encode(self) -> frozenset[str]:
        """Build the stored members."""
        return frozenset(member.encode() for member in self.members)

    @property
    def members(self) -> frozenset[Member]:
        """All generations and closes."""
        return self.generations | self.closes if self.closes else self.generations

    def union(self, other: Route) -> Route:
        """Merge two views of the route."""
        if self.covers(other):
            return self
        return Route(self.generations | other.generations, self.closes | other.closes)

    def covers(self, other: Route) -> bool:
        """Say whether this view knows everything that the other does."""
        return other.generations <= self.generations and other.closes <= self.closes

    def minus(self, other: Route) -> frozenset[Member]:
        """List the members that this view has and the other does not."""
        return self.members - other.members

    def checked_by(self, journal: Route) -> Route:
        """Return the route that a read may use, given this hint: the generations of both, and the journal's closes.

        A close that only a hint knows may be invented.
        """
        if self.closes == journal.closes:
            return self.union(journal)
        return Route(self.generations | journal.generations, journal.closes)

    @cached_property
    def as_announced(self) -> Route:
        """The route for writers: announced closes count like confirmed ones. It covers this route."""
        closes = self.closes | {Close(close.at_ms, True) for close in self.closes}
        return self if closes == self.closes else Route(self.generations, closes)

    def complete_raise(self, added: Iterable[Generation]) -> frozenset[Generation]:
        """List the generations that a raise must still add to hold behind the closes after its beginning.

        Those are the confirmed ones, latest first while there is room, and the last ones, announced or not.
        """
        starts = sorted({close.at_ms for close in self.closes}, reverse=True)
        confirmed = {close.at_ms for close in self.closes if close.is_confirmed}
        present = starts[:PRESENT_CLOSES]
        earlier = [start for start in starts[PRESENT_CLOSES:] if start in confirmed]
        wanted, added = list[Generation](), tuple(added)
        for start in (*present, *earlier):
            if start in present or len(self.members) + len(wanted) < MAX_SETTLED_MEMBERS:
                most = max((g.shard_count for g in added if g.since_ms < start), default=0)
                if most > max((g.shard_count for g in self.generations if g.since_ms == start), default=0):
                    wanted.append(Generation(start, most))
        return frozenset(wanted)

    def undone_after(self, position: int) -> Generation | None:
        """Return the generations that a raise must add to keep N before the next close behind a position."""
        at_ms = min([close.at_ms for close in self.closes if close.at_ms > position], default=None)
        if at_ms is None or self.shard_count_at(at_ms) >= (before := self.shard_count_at(at_ms - 1)):
            return None
        return Generation(at_ms, before)

    def shard_count_at(self, position: int | None) -> int:
        """Compute N(t): the shards in use for items at a position; None: behind all others. 0: base key only."""
        for since, shard_count in self.steps:
            if position is None or position >= since:
                return shard_count
        return 0

    def most_shards_between(self, first: int | None, last: int | None) -> int:
        """Compute the largest N(t) of a range of positions, inclusive; None: without bound."""
        most = 0
        for since, shard_count in self.steps:
            if last is None or since <= last:
                most = max(most, shard_count)
                if first is not None and since <= first:
                    break
        return most

    @cached_property
    def steps(self) -> tuple[tuple[int, int], ...]:
        """The steps of N(t), latest first: where each begins, and the N from there on. Worked out once a route."""
        closed = [(close.at_ms, 0) for close in self.closes if close.is_confirmed]
        steps: list[tuple[int, int]] = []
        highest = 0
        for since, shard_count in sorted([*closed, *[(g.since_ms, g.shard_count) for g in self.generations]]):
            highest = max(highest, shard_count) if shard_count else 0
            steps.append((since, highest))
        return tuple(reversed(steps))

    @property
    def max_shard_count(self) -> int:
        """The largest N of any time."""
        return self.most_shards_between(None, None)

    def __bool__(self) -> bool:
        """Say whether the collection was ever raised."""
        return bool(self.generations or self.closes)


EMPTY_ROUTE = Route()
"""The route of a collection that was never hot: everything is on the base key."""


MAX_CHOICES = 3
"""How many shards may hold an item under one N: its first choice, and where it goes when that refuses."""


class Placement(NamedTuple):
    """Where one item goes: its partition key, and the N it was placed under (0: the base key)."""

    partition_key: str
    shard_count: int


# Looked up once: half of a placement's time would go into finding these, and into making a hash anew.
_new_hash = blake2b(digest_size=8).copy
_new_next_hash = blake2b(digest_size=16, person=b"next choices").copy
_to_int = int.from_bytes
_new_tuple = tuple.__new__


def stable_hash(hashed: str) -> int:
    """Hash a text to 64 bits, the same for ever and everywhere.

    BLAKE2b and not Python's `hash()`, which differs by process; and not an id itself modulo n, since ids that share
    their low bits leave most shards empty. Pinned by golden values: changing it would strand stored items.
    """
    state = _new_hash()
    state.update(hashed.encode())
    return _to_int(state.digest())


def choose_shards(hashed: str, shard_count: int, *, choices: int = MAX_CHOICES) -> tuple[int, ...]:
    """Choose the shards that may hold an item under one N, in the order in which they are tried.

    They are distinct, so two shards give two choices and one gives one. Given the first, the second is any other shard
    with the same odds, and so is the third given both: items that one shard refuses go to all others. Pinned by golden
    values, as `stable_hash` is.
    """
    first = stable_hash(hashed) % shard_count
    if choices == 1 or shard_count == 1:
        return (first,)
    state = _new_next_hash()
    state.update(hashed.encode())
    digest = state.digest()
    second = (first + 1 + _to_int(digest[:8]) % (shard_count - 1)) % shard_count
    if choices == 2 or shard_count == 2:
        return (first, second)
    third = _to_int(digest[8:]) % (shard_count - 2)  # among those that are left, which leave out the other two
    for taken in sorted((first, second)):
        third += third >= taken
    return (first, second, third)


def choose_placement(route: Route, key: ItemKey[KeyT], form: KeyForm) -> Placement:
    """Choose the first partition key to try for a write. Any older route gives one that readers still look at.

    REQUIRES: the text that chooses the item's shard is known.
    """
    collection, _, position, hashed = key
    shard_count = route.shard_count_at(position)
    if not shard_count:
        return _new_tuple(Placement, (collection, 0))
    assert hashed is not None  # noqa: S101  required
    return _new_tuple(Placement, (collection + form.suffixes[stable_hash(hashed) % shard_count], shard_count))


def choose_placements(
    route: Route, key: ItemKey[KeyT], form: KeyForm, *, choices: int = MAX_CHOICES
) -> tuple[Placement, ...]:
    """List all partition keys that a write may go to, that of `choose_placement` first; the base key has no other."""
    shard_count = route.shard_count_at(key.position)
    if not shard_count:
        return (Placement(key.collection, 0),)
    assert key.hashed is not None  # noqa: S101  required
    shards = choose_shards(key.hashed, shard_count, choices=choices)
    return tuple([Placement(form.shard_key(key.collection, shard), shard_count) for shard in shards])


def needed_keys(
    route: Route, collection: str, until_position: int | None, form: KeyForm, *, from_position: int | None = None
) -> tuple[str, ...]:
    """List the partition keys that can hold items of a range of positions; None: without bound.

    The base key, and as many shards as the largest N(t) of the range.
    """
    shard_count = route.most_shards_between(from_position, until_position)
    return (*form.base_keys(collection), *[collection + suffix for suffix in form.suffixes[:shard_count]])


def keys_of_hashed(
    route: Route,
    collection: str,
    hashed: str | None,
    until_position: int | None,
    form: KeyForm,
    *,
    choices: int = MAX_CHOICES,
    from_position: int | None = None,
) -> tuple[str, ...]:
    """List the partition keys that can hold items with one hashed value up to a position: the base key first.

    Without one, those that can hold any from `from_position` on: as `needed_keys`.

    All generations count that begin by then, dominated ones and those of closed eras too: a stale writer may have known
    only those.

    `hashed` is the text that chooses their shards; None: unknown. With `choices` 1, those are left out where an item
    lies only when its first choice refused it. Positions without a bound are None.
    """
    if hashed is None:
        return needed_keys(route, collection, until_position, form, from_position=from_position)
    reached = (g for g in route.generations if until_position is None or g.since_ms <= until_position)
    by_count = [choose_shards(hashed, count, choices=choices) for count in sorted({g.shard_count for g in reached})]
    shards = [ranked[rank] for rank in range(choices) for ranked in by_count if rank < len(ranked)]
    return tuple(dict.fromkeys((*form.base_keys(collection), *[form.shard_key(collection, shard) for shard in shards])))


def candidate_keys(route: Route, key: ItemKey[KeyT], form: KeyForm, *, choices: int = MAX_CHOICES) -> tuple[str, ...]:
    """List the partition keys that can hold one item: base key, and its choices under every generation it may be of."""
    return keys_of_hashed(route, key.collection, key.hashed, key.position, form, choices=choices)


def next_candidates(
    route: Route,
    key: ItemKey[KeyT],
    form: KeyForm,
    *,
    asked: Collection[str],
    is_found: bool,
    everywhere: bool = False,
    choices: int = MAX_CHOICES,
) -> tuple[str, ...]:
    """List the partition keys that a point read asks next: first choices, and the others if nothing was found there.

    With none left, the item is not stored.
    `asked` are the keys that have responded; `is_found`: one of them holds it. `everywhere`: all choices are asked at
    once, found or not, to learn of every copy.
    """
    for looked_at in (choices,) if everywhere else (1,) if is_found else (1, choices):
        keys = candidate_keys(route, key, form, choices=looked_at)
        if unasked := tuple(place for place in keys if place not in asked):
            return unasked
    return ()
