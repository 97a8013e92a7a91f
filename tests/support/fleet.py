"""A fleet on a virtual clock: a load over time becomes reports, and the detector's decisions a log."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from hotpartition.core.detector import Decision, Thresholds, decide
from hotpartition.core.reports import Report
from hotpartition.core.route import EMPTY_ROUTE, Route
from hotpartition.core.sampler import LoadSampler
from hotpartition.core.window import ReportWindow
from support.builders import THRESHOLDS, World

START_MS = 1_700_000_000_000
TICK_MS = 100


class Arrival(NamedTuple):
    """A report on its way to the consumer."""

    at_ms: int
    report: Report


@dataclass
class Fleet:
    """Environments that share a conversation's writes at random."""

    environments: int = 100
    sampling_distance_wcu: float = 10.0
    seed: int = 1
    delay_ms: int = 20
    is_throttled: Callable[[int], bool] = lambda _: False

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        draw, distance = self.random.random, self.sampling_distance_wcu
        self.counters = [
            LoadSampler(environment_id=f"e{i}", sampling_distance=distance, random=draw)
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
                    arrivals.append(Arrival(now_ms + self.delay_ms, report))
        return arrivals


def send_load(world: World, collection: str, wcu: float, *, seed: int = 1, is_throttled: bool = False) -> None:
    """Let a fleet write a key for the world's first six seconds."""
    fleet = Fleet(seed=seed, is_throttled=lambda _: is_throttled)
    for arrival in fleet.offer(lambda _: wcu, 6_000, collection):
        world.reports.send(arrival.report)


@dataclass
class Detection:
    """What a consumer decided over a trace: every raise with its time, and all reasons that were given."""

    route: Route
    raises: list[tuple[int, Decision]] = field(default_factory=list)
    reasons: set[str] = field(default_factory=set)

    @property
    def shard_counts(self) -> list[int]:
        return [decision.generation.shard_count for _, decision in self.raises if decision.generation]


def detect(
    arrivals: Iterable[Arrival], duration_ms: int, *, thresholds: Thresholds = THRESHOLDS, route: Route = EMPTY_ROUTE
) -> Detection:
    """Run the detector over a trace in ticks of 100 ms, applying each raise at once."""
    waiting = sorted(arrivals, key=lambda arrival: arrival.at_ms)
    window, detection = ReportWindow(), Detection(route)
    for now_ms in range(START_MS, START_MS + duration_ms, TICK_MS):
        while waiting and waiting[0].at_ms <= now_ms:
            window.add(waiting.pop(0).report, now_ms)
        window.forget(now_ms)
        reports = window.as_mapping().get("c")
        for decision in decide("c", reports, detection.route, thresholds, now_ms=now_ms) if reports else ():
            detection.reasons.add(str(decision.reason))
            if decision.generation:
                detection.route = detection.route.union(Route(frozenset({decision.generation})))
                detection.raises.append((now_ms - START_MS, decision))
    return detection
