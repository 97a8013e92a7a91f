"""Builds the counting and caching of pages: for readers, and for tables that adapt."""

from __future__ import annotations

from typing import Any

from hotpartition.core.freshness import CacheLimits
from hotpartition.core.ports import PageStore
from hotpartition.core.sampler import ReadSampler
from hotpartition.engine.read_cache import Codec, ReadCache, ValueT
from hotpartition.engine.read_counting import ReadCounting
from hotpartition.runtime.building import Ends
from hotpartition.runtime.settings import Settings


def build_read_counting(ends: Ends, settings: Settings) -> ReadCounting:
    """Build the counting of read settings."""
    sampler = ReadSampler(
        environment_id=ends.environment_id,
        sampling_distance_rcu=settings.read_sampling_distance_rcu,
        random=ends.clock.random,
    )
    return ReadCounting(sampler=sampler, reports=ends.reports, telemetry=ends.telemetry, now_ms=ends.clock.now_ms)


def build_page_cache(
    ends: Ends,
    settings: Settings,
    store: PageStore,
    codec: Codec[ValueT],
    *,
    kind: type[ReadCache[Any]] = ReadCache,
) -> ReadCache[ValueT]:
    """Build the page cache of an environment."""
    limits = CacheLimits(ttl_ms=settings.page_ttl_seconds * 1000, bound_ms=settings.page_staleness_seconds * 1000)
    return kind(
        store=store,
        codec=codec,
        limits=limits,
        telemetry=ends.telemetry,
        clock=ends.clock,
        timer=ends.timer,
        environment_id=ends.environment_id,
    )
