"""The scale of a demonstration: how much smaller than DynamoDB's its partitions and its load are.

It follows what this machine gets done while whatever else runs on it, which is measured for a second.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from math import ceil, floor

from tools.limits import PARTITION_RCU, PARTITION_WCU
from tools.world.scaling import scale_reads, scale_thresholds

# Lambda adds environments while throttled requests hold theirs; here there are a few, and each that waits keeps load
# from being offered. So a refused write goes back to its client sooner than by default (300 ms).
REQUEST_BUDGET_MS = 100
WRITES_PER_SECOND_AND_CORE = 50.0
MOST_CORES = 8
HOT_SHARE = 0.6
QUIET_SHARE = 0.45
HOT_TIMES_LIMIT = 3.0
"""The hot conversation is offered this many times what one partition takes."""
SHORTEST_HOT_SECONDS = 10.0
"""A smaller largest conversation is played more slowly, against a smaller limit, so that it is hot for this long."""
SMALLEST_HOT_WRITES_PER_SECOND = 12.0
USUAL_ROUNDS_PER_SECOND = 6_500
"""What one core of the machine for which the rates above were chosen does of `_ROUNDS`."""
AS_USUAL = 0.75
"""From this share on a machine counts as that one: nothing else is at work on it."""
_ROUNDS = """
import hashlib, json, time
page = {"messages": [{"message_id": str(n), "body": "x" * 200} for n in range(50)]}
ends_at, rounds = time.perf_counter() + 1.0, 0
while time.perf_counter() < ends_at:
    hashlib.sha256(json.dumps(json.loads(json.dumps(page))).encode()).digest()
    rounds += 1
print(rounds)
"""
"""A second of what the local run does most, counted."""


class WorkloadError(ValueError):
    """A file cannot be played; the text says why."""


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


def measure_speed(cores: int) -> float:
    """Measure what all cores together get done in a second now, as a share of what they do usually; 1 at most."""
    command = [sys.executable, "-c", _ROUNDS]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(cores)]
    rounds = sum(int(process.communicate()[0]) for process in running)
    share = rounds / (cores * USUAL_ROUNDS_PER_SECOND)
    return 1.0 if share >= AS_USUAL else share


def choose_scale(*, cores: int, speed: float = 1.0, largest_conversation: int | None = None) -> Scale:
    """Choose the scale for a machine at its speed, and for a file whose largest conversation has this many messages."""
    carried = speed * WRITES_PER_SECOND_AND_CORE * max(1, min(cores, MOST_CORES))
    carried = max(carried, SMALLEST_HOT_WRITES_PER_SECOND / HOT_SHARE)
    hot = HOT_SHARE * carried
    if largest_conversation is not None:
        hot = min(hot, floor(largest_conversation / SHORTEST_HOT_SECONDS))
        if hot < SMALLEST_HOT_WRITES_PER_SECOND:
            needed = ceil(SMALLEST_HOT_WRITES_PER_SECOND * SHORTEST_HOT_SECONDS)
            raise WorkloadError(f"the largest conversation holds {largest_conversation} messages, and needs {needed}")
    return scale_to(hot=hot, quiet=QUIET_SHARE * carried)


def scale_to(*, hot: float, quiet: float, max_shard_count: int | None = None) -> Scale:
    """Build the scale at which this number of writes a second is hot."""
    return Scale(
        factor=hot / HOT_TIMES_LIMIT / PARTITION_WCU,
        hot_writes_per_second=hot,
        quiet_writes_per_second=quiet,
        max_shard_count=max_shard_count,
    )
