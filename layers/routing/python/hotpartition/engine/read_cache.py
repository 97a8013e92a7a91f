"""Values that are read far more often than they change: kept in the process and, where there is Redis, for the fleet.

A value is a page, an item, or whatever a user loads. Within a process one thread loads it and the others wait for it.
Within a fleet one process takes a lease, loads the value and stores it for all; the others serve the last one while it
is within the staleness bound, or wait a little, or load for themselves. Redis away, full or filled with garbage costs
loads, never an error. No value is served that is older than the bound, and no age is reported that is too small,
whatever wall clocks say and however late a value reaches Redis (`core/freshness.py`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from enum import StrEnum
from threading import Event, Lock
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

from hotpartition.core.backoff import Clock
from hotpartition.core.errors import MalformedPageError, RegistryForeignError, RegistryUnavailableError, RetryLaterError
from hotpartition.core.freshness import CacheLimits, Freshness, choose_copy, freshness_of_copy, freshness_of_load
from hotpartition.core.metrics import MetricName
from hotpartition.core.ports import PageStore, StoredPage, Telemetry

WAIT_MS = 100.0
"""How long a process that has no value waits for another's load, before it loads for itself. Without this, 473 of 1,000
environments loaded a page of 50,000 requests a second when it was first asked for; with it, one did."""
WAIT_STEP_MS = 20.0
"""Mean time between two looks while it waits."""
REFUSED_MS = 1_000.0
"""For how long after DynamoDB refused a load a process loads the value only with the lease: loads by all processes
would keep the partitions busy and so refuse the one that holds the lease."""
MAX_REMEMBERED = 10_000
"""Keys of which a refusal, or a change, is remembered."""
MAX_SHARED_BYTES = 1_048_576
"""A larger value stays out of Redis, whose other keys share the node's network: each process loads it for itself."""
MAX_ENTRIES = 200
"""Values that a process keeps: the least recently used ones go first."""
MAX_BYTES = 16_000_000
"""Bytes of those values, as JSON or as its codec estimates; in memory they are larger."""

ValueT = TypeVar("ValueT")
OtherT = TypeVar("OtherT")
Key = tuple[str, str]
"""Of a value: its subject (a collection, an item), and which value of it."""

Loaded = Mapping[Key, tuple[ValueT, float]]
"""Values that were loaded together: of each, the value and what it cost."""
LoadMany = Callable[[Sequence[Key]], Loaded[ValueT]]


class Codec(Protocol[ValueT]):
    """What the cache has to know about values."""

    def encode(self, value: ValueT) -> str:
        """Write a value as text, for Redis."""

    def decode(self, text: str) -> ValueT:
        """Read a value.

        Raises:
            MalformedPageError: `encode` did not write this text.
        """

    def copy(self, value: ValueT) -> ValueT:
        """Return a value that its caller may change: the same one where it cannot be changed."""

    def size_bytes(self, value: ValueT) -> int:
        """Estimate how much memory a value takes."""


class Origin(StrEnum):
    """Where a value came from."""

    L1 = "l1"
    REDIS = "redis"
    LOADED = "dynamodb"


@dataclass(frozen=True, slots=True)
class Cached(Generic[ValueT]):
    """A value as it is served.

    `age_ms` is how long ago its load began, at most; `units` is what loading it costs (RCU, for reads of a table).
    """

    value: ValueT
    origin: Origin
    age_ms: int
    units: float

    @property
    def is_loaded(self) -> bool:
        """Whether it was loaded for this caller."""
        return self.origin is Origin.LOADED


class _Entry(NamedTuple, Generic[ValueT]):
    value: ValueT
    leased_at_ms: int | None
    """When the lease to load it was taken, by Redis's clock: two values of one key have different ones. None: it was
    loaded without a lease."""
    units: float
    size: int
    freshness: Freshness

    def is_newer_than(self, other: _Entry[ValueT], now_ms: float) -> bool:
        """Say whether it should be kept rather than another; one that cannot be served any more should not."""
        if self.leased_at_ms is not None and self.leased_at_ms == other.leased_at_ms:
            return False  # the same value, looked at later
        return self.freshness.read_at_ms > other.freshness.read_at_ms and self.freshness.is_usable_at(now_ms)


_Found = tuple[_Entry[ValueT], Origin]


class _Refusal(NamedTuple):
    """The error of a refused load, and until when the value is not loaded without the lease."""

    error: RetryLaterError
    until_ms: float


class _Look(NamedTuple, Generic[ValueT]):
    """What is at hand of a value without loading it."""

    held: _Entry[ValueT] | None
    origin: Origin = Origin.L1
    is_enough: bool = False
    """Whether it is fresh, or may be served since another process loads."""
    store: PageStore | None = None
    """The fleet's values, if they can be had; without a lease, another process loads then."""
    leased_at_ms: int | None = None
    """When the lease to load it was taken."""


@dataclass(eq=False, slots=True)
class _Flight(Generic[ValueT]):
    """One load within the process, and what came of it: an entry, an error, or neither where its thread died."""

    began_ms: float
    landed: Event
    entry: _Entry[ValueT] | None = None
    error: Exception | None = None


class _Memory(Generic[ValueT]):
    """The values that a process keeps: bounded in number and in bytes, least recently used ones go first."""

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[Key, _Entry[ValueT]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Key) -> _Entry[ValueT] | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
            return entry

    def put(self, key: Key, entry: _Entry[ValueT]) -> None:
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


@dataclass(slots=True)
class _Changes:
    """When this process changed values last: what was loaded before is not served by it any more."""

    keep_ms: float
    at_ms: dict[str, float] = field(default_factory=dict)
    """By subject."""
    all_at_ms: float = float("-inf")
    """Every value counts as changed then: there were too many changes to remember each."""

    def note(self, subject: str, now_ms: float) -> None:
        if len(self.at_ms) >= MAX_REMEMBERED:
            recent = {each: at_ms for each, at_ms in list(self.at_ms.items()) if at_ms > now_ms - self.keep_ms}
            if len(recent) >= MAX_REMEMBERED / 2:
                recent, self.all_at_ms = {}, now_ms
            self.at_ms = recent
        self.at_ms[subject] = now_ms

    def is_behind(self, subject: str, read_at_ms: float) -> bool:
        """Say whether a load that began then may lack a change."""
        return read_at_ms <= max(self.at_ms.get(subject, self.all_at_ms), self.all_at_ms)


@dataclass(eq=False, repr=False, kw_only=True)
class ReadCache(Generic[ValueT]):
    """Serves values that were loaded a moment ago. One per process. Safe under threads."""

    codec: Codec[ValueT]
    """How values are written, copied and measured."""
    limits: CacheLimits
    telemetry: Telemetry
    """Gets counts of hits, loads and ages."""
    clock: Clock
    timer: Callable[[], float]
    """A monotonic clock in seconds."""
    store: PageStore | None = None
    """The fleet's values; None where each process keeps its own alone."""
    environment_id: str = ""
    """Unique in the fleet; decides which copy in Redis is read."""
    excused: tuple[type[Exception], ...] = (RetryLaterError,)
    """Errors of a load after which the last value is served, up to the bound."""
    max_entries: int = MAX_ENTRIES
    max_bytes: int = MAX_BYTES
    """How large the kept values are together, as written in Redis or as `codec` estimates."""
    new_event: Callable[[], Event] = Event
    """Makes what waiting threads wait on."""
    _refusals: dict[Key, _Refusal] = field(default_factory=dict, init=False)
    _flights: dict[Key, _Flight[ValueT]] = field(default_factory=dict, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def __post_init__(self) -> None:
        self._copy = choose_copy(self.environment_id)
        self._memory: _Memory[ValueT] = _Memory(self.max_entries, self.max_bytes)
        self._changes = _Changes(self.limits.bound_ms)

    def view(self, codec: Codec[OtherT], store: PageStore | None) -> ReadCache[OtherT]:
        """Return this cache for values of another kind: one memory, and a fleet's values at another place, or nowhere.

        REQUIRES: its keys are not those of this cache's own values.
        """
        other: ReadCache[OtherT] = copy(cast("Any", self))
        other.codec, other.store = codec, store
        return other

    def get(
        self,
        key: Key,
        load: Callable[[], tuple[ValueT, float]],
        *,
        remaining_ms: float = float("inf"),
    ) -> Cached[ValueT]:
        """Return a value that is at most as old as the bound, or load it.

        `load` returns it, and what that cost. A thread waits for another one's load no longer than `remaining_ms`, the
        time its caller has left, and then loads itself.

        Raises:
            Exception: `load` raised it, and there is no value within the bound. All threads that wait get it.
        """
        if not self.limits.ttl_ms:
            value, units = load()
            return Cached(value, Origin.LOADED, 0, units)
        held = self._held(key)
        if held is not None and held.freshness.is_fresh_at(self._now_ms()):
            return self._serve(held, Origin.L1)
        return self._serve(*self._find(key, lambda _: {key: load()}, remaining_ms))

    def get_many(self, keys: Iterable[Key], load: LoadMany[ValueT]) -> dict[Key, Cached[ValueT]]:
        """Do as `get` for several keys, with one call of `load` for all that have to be loaded.

        This waits for values that another thread loads already; not for another process's load.

        Raises:
            Exception: `load` raised it, and one of the keys has no value within the bound.
        """
        keys = list(dict.fromkeys(keys))
        if not self.limits.ttl_ms:
            return {key: Cached(value, Origin.LOADED, 0, units) for key, (value, units) in load(keys).items()}
        found: dict[Key, _Found[ValueT]] = {}
        flights: dict[Key, _Flight[ValueT]] = {}
        try:
            for key in keys:
                held = self._held(key)
                if held is not None and held.freshness.is_fresh_at(self._now_ms()):
                    found[key] = held, Origin.L1
                    continue
                mine, flight = self._board(key)
                if flight is mine:
                    flights[key] = mine
            found |= self._fly(flights, load, wait_ms=None)
        finally:  # also those of a thread that dies before it loads: others wait for them
            for key, flight in flights.items():
                self._land(key, flight)
        # What another thread loads is waited for. And while some were loaded, others may have passed the bound.
        while late := [key for key in keys if key not in found or not self._is_in_time(*found[key])]:
            found |= {key: self._find(key, load, float("inf")) for key in late}
        return {key: self._serve(*found[key]) for key in keys}

    def forget(self, subject: str) -> None:
        """Serve nothing of a subject any more that was loaded before: this process changed it.

        Call it before the change is sent and after it returned, so that a load in between is not served either.
        """
        now_ms = self._now_ms()
        with self._lock:
            self._changes.note(subject, now_ms)

    def _find(self, key: Key, load: LoadMany[ValueT], remaining_ms: float) -> _Found[ValueT]:
        while True:
            held = self._held(key)
            if held is not None and held.freshness.is_fresh_at(self._now_ms()):
                return held, Origin.L1
            mine, flight = self._board(key)
            if flight is mine:
                return self._fly({key: mine}, load, wait_ms=remaining_ms)[key]
            if held is not None and held.freshness.is_usable_at(self._now_ms()):
                return held, Origin.L1
            if not flight.landed.wait(None if remaining_ms == float("inf") else remaining_ms / 1000):
                return self._fly({key: mine}, load, wait_ms=0.0)[key]
            if flight.error is not None:
                raise flight.error.with_traceback(None)
            if flight.entry is not None:
                return flight.entry, Origin.L1
            remaining_ms -= self._now_ms() - mine.began_ms  # its thread died: one of those that waited loads

    def _is_in_time(self, entry: _Entry[ValueT], origin: Origin) -> bool:
        return origin is Origin.LOADED or entry.freshness.is_usable_at(self._now_ms())

    def _held(self, key: Key) -> _Entry[ValueT] | None:
        held = self._memory.get(key)
        return None if held is None or self._changes.is_behind(key[0], held.freshness.read_at_ms) else held

    def _board(self, key: Key) -> tuple[_Flight[ValueT], _Flight[ValueT]]:
        """Begin a load unless one is under way that lacks no change; return this one, and the one that is under way."""
        mine: _Flight[ValueT] = _Flight(self._now_ms(), self.new_event())
        with self._lock:
            flight = self._flights.get(key)
            if flight is None or self._changes.is_behind(key[0], flight.began_ms):
                flight = self._flights[key] = mine
        return mine, flight

    def _fly(
        self, flights: Mapping[Key, _Flight[ValueT]], load: LoadMany[ValueT], *, wait_ms: float | None
    ) -> dict[Key, _Found[ValueT]]:
        """Obtain values for all threads of this process that ask meanwhile: the fleet's, or load them.

        Raises:
            Exception: as `get_many`, and what `_wait_for_fleet` raises; `wait_ms` None: it is not waited.
        """
        found: dict[Key, _Found[ValueT]] = {}
        looks: dict[Key, _Look[ValueT]] = {}
        loaded: Loaded[ValueT] | Exception = {}
        try:
            for key in flights:
                look = self._look(key) if wait_ms is None else self._wait_for_fleet(key, wait_ms)
                if look.held is not None and look.is_enough:
                    flights[key].entry, found[key] = look.held, (look.held, look.origin)
                    self._land(key, flights[key])  # its threads do not wait for the others
                else:
                    looks[key] = look
            read_at_ms = self._now_ms()
            loaded = _try_load(load, list(looks))
            for key, look in looks.items():
                found[key] = self._take(key, loaded, look, flights[key], read_at_ms)
                flights[key].entry = found[key][0]
        except Exception as error:
            for flight in flights.values():
                flight.error = error if flight.entry is None else None
            raise
        finally:
            for key, flight in flights.items():
                self._land(key, flight)
            del loaded  # an error would keep itself, and what its load held, by the frames of its traceback
        return found

    def _land(self, key: Key, flight: _Flight[ValueT]) -> None:
        with self._lock:
            if self._flights.get(key) is flight:
                del self._flights[key]
        flight.landed.set()

    def _wait_for_fleet(self, key: Key, wait_ms: float) -> _Look[ValueT]:
        """Look for a value until there is one, or the lease to load it, or another process's load takes too long.

        Raises:
            RetryLaterError: DynamoDB refused a moment ago, another process loads, and there is no value to serve.
        """
        deadline_ms = self._now_ms() + min(WAIT_MS, wait_ms)
        while True:
            look = self._look(key)
            if look.is_enough or look.store is None or look.leased_at_ms is not None:
                return look
            now_ms = self._now_ms()
            pause_ms = WAIT_STEP_MS * (0.5 + self.clock.random())
            if now_ms + pause_ms >= deadline_ms:
                if (refusal := self._refusals.get(key)) is not None and now_ms < refusal.until_ms:
                    raise refusal.error.with_traceback(None)
                return look
            self.clock.sleep(pause_ms / 1000)

    def _look(self, key: Key) -> _Look[ValueT]:
        """Look for a value in memory and, where the fleet shares it, in Redis; else take the lease to load it."""
        held, store = self._held(key), self.store  # another load may have ended just now
        if held is not None and held.freshness.is_fresh_at(self._now_ms()):
            return _Look(held, is_enough=True)
        if store is None or (held is not None and held.size > MAX_SHARED_BYTES):
            return _Look(held)
        try:
            found = self._ask(key, store, held)
            now_ms = self._now_ms()
            if found is not None and (held is None or not held.is_newer_than(found, now_ms)):
                held = found
                self._memory.put(key, found)
            origin = Origin.REDIS if held is found else Origin.L1
            if held is not None and held.freshness.is_fresh_at(now_ms):
                return _Look(held, origin, is_enough=True)
            leased_at_ms = store.take_lease(*key, self.limits.lease_ms)
        except RegistryUnavailableError as error:
            self._count_failure(error)
            return _Look(held)
        is_served = leased_at_ms is None and held is not None and held.freshness.is_usable_at(self._now_ms())
        return _Look(held, origin, is_served, store, leased_at_ms)

    def _ask(self, key: Key, store: PageStore, held: _Entry[ValueT] | None) -> _Entry[ValueT] | None:
        """Read this process's copy in Redis; None where it is missing, cannot be read, or is behind a change."""
        asked_at_ms = self._now_ms()
        try:
            found = store.get(*key, self._copy)
            if found is None:
                return None
            stored, age_ms = found
            size = len(stored.payload)
            is_held = held is not None and (held.leased_at_ms, held.size) == (stored.leased_at_ms, size)
            value = held.value if held is not None and is_held else self.codec.decode(stored.payload)
        except MalformedPageError:
            self.telemetry.count(MetricName.PAGES_MALFORMED)
            return None
        freshness = freshness_of_copy(
            self.limits, asked_at_ms=asked_at_ms, age_ms=age_ms, cost_ms=stored.cost_ms, random=self.clock.random
        )
        if self._changes.is_behind(key[0], freshness.read_at_ms):
            return None
        return _Entry(value, stored.leased_at_ms, stored.units, size, freshness)

    def _take(
        self,
        key: Key,
        loaded: Loaded[ValueT] | Exception,
        look: _Look[ValueT],
        flight: _Flight[ValueT],
        read_at_ms: float,
    ) -> _Found[ValueT]:
        """Take the value that was loaded, for all with a lease; where that failed, take the last one."""
        leased_at_ms, store = look.leased_at_ms, look.store if look.leased_at_ms is not None else None
        try:
            if isinstance(loaded, Exception):
                raise loaded
            value, units = loaded[key]
        except self.excused as error:
            if isinstance(error, RetryLaterError):
                self._remember_refusal(key, error)
            if leased_at_ms is not None:
                self.telemetry.count(MetricName.PAGE_FILLS_FAILED)
            if (last := self._find_usable(key, store, look.held)) is None:
                raise
            return last, Origin.L1 if last is look.held else Origin.REDIS
        finally:
            del loaded  # as in `_fly`
        cost_ms = round(self._now_ms() - read_at_ms)
        freshness = freshness_of_load(self.limits, read_at_ms=read_at_ms, cost_ms=cost_ms, random=self.clock.random)
        payload = None if leased_at_ms is None else self.codec.encode(value)
        size = self.codec.size_bytes(value) if payload is None else len(payload)
        entry = _Entry(value, leased_at_ms, units, size, freshness)
        self._memory.put(key, entry)
        flight.entry = entry
        self._land(key, flight)  # the other threads do not wait for Redis
        if store is not None and payload is not None and leased_at_ms is not None:
            self._store_for_all(key, store, StoredPage(payload, leased_at_ms, self.limits.keep_ms, cost_ms, units))
        return entry, Origin.LOADED

    def _find_usable(self, key: Key, store: PageStore | None, held: _Entry[ValueT] | None) -> _Entry[ValueT] | None:
        """Find a value within the bound: the one at hand or, since trying to load took its time, Redis's once more."""
        if held is not None and held.freshness.is_usable_at(self._now_ms()):
            return held
        if store is None:
            return None
        try:
            found = self._ask(key, store, held)
        except RegistryUnavailableError as error:
            self._count_failure(error)
            return None
        return found if found is not None and found.freshness.is_usable_at(self._now_ms()) else None

    def _remember_refusal(self, key: Key, error: RetryLaterError) -> None:
        if len(self._refusals) >= MAX_REMEMBERED:
            self._refusals.clear()
        self._refusals[key] = _Refusal(error, self._now_ms() + REFUSED_MS)

    def _store_for_all(self, key: Key, store: PageStore, stored: StoredPage) -> None:
        self.telemetry.count(MetricName.PAGE_FILLS)
        if len(stored.payload) > MAX_SHARED_BYTES:
            return
        try:
            store.put(*key, stored)
        except RegistryUnavailableError as error:
            self._count_failure(error)

    def _count_failure(self, error: RegistryUnavailableError) -> None:
        if not isinstance(error, RegistryForeignError):  # the store has logged it
            self.telemetry.count(MetricName.REGISTRY_UNAVAILABLE)

    def _serve(self, entry: _Entry[ValueT], origin: Origin) -> Cached[ValueT]:
        age_ms = round(self._now_ms() - entry.freshness.read_at_ms)
        self.telemetry.count(_METRICS[origin])
        return Cached(self.codec.copy(entry.value), origin, age_ms, entry.units)

    def _now_ms(self) -> float:
        return self.timer() * 1000


def _try_load(load: LoadMany[ValueT], keys: Sequence[Key]) -> Loaded[ValueT] | Exception:
    """Load values, once for all; return an error where loading them failed."""
    try:
        return load(keys) if keys else {}
    except Exception as error:  # noqa: BLE001 - raised for each key that has no value
        return error


_METRICS = {
    Origin.L1: MetricName.PAGES_FROM_L1,
    Origin.REDIS: MetricName.PAGES_FROM_REDIS,
    Origin.LOADED: MetricName.PAGES_FROM_DYNAMODB,
}
