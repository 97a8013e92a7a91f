"""Values that several tests of the demonstration start from."""

from __future__ import annotations

from tools.demo.judge import Summary, Throttles
from tools.history_checker import Verdict
from tools.local.partitions import TimelineRow

GOOD = Summary(
    acknowledged=5000,
    missing=0,
    duplicated=0,
    out_of_order=0,
    rejected=0,
    conversations=50,
    hot_conversation="hot",
    hot_threshold_wcu=20.0,
    partition_limit_wcu=20.0,
    sampling_distance_wcu=1.25,
    onset_to_raise_seconds=3.0,
    raises=1,
    max_n=4,
    throttled_before_raise=10,
    throttled_after_raise=3,
    environments=10,
    reads=200,
    duration_seconds=90.0,
)
FAULTLESS = Verdict(
    acknowledged=5000,
    conversations=50,
    reads=200,
    missing=0,
    duplicated=0,
    out_of_order=0,
    altered=0,
    phantom=0,
    unverified=0,
    examples=(),
)
FALLING = Throttles(before_raise=10, after_raise=3, in_first_second=10, in_last_third=9)


def load(at_ms: int, key: str, throttled: int, writes: int = 1) -> TimelineRow:
    return TimelineRow(
        at_ms=at_ms,
        key=key,
        writes=writes,
        write_wcu=float(writes),
        throttled_writes=throttled,
        throttled_wcu=float(throttled),
        reads=0,
        throttled_reads=0,
    )
