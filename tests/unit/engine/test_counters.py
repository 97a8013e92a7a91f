"""Counters: additions on any shard, once under a token, and their sum.

Half of its tests are a way each in which an addition under a token is refused, lost or repeated: any of them could
count it twice, or not at all.
"""

import pytest

from hotpartition.core.counter_items import CELLS, build_addition, cell_sort_key
from hotpartition.core.errors import (
    RetryLaterError,
    StoreUnavailableError,
    ThrottledError,
    TokenReusedError,
)
from hotpartition.core.route import choose_shards, stable_hash
from support.builders import World
from support.fakes import KEY_RANGE_THROTTLE
from support.world import Table

from .conftest import failing

KEY = "counter/likes"
ANN = "ann:room-1"
CANCELLED, CONFLICT = ThrottledError(["ThrottlingError"]), ThrottledError(["TransactionConflict"])
NO_RESPONSE = StoreUnavailableError("no response")


def addition_of(token=ANN, amount=1):
    return build_addition("messages", "c", KEY, token, amount)


CELL = addition_of().sort_key


def giving(*errors, place=""):
    """Build a hook that gives errors to additions at a place, or at any, one each."""
    left = [*errors]
    return lambda call: left.pop(0) if left and call.startswith(f"add {place}") else None


class Counted(World):
    """A counter; by default additions have a token."""

    def raise_key(self, shard_count, **options):
        self.raise_to(shard_count, self.clock.now_ms - 1_000, conversation_id=KEY, **options)
        self.places = [f"{KEY}#{shard}" for shard in choose_shards(addition_of().request_token, shard_count)]

    def add(self, amount=1, token=ANN, *, adder=None, budget_ms=300):
        adder = adder or self.adder(budget_ms=budget_ms)
        if token is None:
            adder.add(KEY, amount, size_bytes=100)
        else:
            adder.add_once(KEY, addition_of(token, amount), size_bytes=100)

    def read(self, *, is_strong=True):
        return self.summer().sum_up(KEY, is_strong=is_strong)

    @property
    def cells(self):
        """What was counted, by partition key and sort key."""
        return {place: int(item["counted"]["N"]) for place, item in self.table.items.items()}

    @property
    def total(self):
        return sum(self.cells.values())

    @property
    def asked(self):
        """The partition keys of the additions that were tried."""
        return [call.removeprefix("add ") for call in self.table.calls if call.startswith("add ")]


@pytest.fixture(params=[False, True], ids=["frees cancelled", "binds cancelled"])
def world(request):
    """Under either reading of what a cancelled transaction does to its token."""
    return Counted(table=Table(binds_cancelled=request.param))


def test_tokens_spread_over_cells_and_shards_independently():
    """So the cells of one shard share its load evenly."""
    found = [addition_of(str(number)) for number in range(16_000)]
    on_first = [a.sort_key for a in found if stable_hash(a.request_token) % 8 == 0]
    counts = [on_first.count(cell_sort_key("c", cell)) for cell in range(CELLS)]
    assert 80 < min(counts) <= max(counts) < 180  # 125 each, 11 of deviation


def test_a_raised_counter_spreads_at_random(world):
    """Over all its shards; what it counted at its base key before, in one request each, stays."""
    world.add(5, None)
    world.add(-2, None)
    assert world.cells == {(KEY, "c#"): 3}
    world.raise_key(4)
    adder = world.adder()
    for _ in range(400):
        world.add(1, None, adder=adder)
    base, *shards = sorted(world.cells.values())
    assert (base, len(shards), world.read()) == (3, 4, 403)
    assert 60 < min(shards) <= max(shards) < 140


def test_without_a_token_what_all_choices_refused_is_tried_at_others(world):
    """After a pause: the caller has no use for its place, so full shards need not be asked over and over."""
    world.raise_key(64)
    world.table.cancels = giving(*[KEY_RANGE_THROTTLE] * 8)
    world.add(1, None)
    assert (len(world.clock.slept), world.total, len(set(world.asked)) > 6) == (2, 1, True)


def test_units_are_counted_and_reported(world):
    """One for a plain addition, two for one with a token."""
    adder = world.adder()
    for token in (None, ANN):
        world.add(1, token, adder=adder)
    assert {report.collection for report in world.reports.sent} == {KEY}
    assert max(report.value for report in world.reports.sent) == 3


def test_a_repetition_finds_a_later_choice(world):
    """Its first choice refused, so another shard counted it; or none may, where the token is bound."""
    world.raise_key(8)
    first, counted, _ = world.places
    world.table.cancels = giving(*[CANCELLED] * 99, place=first)
    try:
        world.add()
    except RetryLaterError:
        assert world.total == 0
        counted = first
    world.table.cancels = giving()
    for shard_count in (8, 12):
        world.add()
        assert world.cells == {(counted, CELL): 1}
        world.raise_key(shard_count)


@pytest.mark.parametrize("refused", [0, 2])
def test_a_lost_response_is_repeated_in_place(world, refused):
    """Also where its repetition is refused: the next choice says that the token is bound."""
    world.raise_key(8)
    refuse = failing(f"add {world.places[0]}", *[CANCELLED] * refused)
    world.table.loses = giving(NO_RESPONSE)
    world.table.on_call = lambda call: len(world.asked) > 1 and refuse(call)
    world.add()
    assert world.total == 1
    assert refused or world.asked == [world.places[0]] * 2


def test_a_conflict_waits_and_tries_again(world):
    """Another transaction is at work on the cell."""
    world.table.cancels = giving(CONFLICT)
    world.add()
    assert (len(world.clock.slept), world.total) == (1, 1)


def test_nothing_is_said_of_a_token_while_a_place_refuses(world):
    """It may be the one that it is bound to."""
    world.raise_key(8)
    world.add(5)
    world.table.on_call = failing(f"add {world.places[0]}", always=CANCELLED)
    world.raise_key(12)
    with pytest.raises(ThrottledError):
        world.add(5)
    assert world.total == 5


def test_a_token_that_was_bound_while_another_attempt_was_under_way(world):
    """Refused everywhere once, for an attempt that was cancelled then: it is no other amount."""
    world.raise_key(4)
    add_once, refusals = world.table.counters.add_once, [False] * 5
    world.table.counters.add_once = lambda *request: refusals.pop() if refusals else add_once(*request)
    world.add()
    assert world.total == 1


def test_candidates_are_the_journals_only(world):
    """Should the token be free after all, it is counted where readers look: Redis invents generations."""
    world.add(5)
    world.raise_key(8)
    del world.table.routes[KEY]
    with pytest.raises(TokenReusedError):
        world.add(6)
    assert set(world.asked) == {KEY}


def test_the_journal_is_waited_for(world):
    """It refuses first, as the base key's partition does in a rush."""
    world.add(5)
    world.raise_key(8)
    world.table.on_call = failing(f"get {KEY}", None, NO_RESPONSE, ThrottledError())
    world.add(5)
    assert (world.total, world.table.calls.count(f"get {KEY}")) == (5, 4)


@pytest.mark.parametrize(("refusal", "is_reported"), [(KEY_RANGE_THROTTLE, True), (CANCELLED, False)])
def test_a_refusal_that_names_no_limit_raises_nobody(refusal, is_reported):
    """Not a transaction's, which may be for the whole table: N never falls. It is tried at all choices, though."""
    world = Counted()
    world.raise_key(8)
    world.table.cancels = giving(*[refusal] * 99)
    with pytest.raises(ThrottledError):
        world.add(budget_ms=0)
    assert world.asked == world.places
    assert any(report.is_throttled for report in world.reports.sent) is is_reported


def test_a_sum_is_complete_or_an_error(world):
    """Never less than was counted; of what was never counted one query is made, which shows the journal as well."""
    assert (world.read(is_strong=False), world.table.calls) == (0, [f"query {KEY}"])
    world.table.failures = [KEY_RANGE_THROTTLE] * 99
    with pytest.raises(ThrottledError):
        world.read()
