"""Registry against journal: everything is compared, in parts, and mending only adds."""

from collections import Counter

import pytest

from hotpartition.control import reconcile
from hotpartition.control.reconcile import Agreement, JournalCheck
from hotpartition.core.errors import InvalidRequestError
from hotpartition.core.ports import JournalEntry
from hotpartition.core.route import Close, Route
from support.builders import World, route_of

HOUR_MS = 3_600_000


@pytest.fixture
def world():
    """Four routes that agree, and one of each kind that does not."""
    world = World()
    for i in range(4):
        put(world, f"equal{i}", route_of((4, i)), route_of((4, i)))
    put(world, "missing", route_of((4, 5)), route_of())
    put(world, "behind", route_of((4, 5), (8, 9)), route_of((4, 5)))
    put(world, "ahead", route_of((4, 5)), route_of((4, 5), (8, 9)))
    put(world, "lost", None, route_of((2, 1)))
    world.routing_items.unreadable["malformed"] = ("x",)
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
    "lost": Agreement.AHEAD_OF_JOURNAL,
    "malformed": Agreement.MALFORMED,
}


def test_everything_is_counted_and_what_differs_is_named(world):
    """Also a route that the journal lost altogether; nothing is changed by looking."""
    before = dict(world.table.routes), dict(world.registry.routes)
    counts, differences, mended, _ = compare_all(world)
    assert differences == EXPECTED
    assert counts == {
        Agreement.EQUAL: 4,
        Agreement.MISSING_IN_REGISTRY: 2,
        Agreement.AHEAD_OF_JOURNAL: 2,
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
    assert (sum(counts.values()), differences) == (9, EXPECTED)
    assert parts >= 9 / max(page, 2)


def test_repair_lets_each_learn_what_only_the_other_knows(world):
    """Nothing is taken away from either; what cannot be read is left to a person, and a second look finds it alone."""
    _, differences, mended, _ = compare_all(world, repairs=True)
    assert (differences, mended) == (EXPECTED, 4)
    both = route_of((4, 5), (8, 9))
    for conversation_id, route in (
        ("missing", route_of((4, 5))),
        ("behind", both),
        ("ahead", both),
        ("lost", route_of((2, 1))),
    ):
        assert world.table.routes[conversation_id].route == route == world.registry.routes[conversation_id]
    assert world.table.reasons == dict.fromkeys(("ahead", "lost"), "registry-ahead-of-journal")
    assert world.telemetry.counts["RegistryAheadOfJournal"] == 2
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


@pytest.mark.parametrize("cursor", ["", "elsewhere:", "journal:nobody", "registry:nobody"])
def test_a_foreign_cursor_is_refused(world, cursor):
    """Rather than compare from somewhere."""
    if cursor == "":
        assert world.reconciler().compare_all(cursor, repairs=False, budget_ms=0)
        return
    with pytest.raises(InvalidRequestError):
        world.reconciler().compare_all(cursor, repairs=False, budget_ms=0)


@pytest.mark.parametrize("page", [2, 100])
def test_the_registry_is_filled_from_the_journal(world, monkeypatch, page):
    """Every readable route is there, what was there stays, and only then it is called whole."""
    monkeypatch.setattr(reconcile, "PAGE_ITEMS", page)
    world.registry.routes.clear()
    put(world, "lost", None, route_of((2, 1)))
    check, cursor, routes, malformed = world.reconciler(), None, 0, []
    while True:
        assert not world.registry.whole
        part = check.rebuild(cursor, budget_ms=0)
        routes, malformed = routes + part.routes, malformed + part.malformed
        cursor = part.cursor
        if cursor is None:
            break
    assert (routes, malformed) == (7, ["malformed"])
    assert world.registry.whole
    assert world.registry.routes == {
        "lost": route_of((2, 1)),
        **{c: entry.route for c, entry in world.table.routes.items()},
    }
    assert world.telemetry.counts["RegistryRebuilt"] == 1
    assert world.telemetry.counts["JournalMalformed"] == 1


class TestWithoutRegistry:
    @pytest.mark.parametrize("budget_ms", [0, 60_000])
    def test_every_route_is_read_once(self, world, monkeypatch, budget_ms):
        """In parts that end when their time is used up; what cannot be read is named."""
        monkeypatch.setattr(reconcile, "PAGE_ITEMS", 3)
        check, cursor, counts, differences, parts = JournalCheck(world.control_ends()), None, Counter(), [], 0
        while parts == 0 or cursor:
            part = check.compare_all(cursor, repairs=False, budget_ms=budget_ms)
            counts.update(part.counts)
            differences += part.differences
            cursor, parts = part.cursor, parts + 1
        assert differences == [("malformed", Agreement.MALFORMED)]
        assert (counts[Agreement.EQUAL], counts.total()) == (7, 8)
        assert parts == (3 if budget_ms == 0 else 1)

    def test_there_is_nothing_to_copy_and_nothing_to_fill(self, world):
        check = JournalCheck(world.control_ends())
        with pytest.raises(InvalidRequestError, match="nothing to copy"):
            check.compare_all(None, repairs=True, budget_ms=1)
        with pytest.raises(InvalidRequestError, match="no registry to rebuild"):
            check.rebuild(None, budget_ms=1)
