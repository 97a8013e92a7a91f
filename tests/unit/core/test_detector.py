"""Detection and decision over simulated fleets: soon, once, large enough, and only when hot."""

import tracemalloc
from dataclasses import replace
from random import Random

import pytest

from hotpartition.core.detector import Reason, decide, size_route
from hotpartition.core.reports import Report
from hotpartition.core.route import Close, Generation, Route
from hotpartition.core.window import CollectionReports, ReportWindow
from support.builders import THRESHOLDS, route_of
from support.fleet import START_MS, Fleet, detect


@pytest.mark.parametrize(
    ("wcu_per_second", "shard_count"),
    [(1, 2), (800, 2), (1_000, 2), (1_001, 3), (2_000, 4), (4_000, 8), (8_000, 16), (100_000, 200)],
)
def test_shards_are_as_many_as_the_load_asks_for(wcu_per_second, shard_count):
    """500 WCU/s each, whatever the load: for twice as much twice as many; two at least."""
    assert size_route(wcu_per_second, THRESHOLDS) == shard_count


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
        reports.add(*arrival.report[1:3], arrival.report[3:7])
    (decision,) = decide("c", reports, route, THRESHOLDS, now_ms=START_MS + 3_000)
    assert decision.reason is Reason.RAISED
    assert not decision.keeps_n


def test_the_window_holds_no_more_than_the_horizon():
    """However long a consumer runs, and whoever writes: after a minute no more than after twenty seconds."""
    taken = []
    tracemalloc.start()
    try:
        window = ReportWindow(THRESHOLDS.loud_wcu)
        for tick in range(60):
            now_ms = START_MS + 1_000 * tick
            for i in range(100):
                name = f"{tick}-{i}"
                window.add(Report(f"c-{name}", now_ms // 250, f"e-{name}", 900.0 if i == 0 else 5.0, now_ms, 0), now_ms)
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
    window.add(Report("c", START_MS // 250, "e", 1.0, START_MS, 0), START_MS)
    assert window.to_judge() == ["c"]
    window.forget(START_MS + 15_000)
    assert window.to_judge() == ["c"]


def test_one_lone_old_id_does_not_draw_a_raise_back():
    """Clients make ids: one of the year 2001 beside 4,000 WCU/s moves `since` by nothing."""
    arrivals = Fleet().offer(lambda _: 4_000, 3_000)
    since = {}
    for old_ms in (START_MS, 1_000_000_000_000):
        old = [replace(a, report=a.report._replace(position=old_ms)) if n == 200 else a for n, a in enumerate(arrivals)]
        (_, raised), *_ = detect(old, 2_000).raises
        since[old_ms] = raised.generation.since_ms
    assert since[1_000_000_000_000] == since[START_MS]


def raise_times(wcu_per_second, seconds, seeds):
    """When steady loads that begin anywhere in a slot are raised first, seconds after that; None: never."""
    for seed in seeds:
        onset_ms = Random(f"onset {seed}").randrange(250)
        load = Fleet(environments=200, sampling_distance_wcu=5.0, seed=seed, delay_ms=40)
        arrivals = load.offer(lambda at: wcu_per_second if at >= onset_ms else 0, seconds * 1_000)  # noqa: B023 - used here
        raises = detect(arrivals, seconds * 1_000).raises
        yield (raises[0][0] - onset_ms) / 1_000 if raises else None


def test_loads_around_the_limits_are_raised_soon_or_not_at_all():
    """1,200 WCU/s within 1.35 s in 19 of 20, 900 always, 700 never."""
    assert sorted(raise_times(1_200, 3, range(20)))[18] <= 1.35
    assert None not in set(raise_times(900, 9, range(20)))
    assert set(raise_times(700, 20, range(6))) == {None}


@pytest.mark.parametrize(("refused_share", "is_raised"), [(0.0, False), (0.02, False), (0.1, True)])
def test_a_key_that_shares_its_partition_with_busy_ones_is_raised_at_half(refused_share, is_raised):
    """Only where writes were refused; and only at the base key: more shards would not help those on shards."""
    draw = Random(1)
    fleet = Fleet(sampling_distance_wcu=5.0, is_throttled=lambda _: draw.random() < refused_share)
    arrivals = fleet.offer(lambda _: 500, 9_000)
    assert bool(detect(arrivals, 9_000).raises) is is_raised
    assert detect(arrivals, 9_000, route=route_of((2, START_MS - 60_000))).raises == []


@pytest.mark.parametrize("environments", [1, 2, 4])
def test_a_backfill_beside_a_live_load_raises_nothing_where_few_processes_carry_both(environments):
    """1,500 WCU/s live and 500 of old messages, on 5 shards: each crossing counts for its own class."""
    draw = Random(environments)
    old = lambda _: 9 * 3_600_000 if draw.random() < 0.25 else 0  # noqa: E731 - a load's shape
    fleet = Fleet(environments=environments, sampling_distance_wcu=5.0, message_age_ms=old)
    route = route_of((5, START_MS - 3_600_000))
    assert detect(fleet.offer(lambda _: 2_000, 8_000), 8_000, route=route).raises == []
