"""The two steps of a close, raises beside it, and reads of a closed conversation."""

from dataclasses import replace

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
START = 1_700_000_000_000
AT = START + 1_000 + 10_000 + 4_000
ANNOUNCED, CONFIRMED = Close(AT, is_confirmed=False), Close(AT, is_confirmed=True)
NEWEST = PageRequest("c", limit=50, is_strong=True)


class Raised(World):
    """A conversation with four shards, and what may happen to it while it is closed."""

    def __init__(self):
        super().__init__()
        self.raise_to(4, START - 5_000)
        self.raiser = Raiser(
            journal=self.journal, registry=self.registry, telemetry=self.telemetry, clock=self.clock.as_clock()
        )

    def closer(self, times=TIMES, *, has_positions=True):
        return Closer(
            journal=self.journal,
            raiser=self.raiser,
            telemetry=self.telemetry,
            times=times,
            has_positions=has_positions,
        )

    @property
    def route(self):
        return self.table.routes["c"].route

    def raise_meanwhile(self):
        self.clock.now_ms += 1
        self.raiser.raise_route("c", [Generation(START, 8)], cause=Cause("raised"))

    def lose_the_date(self):
        self.table.date_ms = lambda: None

    def lose_the_response(self):
        """Store the announcement at once: the repetition finds that the route has grown."""

        def store_and_fail(_):
            self.table.on_call = lambda _: None
            self.table.routes["c"] = JournalEntry(self.route.union(Route.of([ANNOUNCED])), START + 1)
            raise StoreUnavailableError("no response")

        self.table.on_call = store_and_fail

    def pass_ms(self, ms):
        self.clock.now_ms += ms


@pytest.fixture
def world():
    return Raised()


def plan(closer):
    return closer.plan("c", cause=Cause("cool"))


def finish(closer, planned):
    return closer.confirm(closer.announce(planned))


def close(closer):
    return finish(closer, plan(closer))


def test_a_close_is_announced_and_confirmed(world):
    """Journal and registry have both steps, and readers' N comes down at its time."""
    closing = close(world.closer())
    assert (closing.step, closing.close, closing.refusal) == (CloseStep.CONFIRMED, CONFIRMED, None)
    assert world.route.closes == {ANNOUNCED, CONFIRMED}
    assert world.registry.routes["c"] == world.route
    assert (world.route.shard_count_at(AT - 1), world.route.shard_count_at(AT)) == (4, 0)
    assert (world.table.reasons["c"], world.telemetry.counts) == ("cool", {MetricName.CLOSES: 1})


@pytest.mark.parametrize(
    ("meanwhile", "step", "refusal", "closes"),
    [
        # By the `Date` of the announcement's own response: later ones may have given leases that do not know of it.
        (lambda world: world.pass_ms(2_000), CloseStep.CONFIRMED, None, {ANNOUNCED, CONFIRMED}),
        (lambda world: world.pass_ms(3_000), CloseStep.VOID, None, {ANNOUNCED}),
        (Raised.lose_the_date, CloseStep.VOID, None, {ANNOUNCED}),
        (Raised.lose_the_response, CloseStep.REFUSED, Refusal.GREW, {ANNOUNCED}),
        (Raised.raise_meanwhile, CloseStep.REFUSED, Refusal.GREW, set()),
    ],
    ids=["in time", "too late", "without a Date", "of unknown outcome", "after a raise"],
)
def test_an_announcement_is_confirmed_if_it_surely_came_in_time(world, meanwhile, step, refusal, closes):
    closer = world.closer()
    planned = plan(closer)
    meanwhile(world)
    closing = finish(closer, planned)
    assert (closing.step, closing.refusal) == (step, refusal)
    assert world.route.closes == closes
    assert world.telemetry.counts.get(MetricName.CLOSES, 0) == (step is CloseStep.CONFIRMED)


def test_nothing_is_announced_where_no_close_is_safe(world):
    """Without leases, items would be lost; positions may be no times; without a `Date`, the time is unknown."""
    closers = [world.closer(CloseTimes(0, 2_000)), world.closer(has_positions=False)]
    assert [close(closer).refusal for closer in closers] == [Refusal.NO_LEASES, Refusal.NO_POSITIONS]
    world.lose_the_date()
    assert close(world.closer()).refusal is Refusal.NO_DATE
    assert not world.route.closes


def test_a_raise_that_was_kept_away_adds_nothing(world):
    """Where another one came first, neither its beginning nor a close gets a generation."""
    close(world.closer())
    before = world.route
    world.pass_ms(1)
    raised = world.raiser.raise_route("c", [Generation(START, 8)], cause=Cause("raised"), pause_ms=1_000)
    assert (raised.is_made, world.route) == (False, before)


def test_a_late_confirmation_leaves_when_and_why_the_route_last_grew(world):
    """A raise came between both steps: its pause goes on, and operators see its reason. The announcement counts."""
    closer = world.closer()
    announced = closer.announce(plan(closer))
    world.pass_ms(3_600_000 - 1)
    world.raise_meanwhile()
    confirmed = closer.confirm(announced)
    assert (confirmed.step, confirmed.entry) == (CloseStep.CONFIRMED, world.table.routes["c"])
    assert (confirmed.entry.updated_at_ms, world.table.reasons["c"]) == (START + 3_600_000, "raised")


CLOSED_AT = START + 60_000
GENERATION = Generation(START - 1, 8)
OPEN = Route(frozenset({GENERATION}))
CLOSED = Route(OPEN.generations, frozenset({Close(CLOSED_AT, False), Close(CLOSED_AT, True)}))
SHARDS = {f"c#{shard}" for shard in range(8)}


class Closed(World):
    """A conversation with eight shards, a hundred messages, a close, and sixty messages behind it."""

    def __init__(self):
        super().__init__()
        self.show(CLOSED)
        writer = self.writer()
        for index in range(100):
            writer.write(new_message(str(index), message_id=message_id(START + index, index)))
        self.clock.now_ms = CLOSED_AT
        for index in range(60):
            self.clock.now_ms += 10
            writer.write(new_message(str(index)))
        self.table.calls.clear()

    def show(self, journal, redis=None):
        """Set what the journal says, and Redis."""
        self.table.routes["c"] = JournalEntry(journal, START)
        self.registry.routes["c"] = journal if redis is None else redis


class Mixed(Closed):
    """The newest 120 messages by turns on shards and, as by writers without a lease, on the base key."""

    def __init__(self):
        World.__init__(self)
        self.show(OPEN)
        writers = World(self.clock, self.table).writer(), self.writer()
        for index in range(120):
            writers[index % 2].write(new_message(str(index), message_id=message_id(START + index, index)))
        self.table.calls.clear()


def queried(world):
    return [call.removeprefix("query ") for call in world.table.calls if call.startswith("query")]


@pytest.mark.parametrize("redis", [CLOSED, OPEN], ids=["Redis knows", "Redis does not"])
def test_the_newest_page_behind_a_close_is_one_request(redis):
    """Journal included. A Redis that knows no close is repaired: only the first reader asks the shards."""
    world = Closed()
    world.show(CLOSED, redis)
    for _ in range(2):
        world.table.calls.clear()
        assert len(world.reader().read_page(NEWEST).messages) == 50
    assert world.table.calls == ["query c"]


def test_a_poll_from_before_the_close_goes_on_behind_it():
    """Whoever polled while the conversation was spread misses nothing of what comes behind the close."""
    world = Closed()
    world.show(OPEN)
    reader, oldest_first = world.reader(), PageRequest("c", newest_first=False, limit=100, is_strong=True)
    page = reader.read_page(oldest_first)
    world.show(CLOSED)
    rest = reader.read_page(replace(oldest_first, cursor=page.next_cursor))
    assert [message.body for message in rest.messages] == [str(index) for index in range(60)]


@pytest.mark.parametrize(
    ("journal", "redis", "is_ahead"),
    [
        (OPEN, Route(OPEN.generations, frozenset({Close(START, True)})), True),
        (Route(OPEN.generations, frozenset({Close(START, False)})), Route(), False),
    ],
    ids=["a close that only Redis shows", "an announcement, which may have come too late for some writer"],
)
def test_only_a_close_that_the_journal_confirms_is_obeyed(journal, redis, is_ahead):
    """The base key alone could fill the page; the shards are asked in the second round."""
    world = Mixed()
    world.show(journal, redis)
    reader = world.reader()
    page = reader.read_page(NEWEST)
    assert [int(message.body) for message in page.messages] == [*range(119, 69, -1)]
    assert (queried(world)[0], set(queried(world)[1:9])) == ("c", SHARDS)
    assert (MetricName.REGISTRY_AHEAD_OF_JOURNAL in world.telemetry.counts) == is_ahead
    # Also for a caller that reads no item.
    assert reader.gatherer.confirm("c") == journal
