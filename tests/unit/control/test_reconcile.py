"""Registry against journal: everything is compared, in parts, and mending only adds."""

from collections import Counter

import pytest

from hotpartition.control import reconcile
from hotpartition.control.ends import JournalEnds
from hotpartition.control.reconcile import Agreement, Reconciler
from hotpartition.core.errors import InvalidRequestError
from hotpartition.core.ports import JournalEntry
from hotpartition.core.route import Close, Route
from support.builders import World, route_of

HOUR_MS = 3_600_000


@pytest.fixture
def world():
    """Four routes that agree, one of each kind that does not, and one that Redis alone has."""
    world = World()
    for i in range(4):
        put(world, f"equal{i}", route_of((4, i)), route_of((4, i)))
    put(world, "missing", route_of((4, 5)), route_of())
    put(world, "behind", route_of((4, 5), (8, 9)), route_of((4, 5)))
    put(world, "ahead", route_of((4, 5)), route_of((4, 5), (8, 9)))
    put(world, "lost", None, route_of((2, 1)))
    world.table.spoil_route("malformed")
    return world


def put(world, conversation_id, journal, registry):
    if journal is not None:
        world.table.routes[conversation_id] = JournalEntry(journal, world.clock.now_ms - HOUR_MS)
    if registry:
        world.registry.add(conversation_id, registry.members)


def compare_all(world, *, repairs=False, budget_ms=1_000.0):
    """Follow the cursors; return counts, differences, how many were mended, and how many parts it took."""
    check, cursor = world.reconciler(), None
    counts, differences, mended, parts = Counter(), {}, 0, 0
    while True:
        part = check.compare_all(cursor, repairs=repairs, budget_ms=budget_ms)
        counts.update(part.counts)
        assert not differences.keys() & dict(part.differences).keys()
        differences |= dict(part.differences)
        mended += part.mended
        parts += 1
        cursor = part.cursor
        if cursor is None:
            return counts, differences, mended, parts


EXPECTED = {
    "missing": Agreement.MISSING_IN_REGISTRY,
    "behind": Agreement.MISSING_IN_REGISTRY,
    "ahead": Agreement.AHEAD_OF_JOURNAL,
    "malformed": Agreement.MALFORMED,
}


def test_everything_is_counted_and_what_differs_is_named(world):
    """Not what only Redis has: its next read finds that. Nothing is changed by looking."""
    before = dict(world.table.routes), dict(world.registry.routes)
    counts, differences, mended, _ = compare_all(world)
    assert differences == EXPECTED
    assert counts == {
        Agreement.EQUAL: 4,
        Agreement.MISSING_IN_REGISTRY: 2,
        Agreement.AHEAD_OF_JOURNAL: 1,
        Agreement.MALFORMED: 1,
    }
    assert mended == 0
    assert world.telemetry.counts["JournalMalformed"] == 1
    assert (world.table.routes, world.registry.routes) == before


@pytest.mark.parametrize("page", [1, 2, 100])
def test_it_comes_in_parts(world, monkeypatch, page):
    """Whatever a part holds, the sum is the same: each route once."""
    monkeypatch.setattr(reconcile, "PAGE_ITEMS", page)
    counts, differences, _, parts = compare_all(world, budget_ms=0)
    assert (sum(counts.values()), differences) == (8, EXPECTED)
    assert parts >= 8 / page


def test_repair_lets_each_learn_what_only_the_other_knows(world):
    """Nothing is taken away from either; what cannot be read is left to a person, and a second look finds it alone."""
    _, differences, mended, _ = compare_all(world, repairs=True)
    assert (differences, mended) == (EXPECTED, 3)
    both = route_of((4, 5), (8, 9))
    for conversation_id, route in (
        ("missing", route_of((4, 5))),
        ("behind", both),
        ("ahead", both),
    ):
        assert world.table.routes[conversation_id].route == route == world.registry.routes[conversation_id]
    assert world.table.reasons == {"ahead": "registry-ahead-of-journal"}
    assert world.telemetry.counts["RegistryAheadOfJournal"] == 1
    assert world.telemetry.counts["RegistryBehindJournal"] == 2
    assert compare_all(world)[1] == {"malformed": Agreement.MALFORMED}


@pytest.mark.parametrize("more", [(), ((8, 9),)])
def test_a_close_that_only_the_registry_has_stays_a_difference(more):
    """No known announcement preceded it: it never gets into the journal, and is not called repaired."""
    world = World()
    invented = Route(route_of((4, 5), *more).generations, frozenset({Close(7, False), Close(7, True)}))
    put(world, "c", route_of((4, 5)), invented)
    for _ in range(2):
        _, differences, mended, _ = compare_all(world, repairs=True)
        assert (differences, mended) == ({"c": Agreement.AHEAD_OF_JOURNAL}, 0)
    assert world.table.routes["c"].route == route_of((4, 5), *more)
    facts = {"collection": "c", "closes": ["closed@7", "closing@7"]}
    assert world.telemetry.events[-1] == ("the registry has closes of its own", facts)


def test_a_raise_that_is_under_way_is_no_difference():
    """Redis follows the journal by a moment: what grew just now is looked at again."""
    world = World()
    world.raise_to(4, 5, in_redis=False)
    world.clock.on_sleep = lambda: world.registry.add("c", world.table.routes["c"].route.generations)
    counts, differences, _, _ = compare_all(world)
    assert (counts[Agreement.EQUAL], differences) == (1, {})
    assert world.clock.slept == [reconcile.SETTLE_SECONDS]


def test_one_pause_is_enough_for_many_of_them():
    """An emptied Redis just after many raises must not outlast the function's time."""
    world = World()
    for i in range(50):
        world.raise_to(4, 5, conversation_id=f"c{i}", in_redis=False)
    counts, _, _, _ = compare_all(world)
    assert counts[Agreement.MISSING_IN_REGISTRY] == 50
    assert len(world.clock.slept) == 1


def test_the_index_that_lags_is_not_believed():
    """What differs from the index is compared with the item itself."""
    world = World()
    put(world, "c", route_of((4, 5)), route_of((4, 5), (8, 9)))
    stale = world.routing_items.page(None, 9)
    put(world, "c", route_of((4, 5), (8, 9)), None)
    world.routing_items.page = lambda *_: stale
    assert compare_all(world)[1] == {}


def test_a_foreign_cursor_is_refused(world):
    """Rather than compare from somewhere."""
    with pytest.raises(InvalidRequestError):
        world.reconciler().compare_all("nobody", repairs=False, budget_ms=0)


def without_registry(world):
    ends = world.control_ends()
    return JournalEnds(
        journal=ends.journal,
        routing_items=ends.routing_items,
        telemetry=ends.telemetry,
        clock=ends.clock,
        form=ends.form,
    )


class TestWithoutRegistry:
    @pytest.mark.parametrize("budget_ms", [0, 60_000])
    def test_every_route_is_read_once(self, world, monkeypatch, budget_ms):
        """In parts that end when their time is used up; what cannot be read is named."""
        monkeypatch.setattr(reconcile, "PAGE_ITEMS", 3)
        check, cursor, counts, differences, parts = Reconciler(without_registry(world)), None, Counter(), [], 0
        while parts == 0 or cursor:
            part = check.compare_all(cursor, repairs=False, budget_ms=budget_ms)
            counts.update(part.counts)
            differences += part.differences
            cursor, parts = part.cursor, parts + 1
        assert differences == [("malformed", Agreement.MALFORMED)]
        assert (counts[Agreement.EQUAL], counts.total()) == (7, 8)
        assert parts == (3 if budget_ms == 0 else 1)

    def test_there_is_nothing_to_copy(self, world):
        check = Reconciler(without_registry(world))
        with pytest.raises(InvalidRequestError, match="nothing to copy"):
            check.compare_all(None, repairs=True, budget_ms=1)
