"""A fleet on a virtual clock: a load over time becomes reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from hotpartition.core.reports import Report
from hotpartition.core.sampler import LoadSampler
from support.builders import World

START_MS = 1_700_000_000_000
DELAY_MS = 20
"""Between a report and its arrival."""


class Arrival(NamedTuple):
    """A report on its way to the consumer."""

    at_ms: int
    report: Report


@dataclass
class Fleet:
    """Environments that share a conversation's writes at random."""

    environments: int = 100
    seed: int = 1
    is_throttled: Callable[[int], bool] = lambda _: False

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.counters = [
            LoadSampler(environment_id=f"e{i}", sampling_distance=10.0, random=self.random.random)
            for i in range(self.environments)
        ]

    def offer(self, rate_wcu: Callable[[int], float], duration_ms: int, collection: str = "c") -> list[Arrival]:
        """Offer a load (WCU/s as a function of ms since the start) in writes of 1 WCU; return the reports."""
        arrivals, due = [], 0.0
        for now_ms in range(START_MS, START_MS + duration_ms):
            due += rate_wcu(now_ms - START_MS) / 1000
            while due >= 1:
                due -= 1
                crossing = self.random.choice(self.counters).record(collection, 1, now_ms)
                if crossing is not None:
                    report = Report(collection, *crossing, now_ms, is_throttled=self.is_throttled(now_ms))
                    arrivals.append(Arrival(now_ms + DELAY_MS, report))
        return arrivals


def send_load(world: World, collection: str, wcu: float, *, seed: int = 1, is_throttled: bool = False) -> None:
    """Let a fleet write a key for the world's first six seconds."""
    fleet = Fleet(seed=seed, is_throttled=lambda _: is_throttled)
    for arrival in fleet.offer(lambda _: wcu, 6_000, collection):
        world.reports.send(arrival.report)
