"""A route is found again from where items lie: under it, each of them is found."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotpartition.core.items import ItemKey
from hotpartition.core.keys import KeyForm
from hotpartition.core.route import (
    EMPTY_ROUTE,
    Close,
    Generation,
    Route,
    candidate_keys,
    choose_placements,
    needed_keys,
)
from hotpartition.core.route_evidence import RouteEvidence

FORM = KeyForm("#")


def place(route, count, random):
    """Place items under a route, each at one of its choices; of each its key and partition key."""
    keys = [ItemKey("c", f"{n:06}", n, f"id{random.random()}") for n in range(count)]
    return [(key, random.choice(choose_placements(route, key, FORM)).partition_key) for key in keys]


def find(items, known=EMPTY_ROUTE):
    evidence = RouteEvidence(known)
    for key, partition_key in items:
        shard_index = FORM.parse(partition_key)[1]
        if shard_index is not None:
            evidence.meet(shard_index, hashed=key.hashed, position=key.position)
    return known.union(Route(evidence.conclude()))


routes = st.sets(st.builds(Generation, st.integers(0, 300), st.integers(1, 64)), max_size=4).map(
    lambda generations: Route(frozenset(generations))
)


closes = st.sets(st.builds(Close, st.integers(0, 300), st.booleans()), max_size=2).map(frozenset)


@given(routes, routes, closes, st.integers(0, 100), st.randoms(use_true_random=False))
def test_each_item_is_found_by_its_key_and_on_pages(route, known, closed, count, random):
    """Whatever the route was, and whatever is still known; and what was found once is not added to."""
    items = place(route, count, random)
    known = Route(known.generations, closed)
    random.shuffle(items)
    found = find(items, known)
    for key, partition_key in items:
        assert partition_key in candidate_keys(found, key, FORM)
        pages = (found, found.as_announced)
        assert all(partition_key in needed_keys(r, "c", key.position, FORM, from_position=key.position) for r in pages)
    assert find(items, found) == found


@pytest.mark.parametrize("by_shard", [False, True])
def test_many_items_tell_each_number_of_shards(by_shard):
    """Also where they come shard by shard, as a scan lists them."""
    route = Route(frozenset({Generation(0, 4), Generation(500, 32)}))
    items = place(route, 1_000, Random(7))
    if by_shard:
        items.sort(key=lambda item: item[1])
    assert {g.shard_count for g in find(items).generations} >= {4, 32}
    assert find(items).max_shard_count == 32


def test_where_nothing_was_chosen_by_the_shards_tell_enough():
    """All of them are asked for each item."""
    evidence = RouteEvidence(EMPTY_ROUTE)
    for shard_index in (3, 7, 1) * 40:
        evidence.meet(shard_index, hashed=None, position=5)
    assert evidence.conclude() == {Generation(5, 8)}
