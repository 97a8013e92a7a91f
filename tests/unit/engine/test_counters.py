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
from support.fakes import KEY_RANGE_THROTTLE
from support.world import Table

KEY = "counter/likes"
ANN = "ann:room-1"
CANCELLED = ThrottledError(["ThrottlingError"])
CONFLICT = ThrottledError(["TransactionConflict"])
NO_RESPONSE = StoreUnavailableError("no response")


@pytest.fixture(params=[False, True], ids=["frees cancelled", "binds cancelled"])
def world(request):
    """Under either reading of what a cancelled transaction does to its token."""
    return World(table=Table(binds_cancelled=request.param))


def raise_to(world, shard_count, **options):
    world.raise_to(shard_count, world.clock.now_ms - 1_000, conversation_id=KEY, **options)


def addition_of(token=ANN, amount=1):
    return build_addition("messages", "c", KEY, token, amount)


def places_of(shard_count, token=ANN):
    shards = choose_shards(addition_of(token).request_token, shard_count)
    return [f"{KEY}#{shard}" for shard in shards]


def add(world, amount=1, token=ANN, *, adder=None, budget_ms=300):
    adder = adder or world.adder(budget_ms=budget_ms)
    if token is None:
        adder.add(KEY, amount, size_bytes=100)
    else:
        adder.add_once(KEY, addition_of(token, amount), size_bytes=100)


def cells(world):
    """What was counted, by partition key and sort key."""
    return {place: int(item["counted"]["N"]) for place, item in world.table.items.items()}


def total(world):
    return sum(cells(world).values())


def asked(world):
    """The partition keys of the additions that were tried."""
    return [call.removeprefix("add ") for call in world.table.calls if call.startswith("add ")]


def at(place, *errors):
    """Build a hook that gives errors to additions at a place (None: at any), one each."""
    left = [*errors]

    def strike(call):
        is_there = call.startswith("add ") if place is None else call == f"add {place}"
        return left.pop(0) if is_there and left else None

    return strike


def raising(strike):
    """Build a hook that raises them before DynamoDB looks at a token."""

    def fail(call):
        if error := strike(call):
            raise error

    return fail


def read(world, *, is_strong=True):
    return world.summer().sum_up(KEY, is_strong=is_strong)


class TestForms:
    """The stored forms, pinned: data and bound tokens stay where they are."""

    def test_a_token_has_one_request_token_and_cell(self):
        """Whatever the amount; another table, name, counter or token has others."""
        addition = addition_of()
        assert addition == ("6ee12e24af8a1d438b6d1fad4a8ef38c", "c#12", 1)
        assert addition_of(amount=-7)[:2] == addition[:2]
        parts = (("m", "c", KEY, ANN), ("messages", "d", KEY, ANN), ("messages", "c", "x", ANN))
        assert len({addition.request_token, *(build_addition(*each, 1).request_token for each in parts)}) == 4
        assert len(addition.request_token) <= 36

    def test_tokens_spread_over_cells_and_shards_independently(self):
        """So the cells of one shard share its load evenly."""
        found = [addition_of(str(number)) for number in range(16_000)]
        on_first = [a.sort_key for a in found if stable_hash(a.request_token) % 8 == 0]
        counts = [on_first.count(cell_sort_key("c", cell)) for cell in range(CELLS)]
        assert 80 < min(counts) <= max(counts) < 180  # 125 each, 11 of deviation


class TestWithoutToken:
    """Counted where the route says, and never tried again when nobody knows."""

    def test_a_raised_one_spreads_at_random(self, world):
        """Over all its shards; what it counted at its base key before, in one request each, stays."""
        add(world, 5, None)
        add(world, -2, None)
        assert cells(world) == {(KEY, "c#"): 3}
        raise_to(world, 4)
        adder = world.adder()
        for _ in range(400):
            add(world, 1, None, adder=adder)
        found = cells(world)
        assert found.pop((KEY, "c#")) == 3
        assert len(found) == 4
        assert all(60 < count < 140 for count in found.values())
        assert read(world) == 403

    def test_what_all_choices_refused_is_tried_at_others(self, world):
        """After a pause: nobody has to find it again, so full shards need not be asked over and over."""
        raise_to(world, 64)
        world.table.cancels = at(None, *[KEY_RANGE_THROTTLE] * 8)
        add(world, 1, None)
        assert (len(world.clock.slept), total(world)) == (2, 1)
        assert len(set(asked(world))) > 6

    def test_one_of_unknown_outcome_is_not_repeated(self, world):
        """It may be counted, and a repetition would count it twice."""
        world.table.loses = at(None, NO_RESPONSE)
        with pytest.raises(OutcomeUnknownError):
            add(world, 1, None)
        assert asked(world) == [KEY]

    def test_units_are_counted_and_reported(self, world):
        """One for a plain addition, two for one with a token."""
        adder = world.adder()
        add(world, 1, None, adder=adder)
        add(world, adder=adder)
        assert {report.collection for report in world.reports.sent} == {KEY}
        assert max(report.value for report in world.reports.sent) == 3


class TestWithToken:
    """Counted once, whatever happens to it."""

    def test_a_repetition_across_raises_finds_the_place(self, world):
        """Wherever it was first, under any generation; with another amount it is refused."""
        for shard_count in (3, 8, 40):
            add(world, 5)
            with pytest.raises(TokenReusedError):
                add(world, 6)
            raise_to(world, shard_count)
        add(world, 5)
        assert cells(world) == {(KEY, addition_of().sort_key): 5}

    def test_a_repetition_finds_a_later_choice(self, world):
        """Its first choice refused, so another shard counted it; or none may, where the token is bound."""
        raise_to(world, 8)
        first, second, _ = places_of(8)
        world.table.cancels = at(first, *[CANCELLED] * 99)
        try:
            add(world)
        except RetryLaterError:
            assert total(world) == 0
            second = first
        world.table.cancels = at(None)
        for shard_count in (8, 12):
            add(world)
            assert cells(world) == {(second, addition_of().sort_key): 1}
            raise_to(world, shard_count)

    @pytest.mark.parametrize("refused", [0, 2])
    def test_a_lost_response_is_repeated_in_place(self, world, refused):
        """Also where its repetition is refused: the next choice says that the token is bound."""
        raise_to(world, 8)
        world.table.loses = at(None, NO_RESPONSE)
        refuse = raising(at(places_of(8)[0], *[CANCELLED] * refused))
        world.table.on_call = lambda call: refuse(call) if len(asked(world)) > 1 else None
        add(world)
        assert total(world) == 1
        assert refused or asked(world) == [places_of(8)[0]] * 2

    def test_a_conflict_waits_and_tries_again(self, world):
        """Another transaction is at work on the cell."""
        world.table.cancels = at(None, CONFLICT)
        add(world)
        assert (len(world.clock.slept), total(world)) == (1, 1)

    def test_nothing_is_said_of_a_token_while_a_place_refuses(self, world):
        """It may be the one that it is bound to."""
        raise_to(world, 8)
        add(world, 5)
        raise_to(world, 12)
        world.table.on_call = raising(at(places_of(8)[0], *[CANCELLED] * 99))
        with pytest.raises(ThrottledError):
            add(world, 5)
        assert total(world) == 5

    def test_a_token_that_was_bound_while_another_attempt_was_under_way(self, world, monkeypatch):
        """Refused everywhere once, for an attempt that was cancelled then: it is no other amount."""
        raise_to(world, 4)
        original, refusals = world.table.counters.add_once, [False] * 5
        monkeypatch.setattr(
            world.table.counters, "add_once", lambda *request: refusals.pop() if refusals else original(*request)
        )
        add(world)
        assert total(world) == 1

    def test_candidates_are_the_journals_only(self, world):
        """Should the token be free after all, it is counted where readers look: Redis invents generations."""
        add(world, 5)
        raise_to(world, 8)
        del world.table.routes[KEY]
        with pytest.raises(TokenReusedError):
            add(world, 6)
        assert set(asked(world)) == {KEY}

    def test_the_journal_is_waited_for(self, world):
        """It refuses first, as the base key's partition does in a rush."""
        add(world, 5)
        raise_to(world, 8)
        failures = [ThrottledError(), NO_RESPONSE]

        def refuse(call):
            if call == f"get {KEY}" and failures:
                raise failures.pop()

        world.table.on_call = refuse
        add(world, 5)
        assert (total(world), len(failures) < 2) == (5, True)

    @pytest.mark.parametrize(("refusal", "is_reported"), [(KEY_RANGE_THROTTLE, True), (CANCELLED, False)])
    def test_a_refusal_that_names_no_limit_raises_nobody(self, refusal, is_reported):
        """Not a transaction's, which may be for the whole table: N never falls. It is tried at all choices, though."""
        world = World()
        raise_to(world, 8)
        world.table.cancels = at(None, *[refusal] * 99)
        with pytest.raises(ThrottledError):
            add(world, budget_ms=0)
        assert asked(world) == places_of(8)
        assert any(report.is_throttled for report in world.reports.sent) is is_reported


class TestSum:
    """Of base key and shards, however old what Redis says."""

    def test_what_redis_does_not_know_is_in_it(self, world):
        """The journal is read in the same round; another asks the shards that it named."""
        add(world, 1, None)
        raise_to(world, 4, in_redis=False)
        world.table.counters.add(f"{KEY}#3", 41)
        assert read(world) == 42
        queries = [call for call in world.table.calls if call.startswith("query")]
        assert queries == [f"query {KEY}", *(f"query {KEY}#{shard}" for shard in range(4))]
        assert len(world.registry.routes[KEY].generations) == 1

    def test_a_sum_is_complete_or_an_error(self, world):
        """Never less than was counted; of what was never counted one query is made, which shows the journal as well."""
        assert read(world, is_strong=False) == 0
        assert world.table.calls == [f"query {KEY}"]
        world.table.failures = [KEY_RANGE_THROTTLE] * 99
        with pytest.raises(ThrottledError):
            read(world)
