"""The sampling of load in one execution environment: of writes, and of reads.

An environment sees a thin slice of a hot collection, has no timer and freezes between requests. So nothing here
waits for a window to close: each (slot, environment, collection) draws u in [0, 1) once, and the request that takes
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
from typing import NamedTuple

SLOT_MS = 250
"""Length of a slot, aligned to wall time. Part of the report format: all environments must agree on it."""


def slot_of(time_ms: int) -> int:
    """Return the number of the slot that an instant belongs to."""
    return time_ms // SLOT_MS


class Crossing(NamedTuple):
    """A sampling point that one request crossed.

    `source` names the counter within the fleet and `value` is the load that it has counted in the slot so far, up to
    sampling; a later crossing of the same source, slot and collection replaces it.
    """

    slot: int
    source: str
    value: float


_new_tuple = tuple.__new__  # the named tuple's own `__new__` takes as long as all the rest of a crossing


class LoadSampler:
    """Counts WCU or RCU per collection and slot, and says when a request crosses a sampling point.

    It keeps the collections of one slot: no more than items are written, or pages read, by a process in 250 ms.
    """

    def __init__(self, *, environment_id: str, sampling_distance: float, random: Callable[[], float]) -> None:
        """Start with no counts.

        `environment_id` is unique in the fleet and made on the environment's first request, since SnapStart clones
        earlier values. `sampling_distance` is z, in units; `random` returns uniform numbers in [0, 1).
        """
        self._environment_id = environment_id
        self._z = sampling_distance
        self._random = random
        self._slot = self._began_ms = self._ends_ms = 0
        # By collection: units until its next sampling point, and the points crossed in this slot. Numbers in two
        # dictionaries, since lists would keep the garbage collector busy.
        self._left: dict[str, float] = {}
        self._crossed: dict[str, int] = {}

    def record(self, collection: str, units: float, now_ms: int) -> Crossing | None:
        """Count one request, throttled or not, cached or not; return the last sampling point it crossed."""
        if not self._began_ms <= now_ms < self._ends_ms:
            self._begin(now_ms)
        lefts, z = self._left, self._z
        left = (lefts[collection] if collection in lefts else self._random() * z) - units
        if left >= 0:
            lefts[collection] = left
            return None
        left += z
        points = 1
        if left < 0:
            points += ceil(-left / z)
            left += (points - 1) * z
        lefts[collection] = left
        self._crossed[collection] = points = points + self._crossed.get(collection, 0)
        return _new_tuple(Crossing, (self._slot, self._environment_id, points * z))

    def _begin(self, now_ms: int) -> None:
        """Begin the slot of an instant. Its bounds are kept, since to compare is cheaper than to divide."""
        self._slot = slot_of(now_ms)
        self._began_ms = self._slot * SLOT_MS
        self._ends_ms = self._began_ms + SLOT_MS
        self._left.clear()
        self._crossed.clear()
