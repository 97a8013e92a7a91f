"""The operators' jobs: what they see, a raise by hand that can do no harm, and registry against journal."""

from collections import Counter

import pytest

from hotpartition.control import reconcile
from hotpartition.control.ends import JournalEnds
from hotpartition.control.hot_keys import NO_LOAD, Load, measure_writes
from hotpartition.control.reconcile import Agreement, Reconciler
from hotpartition.core.closes import Refusal
from hotpartition.core.errors import InvalidRequestError, ThrottledError
from hotpartition.core.ports import JournalEntry
from hotpartition.core.reports import Report
from hotpartition.core.route import Close, Route
from hotpartition.core.window import ReportWindow
from hotpartition.engine.closing import CloseStep
from support.builders import World, route_of
from support.fakes import KEY_RANGE_THROTTLE
from support.fleet import START_MS, Fleet

NOW_MS = START_MS + 6_000

DAY_MS = 24 * 3_600_000


@pytest.fixture
def world():
    world = World()
    world.clock.now_ms = NOW_MS
    return world


def write(world, rate, conversation_id, *, is_throttled=False, seed=1):
    """Let a fleet write for six seconds."""
    fleet = Fleet(seed=seed, is_throttled=lambda _: is_throttled)
    for arrival in fleet.offer(lambda _: rate, 6_000, conversation_id):
        world.reports.send(arrival.report)


class TestHot:
    def test_the_hottest_come_first_and_then_the_newest_routes(self, world):
        """By load, then by age; one that was never raised is there with the base key's capacity."""
        write(world, 2_000, "rush", is_throttled=True)
        write(world, 300, "busy", seed=2)
        world.raise_to(4, NOW_MS - 60_000, conversation_id="busy")
        world.table.routes["old"] = JournalEntry(route_of((2, 1_000)), 1_000)
        world.table.routes["newer"] = JournalEntry(route_of((2, 2_000), (8, 3_000)), 3_000)
        hot = world.operations().list_hot(20)
        assert [row.collection for row in hot.rows] == ["rush", "busy", "newer", "old"]
        assert [row.wcu_per_second for row in hot.rows] == pytest.approx([2_000, 300, 0, 0], rel=0.2)
        assert [row.throttled_share for row in hot.rows] == [1.0, 0.0, 0.0, 0.0]
        assert [(row.shard_count, row.capacity_wcu_per_second, row.newest_since_ms) for row in hot.rows] == [
            (0, 800, None),
            (4, 3_200, NOW_MS - 60_000),
            (8, 6_400, 3_000),
            (2, 1_600, 1_000),
        ]
        assert (hot.active, hot.is_complete, hot.at_ms) == (2, True, NOW_MS)
        assert (hot.streams, hot.streams_unavailable) == (2, 0)

    def test_what_is_read_is_ranked_with_what_is_written(self, world):
        """Each by its share of what makes hot: 4,000 RCU/s before 1,600 WCU/s."""
        write(world, 1_600, "written")
        write(world, 100, "both", seed=2)
        for collection, rcu in (("read", 4_000.0), ("both", 1_000.0)):
            for slot in range(NOW_MS // 250 - 24, NOW_MS // 250):
                world.reports.send(Report(collection, slot, "e", rcu / 4, pages=rcu / 40))
        hot = world.operations().list_hot(20)
        assert [row.collection for row in hot.rows] == ["read", "written", "both"]
        assert [row.rcu_per_second for row in hot.rows] == [4_000, 0, 1_000]
        assert [row.wcu_per_second for row in hot.rows] == pytest.approx([0, 1_600, 100], rel=0.4)
        assert hot.active == 3

    @pytest.mark.parametrize("limit", [1, 3])
    def test_no_more_are_listed_than_asked_for(self, world, limit):
        write(world, 500, "a")
        write(world, 900, "b", seed=2)
        for i in range(5):
            world.raise_to(2, i, conversation_id=f"c{i}")
        hot = world.operations().list_hot(limit)
        assert [row.collection for row in hot.rows] == ["b", "a", "c4"][:limit]
        assert hot.active == 2

    def test_malformed_reports_are_left_out(self, world):
        """The consumer counts and names them."""
        world.reports.append(0, "9")
        assert world.operations().list_hot(20).rows == ()

    def test_the_latest_consumer_is_known_by_its_start(self, world):
        assert world.operations().list_hot(20).consumer_started_at_ms is None
        world.reports.announce(NOW_MS - 5)
        assert world.operations().list_hot(20).consumer_started_at_ms == NOW_MS - 5


def test_a_refused_look_at_the_journal_is_repeated(world):
    world.raise_to(2, 0)
    world.table.failures = [KEY_RANGE_THROTTLE] * 3
    assert [row.collection for row in world.operations().list_routes(None, 10).rows] == ["c"]


class TestRaise:
    def test_the_journal_comes_first(self, world):
        """As with every raise; the route, its reason and the log line say who did it."""
        order = []
        world.table.on_call = lambda name: order.append((name, dict(world.registry.routes)))
        done = world.operations().raise_by_hand("c", 8, by="ann")
        since_ms = NOW_MS - 5_000
        assert (done.is_changed, done.shard_count_before, done.is_in_registry) == (True, 0, True)
        assert done.route == route_of((8, since_ms)) == world.registry.routes["c"]
        assert world.table.reasons["c"] == "by-hand by=ann"
        assert next(redis for name, redis in order if name == "update c") == {}
        ((message, facts),) = world.telemetry.events
        assert message == "raise by hand"
        assert facts == {
            "collection": "c",
            "generation": f"8@{since_ms}",
            "changed": True,
            "shard_count_before": 0,
            "by": "ann",
            "in_registry": True,
        }
        assert world.telemetry.counts["Raises"] == 1

    @pytest.mark.parametrize(
        ("members", "count", "since_ms", "before"),
        [
            # N never goes down: what has as many shards is left alone.
            (["8@5"], 2, NOW_MS, 8),
            (["8@5"], 8, NOW_MS, 8),
            # Under a pending close it holds behind it: writers would go to the base key from then on.
            (["8@5", f"closing@{NOW_MS + 60_000}"], 8, NOW_MS, 0),
            (["8@5", f"closing@{NOW_MS + 60_000}", f"closed@{NOW_MS + 60_000}"], 8, NOW_MS, 0),
            # After a void close readers ask all shards; writers use none of them.
            (["8@5", f"closing@{NOW_MS - 60_000}"], 8, NOW_MS, 0),
            # Older messages can be raised alone: a smaller N is a growth there.
            ([f"16@{NOW_MS - 1_000}"], 4, NOW_MS - 2 * DAY_MS, 0),
        ],
    )
    def test_a_raise_changes_what_has_fewer_shards(self, world, members, count, since_ms, before):
        """Redis gets what the journal has in any case. What is raised once is raised."""
        known = Route.decode(members)
        world.table.routes["c"] = JournalEntry(known, NOW_MS)
        done = world.operations().raise_by_hand("c", count, since_ms=since_ms)
        assert (done.is_changed, done.shard_count_before) == (not before, before)
        assert done.route == world.table.routes["c"].route == world.registry.routes["c"]
        assert world.telemetry.counts.get("Raises", 0) == done.is_changed
        assert (done.route == known) == (not done.is_changed)
        for at_ms in (since_ms, NOW_MS + 60_000):
            assert done.route.as_announced.shard_count_at(at_ms) >= count
        assert any("as old as" in warning for warning in done.warnings) == (since_ms < NOW_MS)
        assert not world.operations().raise_by_hand("c", count, since_ms=since_ms).is_changed

    @pytest.mark.parametrize(
        ("fields", "wrong"),
        [
            ({"shard_count": 1}, ["shard_count"]),
            ({"shard_count": 1025}, ["shard_count"]),
            ({"since_ms": -1}, ["since"]),
            ({"since_ms": NOW_MS + DAY_MS + 1}, ["since"]),
            (
                {"conversation_id": "a#1", "shard_count": 0, "since_ms": 10**15},
                ["conversation_id", "shard_count", "since"],
            ),
        ],
    )
    def test_mistakes_are_refused_before_anything_happens(self, world, fields, wrong):
        """A generation is for ever, so a slip of the finger must not become one. All wrong fields are named."""
        given = {"conversation_id": "c", "shard_count": 8, "since_ms": NOW_MS} | fields
        with pytest.raises(InvalidRequestError) as caught:
            world.operations().raise_by_hand(given["conversation_id"], given["shard_count"], since_ms=given["since_ms"])
        assert [problem.field for problem in caught.value.problems] == wrong
        assert world.table.calls == []

    def test_a_throttled_journal_is_tried_for_seconds(self, world):
        """The item shares the partition that may be hot already."""
        world.table.failures = [KEY_RANGE_THROTTLE] * 100
        assert world.operations().raise_by_hand("c", 8).is_changed
        assert world.clock.now_ms - NOW_MS <= 1_500
        world.table.failures = [KEY_RANGE_THROTTLE] * 10_000
        with pytest.raises(ThrottledError):
            world.operations().raise_by_hand("d", 8)
        assert "d" not in world.registry.routes

    def test_it_is_held_open_for_a_day(self, world):
        """A raise for an event is not closed before the event begins."""
        world.operations(is_closing=True).raise_by_hand("c", 8, since_ms=NOW_MS + DAY_MS)
        assert world.registry.warm_until_ms == {"c": NOW_MS + 2 * DAY_MS}


class TestClose:
    """A close by hand."""

    @pytest.fixture
    def raised(self, world):
        world.raise_to(8, NOW_MS - DAY_MS)
        return world

    @pytest.fixture
    def operations(self, raised):
        return raised.operations(is_closing=True)

    def test_it_is_announced_and_confirmed(self, raised, operations):
        """Readers go on asking all shards for what lies before it."""
        closing = operations.close_by_hand("c", by="ann")
        assert closing.step is CloseStep.CONFIRMED
        route = raised.table.routes["c"].route
        assert [route.shard_count_at(closing.close.at_ms + delta) for delta in (-1, 0)] == [8, 0]
        assert 12 * 60_000 <= closing.close.at_ms - NOW_MS <= 13 * 60_000
        assert raised.registry.routes["c"] == route
        assert raised.telemetry.events[-1] == (
            "close by hand",
            {"collection": "c", "by": "ann", "step": "confirmed", "refusal": None},
        )

    def test_what_cannot_be_closed_is_said(self, raised, operations):
        """Never raised; closed a moment ago; not by times."""
        assert operations.close_by_hand("other").refusal is Refusal.NOT_RAISED
        operations.close_by_hand("c")
        assert operations.close_by_hand("c").refusal is Refusal.NOT_RAISED
        untimed = raised.operations(is_closing=True, has_positions=False)
        assert untimed.close_by_hand("c").refusal is Refusal.NO_POSITIONS
        assert untimed.close_by_hand("c", is_timed=True).refusal is Refusal.NOT_RAISED

    @pytest.mark.parametrize("settings", [{"is_closing": False}, {"is_closing": True, "lease_seconds": 0}])
    def test_where_nothing_is_closed_it_is_refused(self, raised, settings):
        """Older functions could not read it; writers without leases would lose items by it."""
        with pytest.raises(InvalidRequestError, match="nothing is closed here"):
            raised.operations(**settings).close_by_hand("c")
        assert raised.table.calls == []


HOUR_MS = 3_600_000


def put(world, conversation_id, journal, registry):
    if journal is not None:
        world.table.routes[conversation_id] = JournalEntry(journal, world.clock.now_ms - HOUR_MS)
    if registry:
        world.registry.add(conversation_id, registry.members)


def compare_all(world, *, check=None, repairs=False, budget_ms=1_000.0):
    """Follow the cursors; return counts, differences, how many were mended, and how many parts it took."""
    check, cursor = check or world.reconciler(), None
    counts, differences, mended, parts = Counter(), {}, 0, 0
    while parts == 0 or cursor:
        part = check.compare_all(cursor, repairs=repairs, budget_ms=budget_ms)
        counts.update(part.counts)
        assert not differences.keys() & dict(part.differences).keys()
        differences |= dict(part.differences)
        mended, parts, cursor = mended + part.mended, parts + 1, part.cursor
    return +counts, differences, mended, parts


EXPECTED = {
    "missing": Agreement.MISSING_IN_REGISTRY,
    "behind": Agreement.MISSING_IN_REGISTRY,
    "ahead": Agreement.AHEAD_OF_JOURNAL,
    "malformed": Agreement.MALFORMED,
}


def build_compared():
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


class TestComparing:
    """Everything is compared, in parts, and mending only adds."""

    @pytest.fixture
    def world(self):
        return build_compared()

    def test_everything_is_counted_and_what_differs_is_named(self, world):
        """Not what only Redis has: its next read finds that. Nothing is changed by looking."""
        before = dict(world.table.routes), dict(world.registry.routes)
        counts, differences, mended, _ = compare_all(world)
        assert differences == EXPECTED
        assert counts == Counter(EXPECTED.values()) + Counter({Agreement.EQUAL: 4})
        assert mended == 0
        assert world.telemetry.counts["JournalMalformed"] == 1
        assert (world.table.routes, world.registry.routes) == before

    @pytest.mark.parametrize("page", [1, 2, 100])
    def test_it_comes_in_parts(self, world, monkeypatch, page):
        """Whatever a part holds, the sum is the same: each route once."""
        monkeypatch.setattr(reconcile, "PAGE_ITEMS", page)
        counts, differences, _, parts = compare_all(world, budget_ms=0)
        assert (sum(counts.values()), differences) == (8, EXPECTED)
        assert parts >= 8 / page

    def test_repair_lets_each_learn_what_only_the_other_knows(self, world):
        """Nothing is taken away from either; what cannot be read is left to a person: a second look finds it alone."""
        _, differences, mended, _ = compare_all(world, repairs=True)
        assert (differences, mended) == (EXPECTED, 3)
        both = route_of((4, 5), (8, 9))
        for conversation_id, route in (("missing", route_of((4, 5))), ("behind", both), ("ahead", both)):
            assert world.table.routes[conversation_id].route == route == world.registry.routes[conversation_id]
        assert world.table.reasons == {"ahead": "registry-ahead-of-journal"}
        assert world.telemetry.counts["RegistryAheadOfJournal"] == 1
        assert world.telemetry.counts["RegistryBehindJournal"] == 2
        assert compare_all(world)[1] == {"malformed": Agreement.MALFORMED}

    @pytest.mark.parametrize("more", [(), ((8, 9),)])
    def test_a_close_that_only_the_registry_has_stays_a_difference(self, more):
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

    def test_what_grew_just_now_is_looked_at_again_after_one_pause(self):
        """Redis follows the journal by a moment. After an emptied Redis and many raises, time must not run out."""
        world = World()
        for i in range(50):
            world.raise_to(4, 5, conversation_id=f"c{i}", in_redis=False)
        world.clock.on_sleep = lambda: world.registry.add("c7", world.table.routes["c7"].route.generations)
        counts, differences, _, _ = compare_all(world)
        assert (counts[Agreement.EQUAL], len(differences), "c7" in differences) == (1, 49, False)
        assert world.clock.slept == [reconcile.SETTLE_SECONDS]

    def test_the_index_that_lags_is_not_believed(self):
        """What differs from the index is compared with the item itself."""
        world = World()
        put(world, "c", route_of((4, 5)), route_of((4, 5), (8, 9)))
        stale = world.routing_items.page(None, 9)
        put(world, "c", route_of((4, 5), (8, 9)), None)
        world.routing_items.page = lambda *_: stale
        assert compare_all(world)[1] == {}

    def test_a_foreign_cursor_is_refused(self, world):
        """Rather than compare from somewhere."""
        with pytest.raises(InvalidRequestError):
            world.reconciler().compare_all("nobody", repairs=False, budget_ms=0)


class TestWithoutRegistry:
    @pytest.fixture
    def check(self):
        ends = build_compared().control_ends()
        names = ("journal", "routing_items", "telemetry", "clock", "form")
        return Reconciler(JournalEnds(**{name: getattr(ends, name) for name in names}))

    @pytest.mark.parametrize(("budget_ms", "parts"), [(0, 3), (60_000, 1)])
    def test_every_route_is_read_once(self, check, monkeypatch, budget_ms, parts):
        """In parts that end when their time is used up; what cannot be read is named."""
        monkeypatch.setattr(reconcile, "PAGE_ITEMS", 3)
        counts = {Agreement.EQUAL: 7, Agreement.MALFORMED: 1}
        differences = {"malformed": Agreement.MALFORMED}
        assert compare_all(None, check=check, budget_ms=budget_ms) == (counts, differences, 0, parts)

    def test_there_is_nothing_to_copy(self, check):
        with pytest.raises(InvalidRequestError, match="nothing to copy"):
            check.compare_all(None, repairs=True, budget_ms=1)


def measure(arrivals, at_ms):
    window = ReportWindow()
    for arrival in arrivals:
        if arrival.at_ms <= at_ms:
            window.add(arrival.report, at_ms)
    reports = window.as_mapping().get("c")
    return measure_writes(reports, at_ms) if reports else NO_LOAD


def test_what_ended_is_forgotten_after_five_seconds():
    """The mean falls with the slots that leave it, to nothing."""
    arrivals = Fleet().offer(lambda _: 2_000, 5_000)
    assert measure(arrivals, START_MS + 7_600).wcu_per_second == pytest.approx(1_000, rel=0.15)
    assert measure(arrivals, START_MS + 10_500) == NO_LOAD


def test_hand_worked():
    """Two environments, each with 10 WCU in one slot, the second one throttled: 20 WCU in five seconds.

    The last slot is not over yet, so it does not count.
    """
    window = ReportWindow()
    first = START_MS // 250
    for slot, source, is_throttled in ((first, "a", False), (first, "b", True), (first + 3, "a", False)):
        window.add(Report("c", slot, source, 10.0, START_MS, 0, is_throttled), START_MS + 1_000)
    assert measure_writes(window.as_mapping()["c"], START_MS + 1_000) == Load(4.0, 0.5)
