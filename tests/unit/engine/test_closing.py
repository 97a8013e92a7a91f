"""The two steps of a close, raises beside it, and reads of a closed conversation."""

import pytest

from hotpartition.core.closes import CloseTimes, Refusal
from hotpartition.core.errors import StoreUnavailableError
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import JournalEntry
from hotpartition.core.route import Close, Generation, Route
from hotpartition.core.route_history import Cause
from hotpartition.engine.closing import Closer, CloseStep
from hotpartition.engine.raising import Raiser
from hotpartition_messages.reading import PageRequest
from support.builders import World, message_id, new_message

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


def close(closer):
    """All steps of a close."""
    return closer.confirm(closer.announce(closer.plan("c", cause=COOL)))


def test_a_close_is_announced_and_confirmed(world):
    """Journal and registry have both steps, and readers' N comes down at its time."""
    closing = close(closer_of(world))
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
    assert close(closer).refusal is Refusal.NO_DATE


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
    assert close(closer).refusal is Refusal.NO_LEASES
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
    assert close(closer_of(world, has_positions=False)).refusal is Refusal.NO_POSITIONS


def test_a_raise_that_was_kept_away_adds_nothing(world):
    """Where another one came first, neither its beginning nor a close gets a generation."""
    close(closer_of(world))
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


START = 1_700_000_000_000

CLOSED_AT = START + 60_000

GENERATION = Generation(START - 1, 8)

CLOSED = frozenset({Close(CLOSED_AT, False), Close(CLOSED_AT, True)})

NEWEST = PageRequest("c", newest_first=True, limit=50, is_strong=True)


def fill(world, before, behind):
    """Write messages on both sides of the close; the clock ends behind the last."""
    world.table.routes["c"] = JournalEntry(Route(frozenset({GENERATION}), CLOSED), START)
    world.registry.add("c", world.table.routes["c"].route.members)
    writer = world.writer()
    for index in range(before):
        writer.write(new_message(str(index), message_id=message_id(START + index, index)))
    world.clock.now_ms = CLOSED_AT
    for index in range(behind):
        world.clock.now_ms += 10
        writer.write(new_message(str(index)))
    world.table.calls.clear()


def fill_base_key_and_shards(world):
    """Write by turns to shards and, as a writer without a lease does, to the base key, which could fill a page."""
    world.clock.now_ms = START
    world.table.routes["c"] = JournalEntry(Route(frozenset({GENERATION})), START)
    world.registry.add("c", {GENERATION})
    knows_nothing = World(world.clock, world.table)
    writers = knows_nothing.writer(), world.writer()
    for index in range(120):
        writers[index % 2].write(new_message(str(index), message_id=message_id(START + index, index)))
    world.table.calls.clear()


def queried(world):
    return [call.removeprefix("query ") for call in world.table.calls if call.startswith("query")]


def shards(count=8):
    return {f"c#{shard}" for shard in range(count)}


class TestReading:
    """What each round asks, and whom it believes."""

    @pytest.fixture
    def world(self):
        return World()

    def test_the_newest_page_behind_a_close_is_one_request(self, world):
        """As of a conversation that was never raised, journal included."""
        fill(world, before=100, behind=60)
        page = world.reader().read_page(NEWEST)
        assert len(page.messages) == 50
        assert world.table.calls == ["query c"]

    def test_a_cursor_from_before_the_close_goes_on_behind_it(self, world):
        """Whoever polled while the conversation was spread misses nothing of what comes behind the close."""
        fill(world, before=100, behind=0)
        world.table.routes["c"] = JournalEntry(Route(frozenset({GENERATION})), START)
        world.registry.routes["c"] = Route(frozenset({GENERATION}))
        reader = world.reader()
        page = reader.read_page(PageRequest("c", newest_first=False, limit=100, is_strong=True))
        assert len(page.messages) == 100
        world.table.routes["c"] = JournalEntry(Route(frozenset({GENERATION}), CLOSED), START)
        world.clock.now_ms = CLOSED_AT + 5
        stored = world.writer().write(new_message("behind"))
        rest = reader.read_page(
            PageRequest("c", newest_first=False, limit=100, cursor=page.next_cursor, is_strong=True)
            if page.next_cursor
            else PageRequest("c", newest_first=False, limit=100, after_ms=START + 100, is_strong=True)
        )
        assert [message.message_id for message in rest.messages] == [stored.message.message_id]

    def test_a_close_that_only_redis_shows_costs_a_round_and_is_counted(self, world):
        """It is never obeyed: the shards are asked in the second round."""
        fill_base_key_and_shards(world)
        world.registry.add("c", {Close(START, True)})
        page = world.reader().read_page(NEWEST)
        assert [int(message.body) for message in page.messages] == [*range(119, 69, -1)]
        assert queried(world)[0] == "c"
        assert set(queried(world)[1:9]) == shards()
        assert world.telemetry.counts[MetricName.REGISTRY_AHEAD_OF_JOURNAL] == 1

    def test_a_route_that_is_confirmed_has_no_close_that_only_redis_shows(self, world):
        """For a caller that reads no item."""
        fill_base_key_and_shards(world)
        world.registry.add("c", {Close(START, True)})
        assert world.reader().gatherer.confirm("c") == Route(frozenset({GENERATION}))

    def test_an_announcement_is_not_obeyed(self, world):
        """It may have come too late for some writer. Redis knows nothing here: the journal alone says what is asked."""
        fill_base_key_and_shards(world)
        world.registry.routes.clear()
        world.table.routes["c"] = JournalEntry(Route(frozenset({GENERATION}), frozenset({Close(START, False)})), START)
        page = world.reader().read_page(NEWEST)
        assert [int(message.body) for message in page.messages] == [*range(119, 69, -1)]
        assert set(queried(world)[1:9]) == shards()

    def test_a_redis_that_knows_no_close_costs_no_message_and_is_repaired(self, world):
        """The journal's close is obeyed at once, and readers after it begin with one key."""
        fill(world, before=100, behind=60)
        world.registry.routes["c"] = Route(frozenset({GENERATION}))
        assert len(world.reader().read_page(NEWEST).messages) == 50
        world.table.calls.clear()
        assert len(world.reader().read_page(NEWEST).messages) == 50
        assert world.table.calls == ["query c"]
