"""Paging over many keys: exact, in order, each message once, at little cost.

It bounds what pages cost, in many shapes of data: an exact page may still have asked for far too much.
"""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotpartition.core.merge import NO_LIMIT, PageMerge, PageRange, QueryResponse
from hotpartition.core.route import EMPTY_ROUTE, Close, Generation, Route, choose_placement
from hotpartition_messages.keys import KEY_FORM, build_key, build_sort_key, position_of
from hotpartition_messages.message_ids import first_message_id_at
from support.builders import build_message, route_of
from support.fakes import lies_within

times = st.integers(0, 40)
randoms = st.integers(0, 2**32 - 1).map(Random)
"""Hypothesis draws the seed alone: to draw each number by itself takes longer than all else."""


class Shelf:
    """Messages on keys of their own choice, as plain lists: what DynamoDB would return, and what that costs."""

    def __init__(self, page_range, keys, item_bytes=200):
        self.range, self.keys, self.item_bytes = page_range, keys, item_bytes
        self.rounds, self.items = [], 0

    def respond(self, query, cut):
        """Respond to one query; `cut` says how many of its messages are passed on, at least one."""
        stored = sorted(self.keys.get(query.partition_key, {}), reverse=query.newest_first)
        within = [identifier for identifier in stored if lies_within(query, identifier)]
        taken = within[: query.limit]
        told = taken[: max(1, cut(taken))]
        self.items += len(told)
        messages = [self.keys[query.partition_key][identifier] for identifier in told]
        return QueryResponse(messages, is_exhausted=len(told) == len(within) < query.limit)

    def read(self, *routes, cut=len, present=None, before_round=lambda _: None):
        """Gather the page, which has to be exact; each round knows the next route.

        Replies come in the order of the queries, which `before_round` may change.
        """
        merge = PageMerge(self.range, KEY_FORM, position_of, present=present, item_bytes=self.item_bytes)
        routes = [*routes]
        while (queries := [*merge.next_queries(routes[0])]) or len(routes) > 1:
            assert len(self.rounds) < 50
            self.rounds.append(queries)
            before_round(queries)
            for query in queries:
                merge.add(query, self.respond(query, cut))
            if len(routes) > 1:
                routes.pop(0)
        self.page = merge.page()
        self.assert_exact()
        return self

    def assert_exact(self):
        ids = {identifier for stored in self.keys.values() for identifier in stored}
        expected = sorted((i for i in ids if lies_within(self.range, i)), reverse=self.range.newest_first)
        shown = [message.sort_key for message in self.page.items]
        if self.range.limit != NO_LIMIT:
            assert shown == expected[: self.range.limit]
            assert self.page.has_more == (len(expected) > self.range.limit)
        elif self.page.has_more:
            assert shown == expected[: len(shown)]
            assert self.page.last != self.range.after
        else:
            assert shown == expected

    @property
    def asked(self):
        """The keys that each round asked."""
        return [{query.partition_key for query in queries} for queries in self.rounds if queries]


def walk(keys, *routes, newest_first, limit, first=None, last=None, after=None, most_pages=1_000, **how):
    """Read page after page, at most `most_pages`."""
    shelves = []
    while not shelves or (shelves[-1].page.has_more and len(shelves) < most_pages):
        shelf = Shelf(PageRange("c", newest_first, limit, first, last, after), keys).read(*routes, **how)
        shelves.append(shelf)
        after = shelf.page.last
    return shelves


eras = st.tuples(
    st.frozensets(st.builds(Generation, since_ms=times, shard_count=st.integers(1, 6)), max_size=5),
    st.frozensets(st.builds(Close, at_ms=times, is_confirmed=st.booleans()), max_size=3),
)


def fill_by_eras(messages, generations, closes, random):
    """Lay messages where writers may put them that know some of the generations, and obey all announcements."""
    keys = {}
    for message in messages:
        known = frozenset(random.sample(sorted(generations), random.randint(0, len(generations))))
        view = Route(known, closes).as_announced
        for _ in range(random.choice((1, 1, 1, 2))):
            key = choose_placement(view, build_key("c", message.message_id), KEY_FORM).partition_key
            keys.setdefault(key, {})[message.sort_key] = message
            view = EMPTY_ROUTE  # a copy of a writer in doubt
    return keys


@settings(max_examples=200)
@given(
    count=st.integers(0, 80),
    members=eras,
    hint=eras,
    newest_first=st.booleans(),
    limit=st.integers(1, 30) | st.just(NO_LIMIT),
    bounds=st.tuples(*[st.none() | times] * 3),
    present=st.none() | times,
    most=st.none() | st.integers(1, 10),
    random=randoms,
)
def test_pages_are_exact_across_eras(count, members, hint, newest_first, limit, bounds, present, most, random):
    """Whatever was closed, whatever the hint of the first round says, and wherever the present is taken to be.

    Responses may be cut short at a size, or anywhere.
    """
    messages = [build_message(random.randint(0, 40), tail) for tail in range(count)]
    first, last, after = (None if t is None else build_sort_key(first_message_id_at(t)) for t in bounds)
    if after is not None and not (first or after) <= after <= (last or after):
        after = None
    if limit == NO_LIMIT:
        cut = len if most is None else lambda _: most
    else:
        cut = len if most is None else lambda taken: random.randint(0, len(taken))
    hinted = Route(*hint)
    routes = (Route(*members),) if limit == NO_LIMIT else (hinted, hinted.checked_by(Route(*members)))
    how = {"cut": cut, "present": present, "before_round": random.shuffle}
    bounded = {"first": first, "last": last, "after": after, "most_pages": 3 if limit < 5 else 1_000}
    walk(fill_by_eras(messages, *members, random), *routes, newest_first=newest_first, limit=limit, **bounded, **how)


def test_two_copies_that_differ_are_one_entry_always_the_same():
    """A client that broke its side of the contract still sees one message, whichever key responds first."""
    first, second = build_message(5, 1, body="a"), build_message(5, 1, body="b")
    merge = PageMerge(PageRange("c", newest_first=True, limit=5), KEY_FORM, position_of)
    base, shard = merge.next_queries(route_of((1, 0)))
    merge.add(shard, QueryResponse((second,), is_exhausted=True))
    merge.add(base, QueryResponse((first,), is_exhausted=True))
    assert merge.page().items == (first,)


def lay(route, messages):
    """Lay messages where a route places them; return their keys."""
    keys = {}
    for message in messages:
        key = choose_placement(route, build_key("c", message.message_id), KEY_FORM).partition_key
        keys.setdefault(key, {})[message.sort_key] = message
    return keys


def read_even(shards, limit, seed, count):
    """Read the newest page of messages that the hash spreads over shards, with older ones on the base key."""
    route, random = route_of((shards, 100_000)), Random(seed)
    keys = lay(route, (build_message(t, random.getrandbits(80)) for t in range(99_900, 100_000 + count)))
    return Shelf(PageRange("c", newest_first=True, limit=limit), keys).read(route)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shards", "items", "queries"),
    [(2, 80, 4), (4, 90, 6), (8, 105, 10), (16, 115, 20), (32, 120, 43), (64, 124, 96), (128, 220, 145)],
)
def test_the_newest_page_costs_little_at_every_n(shards, items, queries):
    """50 messages, 40 spreads: 2 rounds at most, and on average no more than so many items and queries."""
    shelves = [read_even(shards, 50, seed, 300) for seed in range(40)]
    assert max(len(shelf.rounds) for shelf in shelves) <= 2
    assert sum(shelf.items for shelf in shelves) / 40 <= items
    assert sum(len(queries) for shelf in shelves for queries in shelf.rounds) / 40 <= queries


@pytest.mark.parametrize("limit", [1, 2, 10])
def test_a_small_page_of_few_shards_takes_one_round(limit):
    """Its items cost next to nothing, another round would: the last message, or the last ten."""
    rounds = [len(read_even(shards, limit, seed, 60).rounds) for shards in (2, 4) for seed in range(20)]
    assert sum(rounds) <= 1.1 * len(rounds)


@pytest.mark.parametrize("where", ["c", "c#3"])
def test_a_page_that_lies_on_one_key_takes_two_rounds_more_at_most(where):
    """All on the base key (the raise has just been) or all on one shard: found, without a walk in small steps."""
    messages = [build_message(100_000 + t, t) for t in range(500)]
    shelf = Shelf(PageRange("c", newest_first=True, limit=50), {where: {m.sort_key: m for m in messages}})
    shelf.read(route_of((16, 100_000)))
    assert len(shelf.rounds) <= 3
    assert shelf.items <= 125


FEW = ((2, {31}), (4, {17, 16}), (16, {5}), (32, {3, 2}), (64, {2, 1}), (200, {1}), (1000, {1}))
MANY = ((2, {36}), (4, {20}), (16, {7}), (64, {2, 1}), (200, {2}), (1000, {1}))


@pytest.mark.parametrize(
    ("item_bytes", "expected"),
    [(100, MANY), (300, ((4, {20}), (16, {7}))), (1500, ((0, {51}), (1, {51}), (4, {19}))), (16_000, FEW)],
)
def test_a_first_round_asks_the_base_key_for_its_newest_and_the_shards_for_a_share(item_bytes, expected):
    """A deviation of slack, or two where those take no more read units; at most what two and a half pages allow.

    There is nothing to share out where one key has it all.
    """
    for shards, shares in expected:
        merge = PageMerge(PageRange("c", newest_first=True, limit=50), KEY_FORM, position_of, item_bytes=item_bytes)
        queries = merge.next_queries(route_of((shards, 0)) if shards else EMPTY_ROUTE)
        if shards:
            base, *queries = queries
            assert (base.partition_key, base.limit) == ("c", 1)
        assert {query.limit for query in queries} == shares
        assert sum(query.limit for query in queries) <= (125 - shards / 4 if shards <= 100 else 2 * shards)


@pytest.mark.parametrize(("shards", "cut", "asked"), [(0, 2, [[3], [1]]), (1, 1, [[3, 3], [2, 1]])])
def test_no_more_is_asked_for_again_than_is_missing(shards, cut, asked):
    """Nothing but one item, where all others of the page were found up to where a key was read."""
    keys = {"c": {}, "c#0": {}}
    for time_ms in range(8):
        message = build_message(time_ms, time_ms)
        keys["c#0" if shards and time_ms % 2 else "c"][message.sort_key] = message
    route = route_of((shards, 0)) if shards else EMPTY_ROUTE
    shelf = Shelf(PageRange("c", newest_first=False, limit=2), keys).read(route, cut=lambda _: cut)
    assert [[query.limit for query in queries] for queries in shelf.rounds] == asked


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize(("at_base", "most"), [(0.0, 1.3), (0.25, 1.35), (0.9, 1.5)])
def test_a_walk_without_a_limit_goes_on_with_the_key_that_is_behind(newest_first, at_base, most):
    """What its pages read of other keys is not read again and again, and a page stays bounded."""
    random = Random(7)
    keys = {"c": {}, **{f"c#{shard}": {} for shard in range(16)}}
    for time_ms in range(6_000):
        message = build_message(time_ms, time_ms)
        key = "c" if random.random() < at_base else f"c#{random.randrange(16)}"
        keys[key][message.sort_key] = message
    shelves = walk(keys, route_of((16, 0)), newest_first=newest_first, limit=NO_LIMIT, cut=lambda _: 50)
    pages = [len(shelf.page.items) for shelf in shelves]
    assert sum(pages) == 6_000
    assert sum(shelf.items for shelf in shelves) <= most * 6_000
    assert max(pages) <= 2 * 17 * 50


def raised_and_closed(before, behind, *, shards=16):
    """Lay messages of before a raise, of between it and the close at 1,000, and of behind that; return their keys."""
    route = Route(frozenset({Generation(500, shards)}), frozenset({Close(1_000, True)}))
    times = (*range(100, 200), *range(500, 500 + before), *range(1_000, 1_000 + behind))
    return route, lay(route, [build_message(t, t) for t in times])


def test_a_page_before_a_close_comes_asks_as_if_there_were_none():
    """A close lies ahead for minutes before its time: meanwhile nothing takes longer."""
    route, keys = raised_and_closed(400, 0)
    shelf = Shelf(PageRange("c", newest_first=True, limit=50), keys).read(route, present=950)
    assert shelf.asked[0] == {"c", *(f"c#{shard}" for shard in range(16))}


@pytest.mark.parametrize("newest_first", [True, False])
def test_a_walk_across_a_close_asks_each_era_what_it_has(newest_first):
    """Page after page, in both directions: what lies behind the close costs one key a page."""
    route, keys = raised_and_closed(200, 300)
    shelves = walk(keys, route, newest_first=newest_first, limit=50, present=5_000)
    assert sum(len(shelf.page.items) for shelf in shelves) == 600
    assert sum(shelf.asked == [{"c"}] for shelf in shelves) >= 6
