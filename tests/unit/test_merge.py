"""Paging over many keys: exact, in order, each message once, at little cost."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import build_message, message_id, route_of
from fakes import FakeTable
from hotpartition.keys import build_message_sort_key
from hotpartition.merge import PageMerge, PageRange
from hotpartition.message_ids import first_message_id_at
from hotpartition.route import EMPTY_ROUTE, choose_placement

times = st.integers(0, 40)


def run_page(table, page_range, route, *, shuffle=lambda _: None):
    """Gather one page from a table, each round's replies in an order of its own; returns it and the rounds it took."""
    merge, rounds = PageMerge(page_range), 0
    while queries := merge.next_queries(route):
        rounds += 1
        assert rounds < 50
        fetched = table.fetch(queries, is_strong=True)
        replies = list(zip(queries, fetched.answers, strict=True))
        shuffle(replies)
        for query, answer in replies:
            merge.add(query, answer.messages, is_exhausted=answer.is_exhausted)
    return merge.page(), rounds


def fill(table, route, messages, known=None):
    for i, message in enumerate(messages):
        view = (known or {}).get(i, route)
        key = choose_placement(view, "c", message.message_id).partition_key
        table.items[key, build_message_sort_key(message.message_id)] = message.to_item(key)


@given(
    times=st.lists(times, max_size=60),
    generations=st.lists(st.tuples(st.integers(1, 6), times), max_size=3),
    stale=st.sets(st.integers(0, 59)),
    doubled=st.sets(st.integers(0, 59)),
    newest_first=st.booleans(),
    limit=st.integers(1, 30),
    bounds=st.tuples(st.none() | times, st.none() | times),
    random=st.randoms(use_true_random=False),
)
def test_a_page_is_what_one_sorted_list_would_give(
    times, generations, stale, doubled, newest_first, limit, bounds, random
):
    """Whatever the route, the spread, stale writers, doubled copies and order of replies: the first sorted ids."""
    route, table = route_of(*generations), FakeTable()
    messages = [build_message(t, tail) for tail, t in enumerate(times)]
    fill(table, route, messages, dict.fromkeys(stale, EMPTY_ROUTE))
    fill(table, route, [m for i, m in enumerate(messages) if i in doubled])
    first, last = (None if t is None else first_message_id_at(t) for t in bounds)
    page, _ = run_page(table, PageRange("c", newest_first, limit, first, last), route, shuffle=random.shuffle)
    within = [
        m.message_id
        for m in messages
        if (first is None or m.message_id >= first) and (last is None or m.message_id <= last)
    ]
    expected = sorted(within, reverse=newest_first)
    assert [m.message_id for m in page.messages] == expected[:limit]
    assert page.has_more == (len(expected) > limit)
    assert page.divergent == 0


def test_two_copies_that_differ_are_one_entry_always_the_same():
    """A client that broke its side of the contract still sees one message, whichever key answers first."""
    first, second = build_message(5, 1, body="a"), build_message(5, 1, body="b")
    merge = PageMerge(PageRange("c", newest_first=True, limit=5))
    base, shard = merge.next_queries(route_of((1, 0)))
    merge.add(shard, [second], is_exhausted=True)
    merge.add(base, [first], is_exhausted=True)
    assert merge.page().messages == (first,)
    assert merge.page().divergent == 1


def spread(shards, count, seed=1):
    """A table whose newest `count` messages are spread over shards, with older ones on the base key."""
    route, table, random = route_of((shards, 100_000)), FakeTable(), Random(seed)
    fill(table, route, [build_message(t, random.getrandbits(80)) for t in range(500)])
    fill(table, route, [build_message(100_000 + t, random.getrandbits(80)) for t in range(count)])
    return route, table


@pytest.mark.slow
def test_the_newest_page_of_sixteen_shards_costs_little():
    """50 of N = 16: at most 125 items and 2 rounds of queries, for 40 different spreads."""
    for seed in range(40):
        route, table = spread(16, 3_000, seed)
        page, rounds = run_page(table, PageRange("c", newest_first=True, limit=50), route)
        assert len(page.messages) == 50
        assert table.items_read <= 125
        assert rounds <= 2


def test_history_from_before_the_first_raise_is_one_query():
    """Fan-out by need, in either order."""
    route, table = spread(16, 100)
    for newest_first in (True, False):
        table.queries.clear()
        last = message_id(400) if newest_first else None
        page, rounds = run_page(table, PageRange("c", newest_first, 50, None, last), route)
        assert len(page.messages) == 50
        assert rounds == 1
        assert [q.partition_key for q in table.queries] == ["c"]


def test_rounds_stay_few_when_one_key_holds_everything():
    """A page across the raise: shards run dry, the base key supplies the rest."""
    route, table = spread(16, 3)
    page, rounds = run_page(table, PageRange("c", newest_first=True, limit=200), route)
    assert len(page.messages) == 200
    assert rounds <= 3


def test_a_larger_route_adds_queries_and_keeps_what_was_read():
    """The journal knew more than the hint: only the missing shards are asked."""
    route, table = spread(4, 50)
    merge = PageMerge(PageRange("c", newest_first=True, limit=20))
    (query,) = merge.next_queries(EMPTY_ROUTE)
    (answer,) = table.fetch([query], is_strong=True).answers
    merge.add(query, answer.messages, is_exhausted=answer.is_exhausted)
    assert merge.next_queries(EMPTY_ROUTE) == []
    assert {q.partition_key for q in merge.next_queries(route)} == {f"c#{i}" for i in range(4)}
