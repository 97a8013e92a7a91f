"""A fleet on a virtual clock: a load becomes reports."""

from __future__ import annotations

from random import Random

from hotpartition.core.reports import Report
from hotpartition.core.sampler import LoadSampler
from support.builders import World

START_MS = 1_700_000_000_000
ENVIRONMENTS = 100


def send_load(world: World, collection: str, wcu: float, *, seed: int = 1, is_throttled: bool = False) -> None:
    """Let a fleet write a key for the world's first six seconds, in writes of 1 WCU, each by one of it at random."""
    random, due = Random(seed), 0.0
    samplers = [
        LoadSampler(environment_id=f"e{number}", sampling_distance=10.0, random=random.random)
        for number in range(ENVIRONMENTS)
    ]
    for now_ms in range(START_MS, START_MS + 6_000):
        due += wcu / 1000
        while due >= 1:
            due -= 1
            crossing = random.choice(samplers).record(collection, 1, now_ms)
            if crossing is not None:
                world.reports.send(Report(collection, *crossing, now_ms, is_throttled=is_throttled))
