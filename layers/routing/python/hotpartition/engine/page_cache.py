"""Pages of read-hot collections: kept in the environment and in Redis, and read once for the whole fleet.

Only for collections that were found read-hot (`RouteSource.get_for_reading`). An environment that finds a page stale
takes a lease; its holder reads DynamoDB and stores the page for all. The others are served the last page while it is
within the staleness bound, or wait a little, or read for themselves. Redis away, full or filled with garbage costs
reads, never an error. No page is served that is older than the bound, and no age is reported that is too small,
whatever wall clocks say and however late a page reaches Redis (`core/page_freshness.py`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from threading import Lock
from typing import Generic, NamedTuple, Protocol, TypeVar

from hotpartition.core.backoff import Clock
from hotpartition.core.errors import MalformedPageError, RegistryForeignError, RegistryUnavailableError, RetryLaterError
from hotpartition.core.metrics import MetricName
from hotpartition.core.page_freshness import (
    Freshness,
    PageLimits,
    choose_page_copy,
    freshness_of_copy,
    freshness_of_read,
)
from hotpartition.core.ports import PageStore, StoredPage, Telemetry

WAIT_MS = 100.0
"""How long a request waits for the first page of another's read, before it reads for itself."""
WAIT_STEP_MS = 20.0
"""Mean time between two looks while it waits."""
REFUSED_MS = 1_000.0
"""For how long after DynamoDB refused a page an environment reads it only with the lease: reads by all environments
would keep the partitions busy and so refuse the one that holds the lease."""
MAX_REFUSALS = 1_000
"""Pages of which that is remembered."""
MAX_ENTRIES = 200
"""Pages that one execution environment keeps."""
MAX_BYTES = 16_000_000
"""Bytes of those pages, as JSON; in memory they are larger."""
MAX_PAGE_BYTES = 1_048_576
"""A larger page stays out of Redis, whose other keys share the node's network: each environment reads it for itself."""

PageT = TypeVar("PageT")


class PageCodec(Protocol[PageT]):
    """How a page is written in Redis."""

    def encode(self, page: PageT) -> str:
        """Write a page as text."""

    def decode(self, text: str) -> PageT:
        """Read a page.

        Raises:
            MalformedPageError: `encode` did not write this text.
        """


class Origin(StrEnum):
    """Where a page came from."""

    L1 = "l1"
    REDIS = "redis"
    WAITED = "waited"
    """From Redis, after waiting for another's read."""
    DYNAMODB = "dynamodb"


@dataclass(frozen=True, slots=True)
class CachedPage(Generic[PageT]):
    """A page as it is served.

    `age_ms` is how long ago its read began, at most; `units` is the cost of reading it from DynamoDB.
    """

    page: PageT
    origin: Origin
    age_ms: int
    units: float


class _Entry(NamedTuple, Generic[PageT]):
    page: PageT
    leased_at_ms: int | None
    """When the lease to read it was taken, by Redis's clock: two pages of one collection have different ones. None: it
    was read without a lease."""
    units: float
    size: int
    freshness: Freshness

    def is_newer_than(self, other: _Entry[PageT], now_ms: float) -> bool:
        """Say whether it should be kept rather than another; one that cannot be served any more should not."""
        if self.leased_at_ms is not None and self.leased_at_ms == other.leased_at_ms:
            return False  # the same page, looked at later
        return self.freshness.read_at_ms > other.freshness.read_at_ms and self.freshness.is_usable_at(now_ms)


class _Refusal(NamedTuple):
    """The error of a refused read, and until when the page is not read without the lease."""

    error: RetryLaterError
    until_ms: float


class _Memory(Generic[PageT]):
    """The pages that an environment keeps: bounded in number and in bytes, least recently used ones go first."""

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[tuple[str, str], _Entry[PageT]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: tuple[str, str]) -> _Entry[PageT] | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
            return entry

    def put(self, key: tuple[str, str], entry: _Entry[PageT]) -> None:
        with self._lock:
            before = self._entries.pop(key, None)
            self._bytes -= before.size if before else 0
            if entry.size > self._max_bytes:
                return
            self._entries[key] = entry
            self._bytes += entry.size
            while self._bytes > self._max_bytes or len(self._entries) > self._max_entries:
                _, oldest = self._entries.popitem(last=False)
                self._bytes -= oldest.size


class PageCache(Generic[PageT]):
    """Serves pages of read-hot collections. One per execution environment, or one per process. Safe under threads."""

    def __init__(
        self,
        *,
        store: PageStore,
        codec: PageCodec[PageT],
        limits: PageLimits,
        telemetry: Telemetry,
        clock: Clock,
        timer: Callable[[], float],
        environment_id: str,
        max_entries: int,
        max_bytes: int,
    ) -> None:
        """Start empty.

        `timer` is a monotonic clock in seconds; `clock` only waits and draws. `environment_id`, unique in the fleet,
        decides which copy is read. The environment keeps `max_entries` pages of together `max_bytes`, as written in
        Redis.
        """
        self._store = store
        self._codec = codec
        self._limits = limits
        self._telemetry = telemetry
        self._clock = clock
        self._timer = timer
        self._environment_id = environment_id
        self._memory: _Memory[PageT] = _Memory(max_entries, max_bytes)
        self._refusals: dict[tuple[str, str], _Refusal] = {}

    def get_page(
        self,
        collection: str,
        variant: str,
        copies: int,
        fill: Callable[[], tuple[PageT, float]],
        *,
        remaining_ms: float = float("inf"),
    ) -> CachedPage[PageT]:
        """Return a page that is at most as old as the bound, or read it.

        `fill` reads it from DynamoDB, and says for how many read units. `copies`: in how many Redis holds it, at least
        one. Waiting never passes `remaining_ms`, the time the caller has left.

        Raises:
            RetryLaterError: `fill` raised it, and there is no page within the bound.
        """
        key = collection, variant
        now_ms = self._now_ms()
        held = self._memory.get(key)
        if held is not None and held.freshness.is_fresh_at(now_ms):
            return self._serve(held, Origin.L1)
        if held is None or held.size <= MAX_PAGE_BYTES:
            try:
                return self._share(key, copies, fill, held, now_ms + min(WAIT_MS, remaining_ms))
            except RegistryUnavailableError as error:
                self._count_failure(error)
        return self._read(key, copies, fill, held)

    def _share(
        self,
        key: tuple[str, str],
        copies: int,
        fill: Callable[[], tuple[PageT, float]],
        held: _Entry[PageT] | None,
        deadline_ms: float,
    ) -> CachedPage[PageT]:
        """Take the fleet's page, or read it for the fleet, or for this environment where another's read takes long.

        Raises:
            RegistryUnavailableError: Redis did not respond.
            RetryLaterError: as `get_page`.
        """
        origin = Origin.REDIS
        while True:
            told = self._ask(key, copies, held)
            now_ms = self._now_ms()
            if told is not None and (held is None or not held.is_newer_than(told, now_ms)):
                held = told
                self._memory.put(key, told)
            if held is not None and held.freshness.is_fresh_at(now_ms):
                return self._serve(held, origin)
            if (leased_at_ms := self._store.take_lease(*key, self._limits.lease_ms)) is not None:
                return self._read(key, copies, fill, held, leased_at_ms=leased_at_ms)
            now_ms = self._now_ms()
            if held is not None and held.freshness.is_usable_at(now_ms):
                return self._serve(held, origin if held is told else Origin.L1)
            pause_ms = WAIT_STEP_MS * (0.5 + self._clock.random())
            if now_ms + pause_ms >= deadline_ms:
                if (refusal := self._refusals.get(key)) is not None and now_ms < refusal.until_ms:
                    raise refusal.error.with_traceback(None)
                return self._read(key, copies, fill, held)
            self._clock.sleep(pause_ms / 1000)
            origin = Origin.WAITED

    def _ask(self, key: tuple[str, str], copies: int, held: _Entry[PageT] | None) -> _Entry[PageT] | None:
        """Read this environment's copy in Redis; None where it is missing or cannot be read."""
        asked_at_ms = self._now_ms()
        try:
            found = self._store.get(*key, choose_page_copy(self._environment_id, copies))
            if found is None:
                return None
            stored, age_ms = found
            size = len(stored.payload)
            is_held = held is not None and (held.leased_at_ms, held.size) == (stored.leased_at_ms, size)
            page = held.page if held is not None and is_held else self._codec.decode(stored.payload)
        except MalformedPageError:
            self._telemetry.count(MetricName.PAGES_MALFORMED)
            return None
        freshness = freshness_of_copy(
            self._limits,
            asked_at_ms=asked_at_ms,
            age_ms=age_ms,
            cost_ms=stored.cost_ms,
            random=self._clock.random,
        )
        return _Entry(page, stored.leased_at_ms, stored.units, size, freshness)

    def _read(
        self,
        key: tuple[str, str],
        copies: int,
        fill: Callable[[], tuple[PageT, float]],
        held: _Entry[PageT] | None,
        *,
        leased_at_ms: int | None = None,
    ) -> CachedPage[PageT]:
        """Read the page from DynamoDB, for all with a lease; where DynamoDB refuses, serve the last page."""
        read_at_ms = self._now_ms()
        try:
            page, units = fill()
        except RetryLaterError as error:
            self._remember_refusal(key, error)
            if leased_at_ms is not None:
                self._telemetry.count(MetricName.PAGE_FILLS_FAILED)
            if (last := self._find_usable(key, copies, held)) is None:
                raise
            return self._serve(last, Origin.L1 if last is held else Origin.REDIS)
        cost_ms = round(self._now_ms() - read_at_ms)
        payload = self._codec.encode(page)
        freshness = freshness_of_read(self._limits, read_at_ms=read_at_ms, cost_ms=cost_ms, random=self._clock.random)
        entry = _Entry(page, leased_at_ms, units, len(payload), freshness)
        self._memory.put(key, entry)
        if leased_at_ms is not None:
            stored = StoredPage(payload, leased_at_ms, self._limits.keep_ms, cost_ms, units)
            self._store_for_all(key, stored, copies)
        return self._serve(entry, Origin.DYNAMODB)

    def _find_usable(self, key: tuple[str, str], copies: int, held: _Entry[PageT] | None) -> _Entry[PageT] | None:
        """Find a page within the bound: the one at hand or, since trying to read took its time, Redis's once more."""
        if held is not None and held.freshness.is_usable_at(self._now_ms()):
            return held
        try:
            told = self._ask(key, copies, held)
        except RegistryUnavailableError as error:
            self._count_failure(error)
            return None
        return told if told is not None and told.freshness.is_usable_at(self._now_ms()) else None

    def _remember_refusal(self, key: tuple[str, str], error: RetryLaterError) -> None:
        if len(self._refusals) >= MAX_REFUSALS:
            self._refusals.clear()
        self._refusals[key] = _Refusal(error, self._now_ms() + REFUSED_MS)

    def _store_for_all(self, key: tuple[str, str], page: StoredPage, copies: int) -> None:
        self._telemetry.count(MetricName.PAGE_FILLS)
        if len(page.payload) > MAX_PAGE_BYTES:
            return
        try:
            self._store.put(*key, page, copies=copies)
        except RegistryUnavailableError as error:
            self._count_failure(error)

    def _count_failure(self, error: RegistryUnavailableError) -> None:
        if not isinstance(error, RegistryForeignError):  # the store has logged it
            self._telemetry.count(MetricName.REGISTRY_UNAVAILABLE)

    def _serve(self, entry: _Entry[PageT], origin: Origin) -> CachedPage[PageT]:
        age_ms = round(self._now_ms() - entry.freshness.read_at_ms)
        self._telemetry.count(_METRICS[origin])
        self._telemetry.count(MetricName.PAGE_AGE_MS, age_ms)
        return CachedPage(entry.page, origin, age_ms, entry.units)

    def _now_ms(self) -> float:
        return self._timer() * 1000


_METRICS = {
    Origin.L1: MetricName.PAGES_FROM_L1,
    Origin.REDIS: MetricName.PAGES_FROM_REDIS,
    Origin.WAITED: MetricName.PAGES_FROM_REDIS,
    Origin.DYNAMODB: MetricName.PAGES_FROM_DYNAMODB,
}
