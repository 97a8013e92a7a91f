"""The promise in every order of store operations: a small model, explored exhaustively, and broken to see it notice."""

from dataclasses import replace

import pytest

from hotpartition.core.merge import KeyQuery
from hotpartition.core.route import Generation, stable_hash
from hotpartition_messages.reading import PageRequest
from model.explore import explore
from model.model import (
    CONVERSATION,
    Lookup,
    Outcome,
    ProtocolModel,
    Reading,
    Response,
    Round,
    World,
    judge_page,
    lies_in_rest,
)
from support.builders import message_id
from support.protocol_mutations import MUTATIONS, break_product

START = 1_700_000_000_000
READ_AT = START + 5_015
"""The present: for a broken reader that believes in one, and takes what is 5 s older, it lies amid the messages."""

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
    return World(generations, messages, writers, requests, READ_AT, INVENTED, **more)


FEW_REQUESTS = {"limits": (1,), "bounds": SOME_BOUNDS}
TWO = (AT_FIRST, AT_SECOND)
SMALL = {"writers": 2, "messages": TWO, "limits": (1,)}


LOST, NOT_FOUND = "an acknowledged message is missing", "an acknowledged message was not found"
BY_LOOKUPS = (
    "a writer trusts Redis",
    "reader without verification",
    "a choice outside of the shards",
    "first choices only",
)
BREACHES = [(name, LOST) for name in MUTATIONS if name != "first choices only"]
BREACHES += [(name, NOT_FOUND) for name in BY_LOOKUPS]
"""What is broken on purpose, and what pages or lookups lose by it."""


def explore_all(model):
    """Explore, and find no fault."""
    explored = explore(model)
    assert explored.fault is None, explored.steps


def assert_everything_happened(model):
    """Refuse a proof about nothing: there were empty, last and other pages, and lookups with and without success."""
    for request in model.world.requests:
        pages = [outcome for outcome in model.outcomes if outcome.goal == request]
        assert {(bool(page.message_ids), page.has_more) for page in pages} >= {(False, False), (True, False)}
        within = [i for i in model.world.message_ids if lies_in_rest(request, None, i)]
        assert any(page.has_more for page in pages) == (min(len(within), model.world.writers) > request.limit)
    for message in model.world.message_ids:
        assert {Outcome(Lookup(message), ()), Outcome(Lookup(message), (message,))} <= model.outcomes


FOUR_MESSAGES = (BEFORE, AT_FIRST, BETWEEN, AT_SECOND)
LARGE = (pytest.mark.long, pytest.mark.slow, pytest.mark.timeout(1_800))
"""Millions of states each: with a Redis that invents generations, two writers are what can be explored."""


@pytest.mark.parametrize(
    "explored",
    [
        pytest.param(world(messages=TWO, writers=2, limits=(1,), bounds=SOME_BOUNDS, cuts=False), id="growing shards"),
        pytest.param(world(SHRINKING, TWO, **FEW_REQUESTS, writers=2, cuts=False), id="shrinking shards"),
        pytest.param(world(messages=TWO, writers=2), id="responses cut short", marks=LARGE),
        pytest.param(world(SHRINKING, TWO, writers=2, cuts=False), id="shrinking shards, every request", marks=LARGE),
        pytest.param(replace(world(), invented=()), id="three writers, cut short", marks=LARGE),
        pytest.param(
            replace(world(messages=FOUR_MESSAGES, writers=4, cuts=False, **FEW_REQUESTS), invented=()),
            id="four writers of four messages",
            marks=LARGE,
        ),
    ],
)
def test_no_order_of_steps_breaks_the_promise(explored):
    """Writers, messages, two raises and a reader: in whatever order, every page is complete and right."""
    model = ProtocolModel(explored)
    explore_all(model)
    assert_everything_happened(model)


@pytest.mark.long
@pytest.mark.parametrize("invented", [(), INVENTED])
def test_reductions_hide_nothing(invented):
    """The very same pages come out when every order of every single store operation is explored."""
    small = replace(world(**SMALL, bounds=((None, None),)), invented=invented)
    reduced = ProtocolModel(small)
    full = ProtocolModel(small, is_reduced=False)
    explore_all(reduced)
    explore_all(full)
    assert reduced.outcomes == full.outcomes


@pytest.mark.parametrize(("name", "fault"), BREACHES)
def test_a_broken_protocol_is_caught(monkeypatch, name, fault):
    """Reductions do not hide that. A lookup hangs on the same rules as a page, and on looking at every choice."""
    asked = world(**SMALL, bounds=SOME_BOUNDS, lookups=False) if fault == LOST else world(limits=(), writers=2)
    break_product(monkeypatch, MUTATIONS[name])
    assert explore(ProtocolModel(asked)).fault == fault


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
    reading = Reading(request, AT_SECOND, owed, hint=0, past=(Round((response,), 0),))
    assert judge_page(reading, tuple(returned), has_more=has_more) == fault
