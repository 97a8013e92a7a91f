"""The two steps of a close, and raises beside it."""

import pytest

from hotpartition.core.closes import CloseTimes, Refusal
from hotpartition.core.errors import StoreUnavailableError
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import JournalEntry
from hotpartition.core.route import Close, Generation, Route
from hotpartition.core.route_history import Cause
from hotpartition.engine.closing import Closer, CloseStep
from hotpartition.engine.raising import Raiser
from support.builders import World

TIMES = CloseTimes(lease_ms=10_000, margin_ms=2_000, pause_ms=60_000)
COOL = Cause("cool")
START = 1_700_000_000_000
AT = START + 1_000 + 10_000 + 4_000
ANNOUNCED, CONFIRMED = Close(AT, is_confirmed=False), Close(AT, is_confirmed=True)


@pytest.fixture
def world():
    world = World()
    world.raise_to(4, START - 5_000)
    return world


def raiser_of(world):
    return Raiser(
        journal=world.journal, registry=world.registry, telemetry=world.telemetry, clock=world.clock.as_clock()
    )


def closer_of(world, **options):
    return Closer(journal=world.journal, raiser=raiser_of(world), telemetry=world.telemetry, times=TIMES, **options)


def test_a_close_is_announced_and_confirmed(world):
    """Journal and registry have both steps, and readers' N comes down at its time."""
    closing = closer_of(world).close("c", cause=COOL)
    assert (closing.step, closing.close, closing.refusal) == (CloseStep.CONFIRMED, CONFIRMED, None)
    route = world.table.routes["c"].route
    assert route.closes == {ANNOUNCED, CONFIRMED}
    assert world.registry.routes["c"] == route
    assert (route.shard_count_at(AT - 1), route.shard_count_at(AT)) == (4, 0)
    assert world.table.reasons["c"] == "cool"
    assert world.telemetry.counts == {MetricName.CLOSES: 1}


@pytest.mark.parametrize(("late_ms", "step"), [(2_000, CloseStep.ANNOUNCED), (3_000, CloseStep.VOID)])
def test_what_is_announced_too_late_stays_void(world, late_ms, step):
    """By the `Date` of the announcement's own response: leases that do not know of it may be given already."""
    closer = closer_of(world)
    planned = closer.plan("c", cause=COOL)
    world.clock.now_ms += late_ms
    announced = closer.announce(planned)
    assert announced.step is step
    confirmed = closer.confirm(announced)
    assert (confirmed.step is CloseStep.CONFIRMED) == (step is CloseStep.ANNOUNCED)
    assert (CONFIRMED in world.table.routes["c"].route.closes) == (step is CloseStep.ANNOUNCED)
    assert world.telemetry.counts == ({MetricName.CLOSES: 1} if step is CloseStep.ANNOUNCED else {})


def test_without_a_date_nothing_is_confirmed(world):
    """Neither planned; nor, where only the announcement's response lacks it, confirmed."""
    closer = closer_of(world)
    planned = closer.plan("c", cause=COOL)
    world.table.date_ms = lambda: None
    assert closer.announce(planned).step is CloseStep.VOID
    assert closer.close("c", cause=COOL).refusal is Refusal.NO_DATE


def test_a_route_that_grows_meanwhile_is_not_closed(world):
    """A raise, or another who closes, came first."""
    closer = closer_of(world)
    planned = closer.plan("c", cause=COOL)
    world.clock.now_ms += 1
    raiser_of(world).raise_route("c", [Generation(START, 8)], cause=Cause("raised"))
    refused = closer.announce(planned)
    assert (refused.step, refused.refusal) == (CloseStep.REFUSED, Refusal.GREW)
    assert closer.confirm(refused) == refused
    assert not world.table.routes["c"].route.closes


def test_nothing_is_closed_where_writers_have_no_leases(world):
    """Their items would be lost."""
    closer = Closer(
        journal=world.journal, raiser=raiser_of(world), telemetry=world.telemetry, times=CloseTimes(0, 2_000)
    )
    assert closer.close("c", cause=COOL).refusal is Refusal.NO_LEASES
    assert not world.table.routes["c"].route.closes


def test_an_announcement_whose_outcome_is_unknown_is_never_confirmed(world):
    """It was stored, but nobody knows when: the repetition finds that the route has grown."""
    closer = closer_of(world)
    planned = closer.plan("c", cause=COOL)

    def lose_response(_):
        world.table.on_call = lambda _: None
        route = world.table.routes["c"].route
        world.table.routes["c"] = JournalEntry(route.union(Route.of([ANNOUNCED])), START + 1)
        raise StoreUnavailableError("no response")

    world.table.on_call = lose_response
    assert closer.confirm(closer.announce(planned)).refusal is Refusal.GREW
    assert world.table.routes["c"].route.closes == {ANNOUNCED}


def test_positions_that_are_no_times_are_never_closed(world):
    """Nothing is asked of the journal's `Date` then."""
    assert closer_of(world, has_positions=False).close("c", cause=COOL).refusal is Refusal.NO_POSITIONS


def test_a_raise_that_was_kept_away_adds_nothing(world):
    """Where another one came first, neither its beginning nor a close gets a generation."""
    closer_of(world).close("c", cause=COOL)
    before = world.table.routes["c"].route
    world.clock.now_ms += 1
    raised = raiser_of(world).raise_route("c", [Generation(START, 8)], cause=Cause("raised"), pause_ms=1_000)
    assert not raised.is_made
    assert world.table.routes["c"].route == before


def test_a_late_confirmation_leaves_when_and_why_the_route_last_grew(world):
    """A raise came between both steps: its pause goes on, and operators see its reason. The announcement counts."""
    closer = closer_of(world)
    announced = closer.announce(closer.plan("c", cause=COOL))
    world.clock.now_ms += 3_600_000
    raiser_of(world).raise_route("c", [Generation(START, 8)], cause=Cause("raised"))
    confirmed = closer.confirm(announced)
    assert confirmed.step is CloseStep.CONFIRMED
    assert confirmed.entry == world.table.routes["c"]
    assert (confirmed.entry.updated_at_ms, world.table.reasons["c"]) == (START + 3_600_000, "raised")
