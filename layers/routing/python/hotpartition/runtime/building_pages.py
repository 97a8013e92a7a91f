"""Builds the counting and caching of pages: for readers, and for tables that adapt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple

from hotpartition.core.keys import KeyForm
from hotpartition.core.merge import ItemT, Page, PositionOf
from hotpartition.core.page_freshness import PageLimits
from hotpartition.core.ports import ItemStore, PageStore
from hotpartition.core.sampler import ReadSampler
from hotpartition.engine.gatherer import Gatherer
from hotpartition.engine.newest_pages import NewestPages
from hotpartition.engine.page_cache import PageCache, PageCodec, PageT
from hotpartition.engine.read_counting import ReadCounting
from hotpartition.runtime.building import Ends, build_gatherer, build_routes
from hotpartition.runtime.settings import PageSettings, ReaderSettings


class Reading(NamedTuple, Generic[ItemT]):
    """The readers of a table's items. `newest` is None where pages are not cached."""

    gatherer: Gatherer[str, ItemT]
    newest: NewestPages[ItemT] | None


def build_read_counting(ends: Ends, pages: PageSettings) -> ReadCounting:
    """Build the counting of read pages."""
    sampler = ReadSampler(
        environment_id=ends.environment_id,
        sampling_distance_rcu=pages.read_sampling_distance_rcu,
        random=ends.clock.random,
    )
    return ReadCounting(sampler=sampler, reports=ends.reports, telemetry=ends.telemetry, now_ms=ends.clock.now_ms)


def build_page_cache(
    ends: Ends,
    pages: PageSettings,
    store: PageStore,
    codec: PageCodec[PageT],
    *,
    kind: type[PageCache[Any]] = PageCache,
) -> PageCache[PageT]:
    """Build the page cache of an environment."""
    limits = PageLimits(ttl_ms=pages.page_ttl_seconds * 1000, bound_ms=pages.page_staleness_seconds * 1000)
    return kind(
        store=store,
        codec=codec,
        limits=limits,
        telemetry=ends.telemetry,
        clock=ends.clock,
        timer=ends.timer,
        environment_id=ends.environment_id,
        max_entries=pages.page_l1_entries,
        max_bytes=pages.page_l1_bytes,
    )


def build_reading(
    ends: Ends,
    settings: ReaderSettings,
    *,
    store: ItemStore[str, ItemT],
    form: KeyForm,
    position_of: PositionOf[str],
    codec: PageCodec[Page[str, ItemT]],
    cached_limits: Sequence[int],
    page_cache: type[PageCache[Any]] = PageCache,
) -> Reading[ItemT]:
    """Build the readers of a table's items."""
    routes = build_routes(ends, settings)
    counting = build_read_counting(ends, settings.pages)
    gatherer = build_gatherer(
        ends, settings, routes, store=store, form=form, position_of=position_of, counting=counting
    )
    if ends.page_store is None or not settings.pages.page_cache:
        return Reading(gatherer, None)
    cache = build_page_cache(ends, settings.pages, ends.page_store, codec, kind=page_cache)
    newest = NewestPages(
        gatherer, routes=routes, cache=cache, limits=cached_limits, counting=counting, now_ms=ends.clock.now_ms
    )
    return Reading(gatherer, newest)
