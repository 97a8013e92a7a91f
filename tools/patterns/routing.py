"""What writers know of the route: nothing changes (a fixed N), or the fleet counts, decides and raises."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random
from typing import NamedTuple

from hotpartition.core.detector import Reason, ReportWindow, decide
from hotpartition.core.refusals import RecentRefusals
from hotpartition.core.reports import WriteReport
from hotpartition.core.route import EMPTY_ROUTE, Generation, Placement, Route
from hotpartition.core.sampler import LoadSampler
from hotpartition.engine.route_cache import RouteCache
from hotpartition.runtime.settings import ConsumerSettings, WriterSettings
from hotpartition.runtime.thresholds import build_thresholds
from tools.simulation.engine import Engine

ENVIRONMENTS = 50
POLL_SECONDS = 0.1
REPORT_SECONDS = 0.005
"""From a write to its entry in the stream (assumption)."""
RAISE_SECONDS = 0.02
"""From a decision to the generation in journal and Redis (assumption)."""


class Place(NamedTuple):
    """Where a write goes: its partition key, the N it was placed under, and the key of its index entry."""

    partition_key: str
    shard_count: int
    index_key: str | None


class Raised(NamedTuple):
    """A generation that was added."""

    at_seconds: float
    shard_count: int
    reason: str


class FixedRouting:
    """N shards since ever; 0: the base key alone. Nobody counts."""

    def __init__(self, shards: int) -> None:
        self.raises: list[Raised] = []
        self.route = Route(frozenset({Generation(0, shards)})) if shards else EMPTY_ROUTE

    def known_to(self, environment: int, now_ms: int) -> Route:
        """Return the route as one environment knows it."""
        del environment, now_ms
        return self.route

    def count(self, environment: int, now_ms: int, shard_count: int) -> WriteReport | None:
        """Count a write of one unit; returns the report that it made, if any."""
        del environment, now_ms, shard_count
        return None

    def refused_everywhere(self, environment: int, now_ms: int, report: WriteReport | None) -> None:
        """Hear that all choices of a write refused."""

    def note_refusal(self, environment: int, partition_key: str, now_ms: int) -> None:
        """Hear that a key refused."""

    def order(self, environment: int, places: Sequence[Place], now_ms: int) -> Sequence[Place]:
        """Leave the order as it is: there is one place."""
        del environment, now_ms
        return places


class AdaptiveRouting:
    """The product's own counters, route caches, detector and decision around one collection."""

    def __init__(self, engine: Engine, collection: str, random: Random, epoch_ms: int) -> None:
        writer = WriterSettings.defaults()
        self.raises: list[Raised] = []
        self.route = EMPTY_ROUTE
        self._engine = engine
        self._collection = collection
        self._epoch_ms = epoch_ms
        self._thresholds = build_thresholds(ConsumerSettings.defaults())
        self._window = ReportWindow()
        self._raised_at_ms: int | None = None
        self._counters = [
            LoadSampler(
                environment_id=f"{random.getrandbits(128):032x}",
                sampling_distance_wcu=writer.sampling.sampling_distance_wcu,
                random=random.random,
            )
            for _ in range(ENVIRONMENTS)
        ]
        self._caches = [
            RouteCache(ttl_seconds=writer.routes.route_cache_seconds, max_entries=1, random=random.random)
            for _ in range(ENVIRONMENTS)
        ]
        self._refusals = [RecentRefusals() for _ in range(ENVIRONMENTS)]
        engine.after(random.random() * POLL_SECONDS, self._poll)

    def known_to(self, environment: int, now_ms: int) -> Route:
        """Return the route as one environment knows it."""
        cache = self._caches[environment]
        fresh = cache.get_fresh(self._collection, now_ms)
        return cache.learn(self._collection, self.route, now_ms) if fresh is None else fresh

    def count(self, environment: int, now_ms: int, shard_count: int) -> WriteReport | None:
        """Count a write of one unit; returns the report that it made, if any."""
        crossing = self._counters[environment].record(self._collection, 1.0, now_ms)
        if crossing is None:
            return None
        report = WriteReport(self._collection, crossing.slot, crossing.source, crossing.value_wcu, now_ms, shard_count)
        self._send(report)
        return report

    def refused_everywhere(self, environment: int, now_ms: int, report: WriteReport | None) -> None:
        """Hear that all choices of a write refused."""
        if report is not None and not report.is_throttled:
            self._send(report._replace(is_throttled=True))
        self._caches[environment].learn(self._collection, self.route, now_ms, is_brief=True)

    def note_refusal(self, environment: int, partition_key: str, now_ms: int) -> None:
        """Hear that a key refused."""
        self._refusals[environment].add(partition_key, now_ms)

    def order(self, environment: int, places: Sequence[Place], now_ms: int) -> Sequence[Place]:
        """Put the places last that refused one environment of late."""
        index_keys = {place.partition_key: place.index_key for place in places}
        placements = [Placement(place.partition_key, place.shard_count) for place in places]
        ordered = self._refusals[environment].order(placements, now_ms)
        return [Place(*placement, index_keys[placement.partition_key]) for placement in ordered]

    def _send(self, report: WriteReport) -> None:
        def arrive() -> None:
            self._window.add(report, self._now_ms())

        self._engine.after(REPORT_SECONDS, arrive)

    def _now_ms(self) -> int:
        return self._epoch_ms + int(self._engine.now * 1000)

    def _poll(self) -> None:
        now_ms = self._now_ms()
        self._window.forget(now_ms)
        reports = self._window.as_mapping().get(self._collection)
        if reports is not None:
            for decision in decide(
                self._collection,
                reports,
                self.route,
                self._thresholds,
                now_ms=now_ms,
                raised_at_ms=self._raised_at_ms,
            ):
                if decision.generation is not None:
                    self._raised_at_ms = now_ms
                    self._engine.after(RAISE_SECONDS, partial(self._add, decision.generation, decision.reason))
        self._engine.after(POLL_SECONDS, self._poll)

    def _add(self, generation: Generation, reason: Reason) -> None:
        self.route = self.route.union(Route(frozenset({generation})))
        self.raises.append(Raised(round(self._engine.now, 3), generation.shard_count, str(reason)))


Routing = FixedRouting | AdaptiveRouting
"""Where a writer gets the route from, and whom it tells what it writes."""
