"""The samplers of one execution environment, of writes and of reads, and their sampling.

An environment sees a thin slice of a hot collection, has no timer and freezes between requests. So nothing here
waits for a window to close: each (slot, environment, collection) draws u in [0, 1) once, and the write that takes
the slot's count past (u + k) z reports the value (k + 1) z, for k = 0, 1, 2, … This is systematic sampling with a
random start (Cochran, "Sampling Techniques", chapter 8): for a count c the largest value reported has expectation c,
so the sum over any number of environments is unbiased, however thin each slice is.

Error: where every environment's share of a slot is below z, the reports are independent and the estimate of a load of
R WCU/s over one second has the standard deviation sqrt(R z): at 800 WCU/s and z = 10, 89 WCU/s or 11 %. It is smaller
where fewer environments share the load. In expectation the fleet sends (total WCU) / z reports.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from threading import Lock
from typing import Any, NamedTuple

from hotpartition.core.reports import ReadReport

SLOT_MS = 250
"""Length of a slot, aligned to wall time. Part of the report format: all environments must agree on it."""

MAX_TRACKED_COLLECTIONS = 4096
"""Collections counted in one slot before sampling goes on write by write, as `LoadSampler` says."""


def slot_of(time_ms: int) -> int:
    """Return the number of the slot that an instant belongs to."""
    return time_ms // SLOT_MS


class Crossing(NamedTuple):
    """A sampling point that one write crossed.

    `source` names the counter within the fleet and `value_wcu` is the load that it has counted in the slot so far, up
    to sampling; a later crossing of the same source, slot and collection replaces it.
    """

    slot: int
    source: str
    value_wcu: float


_new_tuple = tuple.__new__  # the named tuple's own `__new__` takes as long as all the rest of a crossing


class LoadSampler:
    """Counts WCU per collection and slot, and says when a write crosses a sampling point.

    Memory is bounded without biasing the estimate: past `MAX_TRACKED_COLLECTIONS` collections in one slot, each
    further write is sampled on its own, as if it were the only write of a source of its own.
    """

    def __init__(
        self,
        *,
        environment_id: str,
        sampling_distance_wcu: float,
        random: Callable[[], float],
        max_tracked: int = MAX_TRACKED_COLLECTIONS,
    ) -> None:
        """Start with no counts.

        `environment_id` is unique in the fleet and made on the environment's first request, since SnapStart clones
        earlier values. `random` returns uniform numbers in [0, 1).
        """
        self._environment_id = environment_id
        self._z = sampling_distance_wcu
        self._random = random
        self._max_tracked = max_tracked
        self._slot = -1
        # By collection: WCU until its next sampling point, and the points crossed in this slot. Numbers in two
        # dictionaries, since lists would keep the garbage collector busy.
        self._left: dict[str, float] = {}
        self._crossed: dict[str, int] = {}
        self._lone_writes = 0

    def record(self, collection: str, wcu: float, now_ms: int) -> Crossing | None:
        """Count one offered write, throttled or not, once per request; return the last sampling point it crossed."""
        slot = now_ms // SLOT_MS
        if slot != self._slot:
            self._slot = slot
            self._left.clear()
            self._crossed.clear()
        lefts, z = self._left, self._z
        if collection in lefts:
            left = lefts[collection] - wcu
        elif len(lefts) < self._max_tracked:
            left = self._random() * z - wcu
        else:
            return self._sample_lone_write(wcu, slot)
        lefts[collection] = left
        if left >= 0:
            return None
        left += z
        points = 1
        if left < 0:
            points += ceil(-left / z)
            left += (points - 1) * z
        lefts[collection] = left
        self._crossed[collection] = points = points + self._crossed.get(collection, 0)
        return _new_tuple(Crossing, (slot, self._environment_id, points * z))

    def _sample_lone_write(self, wcu: float, slot: int) -> Crossing | None:
        point = self._random() * self._z
        if wcu <= point:
            return None
        self._lone_writes += 1
        source = f"{self._environment_id}.{self._lone_writes}"
        return _new_tuple(Crossing, (slot, source, ceil((wcu - point) / self._z) * self._z))


class SharedSampler(LoadSampler):
    """A `LoadSampler` for several threads."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._lock = Lock()

    def record(self, collection: str, wcu: float, now_ms: int) -> Crossing | None:
        """Count one write, as `LoadSampler.record`."""
        with self._lock:
            return super().record(collection, wcu, now_ms)


class ReadSampler:
    """Counts RCU and pages per collection and slot, sampled as writes are. Safe under threads.

    A sampling point stands for z RCU, and so for z / u pages where the page that crosses it costs u: both sums over the
    fleet are unbiased.
    """

    def __init__(
        self,
        *,
        environment_id: str,
        sampling_distance_rcu: float,
        random: Callable[[], float],
        max_tracked: int = MAX_TRACKED_COLLECTIONS,
    ) -> None:
        """Start with no counts; the arguments are `LoadSampler`'s."""
        self._sampler = LoadSampler(
            environment_id=environment_id,
            sampling_distance_wcu=sampling_distance_rcu,
            random=random,
            max_tracked=max_tracked,
        )
        self._environment_id = environment_id
        self._lock = Lock()
        self._slot = -1
        # by collection: the load reported in this slot, in RCU and in pages
        self._reported: dict[str, tuple[float, float]] = {}

    def record(self, collection: str, rcu: float, now_ms: int) -> ReadReport | None:
        """Count one requested page, whether a cache or DynamoDB served it; report the last sampling point it crossed.

        `rcu` is the cost of reading it from DynamoDB, more than 0.
        """
        with self._lock:
            crossing = self._sampler.record(collection, rcu, now_ms)
            if crossing is None:
                return None
            slot, source, value = crossing
            if source != self._environment_id:
                return ReadReport(collection, slot, source, value, value / rcu)
            if slot != self._slot:
                self._slot = slot
                self._reported.clear()
            value_before, pages = self._reported.get(collection, (0.0, 0.0))
            pages += (value - value_before) / rcu
            self._reported[collection] = value, pages
            return ReadReport(collection, slot, source, value, pages)
