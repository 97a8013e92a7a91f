"""Paging over many keys: exact, in order, each message once, at little cost."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotpartition.core.merge import NO_LIMIT, PageMerge, PageRange, QueryResponse
from hotpartition.core.route import EMPTY_ROUTE, Close, Generation, Route, choose_placement
from hotpartition_messages.keys import KEY_FORM, build_key, build_sort_key, position_of
from hotpartition_messages.message_ids import first_message_id_at
from support.builders import build_message, route_of

times = st.integers(0, 40)
randoms = st.integers(0, 2**32 - 1).map(Random)
"""Hypothesis draws the seed alone: to draw each number by itself takes longer than all else."""


def test_two_copies_that_differ_are_one_entry_always_the_same():
    """A client that broke its side of the contract still sees one message, whichever key responds first."""
    first, second = build_message(5, 1, body="a"), build_message(5, 1, body="b")
    merge = PageMerge(PageRange("c", newest_first=True, limit=5), KEY_FORM, position_of)
    base, shard = merge.next_queries(route_of((1, 0)))
    merge.add(shard, QueryResponse((second,), is_exhausted=True))
    merge.add(base, QueryResponse((first,), is_exhausted=True))
    assert merge.page().items == (first,)


class Shelf:
    """Messages on keys of their own choice, as plain lists: what DynamoDB would return, and what that costs."""

    def __init__(self, page_range, keys, item_bytes=200):
        self.range, self.keys, self.item_bytes = page_range, keys, item_bytes
        self.rounds, self.items, self.known = [], 0, set()

    def lies_within(self, identifier, bounds):
        after = bounds.after
        return (
            (bounds.first is None or identifier >= bounds.first)
            and (bounds.last is None or identifier <= bounds.last)
            and (after is None or (identifier < after if bounds.newest_first else identifier > after))
        )

    def read(self, *routes, cut=len, present=None, before_round=lambda _: None):
        """Gather the page; each round knows the next route, and has its replies in the order of its queries.

        `cut` says how many of a response's messages are passed on; `before_round` is given the queries.
        """
        merge = PageMerge(self.range, KEY_FORM, position_of, present=present, item_bytes=self.item_bytes)
        routes = [*routes]
        while (queries := [*merge.next_queries(routes[0])]) or len(routes) > 1:
            assert len(self.rounds) < 50
            self.rounds.append(queries)
            before_round(queries)
            for query in queries:
                stored = sorted(self.keys.get(query.partition_key, {}), reverse=query.newest_first)
                within = [identifier for identifier in stored if self.lies_within(identifier, query)]
                taken = within[: query.limit]
                told = taken[: max(1, cut(taken))]
                self.items += len(told)
                self.known.update(told)
                messages = [self.keys[query.partition_key][identifier] for identifier in told]
                merge.add(query, QueryResponse(messages, is_exhausted=len(told) == len(within) < query.limit))
            if len(routes) > 1:
                routes.pop(0)
        return merge.page()

    def expected(self):
        ids = {identifier for stored in self.keys.values() for identifier in stored}
        return sorted((i for i in ids if self.lies_within(i, self.range)), reverse=self.range.newest_first)

    def assert_exact(self, page):
        expected = self.expected()
        assert [m.sort_key for m in page.items] == expected[: self.range.limit]
        assert page.has_more == (len(expected) > self.range.limit)


@given(
    counts=st.lists(st.integers(0, 60), min_size=1, max_size=9),
    copies=st.integers(0, 20),
    newest_first=st.booleans(),
    limit=st.integers(1, 70),
    bounds=st.tuples(st.none() | st.integers(0, 130), st.none() | st.integers(0, 130)),
    is_cut=st.booleans(),
    is_news=st.booleans(),
    random=randoms,
)
def test_a_page_is_exact_however_uneven_the_keys_are(
    counts, copies, newest_first, limit, bounds, is_cut, is_news, random
):
    """So many messages on the base key and each shard, at any times, some twice; pages cut short; a late journal."""
    keys = {"c" if not index else f"c#{index - 1}": {} for index in range(len(counts))}
    for key, count in zip(keys, counts, strict=True):
        for _ in range(count):
            message = build_message(random.randrange(130), random.getrandbits(16))
            for place in (key, *random.sample([*keys], k=1 if copies and random.random() < copies / 40 else 0)):
                keys[place][message.sort_key] = message
    first, last = (None if t is None else build_sort_key(first_message_id_at(t)) for t in bounds)
    shelf = Shelf(PageRange("c", newest_first, limit, first, last), keys)
    whole = route_of((len(counts) - 1, 0)) if len(counts) > 1 else EMPTY_ROUTE
    cut = (lambda taken: random.randint(0, len(taken))) if is_cut else len
    shelf.assert_exact(shelf.read(*((EMPTY_ROUTE, whole) if is_news else (whole,)), cut=cut))


@pytest.mark.slow
@given(
    shards=st.integers(2, 20),
    skew=st.floats(0, 4),
    newest_first=st.booleans(),
    limit=st.integers(1, 60),
    random=randoms,
)
def test_later_rounds_read_only_what_may_be_on_the_page(shards, skew, newest_first, limit, random):
    """Once enough messages are known, no query reaches past the last of them that matters."""
    keys = {"c": {}, **{f"c#{index}": {} for index in range(shards)}}
    weights = [1 / (1 + index) ** skew for index in range(shards + 1)]
    for time_ms in range(400):
        (key,) = random.choices([*keys], weights)
        message = build_message(time_ms, random.getrandbits(80))
        keys[key][message.sort_key] = message
    shelf = Shelf(PageRange("c", newest_first, limit), keys)

    def check_edge(queries):
        if len(shelf.known) > limit and queries:
            edge = sorted(shelf.known, reverse=newest_first)[limit]
            assert {q.first if newest_first else q.last for q in queries} == {edge}

    shelf.assert_exact(shelf.read(route_of((shards, 0)), before_round=check_edge))


def lay(route, messages):
    """Lay messages where a route places them; return their keys."""
    keys = {}
    for message in messages:
        key = choose_placement(route, build_key("c", message.message_id), KEY_FORM).partition_key
        keys.setdefault(key, {})[message.sort_key] = message
    return keys


def read_even(shards, limit, seed, *, count=None):
    """Read the newest page of messages that the hash spreads over shards, with older ones on the base key."""
    route, random = route_of((shards, 100_000)), Random(seed)
    times = (*range(99_900, 100_000), *range(100_000, 100_000 + (6 * limit if count is None else count)))
    keys = lay(route, (build_message(t, random.getrandbits(80)) for t in times))
    shelf = Shelf(PageRange("c", newest_first=True, limit=limit), keys)
    shelf.assert_exact(shelf.read(route))
    return shelf


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shards", "items", "queries"),
    [(2, 80, 4), (4, 90, 6), (8, 105, 10), (16, 115, 20), (32, 120, 43), (64, 124, 96), (128, 220, 145)],
)
def test_the_newest_page_costs_little_at_every_n(shards, items, queries):
    """50 messages, 40 spreads: 2 rounds at most, and on average no more than so many items and queries."""
    shelves = [read_even(shards, 50, seed) for seed in range(40)]
    assert max(len(shelf.rounds) for shelf in shelves) <= 2
    assert sum(shelf.items for shelf in shelves) / 40 <= items
    assert sum(len(queries) for shelf in shelves for queries in shelf.rounds) / 40 <= queries


def test_a_first_round_asks_the_base_key_for_its_newest_and_the_shards_for_a_share():
    """A deviation of slack, or two where those take no more read units; at most what two and a half pages allow."""
    few = ((2, {31}), (4, {17}), (16, {5}), (64, {2, 1}), (200, {1}), (1000, {1}))
    many = ((2, {36}), (4, {20}), (16, {7}), (64, {2, 1}), (200, {2}), (1000, {1}))
    for item_bytes, expected in ((100, many), (300, ((4, {20}), (16, {7}))), (1500, ((4, {19}),)), (16_000, few)):
        for shards, shares in expected:
            merge = PageMerge(PageRange("c", newest_first=True, limit=50), KEY_FORM, position_of, item_bytes=item_bytes)
            base, *queries = merge.next_queries(route_of((shards, 0)))
            assert (base.partition_key, base.limit) == ("c", 1)
            assert {query.limit for query in queries} == shares
            assert sum(query.limit for query in queries) <= (125 - shards / 4 if shards <= 100 else 2 * shards)


def test_one_shard_or_none_is_asked_for_the_whole_page():
    """There is nothing to share out."""
    merge = PageMerge(PageRange("c", newest_first=True, limit=50), KEY_FORM, position_of)
    assert [query.limit for query in merge.next_queries(EMPTY_ROUTE)] == [51]
    assert [query.limit for query in merge.next_queries(route_of((1, 0)))] == [1, 51]


@pytest.mark.parametrize("where", ["c", "c#3"])
def test_a_page_that_lies_on_one_key_takes_two_rounds_more_at_most(where):
    """All on the base key (the raise has just been) or all on one shard: found, without a walk in small steps."""
    messages = [build_message(100_000 + t, t) for t in range(500)]
    shelf = Shelf(PageRange("c", newest_first=True, limit=50), {where: {m.sort_key: m for m in messages}})
    shelf.assert_exact(shelf.read(route_of((16, 100_000))))
    assert len(shelf.rounds) <= 3
    assert shelf.items <= 125


@pytest.mark.parametrize("limit", [1, 2, 10])
def test_a_small_page_of_few_shards_takes_one_round(limit):
    """Its items cost next to nothing, another round would: the last message, or the last ten."""
    rounds = [len(read_even(shards, limit, seed, count=60).rounds) for shards in (2, 4) for seed in range(20)]
    assert sum(rounds) <= 1.1 * len(rounds)


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
    limit=st.integers(1, 30),
    bounds=st.tuples(*[st.none() | times] * 3),
    present=st.none() | times,
    is_cut=st.booleans(),
    random=randoms,
)
def test_a_page_is_exact_across_eras(count, members, hint, newest_first, limit, bounds, present, is_cut, random):
    """Whatever was closed, whatever the hint of the first round says, and wherever the present is taken to be."""
    generations, closes = members
    messages = [build_message(random.randint(0, 40), tail) for tail in range(count)]
    first, last, after = (None if t is None else build_sort_key(first_message_id_at(t)) for t in bounds)
    if after is not None and not (first or after) <= after <= (last or after):
        after = None
    shelf = Shelf(PageRange("c", newest_first, limit, first, last, after), fill_by_eras(messages, *members, random))
    journal = Route(generations, closes)
    cut = (lambda taken: random.randint(0, len(taken))) if is_cut else len
    routes = Route(*hint), Route(*hint).checked_by(journal)
    shelf.assert_exact(shelf.read(*routes, cut=cut, present=present, before_round=random.shuffle))


@given(
    count=st.integers(0, 60),
    members=eras,
    newest_first=st.booleans(),
    size=st.integers(1, 10),
    present=st.none() | times,
    random=randoms,
)
def test_a_page_of_keys_asked_once_is_exact_across_eras(count, members, newest_first, size, present, random):
    """As queries without a limit are read: each page is what one sorted list begins with, and they end."""
    messages = [build_message(random.randint(0, 40), tail) for tail in range(count)]
    keys, route = fill_by_eras(messages, *members, random), Route(*members)
    pages, _ = walk_without_a_limit(keys, route, newest_first=newest_first, size=size, present=present)
    expected = sorted({m.sort_key for m in messages}, reverse=newest_first)
    assert [identifier for page in pages for identifier in page] == expected


def walk_without_a_limit(keys, route, *, newest_first, size, present=None):
    """Read pages whose responses have no more messages than a size; return the pages, and how many were read."""
    pages, items, after = [], 0, None
    while True:
        page_range = PageRange("c", newest_first, NO_LIMIT, after=after)
        merge, shelf = PageMerge(page_range, KEY_FORM, position_of, present=present), Shelf(page_range, keys)
        while queries := merge.next_queries(route):
            for query in queries:
                stored = sorted(keys.get(query.partition_key, {}), reverse=newest_first)
                taken = [i for i in stored if shelf.lies_within(i, query)]
                told = taken[:size]
                items += len(told)
                response = tuple(keys[query.partition_key][i] for i in told)
                merge.add(query, QueryResponse(response, len(told) == len(taken), told[-1] if told else None))
        page = merge.page()
        pages.append([m.sort_key for m in page.items])
        if not page.has_more:
            return pages, items
        assert after != page.last
        after = page.last


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
    pages, items = walk_without_a_limit(keys, route_of((16, 0)), newest_first=newest_first, size=50)
    assert sum(map(len, pages)) == 6_000
    assert items <= most * 6_000
    assert max(map(len, pages)) <= 2 * 17 * 50


def raised_and_closed(before, behind, *, shards=16):
    """Lay messages of before a raise, of between it and the close at 1,000, and of behind that; return their keys."""
    route = Route(frozenset({Generation(500, shards)}), frozenset({Close(1_000, True)}))
    messages = [
        build_message(t, t) for t in (*range(100, 200), *range(500, 500 + before), *range(1_000, 1_000 + behind))
    ]
    return route, lay(route, messages)


def keys_asked(shelf):
    return [{query.partition_key for query in queries} for queries in shelf.rounds if queries]


def test_a_page_before_a_close_comes_asks_as_if_there_were_none():
    """A close lies ahead for minutes before its time: meanwhile nothing takes longer."""
    route, keys = raised_and_closed(400, 0)
    shelf = Shelf(PageRange("c", newest_first=True, limit=50), keys)
    shelf.assert_exact(shelf.read(route, present=950))
    assert keys_asked(shelf)[0] == {"c", *(f"c#{shard}" for shard in range(16))}


@pytest.mark.parametrize("newest_first", [True, False])
def test_a_walk_across_a_close_asks_each_era_what_it_has(newest_first):
    """Page after page, in both directions: what lies behind the close costs one key a page, and nothing is missing."""
    route, keys = raised_and_closed(200, 300)
    read, after, behind = [], None, 0
    while True:
        shelf = Shelf(PageRange("c", newest_first, 50, after=after), keys)
        page = shelf.read(route, present=5_000)
        shelf.assert_exact(page)
        behind += keys_asked(shelf) == [{"c"}]
        read += [m.sort_key for m in page.items]
        if not page.has_more:
            break
        after = page.last
    assert read == sorted({i for stored in keys.values() for i in stored}, reverse=newest_first)
    assert behind >= 6
