"""What follows from a load item: decisions are pure, and the same for whoever sees the same.

A row of its table is a load on one side of a limit; many have a neighbour on the other side.
"""

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
COLD, HOT, UNLUCKY = Reason.BELOW_THRESHOLD, Reason.RAISED, Reason.UNLUCKY_PARTITION
SETTLED, RAISED_LATELY = {"raised_at_ms": NOW_MS - 6_000}, {"raised_at_ms": NOW_MS - 4_000}
STUCK = {"is_stuck": True}


def steady(wcu, *, slots=16, shard_count=0, throttled=0.0):
    """A load of so many WCU/s in the last slots, and the share of it that was refused."""
    cells = {Cell(NOW - back, shard_count, False): wcu / 4 for back in range(1, slots + 1)}
    return cells | {Cell(cell.slot, shard_count, True): load * throttled for cell, load in cells.items() if throttled}


def refused(samples):
    """Refusals in two slots of a load on fifty shards, where a sample stands for 250 WCU."""
    cells = {Cell(NOW - back, 50, True): 125.0 * samples for back in (1, 2)}
    return steady(7_000, shard_count=50) | cells | steady(12_000)


def route_to(shard_count, *members):
    return Route.of([Generation(NOW_MS - 60_000, shard_count), *members]) if shard_count else EMPTY_ROUTE


def decide(load, route=EMPTY_ROUTE, **more):
    return decide_in_band("room", load, route, LIMITS, **{"position": NOW_MS, "now_ms": NOW_MS, **more})


@pytest.mark.parametrize(
    ("load", "n", "more", "reason", "count"),
    [
        # A hot load is raised to the detector's size.
        (steady(4_000, slots=2), 0, {}, HOT, 13),
        (steady(10_000, slots=2), 0, {}, HOT, 31),
        (steady(1_700, slots=4), 0, {}, HOT, 6),
        (steady(1_200, slots=7), 0, {}, HOT, 4),
        (steady(1_050, slots=12), 0, {}, HOT, 4),
        (steady(100_000, slots=2), 0, {}, HOT, 128),
        # A burst below the threshold raises nothing; one slot alone may be counted in part only.
        (steady(999), 0, {}, COLD, None),
        (steady(1_250, slots=6), 0, {}, COLD, None),
        (steady(1_900, slots=3), 0, {}, COLD, None),
        (steady(5_000, slots=1), 0, {}, COLD, None),
        # The last slot gives the size of a load that rises, unless it rose more than a second ago.
        (steady(4_000, slots=1) | {Cell(NOW - 2, 0, False): 100.0}, 0, {}, HOT, 13),
        (steady(1_600, slots=4) | {Cell(NOW - 1, 0, False): 600.0}, 0, {}, HOT, 8),
        (steady(1_320, slots=6) | {Cell(NOW - 1, 0, False): 450.0}, 0, {}, HOT, 5),
        # The more keys, the less chance: two slots of four keys show half more than they serve, not twice as much.
        (steady(5_900, slots=2, shard_count=4), 4, {}, COLD, None),
        (steady(6_100, slots=2, shard_count=4), 4, {}, HOT, 19),
        # A base key that refuses everything is raised once: another process may have done so a moment ago.
        ({}, 0, STUCK, UNLUCKY, 2),
        ({}, 13, STUCK, COLD, None),
        # Thirteen keys serve 13,000 WCU/s; what is placed on the base key is another load.
        (steady(12_000, shard_count=13), 13, {}, COLD, None),
        (steady(12_000), 13, {}, COLD, None),
        (steady(14_000, shard_count=13), 13, {}, HOT, 43),
        (steady(200_000, shard_count=128), 128, {}, Reason.AT_CAP, None),
        # Shards that refuse although they are enough do not become more: second and third choices store it.
        (steady(4_000, shard_count=13, throttled=0.1), 13, SETTLED, COLD, None),
        # Those that are too few are not doubled but sized, by all loads; once all processes know of the last raise.
        (steady(4_000, shard_count=9, throttled=0.1), 9, SETTLED, UNLUCKY, 13),
        (steady(3_000, shard_count=9, throttled=0.1) | steady(1_000), 9, SETTLED, UNLUCKY, 13),
        (steady(3_000, shard_count=9, throttled=0.1) | steady(1_000), 9, RAISED_LATELY, COLD, None),
        # Neighbours fill its partitions.
        (steady(500, shard_count=9, throttled=0.5) | steady(3_500), 9, SETTLED, COLD, None),
        # A few refused items are no evidence.
        (refused(4), 50, SETTLED, UNLUCKY, 58),
        (refused(3), 50, SETTLED, COLD, None),
    ],
)
def test_what_is_decided(load, n, more, reason, count):
    """Under a route with `n` shards: why, and how many there should be."""
    decision = decide(load, route_to(n), **more)
    assert (decision.reason, decision.generation and decision.generation.shard_count) == (reason, count)


@pytest.mark.parametrize(("wcu", "is_kept"), [(450, False), (550, True), (12_000, True), (200_000, True)])
def test_a_load_that_is_back_keeps_its_n_behind_a_pending_close(wcu, is_kept):
    """Also at the largest N: at the close, all would go to the base key."""
    at_ms = NOW_MS + 300_000
    kept = Generation(at_ms, 128)
    decision = decide(steady(wcu, shard_count=128), route_to(128, Close(at_ms, False)))
    assert decision.generation == (kept if is_kept else None)
    assert (decision.reason is Reason.STILL_WARM) is is_kept
    assert decide(steady(wcu, shard_count=128), route_to(128, Close(at_ms, False), kept)).generation is None


def test_a_raise_begins_before_the_heat_and_reaches_back_for_older_items():
    load = steady(4_000, slots=2)
    assert decide(load).generation.since_ms == (NOW - 2) * 250 - 2_000
    assert decide(load, position=NOW_MS - 5_000).generation.since_ms == NOW_MS - 5_000
    assert decide(load, position=0).generation.since_ms == 0  # a table without positions
    backfill = decide(steady(4_000, slots=2), route_to(13), position=NOW_MS - 100_000)
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
    assert decide(dict(shuffled), route_to(13), position=position) == decide(load, route_to(13))


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
