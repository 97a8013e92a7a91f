"""The pattern that is named for a workload."""

import pytest

from hotpartition_cli.patterns import Reads, Usage, choose_pattern


@pytest.mark.parametrize(
    ("described", "name"),
    [
        ({"shard_count": 0}, "one key"),
        ({}, "adaptive, by sort key"),
        ({"is_peak_known": True}, "fixed, by sort key"),
        ({"reads": Reads.TARGETED, "busiest_share": 0.01}, "adaptive, by attribute"),
        ({"reads": Reads.TARGETED, "busiest_share": 0.01, "is_peak_known": True}, "fixed, by attribute"),
        # 2,000 WCU/s of one device: one shard cannot take it, three can
        ({"reads": Reads.TARGETED, "busiest_share": 0.4}, "adaptive, by attribute"),
        ({"reads": Reads.TARGETED, "busiest_share": 0.4, "is_peak_known": True}, "fixed, by sort key"),
        ({"reads": Reads.TARGETED, "busiest_share": 0.6}, "adaptive, by sort key"),
        ({"reads": Reads.RANGE}, "adaptive, by sort key"),
        (
            {"reads": Reads.RANGE, "is_sorted_by_time": False},
            "adaptive, by sort key, time buckets with index shards",
        ),
    ],
)
def test_the_pattern_follows_the_workload(described, name):
    """Shards by whether the peak is known, the hash by the reads, an index where the sort key is not the time."""
    given = {"shard_count": 16, "reads": Reads.NEWEST} | described
    count = given.pop("shard_count")
    choice = choose_pattern(Usage(**given), 5_000.0, count)
    assert choice.name == name
    assert all(choice.reasons)
