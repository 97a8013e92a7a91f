"""How partitions split for heat, and how a table on demand grows."""

from __future__ import annotations

import random

import pytest

from tools.limits import Cause, HeatSplits, Kind, OnDemand, Partitions, Table, TableConfig
from tools.limits.ranges import best_cut

AT_ONCE = HeatSplits(sustained_seconds=2.0, delay_seconds=3.0)


def build(*, count=1, heat=AT_ONCE, seed=1, **throughput):
    config = TableConfig(
        throughput=OnDemand(quota_wcu=None, **throughput),
        partitions=Partitions(count=count),
        heat=heat,
    )
    return Table(config, random.Random(seed))


def drive(table, demand, seconds, *, start=0, step=0.5):
    """Offer each key its WCU a second; return what each was given, a second, in each second."""
    given = []
    for second in range(start, start + seconds):
        sums = dict.fromkeys(demand, 0.0)
        for part in range(round(1 / step)):
            for key, rate in demand.items():
                sums[key] += table.write_many(key, rate * step, second + (part + 1) * step, step).units
        given.append(sums)
    return given


def test_many_keys_get_more_after_the_documented_delay():
    """Forty keys with 1,900 WCU a second on one partition: 1,000 for five minutes, and all of it soon after."""
    table = build(heat=HeatSplits())
    demand = {f"k{number}": 1900 / 40 for number in range(40)}
    given = [sum(second.values()) for second in drive(table, demand, 330, step=1)]
    assert given[10:299] == pytest.approx([1000] * 289)
    assert [split.at for split in table.splits] == [pytest.approx(300, abs=1)]
    assert table.splits[0].cause is Cause.HEAT
    assert given[310:] == pytest.approx([1900] * 20, rel=0.08)


def test_a_collection_stays_at_one_partitions_limit_for_ever():
    """Half an hour of 3,000 WCU a second on one key: 1,000 a second, and no split."""
    table = build(heat=HeatSplits())
    given = drive(table, {"hot": 3000}, 1800, step=1)
    assert [second["hot"] for second in given[1:]] == pytest.approx([1000] * 1799)
    assert table.splits == []


def test_a_hot_growing_key_is_isolated_and_its_neighbours_are_relieved():
    """It ends up alone on a partition, with 1,000 a second; what shared one with it gets what it asks for."""
    table = build()
    quiet = {f"q{number}": 10.0 for number in range(30)}
    before = drive(table, {"hot": 3000.0, **quiet}, 4)[-1]
    assert sum(before[key] for key in quiet) < 0.5 * sum(quiet.values())
    drive(table, {"hot": 3000.0, **quiet}, 40, start=4)
    after = drive(table, {"hot": 3000.0, **quiet}, 4, start=44)[-1]
    assert {key: after[key] for key in quiet} == pytest.approx(quiet)
    assert after["hot"] == pytest.approx(1000)
    place = table.partition_index("hot")
    assert all(table.partition_index(key) != place for key in quiet)
    assert table.partition_count == 3


def test_heat_that_does_not_last_splits_nothing():
    """A rush of less than `sustained_seconds` is forgotten, however often it comes back."""
    table = build(heat=HeatSplits(sustained_seconds=3.0, delay_seconds=1.0))
    for start in range(0, 60, 6):
        drive(table, {"a": 900.0, "b": 900.0}, 1, start=start)
        drive(table, {"a": 1.0}, 4, start=start + 1)
    assert table.splits == []


def test_load_below_the_hot_share_splits_nothing():
    """80 % of the limit is not hot, 95 % is."""
    for load, splits in ((800.0, 0), (950.0, 1)):
        table = build()
        drive(table, {"a": load / 2, "b": load / 2}, 10)
        assert len(table.splits) == splits


def test_reads_split_partitions_as_writes_do():
    """Two keys with 2,900 RCU a second each: 3,000 together, and then all of it."""
    table = build()
    given = [
        sum(100 for part in range(29) for key in "ab" if table.read(key, 100, second + part / 29) is None)
        for second in range(12)
    ]
    assert given[3] == pytest.approx(3000)
    assert given[-1] == pytest.approx(5800)


def test_single_writes_split_partitions_as_well():
    """Not only the aggregated entries count as heat; refused writes are part of it."""
    table = build()
    given = [0] * 9
    for number in range(1800 * 9):
        given[number // 1800] += table.write(f"k{number % 20}", 1, number / 1800) is None
    assert given[4] == pytest.approx(1000, abs=5)
    assert given[8] > 1500
    assert len(table.splits) == 1


def test_a_partition_near_its_limit_splits_before_it_refuses():
    """950 single writes a second to 20 keys: none is throttled, and it splits between the keys."""
    table = build()
    assert all(table.write(f"k{number % 20}", 1, number / 950) is None for number in range(950 * 7))
    assert [split.cause for split in table.splits] == [Cause.HEAT]
    sides = [table.partition_index(f"k{number}") for number in range(20)]
    assert 7 <= sum(sides) <= 13


def test_traffic_without_keys_splits_in_the_middle():
    """Evenly spread traffic on one partition: the halves are about equal."""
    table = build(count=1)
    for second in range(1, 8):
        table.write_evenly(2000, second, 1.0)
    assert table.shares == pytest.approx([0.5, 0.5], abs=0.07)


def test_the_halves_start_with_what_was_left():
    """A split gives no capacity of the past."""
    table = build(count=1, heat=HeatSplits(sustained_seconds=1.0, delay_seconds=1.0))
    demand = {"a": 3000.0, "b": 3000.0}
    given = [sum(second.values()) for second in drive(table, demand, 6)]
    assert len(table.splits) == 1
    assert max(given[1:]) == pytest.approx(2000)


def test_the_number_of_partitions_is_bounded():
    """`max_count` ends all splitting."""
    config = TableConfig(throughput=OnDemand(quota_wcu=None), partitions=Partitions(count=1, max_count=3), heat=AT_ONCE)
    table = Table(config, random.Random(1))
    drive(table, {f"k{number}": 1000.0 for number in range(20)}, 40)
    assert table.partition_count == 3


def test_what_was_consumed_survives_splits():
    """The sums count the partitions that are gone, and the ranges cover all positions."""
    table = build()
    given = drive(table, {f"k{number}": 300.0 for number in range(10)}, 20)
    assert len(table.splits) >= 2
    assert table.consumed(Kind.WRITE) == pytest.approx(sum(sum(second.values()) for second in given))
    assert sum(table.shares) == pytest.approx(1)


@pytest.mark.parametrize(
    ("weights", "cut"),
    [
        ({}, None),
        ({5: 1.0}, None),
        ({5: 1.0, 9: 1.0}, 9),
        ({5: 3.0, 9: 1.0}, 6),
        ({5: 1.0, 9: 3.0}, 9),
        ({1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0}, 3),
        ({1: 1.0, 2: 9.0, 3: 1.0}, 2),
    ],
)
def test_a_range_is_cut_where_the_weight_is_halved(weights, cut):
    """Next to the heavier side, so that a heavy position is alone after two cuts."""
    assert best_cut(weights) == cut


def test_a_table_on_demand_takes_twice_its_previous_peak_after_a_while():
    """4,000 a second at first; its first full minute makes it 8,000, and the next peak 16,000."""
    table = Table(
        TableConfig(throughput=OnDemand(growth_delay_seconds=120.0), heat=None),
        random.Random(1),
    )
    given = [table.write_evenly(20_000, second, 1.0).units for second in range(1, 500)]
    assert given[1:179] == pytest.approx([4000] * 178)
    assert given[181:299] == pytest.approx([8000] * 118)
    assert given[400] > 8000
    assert [(split.cause, split.partitions) for split in table.splits[:2]] == [(Cause.GROWTH, 8), (Cause.GROWTH, 16)]


def test_growth_waits_for_half_an_hour_unless_told_otherwise():
    """The doubling is promised to traffic that grows over 30 minutes."""
    table = Table(TableConfig(heat=None), random.Random(1))
    given = [table.write_evenly(10_000, second, 1.0).units for second in range(1, 1900)]
    assert given[1:1850] == pytest.approx([4000] * 1849)
    assert given[1880] == pytest.approx(8000)


def test_traffic_within_half_the_capacity_is_no_reason_to_grow():
    """Twice 2,000 is what the table has."""
    table = Table(TableConfig(throughput=OnDemand(growth_delay_seconds=1.0), heat=None), random.Random(1))
    for second in range(1, 300):
        assert table.write_evenly(2000, second, 1.0).throttle is None
    assert table.partition_count == 4
