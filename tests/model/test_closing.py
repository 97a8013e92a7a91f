"""Closes in every order of store operations: a small model, explored exhaustively, and broken to see it notice."""

import pytest

from hotpartition.core.route import Close, Generation, Route
from model.closing import SECOND, ClosingModel, Variant, World
from model.explore import explore

OLD, NEW = Generation(0, 2), Generation(1 * SECOND, 3)
INVENTED = Route(frozenset({OLD}), frozenset({Close(5 * SECOND, is_confirmed=True)}))
HINTS = (Route(), INVENTED)
MISSING = "an acknowledged message is missing"

MUTATIONS = {
    "no lease": (Variant(has_lease=False), MISSING),
    "a lease by a skewed local clock": (Variant(lease_skew=3), MISSING),
    "eventually consistent reads for the lease": (Variant(is_lease_strong=False), MISSING),
    "writers that ignore announcements": (Variant(writers_obey_announced=False), MISSING),
    "readers that obey announcements": (Variant(readers_obey_announced=True), MISSING),
    "readers that obey closes known only to Redis": (Variant(readers_obey_hints=True), MISSING),
    "one step instead of two": (Variant(is_announced_first=False), MISSING),
    "an announcement's Date is not checked": (Variant(is_date_checked=False), MISSING),
    "a raise that does not survive a pending close": (
        Variant(is_raise_completed=False),
        "a raise was undone by a close that was announced before",
    ),
}


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(
    "world",
    [
        World(OLD, times=(5, 6), writers=2, seconds=4, hints=HINTS),
        World(OLD, raises=(NEW,), times=(5,), seconds=4, hints=HINTS),
        *(
            pytest.param(World(OLD, hints=HINTS, **larger), marks=pytest.mark.long)
            for larger in (
                {"times": (5, 6), "writers": 2, "seconds": 5},
                {"times": (4, 6), "raises": (NEW,), "seconds": 4},
                {"times": (5, 6), "closers": 2, "seconds": 5},
            )
        ),
    ],
    ids=["two writers", "a raise", "two writers for longer", "a raise between two messages", "two who close"],
)
def test_no_order_of_steps_loses_a_message(world):
    """Whoever pauses where, and however the clocks of servers differ within the margin."""
    model = ClosingModel(world)
    explored = explore(model)
    assert explored.fault is None, explored.steps
    happened = {"wait", "look", "place", "put", "plan", "announce", "announce in vain", "confirm"}
    assert model.seen == happened | ({"raise", "complete"} if world.raises else set())


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_protocol_is_caught(name):
    """Each way of breaking the protocol on purpose is found."""
    variant, fault = MUTATIONS[name]
    explored = explore(ClosingModel(World(OLD, raises=(NEW,), times=(5,), seconds=4, hints=HINTS), variant))
    assert explored.fault == fault


@pytest.mark.slow
def test_a_difference_of_clocks_beyond_the_margin_is_found():
    """So the margin is needed, and the model sees it."""
    world = World(OLD, times=(5,), seconds=4, skew=3, hints=HINTS)
    assert explore(ClosingModel(world)).fault == MISSING
