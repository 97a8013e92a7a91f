"""Closing in band: what is counted, and when the process that renews a lease closes."""

from collections import defaultdict
from dataclasses import replace
from random import Random

import pytest

from hotpartition.core.closes import CloseTimes
from hotpartition.core.errors import StoreRefusedError, ThrottledError
from hotpartition.core.items import ItemKey
from hotpartition.core.ports import JournalEntry
from hotpartition.core.times import StoreClock
from hotpartition.engine.closing import Closer
from hotpartition.engine.in_band_cooling import KEPT_BUCKETS, InBandCooling
from hotpartition.engine.raising import Raiser
from support.builders import route_of
from support.fakes import FakeClock, FakeTelemetry
from support.world import Table

BUCKET_MS = 600_000
START_MS = 1_700_000_000_000 // BUCKET_MS * BUCKET_MS
TIMES = CloseTimes(lease_ms=600_000, margin_ms=60_000, pause_ms=3_600_000)
KEY_WCU = 1_000.0


class Loads:
    """One load item; it can refuse."""

    def __init__(self):
        self.kept = defaultdict(float)
        self.samples = 0
        self.failure = None

    def add_to_bucket(self, collection, bucket, wcu, *, stale=()):
        if self.failure:
            raise self.failure
        self.samples += 1
        for old in stale:
            self.kept.pop(old, None)
        self.kept[bucket] += wcu
        return dict(self.kept)

    def buckets(self, collection):
        if self.failure:
            raise self.failure
        return dict(self.kept)


class Fleet:
    """Processes on one table, which has one raised key."""

    def __init__(self):
        self.clock, self.table, self.loads, self.telemetry = FakeClock(START_MS), Table(), Loads(), FakeTelemetry()
        self.table.date_ms = lambda: self.clock.now_ms // 1000 * 1000
        self.table.routes["room"] = JournalEntry(route_of((8, START_MS - 60_000)), START_MS)
        self.journal = self.table.journal

    def process(self, seed=1):
        clock = self.clock.as_clock(Random(seed).random)
        raiser = Raiser(journal=self.journal, registry=None, telemetry=self.telemetry, clock=clock, budget_ms=200)
        closer = Closer(journal=self.journal, raiser=raiser, telemetry=self.telemetry, times=TIMES)
        return InBandCooling(
            loads=self.loads,
            closer=closer,
            store_clock=StoreClock(),
            telemetry=self.telemetry,
            clock=clock,
            key_wcu=KEY_WCU,
            close_after_ms=BUCKET_MS,
        )

    def offer(self, processes, wcu_per_second, seconds, position=None):
        for _ in range(seconds):
            for process in processes:
                for _ in range(round(wcu_per_second / len(processes))):
                    process.count(ItemKey("room", "k", position or self.clock.now_ms, "k"), 1.0, self.clock.now_ms)
            self.clock.now_ms += 1_000

    def renew(self, process, position=None):
        """Let a process renew its lease; say whether the key is closed then."""
        entry = self.journal.get("room", is_strong=True)
        process.renewed(ItemKey("room", "k", position or self.clock.now_ms, "k"), entry)
        return not self.table.routes["room"].route.shard_count_at(None)


@pytest.fixture
def fleet():
    return Fleet()


def test_a_hundredth_of_the_writes_counts_all(fleet):
    """Whatever is spread over how many processes: the sum is right within some per cent."""
    fleet.offer([fleet.process(seed) for seed in range(20)], 2_000, 60)
    assert fleet.loads.samples <= 1_300
    assert sum(fleet.loads.kept.values()) == pytest.approx(120_000, rel=0.05)


@pytest.mark.parametrize(("wcu", "is_closed"), [(0, True), (400, True), (600, False)])
def test_a_key_with_less_than_half_of_what_one_serves_is_closed(fleet, wcu, is_closed):
    """Judged by a whole bucket since the raise."""
    process = fleet.process()
    fleet.clock.now_ms += BUCKET_MS
    fleet.offer([process], wcu, 2 * BUCKET_MS // 1000 - 100)
    assert fleet.renew(process) is is_closed


def test_a_key_is_not_judged_before_a_whole_bucket_was_counted(fleet):
    """What was raised a moment ago has no load to show."""
    process = fleet.process()
    fleet.clock.now_ms += 2 * BUCKET_MS - 1_000
    assert not fleet.renew(process)
    fleet.clock.now_ms += 1_000
    assert fleet.renew(process)


def test_what_another_process_raises_meanwhile_is_not_closed(fleet):
    """Between the look for the lease and the close: the load that was judged knows nothing of it."""
    process = fleet.process()
    fleet.clock.now_ms += 2 * BUCKET_MS
    seen = fleet.journal.get("room", is_strong=True)
    fleet.table.routes["room"] = JournalEntry(route_of((8, START_MS), (16, START_MS)), fleet.clock.now_ms)
    process.renewed(ItemKey("room", "k", fleet.clock.now_ms, "k"), seen)
    assert not fleet.table.routes["room"].route.closes
    assert fleet.renew(process) is False
    fleet.clock.now_ms += 2 * BUCKET_MS
    assert fleet.renew(process)


def test_a_load_that_has_begun_keeps_it_open(fleet):
    """The whole bucket before was quiet; the present one is not."""
    process = fleet.process()
    fleet.clock.now_ms += 2 * BUCKET_MS
    fleet.offer([process], 900, 60)
    assert not fleet.renew(process)


def test_what_could_not_be_counted_or_looked_up_is_not_closed(fleet):
    """A load that is not counted is not known to be low. No failure reaches the write."""
    process = fleet.process()
    fleet.clock.now_ms += 2 * BUCKET_MS
    fleet.loads.failure = ThrottledError(["TableWriteKeyRangeThroughputExceeded"])
    fleet.offer([process], 900, 10)
    assert fleet.telemetry.counts["ReportsDropped"] > 50
    assert not fleet.renew(process)
    fleet.loads.failure = StoreRefusedError("AccessDeniedException", "a right is missing")
    fleet.offer([process], 900, 10)
    assert not fleet.renew(process)
    fleet.loads.failure = None
    fleet.clock.now_ms += BUCKET_MS
    assert not fleet.renew(process)
    fleet.clock.now_ms += BUCKET_MS
    assert fleet.renew(process)


@pytest.mark.parametrize("place", ["get", "buckets"])
def test_a_process_that_stood_still_closes_nothing(fleet, place):
    """For three buckets between its look at the journal and the close, while the others wrote: they removed the old."""
    process, others = fleet.process(), [fleet.process(seed) for seed in range(2, 5)]
    fleet.clock.now_ms += 2 * BUCKET_MS
    asked, left = fleet.loads.buckets, [3]

    def stand_still():
        if left:
            for _ in range(left.pop()):
                fleet.offer(others, 1_500, 1)
                fleet.clock.now_ms += BUCKET_MS

    def buckets(collection):
        if place == "buckets":
            stand_still()
        found = asked(collection)
        if place == "get":
            fleet.table.on_call = lambda name: stand_still()
        return found

    fleet.loads.buckets = buckets
    assert not fleet.renew(process)
    assert not left
    fleet.table.on_call = lambda name: None
    fleet.offer([process, *others], 1_500, BUCKET_MS // 2_000)
    assert not fleet.renew(process)


def test_positions_that_are_no_times_and_closed_keys_are_left_alone(fleet):
    """Nothing is asked for them."""
    process = fleet.process()
    fleet.clock.now_ms += 2 * BUCKET_MS
    fleet.offer([process], 900, 10, position=5)
    assert fleet.loads.samples == 0
    assert not fleet.renew(process, position=5)
    assert fleet.renew(process)
    before = fleet.table.routes["room"]
    fleet.clock.now_ms += 4 * BUCKET_MS
    assert fleet.renew(process)
    assert fleet.table.routes["room"] == replace(before, date_ms=None)


def test_a_load_item_keeps_three_buckets(fleet):
    """However often the key was warm; the others go with the next samples."""
    process = fleet.process()
    for _ in range(20):
        fleet.offer([process], 900, 2)
        fleet.clock.now_ms += 3 * BUCKET_MS
    assert len(fleet.loads.kept) <= KEPT_BUCKETS
