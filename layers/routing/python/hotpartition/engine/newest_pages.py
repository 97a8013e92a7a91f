"""Newest pages, eventually consistent: those of read-hot collections through the page cache, all others without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

from hotpartition.core.merge import ItemT, Page, PageRange, cut_page, narrow_newest
from hotpartition.engine.gatherer import Gatherer
from hotpartition.engine.load_counting import ReportedPages
from hotpartition.engine.read_cache import Origin, ReadCache
from hotpartition.engine.route_cache import Routes


@dataclass(frozen=True, slots=True)
class NewestPage(Generic[ItemT]):
    """A newest page, and when its read began (Unix ms, by this process's clock).

    `age_ms` is None where it was read for this request.
    """

    page: Page[str, ItemT]
    read_at_ms: int
    age_ms: int | None = None


class NewestPages(Generic[ItemT]):
    """Reads newest pages. One per execution environment, or one per process."""

    def __init__(
        self,
        gatherer: Gatherer[str, ItemT],
        *,
        routes: Routes,
        cache: ReadCache[Page[str, ItemT]],
        limits: Sequence[int],
        now_ms: Callable[[], int],
        counting: ReportedPages | None = None,
    ) -> None:
        """Start with nothing read; `routes` are those of `gatherer`.

        `counting` gets each page served from the cache. `limits`, ascending, are those that pages are cached with: a
        page of fewer items is a part of one of them.
        """
        self._gatherer = gatherer
        self._counting = counting
        self._routes = routes
        self._cache = cache
        self._limits = limits
        self._now_ms = now_ms

    def read(
        self,
        collection: str,
        limit: int,
        *,
        is_shown_at: Callable[[ItemT, int], bool],
        fits: Callable[[Sequence[ItemT]], int] = len,
        remaining_ms: float = float("inf"),
    ) -> NewestPage[ItemT]:
        """Read one page: complete, or an error. It is what a read at `read_at_ms` gave, without what has expired since.

        Args:
            collection: whose page it is.
            limit: how many items it may have, no more than the largest of the cached limits.
            is_shown_at: says whether an item belongs on a page at a time (Unix ms).
            fits: says how many of the items a response can carry; the page ends there, at one item at least.
            remaining_ms: time the caller has left.

        Raises:
            RetryLaterError: a key could not be read within the budget, and there is no page within the staleness bound.
            MalformedGenerationError: the routing item cannot be read.
        """
        started_ms = self._now_ms()
        known = self._routes.for_read(collection)

        def gather_fitting(limit: int, at_ms: int) -> Page[str, ItemT]:
            page = self._gatherer.gather(
                PageRange(collection, newest_first=True, limit=limit),
                is_strong=False,
                remaining_ms=remaining_ms,
                is_shown=lambda item: is_shown_at(item, at_ms),
                hint=known.route,
            )
            return cut_page(page, fits(page.items))

        if not known.copies:
            return NewestPage(gather_fitting(limit, started_ms), started_ms)
        cached_limit = next(each for each in self._limits if each >= limit)

        def fill() -> tuple[Page[str, ItemT], float]:
            page = gather_fitting(cached_limit, self._now_ms())
            return page, page.units

        cached = self._cache.get((collection, f"newest-{cached_limit}"), fill, remaining_ms=remaining_ms)
        if self._counting is not None and cached.origin is not Origin.LOADED:
            self._counting.count(collection, cached.units)
        now_ms = self._now_ms()
        page = narrow_newest(cached.value, limit, lambda item: is_shown_at(item, now_ms))
        age_ms = None if cached.origin is Origin.LOADED else cached.age_ms
        return NewestPage(page, now_ms - cached.age_ms, age_ms)
