"""Scatter-gather paging: which keys to ask for how much, and the merge of what they answer. Pure.

A page is planned round by round. `PageMerge.next_queries` says what to ask, given the route as known so far;
`PageMerge.add` takes a response in; when nothing is left to ask, `PageMerge.page` is exact: no key could hold a message
that belongs on it. Equal message ids (two copies of one message, left by a retry across a raise) become one entry.

The first round asks each key for a little more than its fair share, so that most pages need no other; the second asks
the keys that turned out to hold more, and only for what may still be on the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, sqrt
from typing import Any, Generic, Protocol, Self, TypeVar

from hotpartition.core.message_ids import MAX_MESSAGE_ID, MIN_MESSAGE_ID, message_time_ms, shift_message_id
from hotpartition.core.route import Route, needed_keys

SLACK_DEVIATIONS = 2.0
"""Slack of a first question, in standard deviations of a shard's share: a shard that holds more is asked again."""
MOST_PAGES = 2.5
"""What all shards together may read for one page, in pages, on average. Many shards have uneven shares: the slack of
each would sum up to far more than it saves in second questions."""
SECOND_ROUND_MESSAGES = 0.25
"""What a second round reads of each shard, on average: left for it of the above."""
SMALL_PAGE = 50
"""Smaller pages may read as much as this one: their items share read units, so another question costs more."""


class MergeItem(Protocol):
    """What a merge must know of an item."""

    @property
    def message_id(self) -> str:
        """Its id, canonical: what pages are sorted by, and what makes two copies one item."""
        ...

    @property
    def rank(self) -> Any:
        """What orders copies of different content, so that every reader chooses the same one."""
        ...

    def has_same_content(self, other: Self) -> bool:
        """Say whether both copies carry the same content."""
        ...


ItemT = TypeVar("ItemT", bound=MergeItem)


@dataclass(frozen=True, slots=True)
class PageRange:
    """The messages that a page is taken from, by id; the bounds are inclusive, `None` is no bound."""

    collection: str
    newest_first: bool
    limit: int
    first_id: str | None = None
    last_id: str | None = None


@dataclass(frozen=True, slots=True)
class KeyQuery:
    """One query: up to `limit` messages of one partition key, ids within inclusive bounds, in the page's order."""

    partition_key: str
    newest_first: bool
    limit: int
    first_id: str | None = None
    last_id: str | None = None


@dataclass(frozen=True, slots=True)
class Page(Generic[ItemT]):
    """Messages in the page's order, each once. `divergent` counts ids whose copies differ in content."""

    messages: tuple[ItemT, ...]
    has_more: bool
    divergent: int


@dataclass(slots=True)
class _KeyState:
    reached: str | None = None
    is_exhausted: bool = False
    asked: int = 0
    rounds: int = 0


@dataclass(slots=True)
class PageMerge(Generic[ItemT]):
    """The state of one page while its queries run. Not safe for use by several threads at once."""

    range: PageRange
    _keys: dict[str, _KeyState] = field(default_factory=dict)
    _found: dict[str, list[ItemT]] = field(default_factory=dict)

    def next_queries(self, route: Route) -> list[KeyQuery]:
        """List the queries to run next; none are left when the page is complete under this route.

        Call it again with a larger route when the journal turns out to know more: what was fetched stays of use.
        """
        edge = self._edge()
        needed = self._needed(route, edge)
        live = [key for key in needed if key not in self._keys or not self._keys[key].is_exhausted]
        first_shares = {} if self._keys.keys() >= set(live) else self._first_shares(needed)
        return [
            self._query(key, edge, first_shares[key] if key not in self._keys else self._share(key, edge, len(live)))
            for key in live
            if not self._is_read_up_to(key, edge)
        ]

    def add(self, query: KeyQuery, messages: Sequence[ItemT], *, is_exhausted: bool) -> None:
        """Take a response in: its messages in order, and whether the key holds no more within the query's bounds."""
        state = self._keys.setdefault(query.partition_key, _KeyState())
        state.asked = query.limit
        state.rounds += 1
        for message in messages:
            self._found.setdefault(message.message_id, []).append(message)
        if messages:
            state.reached = messages[-1].message_id
        end, range_end = self._end_of(query), self._end_of(self.range)
        if is_exhausted and end != range_end:
            # The query ended at the edge: the key is read up to there, though it may hold more.
            state.reached = end
        else:
            last_id = MIN_MESSAGE_ID if self.range.newest_first else MAX_MESSAGE_ID
            state.is_exhausted = is_exhausted or state.reached == (range_end or last_id)

    def page(self) -> Page[ItemT]:
        """Build the page. REQUIRES: `next_queries` has nothing left to ask."""
        ids = self._sorted_ids()
        chosen = [self._found[message_id] for message_id in ids[: self.range.limit]]
        return Page(
            messages=tuple(choose_copy(copies) for copies in chosen),
            has_more=len(ids) > self.range.limit,
            divergent=sum(1 for copies in chosen if len(copies) > 1 and not _is_same(copies)),
        )

    @property
    def _want(self) -> int:
        """One more than the page holds: the extra one tells whether there is a next page."""
        return self.range.limit + 1

    def _sorted_ids(self) -> list[str]:
        return sorted(self._found, reverse=self.range.newest_first)

    def _edge(self) -> str | None:
        """The last id that matters, if so many are known already. What is past it cannot be on the page."""
        ids = self._sorted_ids()
        return ids[self._want - 1] if len(ids) >= self._want else None

    def _is_read_up_to(self, key: str, edge: str | None) -> bool:
        """Say whether a key was read up to the edge, so that it holds nothing more before it."""
        state = self._keys.get(key)
        return (
            edge is not None and state is not None and state.reached is not None and self._precedes(edge, state.reached)
        )

    def _needed(self, route: Route, edge: str | None) -> tuple[str, ...]:
        """The keys that can hold what is still open: the base key and shards up to N(t2), docs/architecture.md.

        t2 is the range's upper bound; oldest-first, the time of the edge bounds it as well.
        """
        last = self.range.last_id
        if not self.range.newest_first and edge is not None:
            last = edge
        elif not self.range.newest_first and not self._keys:
            # Start from the N at the page's beginning; the edge decides what else is needed.
            last = self.range.first_id or MIN_MESSAGE_ID
        return needed_keys(route, self.range.collection, None if last is None else message_time_ms(last))

    def _end_of(self, bounds: KeyQuery | PageRange) -> str | None:
        """The bound that lies last in the page's order."""
        return bounds.first_id if self.range.newest_first else bounds.last_id

    def _query(self, key: str, edge: str | None, limit: int) -> KeyQuery:
        """Build a query of what is left of a key; of what lies past the edge nothing can be on the page."""
        first, last = self._rest(self._keys.get(key, _KeyState())) or (self.range.first_id, self.range.last_id)
        if edge is not None and self.range.newest_first:
            first = edge
        elif edge is not None:
            last = edge
        return KeyQuery(key, self.range.newest_first, limit, first, last)

    def _rest(self, state: _KeyState) -> tuple[str | None, str | None] | None:
        """The bounds of what a key was not asked for yet, or None when nothing is left within the range."""
        first, last = self.range.first_id, self.range.last_id
        if state.reached is None:
            return first, last
        following = shift_message_id(state.reached, -1 if self.range.newest_first else 1)
        if following is None:
            return None
        if self.range.newest_first:
            return None if first is not None and following < first else (first, following)
        return None if last is not None and following > last else (following, last)

    def _first_shares(self, needed: Sequence[str]) -> dict[str, int]:
        """Choose how much to ask each key for at first: its fair share of the page, with slack for uneven spread.

        Newest-first, a sharded collection's page is on its shards; the base key is only asked what its newest
        message is, which nearly always is older than the page.
        """
        want, base_key = self._want, self.range.collection
        spread = [key for key in needed if key != base_key or not self.range.newest_first] or list(needed)
        fair = want / len(spread)
        most = min(want, ceil(fair + SLACK_DEVIATIONS * sqrt(fair))) if len(spread) > 1 else want
        at_first = MOST_PAGES * max(self.range.limit, SMALL_PAGE) - SECOND_ROUND_MESSAGES * len(spread)
        each, left = divmod(max(0, int(at_first)), len(spread))
        if not each:
            # One message of each key is more than that already: the fewest queries are what can still be saved.
            each = most
        shares = {key: min(most, each + (index < left)) for index, key in enumerate(spread)}
        return {base_key: 1, **shares}

    def _share(self, key: str, edge: str | None, live: int) -> int:
        """Choose how much to ask one key for when it is asked again.

        Up to the edge, where there is one: all that may be on the page. Otherwise its fair share of what is open, with
        one standard deviation as slack, and from the third round on twice as much as before: however uneven the keys
        are, rounds stay few.
        """
        state = self._keys[key]
        room = self._want - sum(1 for i in self._found if state.reached and self._precedes(i, state.reached))
        if edge is not None or live == 1:
            return max(1, room)
        fair = ceil(room / live + sqrt(room / live))
        again = (0, state.asked + 1, 2 * state.asked)[min(state.rounds, 2)]
        return max(1, min(room, max(fair, again)))

    def _precedes(self, message_id: str, reached: str) -> bool:
        """Say whether a message comes no later than another, in the page's order."""
        return message_id >= reached if self.range.newest_first else message_id <= reached


def _is_same(copies: Sequence[ItemT]) -> bool:
    return all(copies[0].has_same_content(copy) for copy in copies[1:])


def choose_copy(copies: Sequence[ItemT]) -> ItemT:
    """Choose one of several stored copies: always the same one, whichever key answered first."""
    return copies[0] if len(copies) == 1 else min(copies, key=lambda copy: copy.rank)
