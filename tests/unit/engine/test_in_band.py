"""In band: what counts writes and raises keys, what knows routes without Redis, what closes keys that have cooled.

Heat and cooling come from many processes over minutes: two fleets play them, and several tests let one part fail.
"""

from random import Random

import pytest

from hotpartition.core.errors import StoreRefusedError, StoreUnavailableError, ThrottledError
from hotpartition.core.items import ItemKey
from hotpartition.core.keys import KeyForm
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import JournalEntry
from hotpartition.core.route import EMPTY_ROUTE
from hotpartition.dynamodb.table import LOAD_PREFIX
from hotpartition.engine.in_band import MARKED_MS
from hotpartition.engine.journal_routes import REFRESH_SECONDS
from hotpartition.engine.load_counting import Offer
from hotpartition.runtime.build import Ends, build_engine
from hotpartition.runtime.settings import Settings
from support.builders import route_of
from support.fakes import KEY_RANGE_THROTTLE, FakeClock, FakeTelemetry
from support.world import Table
from tools.scenarios.in_band import count_false_raises

from .conftest import failing

AWAY = StoreUnavailableError("no response")
BUCKET_MS = 600_000
START_MS = 1_700_000_000_000 // BUCKET_MS * BUCKET_MS
LOAD_OF_ROOM = f"{LOAD_PREFIX}0#room"


class Fleet:
    """Processes on one table."""

    def __init__(self):
        self.clock, self.table, self.telemetry = FakeClock(START_MS), Table(), FakeTelemetry()
        self.journal, self.loads = self.table.journal, self.table.loads

    def process(self, seed=1, **settings):
        """Build what counts a process's writes."""
        clock = self.clock.as_clock(Random(seed).random)
        ends = Ends(telemetry=self.telemetry, clock=clock, journal=self.journal, loads=self.loads)
        settings = Settings.defaults("in_band()", close_after_seconds=BUCKET_MS / 1_000, **settings)
        return build_engine(ends, settings, form=KeyForm()).writer.counting

    def offer(self, counting, wcu, seconds, *, error=KEY_RANGE_THROTTLE, shard_count=0, pause_ms=5):
        """Offer a load, all of which is refused by `error`, if there is one."""
        for _ in range(round(seconds * 1_000 / pause_ms)):
            now_ms = self.clock.now_ms
            offer = Offer(ItemKey("room", "k", now_ms, "k"), wcu * pause_ms / 1_000, shard_count)
            report = counting.offered(offer, now_ms)
            if error is not None:
                counting.refused(offer, now_ms, report, error)
            self.clock.now_ms += pause_ms

    @property
    def raises(self):
        return self.telemetry.counts.get(MetricName.RAISES, 0)

    @property
    def samples(self):
        """How often load items were added to."""
        return sum(call.startswith(f"update {LOAD_PREFIX}") for call in self.table.calls)

    @property
    def shard_count(self):
        return self.table.routes["room"].route.max_shard_count


@pytest.fixture
def fleet():
    return Fleet()


class TestCounting:
    def test_what_is_not_refused_is_neither_sampled_nor_looked_up(self, fleet):
        """Nor what is refused for another reason."""
        for error in (None, ThrottledError(["TableWriteAccountLimitExceeded"]), AWAY):
            counting = fleet.process()
            fleet.offer(counting, 5_000, 2, error=error)
            assert counting.routes.for_write("room") is EMPTY_ROUTE
        assert fleet.table.calls == []

    def test_writes_to_shards_are_counted_for_cooling(self, fleet):
        """Also those of a key that is not refused."""
        fleet.offer(fleet.process(), 2_000, 1, error=None, shard_count=8)
        assert sum(fleet.loads.buckets("room").values()) == pytest.approx(2_000, abs=100)

    @pytest.mark.parametrize("is_raising", [True, False])
    def test_a_hot_key_is_raised_once(self, fleet, is_raising):
        """Raises can be switched off: the load is counted all the same, for operators."""
        fleet.offer(fleet.process(is_raising=is_raising), 4_000, 2)
        counts = [entry.route.max_shard_count for entry in fleet.table.routes.values()]
        assert (fleet.raises, len(counts)) == (is_raising, is_raising)
        assert all(12 <= count <= 14 for count in counts)
        assert is_raising or sum(fleet.loads.get("room").values()) > 6_000

    @pytest.mark.parametrize("shard_count", [5, 13, 50])
    def test_a_load_that_fits_its_shards_has_as_many_samples_whatever_their_number(self, fleet, shard_count):
        counting, wcu = fleet.process(is_closing=False), 330 * shard_count
        fleet.offer(counting, wcu, 0.005, shard_count=shard_count)
        samples = fleet.samples
        fleet.offer(counting, wcu, 2, error=None, shard_count=shard_count)
        assert fleet.samples - samples == pytest.approx(2 * 330 / 5, abs=1)

    @pytest.mark.parametrize(
        ("places", "failure", "raises"),
        [
            ([0], KEY_RANGE_THROTTLE, 1),
            ([0, 1], KEY_RANGE_THROTTLE, 1),
            ([0, 1, 2], KEY_RANGE_THROTTLE, 0),
            ([0, 1, 2], ThrottledError([]), 0),
            ([0], AWAY, 0),
        ],
    )
    def test_a_load_item_on_a_hot_partition_is_passed_over(self, fleet, places, failure, raises):
        """By all processes, so that their counts meet. Samples that cannot be added are dropped."""
        failed = tuple(f"update {LOAD_PREFIX}{place}#room" for place in places)
        fleet.table.on_call = failing(failed, always=failure)
        first, second = fleet.process(), fleet.process()
        for _ in range(20):
            fleet.offer(first, 2_000, 0.05)
            fleet.offer(second, 2_000, 0.05)
        assert fleet.raises == raises
        assert (fleet.telemetry.counts.get(MetricName.REPORTS_DROPPED, 0) > 0) == (raises == 0)

    def test_a_raise_that_the_journal_refuses_is_tried_again(self, fleet):
        """Until it is there, it is not used: no reader would look at its shards."""
        counting = fleet.process()
        fleet.table.on_call = failing("update room", always=AWAY)
        fleet.offer(counting, 4_000, 2)
        assert "update room" in fleet.table.calls
        assert counting.routes.for_write("room") == EMPTY_ROUTE
        fleet.table.on_call = failing("update room", *[AWAY] * 3)
        fleet.offer(counting, 4_000, 1)
        assert fleet.raises == 1

    def test_a_mark_ends_and_the_load_item_does_not_grow(self, fleet):
        counting = fleet.process()
        fleet.offer(counting, 900, 8)
        samples = fleet.samples
        assert len(fleet.loads.get("room")) <= 20
        fleet.clock.now_ms += MARKED_MS
        fleet.offer(counting, 900, 1, error=None)
        assert fleet.samples == samples

    def test_a_route_that_a_read_showed_is_not_doubled_too_soon(self, fleet):
        """A read tells no time of the raise: the journal is asked for it before shards are doubled."""
        fleet.offer(fleet.process(), 4_000, 1)
        second, count = fleet.process(), fleet.shard_count
        second.routes.learn("room", JournalEntry(fleet.table.routes["room"].route))
        fleet.offer(second, 4_000, 2.5, shard_count=count)
        assert fleet.shard_count == count

    @pytest.mark.parametrize(
        ("pause_ms", "error", "raises"),
        [
            (66, KEY_RANGE_THROTTLE, 1),
            (450, KEY_RANGE_THROTTLE, 0),  # few refusals
            (66, ThrottledError(["TransactionConflict", "ThrottlingError"]), 0),  # by no limit with a name
        ],
    )
    def test_a_base_key_that_refuses_everything_is_raised_though_nobody_can_offer_much(
        self, fleet, pause_ms, error, raises
    ):
        """Once in eight seconds, for two shards."""
        fleet.offer(fleet.process(), 15, 8, error=error, pause_ms=pause_ms)
        assert fleet.raises == raises
        assert [entry.route.max_shard_count for entry in fleet.table.routes.values()] == [2] * raises

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", [1, 2])
    def test_thin_processes_do_not_make_a_quiet_key_look_hot(self, seed):
        """300 of them, each with a write a second, of which a neighbour's heat has a third refused."""
        assert count_false_raises(seed, seconds=30.0) == 0
        assert count_false_raises(seed, seconds=10.0, wcu=2_000.0) > 0


class TestRoutes:
    """What knows the routes where there is no Redis."""

    def test_look_ups_pause_longer_and_longer_while_they_show_nothing(self, fleet):
        routes = fleet.process().routes
        for _ in range(10_000):
            fleet.clock.now_ms += 1
            routes.refused("room")
        assert 12 <= len(fleet.table.calls) <= 14

    def test_what_is_kept_of_look_ups_and_raises_is_bounded(self, fleet, monkeypatch):
        monkeypatch.setattr("hotpartition.engine.journal_routes.MAX_UNCONFIRMED", 3)
        routes, names = fleet.process().routes, [f"room-{number}" for number in range(10)]
        for name in names:
            fleet.table.routes[name] = JournalEntry(route_of((8, 0)), START_MS)
            assert routes.refused(name).members
        assert [*routes._raised_at_ms] == names[-3:]
        fleet.table.routes.clear()
        for name in names:
            routes.refused(f"quiet {name}")
        assert [*routes._lookups] == [f"quiet {name}" for name in names[-3:]]

    def test_a_journal_that_is_away_is_asked_again_a_moment_later(self, fleet):
        routes, known = fleet.process().routes, route_of((8, 0))
        fleet.table.routes["room"] = JournalEntry(known, START_MS)
        assert routes.refused("room") == known
        fleet.table.failures = [AWAY]
        for pass_ms, calls in ((round(REFRESH_SECONDS * 1_000), 2), (10, 2), (290, 3)):
            fleet.clock.now_ms += pass_ms
            assert (routes.for_write("room"), len(fleet.table.calls)) == (known, calls)


class CoolingFleet(Fleet):
    """Processes that may close, two buckets after the raise of their table's one key."""

    def __init__(self):
        super().__init__()
        self.table.date_ms = lambda: self.clock.now_ms // 1000 * 1000
        self.table.routes["room"] = JournalEntry(route_of((8, START_MS - 60_000)), START_MS)
        self.processes = [self.process(seed).cooling for seed in range(20)]
        self.pass_buckets(2)

    def pass_buckets(self, count):
        self.clock.now_ms += round(count * BUCKET_MS)

    def write(self, wcu_per_second, seconds, *, by=slice(1), position=None):
        """Write items of fifty WCU, by some processes in turn."""
        processes = self.processes[by]
        for number in range(round(wcu_per_second * seconds / 50)):
            item = ItemKey("room", "k", position or self.clock.now_ms, "k")
            processes[number % len(processes)].count(item, 50.0, self.clock.now_ms)
            if (number + 1) % round(wcu_per_second / 50) == 0:
                self.clock.now_ms += 1_000

    def renew(self, *, position=None, seen=None):
        """Let the first process renew its lease, by what it has seen; say whether the key is closed then."""
        seen = seen or self.journal.get("room", is_strong=True)
        self.processes[0].renewed(ItemKey("room", "k", position or self.clock.now_ms, "k"), seen)
        route = self.table.routes["room"].route
        assert bool(route.closes) == (not route.shard_count_at(None))  # no announcement is left alone
        return bool(route.closes)


class TestCooling:
    """When the process that renews a lease closes."""

    @pytest.fixture
    def fleet(self):
        return CoolingFleet()

    def test_a_hundredth_of_the_writes_counts_all(self, fleet):
        """Whatever is spread over how many processes: the sum is right within some per cent."""
        fleet.write(2_000, 60, by=slice(20))
        assert fleet.samples <= 1_300
        assert sum(fleet.loads.buckets("room").values()) == pytest.approx(120_000, rel=0.05)

    @pytest.mark.parametrize(
        ("begins_at", "wcu", "seconds", "is_closed"),
        [
            (1.999, 0, 0, False),  # what was raised a moment ago has no load to show
            (2.0, 0, 0, True),
            (1.0, 400, 1_100, True),  # less than half of what one key serves
            (1.0, 600, 1_100, False),
            (1.0, 900, 600, False),  # the whole bucket before was warm, the present one has begun
            (2.0, 900, 60, False),  # the whole bucket before was quiet, the present one is not
        ],
    )
    def test_a_key_is_closed_by_a_whole_bucket_since_its_raise_and_the_present_one(
        self, fleet, begins_at, wcu, seconds, is_closed
    ):
        """Loads begin `begins_at` buckets after the raise."""
        fleet.pass_buckets(begins_at - 2)
        fleet.write(wcu, seconds)
        assert fleet.renew() is is_closed

    def test_what_another_process_raises_meanwhile_is_not_closed(self, fleet):
        """Between the look for the lease and the close: the load that was judged knows nothing of it."""
        seen = fleet.journal.get("room", is_strong=True)
        fleet.table.routes["room"] = JournalEntry(route_of((8, START_MS), (16, START_MS)), fleet.clock.now_ms)
        assert not fleet.renew(seen=seen)
        assert not fleet.renew()
        fleet.pass_buckets(2)
        assert fleet.renew()

    def test_what_could_not_be_counted_or_looked_up_is_not_closed(self, fleet):
        """A load that is not counted is not known to be low. No failure reaches the write."""
        for failure in (KEY_RANGE_THROTTLE, StoreRefusedError("AccessDeniedException", "a right is missing")):
            fleet.table.on_call = failing(("update " + LOAD_OF_ROOM, "get " + LOAD_OF_ROOM), always=failure)
            fleet.write(900, 10)
            assert fleet.telemetry.counts["ReportsDropped"] > 50
            assert not fleet.renew()
        fleet.table.on_call = lambda _: None
        for is_closed in (False, True):
            fleet.pass_buckets(1)
            assert fleet.renew() is is_closed

    @pytest.mark.parametrize("place", [f"get {LOAD_OF_ROOM}", "get room"])
    def test_a_process_that_stood_still_closes_nothing(self, fleet, place):
        """For three buckets between its look at the journal and the close, while others wrote: they removed the old."""
        seen, left = fleet.journal.get("room", is_strong=True), [3]

        def stand_still(call):
            for _ in range(left.pop() if call == place and left else 0):
                fleet.write(1_500, 1, by=slice(1, 4))
                fleet.pass_buckets(1)

        fleet.table.on_call = stand_still
        assert not fleet.renew(seen=seen)
        assert left == []
        fleet.write(1_500, 60, by=slice(4))
        assert not fleet.renew()

    def test_positions_that_are_no_times_and_closed_keys_are_left_alone(self, fleet):
        """Nothing is asked for them."""
        fleet.write(900, 10, position=5)
        assert fleet.samples == 0
        assert not fleet.renew(position=5)
        assert fleet.renew()
        before = fleet.table.routes["room"]
        fleet.pass_buckets(4)
        assert fleet.renew()
        assert fleet.table.routes["room"] == before

    def test_a_load_item_keeps_three_buckets(self, fleet):
        """However often the key was warm; the others go with the next samples."""
        for _ in range(20):
            fleet.write(900, 2)
            fleet.pass_buckets(1)
        present = fleet.clock.now_ms // BUCKET_MS
        assert sorted(fleet.loads.buckets("room")) == [present - back for back in (3, 2, 1)]
