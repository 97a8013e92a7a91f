"""How pages are counted and cached, from the settings: for the read function, and for tables that adapt."""

from __future__ import annotations

import time

from hotpartition.core.backoff import Clock
from hotpartition.core.page_freshness import PageLimits
from hotpartition.core.sampler import ReadSampler
from hotpartition.engine.page_cache import PageCache, PageCodec, PageT
from hotpartition.engine.read_counting import ReadCounting
from hotpartition.ports import PageStore, ReportSink, Telemetry
from hotpartition.runtime.settings import PageSettings


def build_page_limits(settings: PageSettings) -> PageLimits:
    """Take the TTL and the staleness bound from the settings."""
    return PageLimits(ttl_ms=settings.page_ttl_seconds * 1000, bound_ms=settings.page_staleness_seconds * 1000)


def build_read_counting(
    settings: PageSettings, *, reports: ReportSink, telemetry: Telemetry, clock: Clock, environment_id: str
) -> ReadCounting:
    """Build what counts the pages that are read."""
    return ReadCounting(
        sampler=ReadSampler(
            environment_id=environment_id,
            sampling_distance_rcu=settings.read_sampling_distance_rcu,
            random=clock.random,
        ),
        reports=reports,
        telemetry=telemetry,
        now_ms=clock.now_ms,
    )


def build_page_cache(
    settings: PageSettings,
    *,
    store: PageStore,
    codec: PageCodec[PageT],
    telemetry: Telemetry,
    clock: Clock,
    environment_id: str,
) -> PageCache[PageT]:
    """Build the page cache of an environment."""
    return PageCache(
        store=store,
        codec=codec,
        limits=build_page_limits(settings),
        telemetry=telemetry,
        clock=clock,
        timer=time.monotonic,
        environment_id=environment_id,
        max_entries=settings.page_l1_entries,
        max_bytes=settings.page_l1_bytes,
    )
