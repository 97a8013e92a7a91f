"""Scatter-gather paging: which keys to ask for how much, and the merge of what they answer. Pure.

A page is planned round by round. `PageMerge.next_queries` says what to ask, given the route as known so far;
`PageMerge.add` takes an answer in; when nothing is left to ask, `PageMerge.page` is exact: no key could hold a message
that belongs on it. Equal message ids (two copies of one message, left by a retry across a raise) become one entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, sqrt

from hotpartition.items import Message
from hotpartition.message_ids import MIN_MESSAGE_ID, message_time_ms, shift_message_id
from hotpartition.route import Route, needed_keys


@dataclass(frozen=True, slots=True)
class PageRange:
    """The messages that a page is taken from, by id; the bounds are inclusive, `None` is no bound."""

    conversation_id: str
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
class Page:
    """Messages in the page's order, each once. `divergent` counts ids whose copies differ in content."""

    messages: tuple[Message, ...]
    has_more: bool
    divergent: int


@dataclass(slots=True)
class _KeyState:
    reached: str | None = None
    is_exhausted: bool = False
    asked: int = 0
    rounds: int = 0


@dataclass(slots=True)
class PageMerge:
    """The state of one page while its queries run. Not safe for use by several threads at once."""

    range: PageRange
    _keys: dict[str, _KeyState] = field(default_factory=dict)
    _found: dict[str, list[Message]] = field(default_factory=dict)

    def next_queries(self, route: Route) -> list[KeyQuery]:
        """List the queries to run next; none are left when the page is complete under this route.

        Call it again with a larger route when the journal turns out to know more: what was fetched stays of use.
        """
        edge = self._edge()
        needed = self._needed(route, edge)
        live = [key for key in needed if key not in self._keys or not self._keys[key].is_exhausted]
        return [self._query(key, len(live)) for key in live if not self._is_read_up_to(key, edge)]

    def add(self, query: KeyQuery, messages: Sequence[Message], *, is_exhausted: bool) -> None:
        """Take an answer in: its messages in order, and whether the key holds no more within the query's bounds."""
        state = self._keys.setdefault(query.partition_key, _KeyState())
        state.asked = query.limit
        state.rounds += 1
        if messages:
            state.reached = messages[-1].message_id
        state.is_exhausted = is_exhausted or (bool(messages) and self._rest(state) is None)
        for message in messages:
            self._found.setdefault(message.message_id, []).append(message)

    def page(self) -> Page:
        """Build the page. REQUIRES: `next_queries` has nothing left to ask."""
        ids = self._sorted_ids()
        chosen = [self._found[message_id] for message_id in ids[: self.range.limit]]
        return Page(
            messages=tuple(choose_copy(copies) for copies in chosen),
            has_more=len(ids) > self.range.limit,
            divergent=sum(1 for copies in chosen if not all(copies[0].has_same_content(c) for c in copies[1:])),
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
        """The keys that can hold what is still open: the base key and shards up to N(t2), design.md section 5.

        t2 is the range's upper bound; oldest-first, the time of the edge bounds it as well.
        """
        last = self.range.last_id
        if not self.range.newest_first and edge is not None:
            last = edge
        elif not self.range.newest_first and not self._keys:
            # Start from the N at the page's beginning; the edge decides what else is needed.
            last = self.range.first_id or MIN_MESSAGE_ID
        return needed_keys(route, self.range.conversation_id, None if last is None else message_time_ms(last))

    def _query(self, key: str, live: int) -> KeyQuery:
        state = self._keys.get(key, _KeyState())
        first, last = self._rest(state) or (self.range.first_id, self.range.last_id)
        return KeyQuery(key, self.range.newest_first, self._share(state, live), first, last)

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

    def _share(self, state: _KeyState, live: int) -> int:
        """Choose how much to ask one key for: its fair share of what is open, with slack for uneven spread.

        The slack is one standard deviation of a fair share, so that few keys need a second round. From the third
        round on a key is asked for twice as much as before: however uneven the keys are, rounds stay few.
        """
        room = self._want - sum(1 for i in self._found if state.reached and self._precedes(i, state.reached))
        fair = room if live == 1 else ceil(room / live + sqrt(room / live))
        again = (0, state.asked + 1, 2 * state.asked)[min(state.rounds, 2)]
        return max(1, min(room, max(fair, again)))

    def _precedes(self, message_id: str, reached: str) -> bool:
        """Say whether a message comes no later than another, in the page's order."""
        return message_id >= reached if self.range.newest_first else message_id <= reached


def choose_copy(copies: Sequence[Message]) -> Message:
    """Choose one of several stored copies: always the same one, whichever key answered first."""
    if len(copies) == 1:
        return copies[0]
    return min(copies, key=lambda m: (m.sender, m.body, repr(sorted(m.attributes.items()))))
