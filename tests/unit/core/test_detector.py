"""Detection and decision over simulated fleets: soon, once, large enough, and only when hot."""

import tracemalloc
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotpartition.core.detector import CollectionReports, Reason, ReportWindow, Thresholds, decide, size_route
from hotpartition.core.reports import WriteReport
from hotpartition.core.route import Close, Generation, Route
from hotpartition.core.sampler import LoadSampler
from hotpartition_messages.message_ids import MAX_TIME_MS
from support.builders import THRESHOLDS, route_of
from support.fleet import START_MS, Arrival, Fleet, detect


def step(rate):
    return lambda offset: rate if offset >= 2_000 else 50


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rate", [1_600, 4_000, 16_000])
def test_a_step_of_any_size_is_one_raise_within_two_seconds(rate, seed):
    """From a quiet load to x32 and far beyond: one raise, sized for the load within sampling error."""
    trace = Fleet(environments=400, seed=seed).offer(step(rate), 6_000)
    detection = detect(trace, 6_000)
    assert len(detection.raises) == 1
    at_ms, decision = detection.raises[0]
    assert 2_000 < at_ms <= 4_000
    assert decision.reason is Reason.RAISED
    size = decision.generation.shard_count
    low, high = (min(size_route(error * rate, THRESHOLDS), THRESHOLDS.max_shard_count) for error in (0.7, 1.45))
    assert low <= size <= high
    assert size >= rate / 1000


@pytest.mark.parametrize(
    ("wcu_per_second", "shard_count"),
    [(1, 2), (800, 2), (1_000, 2), (1_001, 3), (2_000, 4), (4_000, 8), (8_000, 16), (100_000, 200)],
)
def test_shards_are_as_many_as_the_load_asks_for(wcu_per_second, shard_count):
    """500 WCU/s each, whatever the load: for twice as much twice as many; two at least."""
    assert size_route(wcu_per_second, THRESHOLDS) == shard_count


def test_few_throttles_of_a_covered_load_change_nothing():
    """A write in thirty that waits is stored soon; N, which never falls, is not doubled for it."""
    route = route_of((8, START_MS - 1))
    for share, shard_counts in ((30, []), (10, [16])):
        fleet = Fleet(is_throttled=lambda now, share=share: now % share == 0)
        trace = fleet.offer(lambda _: 4_000, 4_500, placed_under=8)
        assert detect(trace, 4_500, route=route).shard_counts == shard_counts


def test_the_new_generation_covers_the_heat_from_its_start():
    """`since` is never later than the slot where the heat began, and not before the second that was judged."""
    detection = detect(Fleet().offer(step(4_000), 5_000), 5_000)
    since_ms = detection.raises[0][1].generation.since_ms
    assert START_MS + 1_000 <= since_ms <= START_MS + 2_000


@pytest.mark.parametrize("rate", [200, 600])
def test_a_load_below_the_threshold_is_not_raised(rate):
    """Noise of sampling does not raise what cannot be lowered again."""
    assert detect(Fleet(environments=300).offer(lambda _: rate, 30_000), 30_000).raises == []


def test_a_raised_conversation_is_judged_by_what_its_shards_serve():
    """3,000 WCU/s on eight shards is covered; the same load on two is hot."""
    trace = Fleet().offer(lambda _: 3_000, 8_000)
    assert detect(trace, 8_000, route=route_of((8, START_MS - 1))).raises == []
    assert "covered" in detect(trace, 8_000, route=route_of((8, START_MS - 1))).reasons
    assert detect(trace, 8_000, route=route_of((2, START_MS - 1))).shard_counts[0] >= 6


def test_a_backfill_that_runs_backwards_takes_few_raises():
    """Newest first, each message older than the last: a raise reaches twice as far back as its messages."""
    ages = iter(range(60_000, 10**9, 600))
    fleet = Fleet(message_age_ms=lambda _: next(ages))
    detection = detect(fleet.offer(lambda _: 3_000, 30_000), 30_000, route=route_of((6, START_MS)))
    assert 1 <= len(detection.raises) <= 6


def test_a_backfill_beside_live_load_is_sized_for_both():
    """Its shards serve the live messages too: one raise, large enough for the sum."""
    fleet = Fleet(message_age_ms=lambda r: 3_600_000 if r.random() < 0.5 else 0)
    detection = detect(fleet.offer(lambda _: 6_000, 5_000), 5_000, route=route_of((6, START_MS - 1_000)))
    assert len(detection.raises) == 1
    assert detection.shard_counts[0] == pytest.approx(size_route(6_000, THRESHOLDS), rel=0.25)


def test_a_lone_ancient_id_does_not_drag_since_back():
    """One message from 1970 among the hot ones would make readers of all history query every shard."""
    trace = Fleet().offer(step(4_000), 5_000)
    hot = next(a for a in trace if a.at_ms > START_MS + 2_200)
    hot.report = hot.report._replace(position=0)
    assert detect(trace, 5_000).raises[0][1].generation.since_ms >= START_MS + 1_000


def test_the_cap_holds_and_is_told():
    """Past the cap there is nothing to raise to; an operator hears of it."""
    capped = replace(THRESHOLDS, max_shard_count=4)
    detection = detect(Fleet().offer(lambda _: 8_000, 5_000), 5_000, thresholds=capped)
    assert detection.shard_counts == [4]
    assert "at-cap" in detection.reasons


CLOSE_MS = START_MS + 600_000


@pytest.mark.parametrize("is_confirmed", [False, True])
@pytest.mark.parametrize("rate", [3_000, 20_000])
def test_a_load_that_is_back_keeps_its_n_behind_a_pending_close(rate, is_confirmed):
    """Its shards serve it, or are as many as may be: at the close, all would go to the base key. Decided once."""
    thresholds = replace(THRESHOLDS, max_shard_count=8)
    closes = frozenset({Close(CLOSE_MS, False), Close(CLOSE_MS, is_confirmed)})
    route = Route(frozenset({Generation(START_MS - 1, 8)}), closes)
    detection = detect(Fleet().offer(lambda _: rate, 6_000, placed_under=8), 6_000, route=route, thresholds=thresholds)
    ((_, decision),) = detection.raises
    assert (decision.reason, decision.generation) == (Reason.STILL_WARM, Generation(CLOSE_MS, 8))
    assert decision.keeps_n
    assert detection.route.as_announced.shard_count_at(CLOSE_MS) == 8


def test_a_load_that_may_be_closed_is_not_kept_open():
    """With less than half of what makes hot, or behind a close whose time has come."""
    pending = Route(frozenset({Generation(START_MS - 1, 8)}), frozenset({Close(CLOSE_MS, True)}))
    assert detect(Fleet().offer(lambda _: 350, 6_000, placed_under=8), 6_000, route=pending).raises == []
    past = Route(frozenset({Generation(START_MS - 10_000, 8)}), frozenset({Close(START_MS, True)}))
    assert detect(Fleet().offer(lambda _: 700, 6_000), 6_000, route=past).raises == []


def test_a_raise_under_a_pending_close_comes_first():
    """It holds behind the close by itself."""
    route = Route(frozenset({Generation(START_MS - 1, 2)}), frozenset({Close(CLOSE_MS, True)}))
    reports = CollectionReports()
    for arrival in Fleet().offer(lambda _: 8_000, 3_000, placed_under=2):
        reports.add(arrival.report)
    (decision,) = decide("c", reports, route, THRESHOLDS, now_ms=START_MS + 3_000)
    assert decision.reason is Reason.RAISED
    assert not decision.keeps_n


def test_throttles_are_followed_at_most_every_five_seconds():
    """Doubling again needs the writers to have followed the last raise, and time."""
    reports = CollectionReports()
    for arrival in Fleet(is_throttled=lambda _: True).offer(lambda _: 2_000, 2_000, placed_under=4):
        reports.add(arrival.report)
    now_ms, route = START_MS + 2_000, route_of((4, START_MS - 1))
    recent = decide("c", reports, route, THRESHOLDS, now_ms=now_ms, raised_at_ms=now_ms - 4_999)
    older = decide("c", reports, route, THRESHOLDS, now_ms=now_ms, raised_at_ms=now_ms - 5_000)
    assert [d.reason for d in (*recent, *older)] == [Reason.COOLING_DOWN, Reason.UNLUCKY_PARTITION]


def test_a_neighbours_heat_changes_nothing():
    """Throttled without a load of its own: somebody else's partition fellow."""
    trace = Fleet(sampling_distance_wcu=1, is_throttled=lambda _: True).offer(lambda _: 20, 6_000)
    detection = detect(trace, 6_000)
    assert detection.raises == []
    assert "no-evidence" in detection.reasons


samples = st.builds(
    WriteReport,
    collection=st.just("c"),
    slot=st.integers(START_MS // 250 - 30, START_MS // 250 + 4),
    source=st.sampled_from(["a", "b", "c"]),
    value_wcu=st.integers(1, 500).map(float),
    position=st.integers(0, MAX_TIME_MS) | st.integers(START_MS - 9_000, START_MS + 5_000),
    shard_count=st.integers(0, 8),
    is_throttled=st.booleans(),
)
some_routes = st.lists(st.tuples(st.integers(1, 128), st.integers(START_MS - 9_000, START_MS)), max_size=3)


@given(st.lists(samples, max_size=40), some_routes, st.none() | st.integers(0, 9_000))
def test_every_raise_helps_and_stays_within_bounds(reports, generations, raised_ago):
    """Whatever is reported: a raise gives its own messages more shards than they had, and never passes the cap."""
    state, route = CollectionReports(), route_of(*generations)
    for report in reports:
        state.add(report)
    raised_at = None if raised_ago is None else START_MS - raised_ago
    decisions = decide("c", state, route, THRESHOLDS, now_ms=START_MS, raised_at_ms=raised_at)
    assert decisions
    for decision in decisions:
        if decision.generation:
            assert decision.shard_count < decision.generation.shard_count <= THRESHOLDS.max_shard_count
            assert decision.generation.since_ms >= 0


def test_the_window_holds_no_more_than_the_horizon():
    """However long a consumer runs, and whoever writes: after a minute no more than after twenty seconds."""
    taken = []
    tracemalloc.start()
    try:
        window = ReportWindow(THRESHOLDS)
        for tick in range(60):
            now_ms = START_MS + 1_000 * tick
            for i in range(100):
                name = f"{tick}-{i}"
                window.add(
                    WriteReport(f"c-{name}", now_ms // 250, f"e-{name}", 900.0 if i == 0 else 5.0, now_ms, 0), now_ms
                )
            window.forget(now_ms)
            taken.append(tracemalloc.get_traced_memory()[0])
            assert len(window.as_mapping()) <= 1_600
            assert len(window.to_judge()) <= 16
    finally:
        tracemalloc.stop()
    assert taken[-1] < 1.1 * taken[20]


def test_a_window_without_thresholds_lists_all_conversations():
    """Who looks at a moment, like an operator, looks at everything."""
    window = ReportWindow()
    window.add(WriteReport("c", START_MS // 250, "e", 1.0, START_MS, 0), START_MS)
    assert window.to_judge() == ["c"]
    window.forget(START_MS + 15_000)
    assert window.to_judge() == ["c"]


@given(st.integers(1, 60), st.floats(1.0, 8.0))
def test_more_load_never_yields_fewer_shards(base, factor):
    """Scale one trace up: N follows, never the other way."""

    def count(scale):
        state = CollectionReports()
        for slot in range(START_MS // 250 - 6, START_MS // 250 - 1):
            state.add(WriteReport("c", slot, "a", base * 10 * scale, START_MS, 0))
        decisions = decide("c", state, route_of(), THRESHOLDS, now_ms=START_MS)
        return max((d.generation.shard_count for d in decisions if d.generation), default=0)

    assert count(factor) >= count(1.0)


class TestFewLargeItems:
    """An item of 400 KB is 400 WCU: a few of them are heat, and no more of it than they are (decision 30)."""

    SCALED = Thresholds(hot_at_once_wcu=100, hot_sustained_wcu=80, target_shard_wcu=50, max_shard_count=256)

    @staticmethod
    def reports(per_second, seed):
        """Let a few environments write large items at random times."""
        random = Random(seed)
        counters = [
            LoadSampler(environment_id=f"e{i}", sampling_distance_wcu=10.0, random=random.random) for i in range(5)
        ]
        for at_ms in sorted(random.uniform(0, 30_000) for _ in range(30 * per_second)):
            now_ms = START_MS + round(at_ms)
            crossing = random.choice(counters).record("c", 350, now_ms)
            yield Arrival(now_ms + 20, WriteReport("c", *crossing, now_ms, 0))

    @pytest.mark.parametrize("seed", range(5))
    def test_they_raise_to_what_their_load_takes(self, seed):
        """1,050 WCU/s in three items a second: sized for that or for the seconds with the most of them."""
        detection = detect(self.reports(3, seed), 30_000)
        assert detection.shard_counts
        assert max(detection.shard_counts) <= size_route(9 * 350, THRESHOLDS)

    @pytest.mark.parametrize("seed", range(5))
    def test_on_a_scaled_table_they_do_not_raise_to_the_cap(self, seed):
        """700 WCU/s against keys of 100: two items in one slot look like 2,800, and the cap is 256."""
        detection = detect(self.reports(2, seed), 30_000, thresholds=self.SCALED)
        assert max(detection.shard_counts) <= size_route(6 * 350, self.SCALED) < self.SCALED.max_shard_count / 5

    def test_two_throttled_ones_are_no_evidence_of_an_unlucky_partition(self):
        """They meet on one shard now and then, however many shards there are."""
        throttled = [
            Arrival(
                START_MS + at_ms,
                WriteReport("c", (START_MS + at_ms) // 250, f"e{at_ms}", 350.0, START_MS, 4, is_throttled=True),
            )
            for second in range(0, 30_000, 5_000)
            for at_ms in (second + 100, second + 600)
        ]
        assert detect(throttled, 30_000, route=route_of((4, 0))).shard_counts == []
