"""What counts writes in band, on load items in memory."""

from random import Random

import pytest

from hotpartition.core.detector import Thresholds
from hotpartition.core.errors import StoreUnavailableError, ThrottledError
from hotpartition.core.items import ItemKey
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import JournalEntry
from hotpartition.core.route import EMPTY_ROUTE
from hotpartition.core.times import StoreClock
from hotpartition.engine.in_band import MARKED_MS, InBandCounting
from hotpartition.engine.journal_routes import REFRESH_SECONDS, JournalRoutes
from hotpartition.engine.load_counting import Offer
from hotpartition.engine.raising import Raiser
from support.fakes import FakeClock, FakeTelemetry
from support.world import Table
from tools.scenarios.in_band import count_false_raises

KEY_RANGE = ThrottledError(["TableWriteKeyRangeThroughputExceeded"])
LIMITS = Thresholds(hot_at_once_wcu=1_000, hot_sustained_wcu=1_000, target_shard_wcu=330, max_shard_count=128)


class Loads:
    """Load items of a fleet."""

    def __init__(self):
        self.places = [{}, {}, {}]
        self.hot_places = set()
        self.failure = None
        self.calls = 0

    def add(self, collection, place, cell, wcu, *, stale=()):
        self.calls += 1
        if place in self.hot_places:
            raise KEY_RANGE
        if self.failure:
            raise self.failure
        load = self.places[place]
        for old in stale:
            load.pop(old, None)
        load[cell] = load.get(cell, 0.0) + wcu
        return dict(load)


class Fleet:
    """Processes on one table."""

    def __init__(self):
        self.clock, self.table, self.loads, self.telemetry = FakeClock(), Table(), Loads(), FakeTelemetry()

    def process(self, *, is_raising=True):
        random = Random(1).random
        clock = self.clock.as_clock(random)
        journal = self.table.journal
        routes = JournalRoutes(journal=journal, telemetry=self.telemetry, now_ms=clock.now_ms, random=random)
        raiser = Raiser(journal=journal, registry=None, telemetry=self.telemetry, clock=clock)
        return InBandCounting(
            routes=routes,
            journal=journal,
            loads=self.loads,
            raiser=raiser,
            store_clock=StoreClock(),
            telemetry=self.telemetry,
            clock=clock,
            thresholds=LIMITS,
            is_raising=is_raising,
        )

    def offer(self, counting, wcu, seconds, *, error=KEY_RANGE, shard_count=0):
        """Offer a load, all of which is refused at first."""
        for _ in range(round(seconds * 200)):
            now_ms = self.clock.now_ms
            key = ItemKey("room", "k", now_ms, "k")
            offer = Offer(key, wcu / 200, shard_count)
            report = counting.offered(offer, now_ms)
            if error is not None:
                counting.refused(offer, now_ms, report, error)
            self.clock.now_ms += 5

    @property
    def raises(self):
        return self.telemetry.counts.get(MetricName.RAISES, 0)


@pytest.fixture
def fleet():
    return Fleet()


def test_what_is_not_refused_is_neither_sampled_nor_looked_up(fleet):
    fleet.offer(fleet.process(), 5_000, 2, error=None)
    fleet.offer(fleet.process(), 5_000, 2, error=ThrottledError(["TableWriteAccountLimitExceeded"]))
    fleet.offer(fleet.process(), 5_000, 2, error=StoreUnavailableError("no response"))
    assert (fleet.loads.calls, fleet.table.calls) == (0, [])


def test_a_hot_key_is_raised_once(fleet):
    fleet.offer(fleet.process(), 4_000, 2)
    assert fleet.raises == 1
    assert 12 <= fleet.table.routes["room"].route.max_shard_count <= 14


def test_raises_can_be_switched_off(fleet):
    """The load is counted all the same, for operators."""
    fleet.offer(fleet.process(is_raising=False), 4_000, 2)
    assert (fleet.raises, fleet.table.routes) == (0, {})
    assert sum(fleet.loads.places[0].values()) > 6_000


@pytest.mark.parametrize("hot", [{0}, {0, 1}], ids=["the first", "the first two"])
def test_a_load_item_on_a_hot_partition_is_passed_over(fleet, hot):
    """By all processes, so that their counts meet."""
    fleet.loads.hot_places = hot
    first, second = fleet.process(), fleet.process()
    for _ in range(20):
        fleet.offer(first, 2_000, 0.05)
        fleet.offer(second, 2_000, 0.05)
    assert fleet.raises == 1
    assert not fleet.loads.places[0]


@pytest.mark.parametrize("failure", [StoreUnavailableError("no response"), ThrottledError([])])
def test_samples_that_cannot_be_added_are_dropped(fleet, failure):
    fleet.loads.failure = failure
    fleet.offer(fleet.process(), 4_000, 1)
    assert fleet.telemetry.counts[MetricName.REPORTS_DROPPED] > 0
    assert fleet.raises == 0


def test_a_raise_that_the_journal_refuses_is_tried_again(fleet):
    counting = fleet.process()
    fleet.table.failures = [None, *[StoreUnavailableError("no response")] * 3]
    fleet.offer(counting, 4_000, 2)
    assert fleet.raises == 1


def test_a_raise_that_the_journal_refused_is_not_used(fleet):
    """No reader would look at its shards."""

    class Refusing:
        tries = 0

        def raise_route(self, *_, **__):
            self.tries += 1
            raise StoreUnavailableError("no response")

    counting = fleet.process()
    counting._raiser = Refusing()
    fleet.offer(counting, 4_000, 2)
    assert counting._raiser.tries > 0
    assert counting._routes.for_write("room") == EMPTY_ROUTE


def test_a_mark_ends_and_the_load_item_does_not_grow(fleet):
    counting = fleet.process()
    fleet.offer(counting, 900, 8)
    calls = fleet.loads.calls
    assert len(fleet.loads.places[0]) <= 20
    fleet.clock.now_ms += MARKED_MS
    fleet.offer(counting, 900, 1, error=None)
    assert fleet.loads.calls == calls


def test_a_route_that_a_read_showed_is_not_doubled_too_soon(fleet):
    """A read tells no time of the raise: the journal is asked for it before shards are doubled."""
    fleet.offer(fleet.process(), 4_000, 1)
    second = fleet.process()
    count = fleet.table.routes["room"].route.max_shard_count
    second._routes.learn("room", JournalEntry(fleet.table.routes["room"].route))
    fleet.offer(second, 4_000, 2.5, shard_count=count)
    assert fleet.table.routes["room"].route.max_shard_count == count


@pytest.mark.parametrize(
    ("pause_ms", "served_every", "error", "raises"),
    [
        (66, 0, KEY_RANGE, 1),
        (66, 40, KEY_RANGE, 0),
        (450, 0, KEY_RANGE, 0),
        (66, 0, ThrottledError(["TransactionConflict", "ThrottlingError"]), 0),
    ],
    ids=["all refused", "one in forty served", "few", "by no limit with a name"],
)
def test_a_base_key_that_refuses_everything_is_raised_though_nobody_can_offer_much(
    fleet, pause_ms, served_every, error, raises
):
    """Eight seconds; once is enough, for two shards."""
    counting = fleet.process()
    for number in range(1, 8_000 // pause_ms):
        now_ms = fleet.clock.now_ms
        offer = Offer(ItemKey("room", "k", now_ms, "k"), 1, counting._routes.for_write("room").shard_count_at(now_ms))
        report = counting.offered(offer, now_ms)
        if offer.shard_count or (served_every and number % served_every == 0):
            counting.served("room")
        else:
            counting.refused(offer, now_ms, report, error)
        fleet.clock.now_ms += pause_ms
    assert fleet.raises == raises
    assert [entry.route.max_shard_count for entry in fleet.table.routes.values()] == [2] * raises


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_thin_processes_do_not_make_a_quiet_key_look_hot(seed):
    """300 of them, each with a write a second, of which a neighbour's heat has a third refused; samples get rarer."""
    assert count_false_raises(seed, seconds=30.0) == 0
    assert count_false_raises(seed, seconds=10.0, wcu=2_000.0) > 0


class TestRoutes:
    """What knows the routes where there is no Redis."""

    @pytest.fixture
    def routes(self, fleet):
        journal = fleet.table.journal
        return JournalRoutes(
            journal=journal, telemetry=fleet.telemetry, now_ms=lambda: fleet.clock.now_ms, random=lambda: 0.0
        )

    def test_a_key_that_was_never_refused_is_never_asked_for(self, fleet, routes):
        for _ in range(200):
            fleet.clock.now_ms += 1_000
            assert routes.for_write("room") is EMPTY_ROUTE
        assert fleet.table.calls == []

    def test_look_ups_pause_longer_and_longer_while_they_show_nothing(self, fleet, routes):
        for _ in range(10_000):
            fleet.clock.now_ms += 1
            routes.refused("room")
        assert 12 <= len(fleet.table.calls) <= 14

    def test_a_journal_that_is_away_is_asked_again_a_moment_later(self, fleet, routes):
        fleet.offer(fleet.process(), 4_000, 2)
        route = routes.refused("room")
        assert route.max_shard_count > 0
        fleet.clock.now_ms += round(REFRESH_SECONDS * 1_000)
        fleet.table.failures = [StoreUnavailableError("no response")]
        assert routes.for_write("room") == route
        calls = len(fleet.table.calls)
        fleet.clock.now_ms += 10
        assert routes.for_write("room") == route
        assert len(fleet.table.calls) == calls
        fleet.clock.now_ms += 290
        routes.for_write("room")
        assert len(fleet.table.calls) == calls + 1
