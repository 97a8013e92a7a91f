"""What each size of a deployment carries: `python -m tools.simulation sizes`, a few minutes.

The simulator plays fleets of growing load with the product's own sampler and detector, and counts what they ask of the
consumer and of Redis. A size carries a load if both have room for it, and every rush in it was raised within two
seconds. What a CPU and a node can do is put in: the first was measured elsewhere, the second is assumed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor

from hotpartition_cdk.configuration import FULL_CPU_MB, HotPartitionOptions
from infra.environments import DEV, LARGE_ENVIRONMENT, PROD
from tools.simulation.read_rush import COMMANDS_PER_SECOND
from tools.simulation.scale import Level, ScaleLevel, run_study

LOADS = (5_000, 10_000, 20_000, 30_000, 40_000, 50_000, 75_000, 100_000, 150_000, 200_000)
"""Writes a second of one unit."""
DETECTED_SECONDS = 2.0

CPU_REPORTS_PER_SECOND = 40_100
"""Of one whole CPU of the consumer: the row `consumer` of docs/performance.md, on an AMD EPYC."""
COMMAND_SHARES = {"cache.t4g.micro": 0.2, "cache.t4g.small": 0.4, "cache.m7g.large": 1.0}
"""Of what a whole CPU serves, without end: T4g nodes have 10 % and 20 % of two (EC2 guide, "baseline utilization")."""
STREAM_BYTES = {"cache.t4g.micro": 0.25e9, "cache.t4g.small": 0.7e9, "cache.m7g.large": 3.2e9}
"""Half of a node's memory."""


def carries(options: HotPartitionOptions, level: ScaleLevel) -> bool:
    """Say whether a size has room for what a simulated level asked of it."""
    registry = options.registry
    cpu = min(1.0, options.consumer.memory_mb / FULL_CPU_MB)
    commands = COMMANDS_PER_SECOND * COMMAND_SHARES[registry.node_type] * registry.shard_count
    return (
        level.busiest_consumer_reports_per_second <= CPU_REPORTS_PER_SECOND * cpu
        and level.consumers_needed <= options.consumers
        and level.redis_commands_per_second <= commands
        and level.stream_memory_bytes <= STREAM_BYTES[registry.node_type] * registry.shard_count
        and level.detection_seconds.missing == 0
        and (level.detection_seconds.highest or 0) <= DETECTED_SECONDS
    )


def find_largest(options: HotPartitionOptions, levels: Sequence[ScaleLevel]) -> int:
    """Find the largest load that a size carries, and every smaller one with it."""
    most = 0
    for level in sorted(levels, key=lambda each: each.writes_per_second):
        if not carries(options, level):
            break
        most = level.writes_per_second
    return most


def main(arguments: Sequence[str]) -> int:
    """Print the loads as JSON."""
    loads = tuple(int(text) for text in arguments) or LOADS
    with ProcessPoolExecutor(max_workers=1) as pool:
        study = run_study([Level(writes_per_second=load, rushes=5, seeds=1) for load in loads], first_seed=1, pool=pool)
    sizes: Mapping[str, HotPartitionOptions] = {"dev": DEV, "prod": PROD, "large": LARGE_ENVIRONMENT}
    found = {name: find_largest(size, study.levels) for name, size in sizes.items()}
    sys.stdout.write(json.dumps(found, indent=2) + "\n")
    return 0
