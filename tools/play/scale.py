"""The scale of a demonstration: how much smaller than DynamoDB's its partitions and its load are."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tools.partition_model import PARTITION_RCU, PARTITION_WCU
from tools.scaling import scale_reads, scale_thresholds

# Lambda adds environments while throttled requests hold theirs; here there are a few, and each that waits keeps load
# from being offered. So a refused write goes back to its client sooner than by default (300 ms).
REQUEST_BUDGET_MS = 100
WRITES_PER_SECOND_AND_CORE = 50.0
MOST_CORES = 8
HOT_SHARE = 0.6
QUIET_SHARE = 0.45
# The hot conversation is offered this many times what one partition takes.
HOT_TIMES_LIMIT = 3.0
# A smaller largest conversation is played more slowly, against a smaller limit, so that it is hot for this long.
SHORTEST_HOT_SECONDS = 10.0
SMALLEST_HOT_WRITES_PER_SECOND = 12.0


class ScaleError(Exception):
    """The workload cannot be scaled to show a hot conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """One set of numbers, all derived from `factor`; load in writes a second, which are WCU for short messages."""

    factor: float
    hot_writes_per_second: float
    quiet_writes_per_second: float
    max_shard_count: int | None = None

    @property
    def partition_write_limit_wcu(self) -> float:
        """What one physical partition takes a second."""
        return round(PARTITION_WCU * self.factor, 3)

    @property
    def partition_read_limit_rcu(self) -> float:
        """What one physical partition serves a second."""
        return round(PARTITION_RCU * self.factor, 3)

    def settings(self) -> dict[str, float]:
        """Build the functions' settings by field name."""
        settings = scale_thresholds(self.factor) | scale_reads(self.factor) | {"request_budget_ms": REQUEST_BUDGET_MS}
        return settings if self.max_shard_count is None else {**settings, "max_shard_count": self.max_shard_count}

    def describe(self) -> str:
        """Say the scale in one line."""
        settings = self.settings()
        return (
            f"factor {self.factor:.4g} of DynamoDB's own numbers: a partition takes "
            f"{self.partition_write_limit_wcu:g} WCU/s and {self.partition_read_limit_rcu:g} RCU/s; hot at once above "
            f"{settings['hot_at_once_wcu']:g}, hot if sustained above {settings['hot_sustained_wcu']:g}, shards sized "
            f"for {settings['target_shard_wcu']:g} WCU/s; one report in {settings['sampling_distance_wcu']:g} WCU; "
            f"a request tries for {REQUEST_BUDGET_MS} ms"
        )


def choose_scale(*, cores: int, largest_conversation: int | None = None) -> Scale:
    """Choose the scale for a machine, and for a file whose largest conversation holds so many messages."""
    carried = WRITES_PER_SECOND_AND_CORE * max(1, min(cores, MOST_CORES))
    hot = HOT_SHARE * carried
    if largest_conversation is not None:
        hot = min(hot, math.floor(largest_conversation / SHORTEST_HOT_SECONDS))
        if hot < SMALLEST_HOT_WRITES_PER_SECOND:
            needed = math.ceil(SMALLEST_HOT_WRITES_PER_SECOND * SHORTEST_HOT_SECONDS)
            raise ScaleError(
                f"the largest conversation holds {largest_conversation} messages; "
                f"at least {needed} are needed to make it hot"
            )
    limit = hot / HOT_TIMES_LIMIT
    return Scale(factor=limit / PARTITION_WCU, hot_writes_per_second=hot, quiet_writes_per_second=QUIET_SHARE * carried)
