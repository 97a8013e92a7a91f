"""The operators' jobs where a slip does harm: raises and closes by hand, registry against journal, commands.

What they show is pinned in the transcripts of `tests/unit/cli`.

It is long because slips are told apart: each wrong field of a command, each state of a route that a raise by hand may
meet, and each way in which registry and journal differ.
"""

import json
from collections import Counter

import pytest

from hotpartition.control import reconcile
from hotpartition.control.ends import JournalEnds
from hotpartition.control.reconcile import Agreement, Reconciler
from hotpartition.core.closes import Refusal
from hotpartition.core.errors import InvalidRequestError
from hotpartition.core.ports import JournalEntry
from hotpartition.core.reports import Report
from hotpartition.core.route import Close, Route
from hotpartition.redis.cluster import route_key
from support.builders import World, route_of
from support.events import FakeContext, load_handler
from support.fakes import KEY_RANGE_THROTTLE
from support.fleet import START_MS
from support.tables import TABLE_NAME

NOW_MS = START_MS + 6_000
HOUR_MS, DAY_MS = 3_600_000, 24 * 3_600_000
LAMBDA_LIMIT_BYTES = 6 * 1024 * 1024


@pytest.fixture
def world():
    world = World()
    world.clock.now_ms = NOW_MS
    return world


class TestHot:
    def test_what_is_read_is_ranked_with_what_is_written(self, world):
        """Each by its share of what makes hot: 4,000 RCU/s before 1,600 WCU/s, 2,000 behind; then the newest raises."""
        loads = ("written", 400, 0), ("both", 25, 250), ("read", 0, 1_000), ("less", 0, 500)
        for collection, wcu, rcu in loads:
            for slot in range(NOW_MS // 250 - 24, NOW_MS // 250):
                if wcu:
                    world.reports.send(Report(collection, slot, "e", wcu, NOW_MS, 0))
                if rcu:
                    world.reports.send(Report(collection, slot, "e", rcu, pages=1.0))
        world.reports.append(0, "malformed")
        for i in range(5):
            world.table.routes[f"c{i}"] = JournalEntry(route_of((2, i)), i)
        hot = world.operations().hot_keys.list_hot(5)
        assert [(row.collection, row.wcu_per_second, row.rcu_per_second) for row in hot.rows] == [
            ("read", 0, 4_000),
            ("written", 1_600, 0),
            ("less", 0, 2_000),
            ("both", 100, 1_000),
            ("c4", 0, 0),
        ]
        assert hot.active == 4

    def test_while_redis_has_no_answer_the_journal_names_n(self, world):
        """Also that of a hot key which is not among those raised last."""
        for name, shard_count in (("c", 4), ("newer", 2)):
            world.clock.now_ms += 1
            world.raise_to(shard_count, 0, conversation_id=name)
        for slot in range(NOW_MS // 250 - 24, NOW_MS // 250):
            world.reports.send(Report("c", slot, "e", 400, NOW_MS, 0))
        world.registry.is_down = True
        assert [(row.collection, row.shard_count) for row in world.operations().hot_keys.list_hot(1).rows] == [("c", 4)]

    def test_a_refused_look_at_the_journal_is_repeated(self, world):
        world.raise_to(2, 0)
        world.table.failures = [KEY_RANGE_THROTTLE] * 3
        assert [row.collection for row in world.operations().list_routes(None, 10).rows] == ["c"]


class TestRaise:
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
        assert (done.changed, done.shard_count_before) == (not before, before)
        assert done.shard_count == max(count, before)
        assert [message for message, _ in world.telemetry.events] == ["raise by hand"]
        route = world.table.routes["c"].route
        assert route == world.registry.routes["c"]
        assert done.generations == tuple(sorted(route.generations))
        assert world.telemetry.counts.get("Raises", 0) == done.changed
        assert (route == known) == (not done.changed)
        for at_ms in (since_ms, NOW_MS + 60_000):
            assert route.as_announced.shard_count_at(at_ms) >= count
        assert any("as old as" in warning for warning in done.warnings) == (since_ms < NOW_MS)
        assert not world.operations().raise_by_hand("c", count, since_ms=since_ms).changed

    def test_a_throttled_journal_is_tried_for_seconds(self, world):
        """The item shares the partition that may be hot already."""
        world.table.failures = [KEY_RANGE_THROTTLE] * 100
        assert world.operations().raise_by_hand("c", 8).changed

    def test_it_is_held_open_for_a_day(self, world):
        """A raise for an event is not closed before the event begins."""
        world.operations(is_closing=True).raise_by_hand("c", 8, since_ms=NOW_MS + DAY_MS)
        assert world.registry.warm_until_ms == {"c": NOW_MS + 2 * DAY_MS}


class TestClose:
    """A close by hand."""

    def test_by_positions_that_are_no_times_nothing_is_closed(self, world):
        """Unless the operator says that they are; and no close is logged without its reason."""
        world.raise_to(8, NOW_MS - DAY_MS)
        untimed = world.operations(is_closing=True, has_positions=False)
        assert untimed.close_by_hand("c").refusal is Refusal.NO_POSITIONS
        closing = untimed.close_by_hand("c", is_timed=True, by="ann")
        route = world.table.routes["c"].route
        assert [route.shard_count_at(closing.close.at_ms + delta) for delta in (-1, 0)] == [8, 0]
        assert world.registry.routes["c"] == route
        facts = {"collection": "c", "by": "ann", "step": "confirmed", "refusal": None}
        assert world.telemetry.events[-1] == ("close by hand", facts)

    @pytest.mark.parametrize("settings", [{"is_closing": False}, {"is_closing": True, "lease_seconds": 0}])
    def test_where_nothing_is_closed_it_is_refused(self, world, settings):
        """Older functions could not read it; writers without leases would lose items by it."""
        with pytest.raises(InvalidRequestError, match="nothing is closed here"):
            world.operations(**settings).close_by_hand("c")
        assert world.table.calls == []


def put(world, conversation_id, journal, registry):
    if journal is not None:
        world.table.routes[conversation_id] = JournalEntry(journal, world.clock.now_ms - HOUR_MS)
    if registry:
        world.registry.add(conversation_id, registry.members)


def compare_all(check, *, repairs=False, budget_ms=1_000.0):
    """Follow the cursors; return counts, differences, how many were mended, and how many parts it took."""
    counts, differences, mended, parts, cursor = Counter(), {}, 0, 0, None
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


class TestComparing:
    """Everything is compared, in parts, and mending only adds."""

    @pytest.fixture
    def compared(self, world):
        """Four routes that agree, one of each kind that does not, and one that Redis alone has."""
        for i in range(4):
            put(world, f"equal{i}", route_of((4, i)), route_of((4, i)))
        put(world, "missing", route_of((4, 5)), route_of())
        put(world, "behind", route_of((4, 5), (8, 9)), route_of((4, 5)))
        put(world, "ahead", route_of((4, 5)), route_of((4, 5), (8, 9)))
        put(world, "lost", None, route_of((2, 1)))
        world.table.spoil_route("malformed")
        return world

    @pytest.mark.parametrize("page", [1, 2, 100])
    def test_it_comes_in_parts(self, compared, monkeypatch, page):
        """Whatever a part holds, the sum is the same: each route once. Nothing is changed by looking."""
        monkeypatch.setattr(reconcile, "PAGE_ITEMS", page)
        before = dict(compared.table.routes), dict(compared.registry.routes)
        counts, differences, mended, parts = compare_all(compared.reconciler(), budget_ms=0)
        assert counts == Counter(EXPECTED.values()) + Counter({Agreement.EQUAL: 4})
        assert (differences, mended) == (EXPECTED, 0)
        assert parts >= 8 / page
        assert (compared.table.routes, compared.registry.routes) == before

    def test_repair_lets_each_learn_what_only_the_other_knows(self, compared):
        """Nothing is taken away from either; what cannot be read is left to a person: a second look finds it alone."""
        _, differences, mended, _ = compare_all(compared.reconciler(), repairs=True)
        assert (differences, mended) == (EXPECTED, 3)
        both = route_of((4, 5), (8, 9))
        for conversation_id, route in (("missing", route_of((4, 5))), ("behind", both), ("ahead", both)):
            assert compared.table.routes[conversation_id].route == route == compared.registry.routes[conversation_id]
        assert compared.table.reasons == {"ahead": "registry-ahead-of-journal"}
        counted = ("RegistryAheadOfJournal", "RegistryBehindJournal", "JournalMalformed")
        assert [compared.telemetry.counts[name] for name in counted] == [1, 2, 1]
        assert compare_all(compared.reconciler())[1] == {"malformed": Agreement.MALFORMED}

    @pytest.mark.parametrize("more", [(), ((8, 9),)])
    def test_a_close_that_only_the_registry_has_stays_a_difference(self, world, more):
        """No known announcement preceded it: it never gets into the journal, and is not called repaired."""
        invented = Route(route_of((4, 5), *more).generations, frozenset({Close(7, False), Close(7, True)}))
        put(world, "c", route_of((4, 5)), invented)
        for _ in range(2):
            _, differences, mended, _ = compare_all(world.reconciler(), repairs=True)
            assert (differences, mended) == ({"c": Agreement.AHEAD_OF_JOURNAL}, 0)
        assert world.table.routes["c"].route == route_of((4, 5), *more)
        facts = {"collection": "c", "closes": ["closed@7", "closing@7"]}
        assert world.telemetry.events[-1] == ("the registry has closes of its own", facts)

    def test_what_grew_just_now_is_looked_at_again_after_one_pause(self, world):
        """Redis follows the journal by a moment. After an emptied Redis and many raises, time must not run out."""
        for i in range(50):
            world.raise_to(4, 5, conversation_id=f"c{i}", in_redis=False)
        world.clock.on_sleep = lambda: world.registry.add("c7", world.table.routes["c7"].route.generations)
        counts, differences, _, _ = compare_all(world.reconciler())
        assert (counts[Agreement.EQUAL], len(differences), "c7" in differences) == (1, 49, False)
        assert world.clock.slept == [reconcile.SETTLE_SECONDS]

    def test_the_index_that_lags_is_not_believed(self, world):
        """What differs from the index is compared with the item itself, strongly consistent."""
        put(world, "c", route_of((4, 5)), route_of((4, 5), (8, 9)))
        world.table.lagging["c"] = world.table.routes["c"]
        stale = world.routing_items.page(None, 9)
        put(world, "c", route_of((4, 5), (8, 9)), None)
        world.routing_items.page = lambda *_: stale
        assert compare_all(world.reconciler())[1] == {}

    @pytest.mark.parametrize(
        ("compare", "reads"),
        [
            (lambda check: check.show("c").agreement, ["get", "read"]),
            # Redis is read once for the index, and once for the item itself.
            (lambda check: compare_all(check, repairs=True)[1]["c"], ["get", "get", "read"]),
        ],
        ids=["show", "verify"],
    )
    def test_a_raise_meanwhile_is_not_called_ahead_of_the_journal(self, world, monkeypatch, compare, reads):
        """Redis is read before the journal: read after it, it would show what the journal has learned since."""
        put(world, "c", route_of((4, 5)), None)
        seen, raised = [], route_of((4, 5), (8, 9))

        def watch(store, name):
            read = getattr(store, name)

            def noted(*place):
                seen.append(name)
                if len(seen) == len(reads):
                    put(world, "c", raised, raised)
                return read(*place)

            monkeypatch.setattr(store, name, noted)

        watch(world.registry, "get")
        watch(world.routing_items, "read")
        assert compare(world.reconciler()) is Agreement.MISSING_IN_REGISTRY
        assert seen == reads
        assert world.table.reasons == {}

    def test_foreign_data_in_redis_is_no_route(self, world):
        """A route in its place is missing there; shown alone, Redis has no answer."""
        put(world, "c", route_of((4, 5)), None)
        world.registry.server.do("SET", route_key(TABLE_NAME, "c"), "foreign")
        assert compare_all(world.reconciler())[1] == {"c": Agreement.MISSING_IN_REGISTRY}
        assert world.reconciler().show("c").agreement is Agreement.UNKNOWN

    @pytest.mark.parametrize(("budget_ms", "parts"), [(0, 3), (60_000, 1)])
    def test_without_a_registry_every_route_is_read_once(self, compared, monkeypatch, budget_ms, parts):
        """In parts that end when their time is used up; what cannot be read is named."""
        monkeypatch.setattr(reconcile, "PAGE_ITEMS", 3)
        ends = compared.control_ends()
        names = ("journal", "routing_items", "telemetry", "clock", "form")
        check = Reconciler(JournalEnds(**{name: getattr(ends, name) for name in names}))
        differences = {"malformed": Agreement.MALFORMED}
        counts = {Agreement.EQUAL: 7, Agreement.MALFORMED: 1}
        assert compare_all(check, budget_ms=budget_ms) == (counts, differences, 0, parts)


RAISE = {"command": "raise", "conversation_id": "c", "shard_count": 4}
IDS = {"conversation_id": "a#1"}, {"conversation_id": "\ud800"}


def ask(world, event, remaining_ms=60_000):
    response = load_handler("operate").respond(event, world.operations(), remaining_ms=remaining_ms)
    json.dumps(response)
    return response


class TestCommands:
    """From command to response: all is JSON, every refusal is one of the project's, none too large."""

    @pytest.mark.parametrize(
        ("event", "fields"),
        [
            *((event, ["command"]) for event in (None, [], "hot", {}, {"command": "dance"})),
            *(({"command": "hot", "limit": limit}, ["limit"]) for limit in (0, 1001, "20")),
            ({"command": "hot", "surplus": 1}, ["surplus"]),
            *(({"command": "routes", "cursor": cursor}, ["cursor"]) for cursor in ("nobody", "x" * 2001)),
            *(({"command": "route", **wrong}, ["conversation_id"]) for wrong in ({}, *IDS)),
            *(({**RAISE, "shard_count": count}, ["shard_count"]) for count in (1, 1025, True)),
            *(({**RAISE, "since_ms": since_ms}, ["since"]) for since_ms in (-1, NOW_MS + DAY_MS + 1)),
            ({**RAISE, **IDS[0], "shard_count": 0, "since_ms": 10**15}, ["conversation_id", "shard_count", "since"]),
            *(({**RAISE, "by": name}, ["by"]) for name in ("two words", "x" * 65)),
            *(({"command": "verify", **wrong}, [*wrong]) for wrong in ({"mend": "yes"}, {"cursor": "elsewhere:"})),
        ],
    )
    def test_mistakes_are_refused_before_anything_happens(self, world, event, fields):
        """A generation is for ever, so a slip of the finger must not become one. All wrong fields are named."""
        error = ask(world, event)["error"]
        assert (error["kind"], bool(error["message"])) == ("invalid-request", True)
        assert [field["field"] for field in error["fields"]] == fields
        assert all(field["message"] for field in error["fields"])
        assert world.table.calls == []

    def test_a_part_ends_before_the_functions_time(self, world):
        """With no time left it does one page and names the next."""
        for i in range(250):
            world.raise_to(2, 1, conversation_id=f"c{i:03}")
        part = ask(world, {"command": "verify"}, remaining_ms=5_000)
        assert (part["counts"]["equal"], part["cursor"] is None) == (100, False)

    def test_a_store_that_fails_is_a_response(self, world):
        """Redis, where there is nothing to compare with; a journal that refuses is worth repeating."""
        world.raise_to(4, 5)
        world.registry.is_down = True
        assert ask(world, {"command": "verify"})["error"]["kind"] == "registry-unavailable"
        world.table.failures = [KEY_RANGE_THROTTLE] * 10_000
        error = ask(world, RAISE)["error"]
        assert (error["kind"], "repeating" in error["message"]) == ("retry-later", True)

    def test_the_largest_responses_fit(self, world):
        """A thousand routes with the longest ids: far below what Lambda carries."""
        for i in range(1_100):
            world.raise_to(1024, NOW_MS, conversation_id=f"{i:0256}", in_redis=False)
        world.clock.now_ms += 3_600_000
        for event in ({"command": "hot", "limit": 1000}, {"command": "routes"}, {"command": "verify"}):
            assert len(json.dumps(ask(world, event))) < LAMBDA_LIMIT_BYTES / 4

    def test_commands_are_served_and_counted_and_refused_ones_logged(self, monkeypatch, capsys, caplog, world):
        module = load_handler("operate")
        module.metrics.clear_metrics()
        monkeypatch.setattr(module, "_operations", world.operations)
        assert module.handler({"command": "hot"}, FakeContext())["routes"] == []
        assert module.handler({"command": "dance"}, FakeContext())["error"]["kind"] == "invalid-request"
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert sum(line.get("Commands", [0])[0] for line in lines) == 2
        assert [record.error["kind"] for record in caplog.records] == ["invalid-request"]
