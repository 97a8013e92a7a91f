"""The promise in every order of store operations: a small model, explored exhaustively, and broken to see it notice."""

import time
from dataclasses import replace
from random import Random

import pytest

from hotpartition.core.merge import KeyQuery, PageMerge
from hotpartition.core.route import (
    Generation,
    Placement,
    Route,
    candidate_keys,
    choose_placement,
    choose_placements,
    stable_hash,
)
from hotpartition_messages.keys import KEY_FORM, build_key
from hotpartition_messages.reading import PageRequest
from model.explore import explore
from model.model import (
    CONVERSATION,
    Lookup,
    Outcome,
    ProtocolModel,
    Reading,
    Response,
    Variant,
    World,
    judge_page,
    lies_in_rest,
)
from model.narrate import narrate
from model.replay import Replay, walk
from support.builders import message_id

START = 1_700_000_000_000
NOW = START + 15
"""The present, where a broken reader believes in one: message ids, and so `since`, may lie a little ahead of it."""

GROWING = ((2, 10), (3, 20))
SHRINKING = ((3, 10), (2, 20))
"""The larger number of shards since the earlier time: the later generation is dominated, whichever is raised first."""

INVENTED = (Generation(since_ms=START + 5, shard_count=4),)
"""What Redis may show beside: since before any message, and larger than what was raised."""

ALL_BOUNDS = ((None, None), (10, None), (None, 20), (10, 20))
SOME_BOUNDS = ((None, None), (10, 20))


def id_at(offset_ms, residue):
    """Search an id of an instant whose hash leaves this residue modulo 6, and so differs modulo 2 and modulo 3."""
    candidates = (message_id(START + offset_ms, tail) for tail in range(10_000))
    return next(candidate for candidate in candidates if stable_hash(candidate) % 6 == residue)


BEFORE, AT_FIRST, BETWEEN, AT_SECOND = id_at(9, 5), id_at(10, 5), id_at(19, 3), id_at(20, 2)
"""Messages around both times of `since`, which are inclusive."""


def world(
    raises=GROWING, messages=(BEFORE, AT_FIRST, AT_SECOND), *, writers=3, limits=(1, 2), bounds=ALL_BOUNDS, **more
):
    requests = tuple(
        PageRequest(CONVERSATION, newest_first, limit, *(None if b is None else START + b for b in pair), None, True)
        for newest_first in (True, False)
        for limit in limits
        for pair in bounds
    )
    generations = tuple(Generation(since_ms=START + since, shard_count=count) for count, since in raises)
    return World(generations, messages, writers, requests, START, INVENTED, **more)


FEW_REQUESTS = {"limits": (1,), "bounds": SOME_BOUNDS}
TWO = (AT_FIRST, AT_SECOND)
SMALL = {"writers": 2, "messages": TWO, "limits": (1,), "bounds": ((None, None),)}
BROKEN = {**SMALL, "bounds": SOME_BOUNDS}


class ReversedRoute(Route):
    """Takes the generations with since >= t."""

    def shard_count_at(self, position):
        reached = (g for g in self.generations if position is None or g.since_ms >= position)
        return max((g.shard_count for g in reached), default=0)

    def most_shards_between(self, first, last):
        return self.shard_count_at(last)


class PresentRoute(Route):
    """Takes the present where there is no upper bound."""

    def shard_count_at(self, position):
        return super().shard_count_at(NOW if position is None else position)

    def most_shards_between(self, first, last):
        return super().most_shards_between(first, NOW if last is None else last)


class MergeWithoutBaseKey(PageMerge):
    """Looks at shards only, once there are any."""

    def _needed(self, route, edge):
        base_key, *shard_keys = super()._needed(route, edge)
        return tuple(shard_keys) or (base_key,)


def placements_with_one_outside(route, key, form):
    """Takes a shard that the route does not have, besides those it has."""
    placements = choose_placements(route, key, form)
    shard_count = placements[0].shard_count
    outside = Placement(form.shard_key(key.collection, shard_count), shard_count)
    return (*placements, outside) if shard_count else placements


def first_candidates_only(route, key, form, *, asked, is_found):
    """Takes what is at no first choice for absent."""
    del is_found
    keys = candidate_keys(route, key, form, choices=1)
    return tuple(place for place in keys if place not in asked)


MUTATIONS = {
    "a writer trusts Redis": Variant(is_trusting_redis=True),
    "reader without verification": Variant(is_verifying=False),
    "no base key": Variant(merge_type=MergeWithoutBaseKey),
    "time bound reversed": Variant(route_type=ReversedRoute),
    "t2 is the present": Variant(route_type=PresentRoute),
    "a choice outside of the shards": Variant(placements=placements_with_one_outside),
}
LOOKUP_MUTATIONS = {
    **{name: MUTATIONS[name] for name in ("a writer trusts Redis", "reader without verification")},
    "a choice outside of the shards": MUTATIONS["a choice outside of the shards"],
    "first choices only": Variant(candidates=first_candidates_only),
}


def explore_and_tell(model, name, tell):
    """Explore, and put the size into the run's summary."""
    started = time.perf_counter()
    explored = explore(model, max_states=6_000_000)
    seconds = time.perf_counter() - started
    tell(f"{name}: {explored.states:,} states, {explored.transitions:,} steps, {seconds:.1f} s")
    return explored


def assert_right(model, explored):
    assert explored.fault is None, narrate(model, explored.trace, explored.fault)


def assert_everything_happened(model):
    """Refuse a proof about nothing: there were empty, last and other pages, and lookups with and without success."""
    for request in model.world.requests:
        pages = [outcome for outcome in model.outcomes if outcome.goal == request]
        assert {(bool(page.message_ids), page.has_more) for page in pages} >= {(False, False), (True, False)}
        within = [i for i in model.world.message_ids if lies_in_rest(request, None, i)]
        assert any(page.has_more for page in pages) == (min(len(within), model.world.writers) > request.limit)
    for message in model.world.message_ids:
        assert {Outcome(Lookup(message), ()), Outcome(Lookup(message), (message,))} <= model.outcomes


def test_messages_differ_in_their_shards():
    """The model's messages lie on different shards under different generations, or it would prove little."""
    of_two, of_three = (Route(frozenset({Generation(since_ms=0, shard_count=count)})) for count in (2, 3))
    keys = {
        message: [
            choose_placement(route, build_key(CONVERSATION, message), KEY_FORM).partition_key
            for route in (of_two, of_three)
        ]
        for message in (BEFORE, AT_FIRST, BETWEEN, AT_SECOND)
    }
    assert keys == {
        BEFORE: ["c#1", "c#2"],
        AT_FIRST: ["c#1", "c#2"],
        BETWEEN: ["c#1", "c#0"],
        AT_SECOND: ["c#0", "c#2"],
    }


@pytest.mark.parametrize(
    "small",
    [
        world(messages=TWO, writers=2, limits=(1,), bounds=SOME_BOUNDS, cuts=False),
        world(SHRINKING, TWO, **FEW_REQUESTS, writers=2, cuts=False),
    ],
    ids=["growing shards", "shrinking shards"],
)
def test_no_order_of_steps_breaks_the_promise(small, tell_explored, request):
    """Two writers, two messages, two raises and a reader: in whatever order, every page is complete and right."""
    model = ProtocolModel(small)
    assert_right(model, explore_and_tell(model, request.node.callspec.id, tell_explored))
    assert_everything_happened(model)


@pytest.mark.parametrize("invented", [(), pytest.param(INVENTED, marks=pytest.mark.long)])
def test_reductions_hide_nothing(invented, tell_explored):
    """The very same pages come out when every order of every single store operation is explored."""
    small = replace(world(**SMALL), invented=invented)
    reduced = ProtocolModel(small)
    full = ProtocolModel(small, is_reduced=False)
    assert_right(reduced, explore_and_tell(reduced, "small, reduced", tell_explored))
    assert_right(full, explore_and_tell(full, "small, in full", tell_explored))
    assert reduced.outcomes == full.outcomes


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_protocol_is_caught(name, tell_explored):
    """Each way of breaking the protocol on purpose loses a message, and the shortest way to that is told."""
    model = ProtocolModel(world(**BROKEN, lookups=False), MUTATIONS[name], is_reduced=False)
    explored = explore_and_tell(model, f"broken: {name}", tell_explored)
    assert explored.fault == "an acknowledged message is missing"
    tell_explored(f"broken: {name}: found\n{narrate(model, explored.trace, explored.fault)}")


@pytest.mark.parametrize("name", MUTATIONS)
def test_reductions_hide_no_fault(name):
    """What full exploration catches, the reduced one catches as well."""
    model = ProtocolModel(world(**BROKEN), MUTATIONS[name])
    assert explore(model).fault is not None


@pytest.mark.parametrize("name", LOOKUP_MUTATIONS)
def test_lookups_are_caught_too(name):
    """A lookup of one message hangs on the same rules as a page, and on looking at every choice."""
    model = ProtocolModel(world(limits=(), writers=2), LOOKUP_MUTATIONS[name])
    assert explore(model).fault == "an acknowledged message was not found"


@pytest.mark.parametrize(
    ("returned", "has_more", "fault"),
    [
        ([BETWEEN, AT_FIRST], False, None),
        ([BETWEEN, BETWEEN, AT_FIRST], False, "the page is out of order, or holds a message twice"),
        ([AT_FIRST, BETWEEN], False, "the page is out of order, or holds a message twice"),
        ([AT_SECOND, BETWEEN, AT_FIRST], False, "the page holds a message from outside its bounds or an earlier page"),
        ([BETWEEN, AT_FIRST, BEFORE], False, "the page holds a message from outside its bounds or an earlier page"),
        ([BETWEEN], True, None),
        ([BETWEEN], False, "an acknowledged message is missing"),
        ([AT_FIRST], False, "an acknowledged message is missing"),
        ([], True, "the page has a wrong size"),
        ([BETWEEN, id_at(15, 1), AT_FIRST], False, "the page holds a message that nobody stored"),
    ],
)
def test_a_page_is_judged_by_the_promise(returned, has_more, fault):
    """Missing, double, misplaced and invented messages are each found in the page after `AT_SECOND`."""
    request = PageRequest(CONVERSATION, newest_first=True, limit=3, after_ms=START + 10, is_strong=True)
    query = KeyQuery(CONVERSATION, newest_first=True, limit=4)
    response = Response(query, (AT_SECOND, BETWEEN, AT_FIRST, BEFORE), is_exhausted=True)
    owed = frozenset({BETWEEN, AT_FIRST})
    reading = Reading(request, AT_SECOND, owed, route=0, is_verified=True, past=(response,))
    assert judge_page(reading, tuple(returned), has_more=has_more) == fault


def test_a_trace_is_told_in_plain_words():
    """A counterexample reads as a list of store operations, with the verdict at its end."""
    model = ProtocolModel(world(writers=2, **FEW_REQUESTS), MUTATIONS["reader without verification"], is_reduced=False)
    explored = explore(model)
    assert narrate(model, explored.trace, explored.fault).splitlines() == [
        " 1. raise    adds 2@10 to the journal",
        " 2. writer   learns {2@10}; will put m2@10 to c#1",
        " 3. writer   puts m2@10 to c#1: acknowledged",
        " 4. reader   begins a page of 1 (newest first); asks Redis: {}",
        " 5. reader   queries c for 2: nothing",
        "    reader   returns nothing; acknowledged before it began: m2@10",
        "    => an acknowledged message is missing",
    ]


@pytest.mark.parametrize("raises", [GROWING, SHRINKING], ids=["growing", "shrinking"])
def test_real_reader_and_writer_take_the_steps_of_the_model(raises):
    """Runs taken at random from the model are runs of the real reader and writer, and keep the promise as a whole."""
    model = ProtocolModel(world(raises), is_reduced=False)
    seen_kinds = set()
    for seed in range(1_000):
        steps = walk(model, Random(seed))
        returned = Replay(model, steps).run()
        begun = next(index for index, step in enumerate(steps) if step.kind == "begin")
        goal = steps[begun].what
        seen_kinds.update(step.kind for step in steps)
        put = [step.what.message_id for step in steps if step.kind == "put"]
        owed = {step.what.message_id for step in steps[:begun] if step.kind == "put"}
        is_reversed = isinstance(goal, PageRequest) and goal.newest_first
        assert returned == sorted(set(returned), reverse=is_reversed)
        assert {i for i in owed if lies_in_rest(goal, None, i)} <= set(returned) <= set(put)
    assert seen_kinds == {"journal", "ask", "put", "begin", "query", "read-journal"}


FOUR_MESSAGES = (BEFORE, AT_FIRST, BETWEEN, AT_SECOND)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(
    "large",
    [
        world(messages=TWO, writers=2),
        world(SHRINKING, TWO, writers=2, cuts=False),
        replace(world(), invented=()),
        replace(world(messages=FOUR_MESSAGES, writers=4, cuts=False, **FEW_REQUESTS), invented=()),
    ],
    ids=["responses cut short", "shrinking shards", "three writers, cut short", "four writers of four messages"],
)
def test_no_order_of_steps_breaks_the_promise_with_more_of_everything(large, tell_explored, request):
    """Responses that end early though more follows; every request; a fourth writer; a message between both times.

    Two to five million states each: with a Redis that invents generations, two writers are what can be explored.
    """
    model = ProtocolModel(large)
    assert_right(model, explore_and_tell(model, f"large: {request.node.callspec.id}", tell_explored))
    assert_everything_happened(model)
