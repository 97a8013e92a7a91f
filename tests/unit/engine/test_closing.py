"""The two steps of a close, raises beside it, and reads of a closed conversation."""

from functools import partial

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
        common = {"journal": self.journal, "telemetry": self.telemetry}
        self.raiser = Raiser(**common, registry=self.registry, clock=self.clock.as_clock())
        self.open_closer = partial(Closer, **common, raiser=self.raiser)
        self.closer = self.open_closer(times=TIMES)

    @property
    def route(self):
        return self.table.routes["c"].route

    def close(self, meanwhile=lambda _: None, *, closer=None):
        closer = closer or self.closer
        planned = closer.plan("c", cause=Cause("cool"))
        meanwhile(self)
        return closer.confirm(closer.announce(planned))

    def raise_to_eight(self, pause_ms=0):
        self.clock.now_ms += 1
        return self.raiser.raise_route("c", [Generation(START, 8)], cause=Cause("raised"), pause_ms=pause_ms)

    def lose_the_date(self):
        self.table.date_ms = lambda: None

    def lose_the_response(self):
        """Store the announcement at once: the repetition finds that the route has grown."""

        def store_and_fail(_):
            self.table.on_call = lambda _: None
            self.table.routes["c"] = JournalEntry(self.route.union(Route.of([ANNOUNCED])), START + 1)
            raise StoreUnavailableError("no response")

        self.table.on_call = store_and_fail


@pytest.fixture
def world():
    return Raised()


def passing(ms):
    def act(world):
        world.clock.now_ms += ms

    return act


@pytest.mark.parametrize(
    ("meanwhile", "step", "refusal", "closes"),
    [
        # By the `Date` of the announcement's own response: later ones may have given leases that do not know of it.
        (passing(2_000), CloseStep.CONFIRMED, None, {ANNOUNCED, CONFIRMED}),
        (passing(3_000), CloseStep.VOID, None, {ANNOUNCED}),
        (Raised.lose_the_date, CloseStep.VOID, None, {ANNOUNCED}),
        (Raised.lose_the_response, CloseStep.REFUSED, Refusal.GREW, {ANNOUNCED}),
        (Raised.raise_to_eight, CloseStep.REFUSED, Refusal.GREW, set()),
    ],
    ids=["in time", "too late", "without a Date", "of unknown outcome", "after a raise"],
)
def test_an_announcement_is_confirmed_if_it_surely_came_in_time(world, meanwhile, step, refusal, closes):
    closing = world.close(meanwhile)
    assert (closing.step, closing.refusal, world.route.closes) == (step, refusal, closes)
    assert world.telemetry.counts.get(MetricName.CLOSES, 0) == (step is CloseStep.CONFIRMED)


def test_nothing_is_announced_where_no_close_is_safe(world):
    """Without leases, items would be lost; positions may be no times; without a `Date`, the time is unknown."""
    closers = [world.open_closer(times=CloseTimes(0, 2_000)), world.open_closer(times=TIMES, has_positions=False)]
    assert [world.close(closer=each).refusal for each in closers] == [Refusal.NO_LEASES, Refusal.NO_POSITIONS]
    world.lose_the_date()
    assert world.close().refusal is Refusal.NO_DATE
    assert not world.route.closes


def test_a_raise_that_was_kept_away_adds_nothing(world):
    """Where another one came first, neither its beginning nor a close gets a generation."""
    world.close()
    before = world.route
    assert (world.raise_to_eight(pause_ms=1_000).is_made, world.route) == (False, before)


def test_a_late_confirmation_leaves_when_and_why_the_route_last_grew(world):
    """A raise came between both steps: its pause goes on, and operators see its reason. The announcement counts."""
    announced = world.closer.announce(world.closer.plan("c", cause=Cause("cool")))
    world.clock.now_ms += 3_600_000 - 1
    world.raise_to_eight()
    confirmed = world.closer.confirm(announced)
    assert (confirmed.step, confirmed.entry) == (CloseStep.CONFIRMED, world.table.routes["c"])
    assert (confirmed.entry.updated_at_ms, world.table.reasons["c"]) == (START + 3_600_000, "raised")


CLOSED_AT = START + 60_000
OPEN = Route(frozenset({Generation(START - 1, 8)}))
CLOSED = Route(OPEN.generations, frozenset({Close(CLOSED_AT, False), Close(CLOSED_AT, True)}))


class Spread(World):
    """A conversation with eight shards. The journal says what its route is, and so does Redis."""

    def show(self, journal, redis=None):
        self.table.routes["c"] = JournalEntry(journal, START)
        self.registry.routes["c"] = journal if redis is None else redis

    def write(self, count, writers):
        """Write messages a millisecond apart, by writers in turn; leave nothing but what is asked from now on."""
        for index in range(count):
            identifier = message_id(self.clock.now_ms + index, index)
            writers[index % len(writers)].write(new_message(str(index), message_id=identifier))
        self.table.calls.clear()


@pytest.mark.parametrize(("journal", "redis"), [(CLOSED, CLOSED), (CLOSED, OPEN), (Route(), Route())])
def test_the_newest_page_at_a_base_key_is_one_request(journal, redis):
    """Behind a close, or never raised; journal included. A Redis without the close is repaired by the first reader."""
    world = Spread()
    world.show(journal, redis)
    world.clock.now_ms = CLOSED_AT
    world.write(60, [world.writer()])
    for _ in range(2):
        world.table.calls.clear()
        assert len(world.reader().read_page(NEWEST).messages) == 50
    assert world.table.calls == ["query c"]


@pytest.mark.parametrize(
    ("journal", "redis", "is_ahead"),
    [
        (OPEN, Route(OPEN.generations, frozenset({Close(START, True)})), True),
        (Route(OPEN.generations, frozenset({Close(START, False)})), Route(), False),
    ],
    ids=["a close that only Redis shows", "an announcement, which may have come too late for some writer"],
)
def test_only_a_close_that_the_journal_confirms_is_obeyed(journal, redis, is_ahead):
    """The base key alone, where writers without a lease write, could fill the page; the shards are asked next."""
    world = Spread()
    world.show(OPEN)
    world.write(120, [World(world.clock, world.table).writer(), world.writer()])
    world.show(journal, redis)
    reader = world.reader()
    page = reader.read_page(NEWEST)
    assert [int(message.body) for message in page.messages] == [*range(119, 69, -1)]
    assert world.table.calls[0] == "query c"
    assert set(world.table.calls[1:9]) == {f"query c#{shard}" for shard in range(8)}
    assert (MetricName.REGISTRY_AHEAD_OF_JOURNAL in world.telemetry.counts) == is_ahead
    # Also for a caller that reads no item.
    assert reader.gatherer.confirm("c") == journal
