"""Counts the cost of reading a newest page, by running the read function's own merge over made-up messages.

First rounds, second rounds and rounding to 4 KiB are what they will be. Pure; the same figures each time. For
the simulator's report and the benchmarks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from hotpartition.core.capacity import item_size_bytes, read_units
from hotpartition.core.merge import KeyQuery, PageMerge, PageRange, QueryResponse
from hotpartition.core.route import EMPTY_ROUTE, Close, Generation, Route, choose_placement
from hotpartition.core.route_history import Cause, encode_raises
from hotpartition_messages.keys import KEY_FORM, ROUTING_SORT_KEY, build_key, position_of
from hotpartition_messages.message_ids import mint_message_id
from hotpartition_messages.messages import Message

SAMPLE_PAGES = 10
"""Pages that a figure is the mean of: the spread over shards differs from page to page."""

_NOW_MS = 1_767_225_600_000
_CONVERSATION = "room-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The planned writes and reads: messages a second, an item's stored size, and messages on a page."""

    messages_per_second: float
    item_bytes: int
    page: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PageCost:
    """One newest page of a conversation with history; all are means, RCU by consistency."""

    queries: float
    rounds: float
    items_read: float
    rcu_strong: float
    rcu_eventual: float


def read_pages(shard_count: int, load: Load, *, is_closed: bool = False) -> PageCost:
    """Read some pages as the read function does, and count the average cost of one.

    Without shards the conversation was never raised; if it `is_closed`, all messages lie behind the close.
    """
    route = Route(frozenset({Generation(since_ms=_NOW_MS, shard_count=shard_count)})) if shard_count else EMPTY_ROUTE
    if is_closed:
        at_ms = _NOW_MS - 3_600_000
        generation = Generation(since_ms=at_ms - 86_400_000, shard_count=shard_count)
        route = Route(frozenset({generation}), frozenset({Close(at_ms, False), Close(at_ms, True)}))
    pages = [_read_page(route, load, Random(seed)) for seed in range(SAMPLE_PAGES)]
    sums = [sum(figures) / SAMPLE_PAGES for figures in zip(*pages, strict=True)]
    queries, rounds, items, strong = sums
    return PageCost(queries=queries, rounds=rounds, items_read=items, rcu_strong=strong, rcu_eventual=strong / 2)


def _read_page(route: Route, load: Load, random: Random) -> tuple[int, int, int, float]:
    """Read a newest page of a conversation with history: queries, rounds, items and RCU (strongly consistent)."""
    keys = _fill_keys(route, load.page, random)
    page_range: PageRange[str] = PageRange(_CONVERSATION, newest_first=True, limit=load.page)
    merge: PageMerge[str, Message] = PageMerge(page_range, KEY_FORM, position_of, present=_NOW_MS)
    routing_bytes = _routing_item_bytes(route)
    queries = rounds = items = 0
    rcu = 0.0
    while asked := merge.next_queries(route):
        rounds += 1
        for query in asked:
            response = _respond(keys.get(query.partition_key, ()), query)
            # The newest page of the base key passes the routing item.
            extra = routing_bytes if query.partition_key == _CONVERSATION and query.after is None else 0
            merge.add(query, response)
            found = len(response.items)
            queries, items = queries + 1, items + found
            rcu += read_units(found * load.item_bytes + extra, is_strong=True)
    return queries, rounds, items, rcu


def _fill_keys(route: Route, page: int, random: Random) -> Mapping[str, Sequence[Message]]:
    """Place messages as the write function does, newest first: enough that no key runs out."""
    keys: dict[str, list[Message]] = {}
    shards = max(route.max_shard_count, 1)
    times: Iterable[int] = range(_NOW_MS + 4 * (page + 1) + 12 * shards, _NOW_MS - 2 * (page + 1), -1)
    for time_ms in times:
        message = Message(_CONVERSATION, mint_message_id(time_ms, random.getrandbits), "", "")
        placement = choose_placement(route, build_key(_CONVERSATION, message.message_id), KEY_FORM)
        keys.setdefault(placement.partition_key, []).append(message)
    return keys


def _respond(stored: Sequence[Message], query: KeyQuery[str]) -> QueryResponse[str, Message]:
    within = [
        message
        for message in stored
        if (query.first is None or message.sort_key >= query.first)
        and (query.after is None or message.sort_key < query.after)
    ]
    return QueryResponse(tuple(within[: query.limit]), is_exhausted=len(within) < query.limit)


def _routing_item_bytes(route: Route) -> int:
    """Measure the routing item of a conversation that was raised once."""
    if not route:
        return 0
    members = sorted(route.encode())
    history = encode_raises(route.generations, cause=Cause("raised", 9_999), now_ms=_NOW_MS)
    texts = {"pk": _CONVERSATION, "sk": ROUTING_SORT_KEY, "updated_at": "0" * 24, "reason": "raised rate=9999"}
    return item_size_bytes(
        {
            **{name: {"S": text} for name, text in texts.items()},
            "routing_partition": {"S": "00"},
            "generations": {"SS": members},
            "raises": {"SS": history},
        }
    )
