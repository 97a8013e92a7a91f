"""Scatter-gather paging: which keys to ask for how much, and the merge of their responses. Pure.

A page is planned round by round. `PageMerge.next_queries` says what to ask, given the route as known so far;
`PageMerge.add` takes a response in; when nothing is left to ask, `PageMerge.page` is exact: no key could hold an item
that belongs on it. Equal sort keys (two copies of one item, left by a retry across a raise) become one entry.

The first round asks each key for a little more than its fair share, so that most pages need no other; the second asks
the keys that turned out to hold more, and only for what may still be on the page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, sqrt
from typing import Any, Generic, Protocol, TypeVar

from hotpartition.core.capacity import READ_UNIT_BYTES
from hotpartition.core.items import KeyT, Ordered
from hotpartition.core.keys import KeyForm
from hotpartition.core.route import MAX_CHOICES, Route, keys_of_hashed

LEAST_SLACK, MOST_SLACK = 1.0, 2.0
"""Slack of a first question, in standard deviations of a shard's share: a shard that holds more is asked again. The
larger one where it takes no more read units."""
TYPICAL_ITEM_BYTES = 1024.0
"""Taken for the size of items until some were read."""
KEPT_PART = 0.75
"""A page without a limit keeps about so much of what its keys returned."""
MOST_PAGES = 2.5
"""How much all shards together may read for one page, in pages, on average. Many shards have uneven shares: slack for
each would sum up to far more than it saves in second questions."""
SECOND_ROUND_ITEMS = 0.25
"""Items that a second round reads of each shard, on average: its part of the above."""
MOST_HIDDEN = 1000
"""A page ends early after this many items that are not shown, so that reads stay bounded where many were deleted."""
SMALL_PAGE = 50
"""Smaller pages may read as much as this one: their items share read units, so another question costs more."""


KeyT_co = TypeVar("KeyT_co", bound=Ordered, covariant=True)


class MergeItem(Protocol[KeyT_co]):
    """The properties of an item that a merge needs."""

    @property
    def sort_key(self) -> KeyT_co:
        """Its sort key: it sorts pages, and copies of one item have the same."""

    @property
    def rank(self) -> Any:
        """Orders copies of different content, so that every reader chooses the same one."""


ItemT = TypeVar("ItemT", bound=MergeItem[Any])


PositionOf = Callable[[KeyT], int | None]
"""Returns the position of a sort key, or of a bound that need not be one; None: it is unknown."""


NO_LIMIT = 2**31 - 1
"""A page, or a query, of as many items as DynamoDB returns at once."""


@dataclass(frozen=True, slots=True)
class PageRange(Generic[KeyT]):
    """The items that a page is taken from, by sort key: `first` and `last` are inclusive, `None` means no bound.

    `after` is where the last page ended: only what follows it, in the page's order, is wanted. REQUIRES: it lies within
    `first` and `last`.
    """

    collection: str
    newest_first: bool
    limit: int
    first: KeyT | None = None
    last: KeyT | None = None
    after: KeyT | None = None


@dataclass(frozen=True, slots=True)
class KeyQuery(Generic[KeyT]):
    """One query: up to `limit` items of one partition key, in the page's order; bounds as those of `PageRange`."""

    partition_key: str
    newest_first: bool
    limit: int
    first: KeyT | None = None
    last: KeyT | None = None
    after: KeyT | None = None


@dataclass(frozen=True, slots=True)
class QueryResponse(Generic[KeyT, ItemT]):
    """One key's response. `is_exhausted`: nothing more lies within the query's bounds.

    `reached` is the sort key that was looked at last, where items were left out behind the last one in `items`.
    `is_cut`: it ended before its limit and its end, as a response does at 1 MB.
    """

    items: tuple[ItemT, ...]
    is_exhausted: bool
    reached: KeyT | None = None
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Page(Generic[KeyT, ItemT]):
    """Items in the page's order, each once.

    `last` is the sort key that the page ends with, shown or not: the next page begins behind it. `hidden` are the items
    that lie between the others and are not shown. `units` is the RCU of reading it.
    """

    items: tuple[ItemT, ...]
    has_more: bool
    last: KeyT | None = None
    hidden: tuple[ItemT, ...] = ()
    units: float = field(default=0.0, compare=False)


class ItemSizes:
    """The size of a table's items, as its pages show it. Threads may share one: a lost update changes little."""

    def __init__(self) -> None:
        """Start with a guess."""
        self.mean_bytes = TYPICAL_ITEM_BYTES

    def learn(self, size_bytes: int) -> None:
        """Take in the size of one item."""
        self.mean_bytes += (max(1, size_bytes) - self.mean_bytes) / 8


class Plan(Protocol[KeyT, ItemT]):
    """The queries of a read, round by round."""

    def next_queries(self, route: Route) -> list[KeyQuery[KeyT]]:
        """List the queries to run next; empty when all items under this route are there."""

    def add(self, query: KeyQuery[KeyT], response: QueryResponse[KeyT, ItemT]) -> None:
        """Take a response in."""

    def forget(self, key: str) -> None:
        """Forget how far a key was read, so that it is read anew."""


@dataclass(slots=True)
class _KeyState(Generic[KeyT]):
    reached: KeyT | None = None
    is_exhausted: bool = False
    asked: int = 0
    rounds: int = 0


@dataclass(slots=True)
class PageMerge(Generic[KeyT, ItemT]):
    """The state of one page while its queries run. Not safe for use by several threads at once.

    A page of `NO_LIMIT`, a filtered one, and one of which a response was cut ask each key once, and end where the first
    of them was read to: nothing past it is certain yet.
    """

    range: PageRange[KeyT]
    form: KeyForm
    position_of: PositionOf[KeyT]
    hashed: str | None = None
    """Only keys that can hold items with this hashed value are asked; None: all."""
    choices: int = MAX_CHOICES
    """With `hashed`: how many shards may hold an item under one N."""
    present: int | None = None
    """Where about the newest items lie, if that is known: a guess, which only saves queries."""
    item_bytes: float = TYPICAL_ITEM_BYTES
    """About how large an item is: a guess, too."""
    is_shown: Callable[[ItemT], bool] | None = None
    """Says whether an item belongs on a page; of several copies, whether the chosen one does. None: all do."""
    is_filtered: bool = False
    """Whether the store leaves out items that the limit counts."""
    looks_ahead: bool = True
    """Whether a key that is alone is asked for one item more than the page holds, so that its end is known."""
    _has_hidden: bool = False
    _is_cut: bool = False
    _asks_once: bool = False
    _keys: dict[str, _KeyState[KeyT]] = field(default_factory=dict)
    _found: dict[KeyT, list[ItemT]] = field(default_factory=dict)

    def next_queries(self, route: Route) -> list[KeyQuery[KeyT]]:
        """List the queries to run next; empty when the page is complete under this route.

        Call it again with a larger route when the journal turns out to know more: fetched items stay of use.
        """
        self._asks_once = self.is_filtered or self._is_cut or self.range.limit == NO_LIMIT
        if self._asks_once or not self.looks_ahead:
            keys = self._keys_of_all(route)
            self._asks_once |= len(keys) == 1
        if self._asks_once:
            asked = [key for key in keys if key not in self._keys]
            if not asked and self.range.limit == NO_LIMIT:
                asked = self._list_behind()
            return [self._next_query(key, None, self.range.limit) for key in asked]
        edge = self._edge()
        needed = self._needed(route, edge)
        live = [key for key in needed if key not in self._keys or not self._keys[key].is_exhausted]
        first_shares = {} if self._keys.keys() >= set(live) else self._first_shares(needed)
        return [
            self._next_query(
                key, edge, first_shares[key] if key not in self._keys else self._share(key, edge, len(live))
            )
            for key in live
            if not self._is_read_up_to(key, edge)
        ]

    def add(self, query: KeyQuery[KeyT], response: QueryResponse[KeyT, ItemT]) -> None:
        """Implement `Plan.add`."""
        items, is_exhausted = response.items, response.is_exhausted
        self._is_cut |= response.is_cut
        state = self._keys.setdefault(query.partition_key, _KeyState())
        state.asked = query.limit
        state.rounds += 1
        for item in items:
            self._found.setdefault(item.sort_key, []).append(item)
            if self.is_shown is not None and not self.is_shown(item):
                self._has_hidden = True
        if response.reached is not None or items:
            state.reached = response.reached or items[-1].sort_key
        end, range_end = self._end_of(query), self._end_of(self.range)
        if is_exhausted and end != range_end:
            # The query ended at the edge: the key is read up to there, though it may hold more.
            state.reached = end
        else:
            state.is_exhausted = is_exhausted or (range_end is not None and state.reached == range_end)

    def forget(self, key: str) -> None:
        """Implement `Plan.forget`; found items stay: they were there when the read had begun."""
        self._keys.pop(key, None)

    def page(self) -> Page[KeyT, ItemT]:
        """Build the page. REQUIRES: `next_queries` has nothing left to ask."""
        sort_keys = self._sorted_keys()
        reached = self._end_of_each() if self._asks_once else None
        if reached is not None:
            sort_keys = [sort_key for sort_key in sort_keys if self._precedes(sort_key, reached)]
        end = self._find_edge(sort_keys)
        last = sort_keys[:end][-1] if sort_keys[:end] else None
        items = [choose_copy(self._found[sort_key]) for sort_key in sort_keys[:end]]
        hidden: list[ItemT] = []
        if self._has_hidden and self.is_shown is not None:
            hidden = [item for item in items if not self.is_shown(item)]
            items = [item for item in items if self.is_shown(item)]
        return Page(
            items=tuple(items),
            has_more=end is not None or reached is not None,
            last=reached if end is None and reached is not None else last,
            hidden=tuple(hidden),
        )

    def _keys_between(self, route: Route, first: KeyT | None, last: KeyT | None) -> tuple[str, ...]:
        """List the keys that can hold items of a range; without closes, where it begins does not matter."""
        until = None if last is None else self.position_of(last)
        since = None if first is None or not route.closes else self.position_of(first)
        return self._keys_of(route, since, until)

    def _newest_keys(self, route: Route, last: KeyT | None) -> tuple[str, ...]:
        """List the keys that the newest items of a range probably lie under: those of the last eras up to its end."""
        until = None if last is None else self.position_of(last)
        since = until if until is None or self.present is None else min(until, self.present)
        return self._keys_of(route, self.present if since is None else since, until)

    def _keys_of(self, route: Route, since: int | None, until: int | None) -> tuple[str, ...]:
        collection, choices = self.range.collection, self.choices
        return keys_of_hashed(route, collection, self.hashed, until, self.form, choices=choices, from_position=since)

    def _keys_of_all(self, route: Route) -> tuple[str, ...]:
        """List the keys that can hold items of the page, as far as that is known by now, if each is asked once."""
        if self.range.newest_first:
            return self._needed(route, self._end_of_each())
        return self._keys_between(route, self.range.after or self.range.first, self.range.last)

    def _end_of_each(self) -> KeyT | None:
        """Return where the first of the keys that have more was read to."""
        ends = [each.reached for each in self._keys.values() if each.reached is not None and not each.is_exhausted]
        if not ends:
            return None
        return max(ends) if self.range.newest_first else min(ends)

    def _list_behind(self) -> list[str]:
        """List the keys that would end a page early which has no limit: what others returned would be read again.

        They are asked again, but never more often than all keys were together.
        """
        sort_keys = self._sorted_keys()
        if not sort_keys or sum(state.rounds for state in self._keys.values()) >= 2 * len(self._keys):
            return []
        goal = sort_keys[int(len(sort_keys) * KEPT_PART)]
        states = self._keys.items()
        return [key for key, state in states if not state.is_exhausted and not self._is_read_up_to(key, goal)]

    @property
    def _want(self) -> int:
        """One more than the page holds: the extra one shows whether there is a next page."""
        return self.range.limit + 1

    def _sorted_keys(self) -> list[KeyT]:
        return sorted(self._found, reverse=self.range.newest_first)

    def _edge(self) -> KeyT | None:
        """The last sort key that matters; None: too few are known. Items past it cannot be on the page."""
        sort_keys = self._sorted_keys()
        end = self._find_edge(sort_keys)
        return None if end is None else sort_keys[end]

    def _find_edge(self, sort_keys: Sequence[KeyT]) -> int | None:
        """Find the edge among the sort keys that are known: the first one behind a full page."""
        if not self._has_hidden:
            return self.range.limit if len(sort_keys) >= self._want else None
        return _find_end(len(sort_keys), self.range.limit, lambda index: self._shows(sort_keys[index]))

    def _shows(self, sort_key: KeyT) -> bool:
        return self.is_shown is None or self.is_shown(choose_copy(self._found[sort_key]))

    def _is_read_up_to(self, key: str, edge: KeyT | None) -> bool:
        """Say whether a key was read up to the edge, so that it holds nothing more before it."""
        state = self._keys.get(key)
        return (
            edge is not None and state is not None and state.reached is not None and self._precedes(edge, state.reached)
        )

    def _needed(self, route: Route, edge: KeyT | None) -> tuple[str, ...]:
        """The keys that can hold missing items, docs/architecture.md: those of the range, up to the edge.

        A page starts with the keys of the N at its beginning; the edge decides which others are needed.
        """
        page_range = self.range
        if page_range.newest_first:
            last = page_range.after or page_range.last
            if not self._keys:
                return self._newest_keys(route, last)
            return self._keys_between(route, page_range.first if edge is None else edge, last)
        first = page_range.after or page_range.first
        if edge is not None:
            return self._keys_between(route, first, edge)
        if self._keys:
            return self._keys_between(route, first, page_range.last)
        return self._keys_of(route, 0, 0) if first is None else self._keys_between(route, first, first)

    def _end_of(self, bounds: KeyQuery[KeyT] | PageRange[KeyT]) -> KeyT | None:
        """The bound that lies last in the page's order."""
        return bounds.first if self.range.newest_first else bounds.last

    def _next_query(self, key: str, edge: KeyT | None, limit: int) -> KeyQuery[KeyT]:
        """Build a query for the rest of a key, up to the edge: items past it cannot be on the page."""
        page_range = self.range
        first, last = page_range.first, page_range.last
        if edge is not None and page_range.newest_first:
            first = edge
        elif edge is not None:
            last = edge
        state = self._keys.get(key)
        after = page_range.after if state is None or state.reached is None else state.reached
        return KeyQuery(key, page_range.newest_first, limit, first, last, after)

    def _first_shares(self, needed: Sequence[str]) -> dict[str, int]:
        """Choose how much to ask each key for at first: its fair share of the page, with slack for uneven spread.

        Newest-first, a sharded collection's page is on its shards; the base key is only asked what its newest
        item is, which nearly always is older than the page.
        """
        want, base_key = self._want, self.range.collection
        spread = [key for key in needed if key != base_key or not self.range.newest_first] or list(needed)
        fair = want / len(spread)
        least, most = (min(want, ceil(fair + slack * sqrt(fair))) for slack in (LEAST_SLACK, MOST_SLACK))
        # As many as the read units of `least` hold anyway.
        paid = int(ceil(least * self.item_bytes / READ_UNIT_BYTES) * READ_UNIT_BYTES / self.item_bytes)
        most = min(most, max(least, paid)) if len(spread) > 1 else want
        at_first = MOST_PAGES * max(self.range.limit, SMALL_PAGE) - SECOND_ROUND_ITEMS * len(spread)
        if self.item_bytes >= READ_UNIT_BYTES:
            # Each item takes units of its own: their sum is rounded, not the share of each key.
            at_first = min(at_first, ceil(len(spread) * (fair + LEAST_SLACK * sqrt(fair))))
        each, left = divmod(max(0, int(at_first)), len(spread))
        if not each:
            # One item of each key is more than that already: the fewest queries are what can still be saved.
            each = most
        shares = {key: min(most, each + (index < left)) for index, key in enumerate(spread)}
        return {base_key: 1, **shares}

    def _share(self, key: str, edge: KeyT | None, live: int) -> int:
        """Choose how much to ask one key for when it is asked again.

        Up to the edge, where there is one: all that may be on the page. Otherwise its fair share of those missing, with
        one standard deviation as slack, and from the third round on twice as much as before: however uneven the keys
        are, rounds stay few.
        """
        state = self._keys[key]
        room = self._want - sum(1 for i in self._found if state.reached and self._precedes(i, state.reached))
        if self._has_hidden:
            # Items that are not shown take no room; how many a key has is known only by reading on.
            room = max(room, min(2 * state.asked, MOST_HIDDEN))
        if edge is not None or live == 1:
            return max(1, room)
        fair = ceil(room / live + sqrt(room / live))
        again = (0, state.asked + 1, 2 * state.asked)[min(state.rounds, 2)]
        return max(1, min(room, max(fair, again)))

    def _precedes(self, sort_key: KeyT, reached: KeyT) -> bool:
        """Say whether a sort key comes no later than another, in the page's order."""
        return sort_key >= reached if self.range.newest_first else sort_key <= reached


def cut_page(page: Page[KeyT, ItemT], count: int) -> Page[KeyT, ItemT]:
    """End a page after `count` of its items (at least one), where its next page will begin."""
    count = max(1, count)
    if count >= len(page.items):
        return page
    next_key = page.items[count].sort_key
    newest_first = page.items[0].sort_key > next_key
    hidden = tuple(item for item in page.hidden if (item.sort_key > next_key) == newest_first)
    kept = [item.sort_key for item in (page.items[count - 1], *hidden)]
    last = min(kept) if newest_first else max(kept)
    return replace(page, items=page.items[:count], has_more=True, last=last, hidden=hidden)


def narrow_newest(page: Page[KeyT, ItemT], limit: int, is_shown: Callable[[ItemT], bool]) -> Page[KeyT, ItemT]:
    """Build the page that the same read would have given with another limit, and with the items shown by now.

    It is a newest-first page. REQUIRES: the limit is no larger than the page's own, unless that is the last one.
    """
    read = page.items
    if len(read) <= limit and all(map(is_shown, read)):
        return page  # as nearly all are
    if page.hidden:
        read = tuple(sorted((*page.items, *page.hidden), key=lambda item: item.sort_key, reverse=True))
    shows = [is_shown(item) for item in read]
    end = _find_end(len(read), limit, shows.__getitem__)
    part = replace(
        page,
        items=tuple([item for item, is_on_page in zip(read[:end], shows, strict=False) if is_on_page]),
        hidden=tuple([item for item, is_on_page in zip(read[:end], shows, strict=False) if not is_on_page]),
    )
    return part if end is None else replace(part, has_more=True, last=read[end - 1].sort_key)


def _find_end(count: int, limit: int, shows: Callable[[int], bool]) -> int | None:
    """Find where a page ends among items in its order: before the first item that is too many; None: nowhere.

    `shows` says of each whether it belongs on a page; `MOST_HIDDEN` that do not end it as well.
    """
    shown = 0
    for index in range(count):
        is_shown = shows(index)
        if shown == limit and is_shown:
            return index
        if index - shown == MOST_HIDDEN:
            return index
        shown += is_shown
    return None


def choose_copy(copies: Sequence[ItemT]) -> ItemT:
    """Choose one of several stored copies: always the same one, whichever key responded first."""
    return copies[0] if len(copies) == 1 else min(copies, key=lambda copy: copy.rank)
