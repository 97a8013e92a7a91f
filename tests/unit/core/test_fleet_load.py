"""What follows from a load item: decisions are pure, and the same for whoever sees the same."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotpartition.core.detector import Reason, Thresholds
from hotpartition.core.fleet_load import (
    KEPT_SLOTS,
    MAX_SLOTS_AHEAD,
    Cell,
    bucket_name,
    decide_in_band,
    list_stale,
    parse_bucket,
)
from hotpartition.core.route import EMPTY_ROUTE, Close, Generation, Route

LIMITS = Thresholds(hot_at_once_wcu=1_000, hot_sustained_wcu=1_000, target_shard_wcu=330, max_shard_count=128)
NOW_MS = 1_700_000_000_000
NOW = NOW_MS // 250
THIRTEEN = Route(frozenset({Generation(NOW_MS - 60_000, 13)}))


def steady(wcu, *, slots=16, shard_count=0, throttled=0.0):
    """A load of so many WCU/s in the last slots, and the share of it that was refused."""
    cells = {Cell(NOW - back, shard_count, False): wcu / 4 for back in range(1, slots + 1)}
    return cells | {Cell(cell.slot, shard_count, True): load * throttled for cell, load in cells.items() if throttled}


def decide(load, route=EMPTY_ROUTE, **more):
    return decide_in_band("room", load, route, LIMITS, **{"position": NOW_MS, "now_ms": NOW_MS, **more})


@pytest.mark.parametrize(
    ("wcu", "slots", "count"),
    [(4_000, 2, 13), (10_000, 2, 31), (1_700, 4, 6), (1_200, 7, 4), (1_050, 12, 4), (100_000, 2, 128)],
)
def test_a_hot_load_is_raised_to_the_detectors_size(wcu, slots, count):
    decision = decide(steady(wcu, slots=slots))
    assert (decision.reason, decision.generation.shard_count) == (Reason.RAISED, count)


def test_a_base_key_that_refuses_everything_is_raised_once():
    """Another process may have raised it a moment ago."""
    assert decide({}, is_stuck=True).generation.shard_count == 2
    assert decide({}, THIRTEEN, is_stuck=True).generation is None


@pytest.mark.parametrize(("wcu", "slots"), [(999, 16), (1_250, 6), (1_900, 3), (4_000, 1)])
def test_a_burst_below_the_threshold_raises_nothing(wcu, slots):
    """One slot alone may be counted in part only."""
    assert decide(steady(wcu, slots=slots)).generation is None


@pytest.mark.parametrize(("wcu", "is_kept"), [(450, False), (550, True), (12_000, True), (200_000, True)])
def test_a_load_that_is_back_keeps_its_n_behind_a_pending_close(wcu, is_kept):
    """Also at the largest N: at the close, all would go to the base key."""
    at_ms = NOW_MS + 300_000
    limit = Route(frozenset({Generation(NOW_MS - 60_000, 128)}), frozenset({Close(at_ms, False)}))
    decision = decide(steady(wcu, shard_count=128), limit)
    assert decision.generation == (Generation(at_ms, 128) if is_kept else None)
    assert (decision.reason is Reason.STILL_WARM) is is_kept
    kept = limit.union(Route(frozenset({Generation(at_ms, 128)})))
    assert decide(steady(wcu, shard_count=128), kept).generation is None


def test_the_last_slot_tells_the_size_of_a_load_that_rises():
    assert decide(steady(4_000, slots=1) | {Cell(NOW - 2, 0, False): 100.0}).generation.shard_count == 13


def test_what_is_covered_is_not_raised_again():
    """Thirteen keys serve 13,000 WCU/s; what is placed on the base key is another load."""
    assert decide(steady(12_000, shard_count=13), THIRTEEN).generation is None
    assert decide(steady(12_000), THIRTEEN).generation is None
    assert decide(steady(14_000, shard_count=13), THIRTEEN).generation.shard_count == 43


def test_shards_that_are_refused_although_they_are_enough_do_not_become_more():
    """Each reader would pay for them, and the second and third choices store what one shard refuses."""
    unlucky = steady(4_000, shard_count=13, throttled=0.1)
    decision = decide(unlucky, THIRTEEN, raised_at_ms=NOW_MS - 6_000)
    assert (decision.reason, decision.generation) == (Reason.BELOW_THRESHOLD, None)


def test_shards_that_are_too_few_are_not_doubled_but_sized():
    nine = Route(frozenset({Generation(NOW_MS - 60_000, 9)}))
    decision = decide(steady(4_000, shard_count=9, throttled=0.1), nine, raised_at_ms=NOW_MS - 6_000)
    assert decision.generation.shard_count == 13
    assert decision.reason is Reason.UNLUCKY_PARTITION
    unaware = steady(3_000, shard_count=9, throttled=0.1) | steady(1_000)
    assert decide(unaware, nine, raised_at_ms=NOW_MS - 6_000).generation.shard_count == 13
    assert decide(unaware, nine, raised_at_ms=NOW_MS - 4_000).generation is None
    neighbours = steady(500, shard_count=9, throttled=0.5) | steady(3_500)
    assert decide(neighbours, nine, raised_at_ms=NOW_MS - 6_000).generation is None


@pytest.mark.parametrize(("samples", "is_raised"), [(4, True), (3, False)])
def test_a_few_refused_items_are_no_evidence(samples, is_raised):
    """On fifty shards a sample stands for 250 WCU."""
    fifty = Route(frozenset({Generation(NOW_MS - 60_000, 50)}))
    refused = {Cell(NOW - back, 50, True): 125.0 * samples for back in (1, 2)}
    decision = decide(steady(7_000, shard_count=50) | refused | steady(12_000), fifty, raised_at_ms=NOW_MS - 6_000)
    assert (decision.generation is not None) is is_raised


def test_no_raise_passes_the_cap():
    capped = Route(frozenset({Generation(0, 128)}))
    assert decide(steady(200_000, shard_count=128), capped).reason is Reason.AT_CAP


def test_a_raise_begins_before_the_heat_and_reaches_back_for_older_items():
    load = steady(4_000, slots=2)
    assert decide(load).generation.since_ms == (NOW - 2) * 250 - 2_000
    assert decide(load, position=NOW_MS - 5_000).generation.since_ms == NOW_MS - 5_000
    assert decide(load, position=0).generation.since_ms == 0  # a table without positions
    backfill = decide(steady(4_000, slots=2), THIRTEEN, position=NOW_MS - 100_000)
    assert backfill.generation.since_ms == NOW_MS - 200_000


loads = st.dictionaries(
    st.builds(Cell, st.integers(NOW - KEPT_SLOTS, NOW + 2), st.sampled_from([0, 13]), st.booleans()),
    st.floats(0, 5_000),
)


@given(load=loads, order=st.randoms(use_true_random=False), position=st.integers(NOW_MS - 1_000, NOW_MS))
def test_whoever_sees_the_same_load_decides_the_same(load, order, position):
    """In whatever order the attributes come; and for every item that is written now."""
    shuffled = list(load.items())
    order.shuffle(shuffled)
    assert decide(dict(shuffled), THIRTEEN, position=position) == decide(load, THIRTEEN)


@given(load=loads)
def test_a_raise_always_raises(load):
    decision = decide(load, THIRTEEN)
    if decision.generation is not None:
        assert 13 < decision.generation.shard_count <= LIMITS.max_shard_count
        assert decision.reason in {Reason.RAISED, Reason.UNLUCKY_PARTITION}


def test_no_window_needs_what_is_taken_away():
    """The ring: what is stale changes no decision, and it does not grow."""
    random = Random(1)
    load = {Cell(NOW + ahead, 0, False): random.random() * 400 for ahead in range(-60, 40)}
    kept = {cell: wcu for cell, wcu in load.items() if cell not in set(list_stale(load, NOW_MS))}
    assert decide(kept) == decide(load)
    assert len(kept) == KEPT_SLOTS + MAX_SLOTS_AHEAD + 1


def test_the_names_of_cells_are_a_contract():
    cell = Cell(6_800_000_123, 13, True)
    assert cell.name == "1954fc47bt13"
    assert Cell.parse(cell.name) == cell
    assert Cell(6_800_000_123, 0, False).name == "1954fc47bn0"
    assert [Cell.parse(name) for name in ("pk", "1954fc47bx0", "1954fc47bn013", "n0", "generations")] == [None] * 5


def test_a_bucket_has_a_name_of_its_own():
    """A storage contract; and no cell of a slot, which an older process would take away."""
    assert (bucket_name(0x2B6F1A), parse_bucket("w2b6f1a")) == ("w2b6f1a", 0x2B6F1A)
    assert [parse_bucket(name) for name in ("w", "w1g", "2b6f1an4", "pk")] == [None] * 4
    assert Cell.parse("w2b6f1a") is None
