"""Counters: additions on any shard, once under a token, and their sum."""

import pytest

from hotpartition.core.counter_items import CELLS, build_addition, cell_sort_key
from hotpartition.core.errors import (
    OutcomeUnknownError,
    RetryLaterError,
    StoreUnavailableError,
    ThrottledError,
    TokenReusedError,
)
from hotpartition.core.route import choose_shards, stable_hash
from support.builders import World
from support.counters import FakeCounters

KEY = "counter/likes"
ANN = "ann:room-1"
THROTTLED = ThrottledError(["TableWriteKeyRangeThroughputExceeded"])
CANCELLED = ThrottledError(["ThrottlingError"])
CONFLICT = ThrottledError(["TransactionConflict"])
NO_RESPONSE = StoreUnavailableError("no response")


@pytest.fixture(params=[False, True], ids=["frees cancelled", "binds cancelled"])
def world(request):
    """Under either reading of what a cancelled transaction does to its token."""
    world = World()
    world.counters = FakeCounters(now=lambda: world.clock.now_ms / 1000, binds_cancelled=request.param)
    world.counters.routes = world.table.routes
    return world


def raise_to(world, shard_count):
    world.raise_to(shard_count, world.clock.now_ms - 1_000, conversation_id=KEY)


def addition_of(token=ANN, amount=1):
    return build_addition("messages", "c", KEY, token, amount)


def places_of(shard_count, token=ANN):
    shards = choose_shards(addition_of(token).request_token, shard_count)
    return [f"{KEY}#{shard}" for shard in shards]


def add(world, amount=1, token=ANN, *, writer=None, budget_ms=300):
    adder = writer or world.adder(budget_ms=budget_ms)
    if token is None:
        adder.add(KEY, amount, size_bytes=100)
    else:
        adder.add_once(KEY, addition_of(token, amount), size_bytes=100)


def refuse_at(world, refusing, next_refusal):
    """Refuse additions at a place, whatever is known of their tokens, as long as there is a refusal."""
    original = world.counters.add_once

    def add_once(place, addition):
        if place == refusing and (refusal := next_refusal()):
            raise refusal
        return original(place, addition)

    world.counters.add_once = add_once


def read(world, *, is_strong=True):
    return world.summer().sum_up(KEY, is_strong=is_strong)


class TestForms:
    """The stored forms, pinned: data and bound tokens stay where they are."""

    def test_a_token_has_one_request_token_and_cell(self):
        """Whatever the amount; another table, name, counter or token has others."""
        addition = addition_of()
        assert addition == ("6ee12e24af8a1d438b6d1fad4a8ef38c", "c#12", 1)
        assert addition_of(amount=-7)[:2] == addition[:2]
        others = [
            build_addition(*parts, 1)
            for parts in (("m", "c", KEY, ANN), ("messages", "d", KEY, ANN), ("messages", "c", "x", ANN))
        ]
        assert len({addition.request_token, *(other.request_token for other in others)}) == 4
        assert len(addition.request_token) <= 36

    def test_tokens_spread_over_cells_and_shards_independently(self):
        """So the cells of one shard share its load evenly."""
        found = [addition_of(str(number)) for number in range(16_000)]
        on_first = [a.sort_key for a in found if stable_hash(a.request_token) % 8 == 0]
        counts = [on_first.count(cell_sort_key("c", cell)) for cell in range(CELLS)]
        assert min(counts) > 80  # 125 each, 11 of deviation
        assert max(counts) < 180


class TestWithoutToken:
    """Counted where the route says, and never tried again when nobody knows."""

    def test_a_cold_counter_has_its_base_key_only(self, world):
        """One request, one unit."""
        add(world, 5, None)
        add(world, -2, None)
        assert world.counters.cells == {(KEY, "c#"): 3}
        assert read(world) == 3

    def test_a_raised_one_spreads_at_random(self, world):
        """Over all its shards; what it counted before stays."""
        add(world, 1, None)
        raise_to(world, 4)
        writer = world.adder()
        for _ in range(400):
            add(world, 1, None, writer=writer)
        assert world.counters.cells[KEY, "c#"] == 1
        assert all(60 < world.counters.cells[f"{KEY}#{shard}", "c#"] < 140 for shard in range(4))
        assert read(world) == 401

    def test_what_all_choices_refused_is_tried_at_others(self, world):
        """After a pause: nobody has to find it again, so full shards need not be asked over and over."""
        raise_to(world, 64)
        world.counters.fails = lambda place: THROTTLED if len(world.counters.asked) < 9 else None
        add(world, 1, None)
        assert len(world.clock.slept) == 2
        assert len(set(world.counters.asked)) > 6
        assert world.counters.total == 1

    def test_one_of_unknown_outcome_is_not_repeated(self, world):
        """It may be counted, and a repetition would count it twice."""
        world.counters.loses = lambda _: OutcomeUnknownError("no response")
        with pytest.raises(OutcomeUnknownError):
            add(world, 1, None)
        assert world.counters.asked == [KEY]

    def test_units_are_counted_and_reported(self, world):
        """One for a plain addition, two for one with a token."""
        writer = world.adder()
        add(world, 1, None, writer=writer)
        add(world, writer=writer)
        assert {report.collection for report in world.reports.sent} == {KEY}
        assert max(report.value for report in world.reports.sent) == 3


class TestWithToken:
    """Counted once, whatever happens to it."""

    def test_a_repetition_across_raises_finds_the_place(self, world):
        """Wherever it was first, under any generation."""
        for shard_count in (3, 8, 40):
            add(world, 5)
            raise_to(world, shard_count)
        add(world, 5)
        assert world.counters.cells == {(KEY, addition_of().sort_key): 5}

    def test_a_repetition_finds_a_later_choice(self, world):
        """Its first choice refused, so another shard counted it."""
        raise_to(world, 8)
        first, second, _ = places_of(8)
        world.counters.fails = lambda place: CANCELLED if place == first else None
        try:
            add(world)
        except RetryLaterError:
            # Bound by what was cancelled: no other place may take it.
            assert world.counters.total == 0
            world.counters.fails = lambda _: None
            add(world)
            assert world.counters.cells == {(first, addition_of().sort_key): 1}
        else:
            assert world.counters.cells == {(second, addition_of().sort_key): 1}
            world.counters.fails = lambda _: None
        add(world)
        raise_to(world, 12)
        add(world)
        assert world.counters.total == 1

    def test_a_lost_response_is_repeated_in_place(self, world):
        raise_to(world, 8)
        lost = [NO_RESPONSE]
        world.counters.loses = lambda _: lost.pop() if lost else None
        add(world)
        assert world.counters.asked == [places_of(8)[0]] * 2
        assert world.counters.total == 1

    def test_a_lost_response_and_a_refusal_of_its_repetition(self, world):
        """The next choice is told that the token is bound, and the first is asked until it responds."""
        raise_to(world, 8)
        first = places_of(8)[0]
        lost, refused = [NO_RESPONSE], [CANCELLED, CANCELLED]
        world.counters.loses = lambda _: lost.pop() if lost else None
        refuse_at(world, first, lambda: refused.pop() if refused and not lost else None)
        add(world)
        assert world.counters.total == 1

    def test_a_conflict_waits_and_tries_again(self, world):
        """Another transaction is at work on the cell."""
        conflicts = [CONFLICT]
        world.counters.fails = lambda _: conflicts.pop() if conflicts else None
        add(world)
        assert len(world.clock.slept) == 1
        assert world.counters.total == 1

    def test_another_amount_is_refused(self, world):
        """Also across a raise, and also where the first attempt went to another choice."""
        add(world, 5)
        with pytest.raises(TokenReusedError):
            add(world, 6)
        raise_to(world, 8)
        with pytest.raises(TokenReusedError):
            add(world, 6)
        assert world.counters.total == 5

    def test_nothing_is_said_of_a_token_while_a_place_refuses(self, world):
        """It may be the one that it is bound to."""
        raise_to(world, 8)
        add(world, 5)
        raise_to(world, 12)
        refuse_at(world, places_of(8)[0], lambda: CANCELLED)
        with pytest.raises(ThrottledError):
            add(world, 5)
        assert world.counters.total == 5

    def test_a_token_that_was_bound_while_another_attempt_was_under_way(self, world):
        """Refused everywhere once, for an attempt that was cancelled then: it is no other amount."""
        raise_to(world, 4)
        original, refusals = world.counters.add_once, [False] * 5

        def add_once(place, addition):
            return refusals.pop() if refusals else original(place, addition)

        world.counters.add_once = add_once
        add(world)
        assert world.counters.total == 1

    def test_candidates_are_the_journals_only(self, world):
        """Should the token be free after all, it is counted where readers look: Redis invents generations."""
        add(world, 5)
        world.registry.add(KEY, world.table.routes.get(KEY) or ())
        world.raise_to(8, world.clock.now_ms - 1_000, conversation_id=KEY)
        del world.table.routes[KEY]
        with pytest.raises(TokenReusedError):
            add(world, 6)
        assert set(world.counters.asked) == {KEY}

    def test_the_journal_is_waited_for(self, world):
        """It refuses first, as the base key's partition does in a rush."""
        add(world, 5)
        raise_to(world, 8)
        failures = [ThrottledError(), StoreUnavailableError("no response")]
        world.counters.fails_reading = lambda _: failures.pop() if failures else None
        add(world, 5)
        assert world.counters.total == 5

    @pytest.mark.parametrize(("refusal", "is_reported"), [(THROTTLED, True), (CANCELLED, False)])
    def test_a_refusal_that_names_no_limit_raises_nobody(self, world, refusal, is_reported):
        """Not a transaction's, which may be for the whole table: N never falls. It is tried at all choices, though."""
        raise_to(world, 8)
        world.counters = FakeCounters()
        world.counters.routes = world.table.routes
        world.counters.fails = lambda _: refusal
        with pytest.raises(ThrottledError):
            add(world, budget_ms=0)
        assert world.counters.asked == places_of(8)
        assert any(report.is_throttled for report in world.reports.sent) is is_reported


class TestSum:
    """Of base key and shards, however old what Redis says."""

    def test_what_redis_does_not_know_is_in_it(self, world):
        """The journal is read in the same round; another asks the shards that it named."""
        add(world, 1, None)
        world.raise_to(4, world.clock.now_ms - 1_000, conversation_id=KEY, in_redis=False)
        world.counters.cells[f"{KEY}#3", "c#07"] = 41
        assert read(world) == 42
        assert world.counters.queried == [KEY, *(f"{KEY}#{shard}" for shard in range(4))]
        assert len(world.registry.routes[KEY].generations) == 1

    def test_a_sum_is_complete_or_an_error(self, world):
        """Never less than was counted."""
        world.counters.fails_reading = lambda place: THROTTLED
        with pytest.raises(ThrottledError):
            read(world)

    def test_a_counter_that_nobody_added_to_is_0(self, world):
        """One query, which shows its journal as well."""
        assert read(world, is_strong=False) == 0
        assert world.counters.queried == [KEY]
