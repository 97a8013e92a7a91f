"""The window: the fleet's reports of the last seconds, of writes or of reads, by collection and slot.

State is `(slot, source, collection) -> crossings`, written by assignment, so redelivered, reordered and doubled reports
change nothing, and all consumers that read the same stream decide the same. A slot's load is the sum over its sources
of the largest value; a crossing stands for the load since its source's one before.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple, Self

from hotpartition.core.reports import Report
from hotpartition.core.sampler import SLOT_MS, slot_of

SLOTS_PER_SECOND = 1000 // SLOT_MS
SUSTAINED_SECONDS = 5
SUSTAINED_SLOTS = SUSTAINED_SECONDS * SLOTS_PER_SECOND

HORIZON_SLOTS = 15 * SLOTS_PER_SECOND
"""How far back reports are kept: longer than any rule looks, so a consumer that starts anew misses nothing."""
MAX_SLOTS_AHEAD = 2 * SLOTS_PER_SECOND
"""Reports from further ahead come from a broken clock and are left out."""

REPORT_DELAY_MS = 150
"""How long after a slot's end its reports have arrived: one XADD, and the consumer's poll of 100 ms."""

ROUNDING_MARGIN = 1 - 1e-9
"""A sum of floats depends on their order; a load that is not judged must be below the thresholds in any order."""


def last_whole_slot(now_ms: int) -> int:
    """Return the newest slot whose reports have all arrived."""
    return slot_of(now_ms - REPORT_DELAY_MS) - 1


class Sample(NamedTuple):
    """One crossing: the units that it stands for, and the item that stands for them."""

    units: float
    position: int
    is_refused: bool


# Skips a named tuple's handling of its arguments, which takes longer than making the tuple.
_new_tuple = tuple.__new__


class Share(NamedTuple):
    """Samples of one slot, and their sum."""

    samples: tuple[Sample, ...]
    units: float
    refused_units: float
    first_position: int
    last_position: int

    @classmethod
    def of(cls, samples: Iterable[Sample]) -> Self:
        """Sum samples up; REQUIRES: at least one."""
        listed = tuple(samples)
        units, positions, _ = zip(*listed, strict=True)
        refused_units = sum([sample.units for sample in listed if sample.is_refused])
        return cls(listed, sum(units), refused_units, min(positions), max(positions))


_Crossing = tuple[Any, ...]
"""A report from its value on.

A plain tuple, without the names that the dictionaries above it hold: a busy consumer keeps half a million of them.
"""


class _Slot:
    """The reports of one collection in one slot. REQUIRES: at least one is added before they are asked for."""

    __slots__ = ("_crossings", "_share", "units")

    def __init__(self) -> None:
        # source -> its crossings by rising value; the same value of the same source is the same crossing. Most sources
        # cross once, so a tuple takes a third of what a dictionary would.
        self._crossings: dict[str, tuple[_Crossing, ...]] = {}
        self._share: Share | None = None
        self.units = 0.0

    def add(self, source: str, crossing: _Crossing) -> None:
        value = crossing[0]
        known = self._crossings.get(source)
        if known is None:
            self._crossings[source] = (crossing,)
            self.units += value
        elif value > known[-1][0]:
            self._crossings[source] = (*known, crossing)
            self.units += value - known[-1][0]
        else:
            self._insert(source, known, crossing)
        self._share = None

    def _insert(self, source: str, known: tuple[_Crossing, ...], crossing: _Crossing) -> None:
        """Add a value that is not the source's largest, or a repetition, which may say that it was refused."""
        at = bisect_left(known, crossing[0], key=itemgetter(0))
        is_repetition = known[at][0] == crossing[0]
        if not is_repetition or crossing[-1] is True:
            self._crossings[source] = (*known[:at], crossing, *known[at + is_repetition :])

    def share(self) -> Share:
        """Sum the slot up, once until it changes: a consumer decides ten times a second, most slots are complete."""
        if self._share is None:
            self._share = Share.of(self._list_samples())
        return self._share

    def _list_samples(self) -> list[Sample]:
        """List the samples of writes in a fixed order; each stands for the load since its source's last one."""
        samples = []
        for source in sorted(self._crossings):
            known = self._crossings[source]
            value, position, _, is_refused = known[0]
            samples.append(_new_tuple(Sample, (value, position, is_refused)))
            for before, after in pairwise(known):
                samples.append(Sample(after[0] - before[0], after[1], after[3]))
        return samples


class CollectionReports:
    """The reports of one collection within the horizon."""

    __slots__ = ("_slots", "first_slot")

    def __init__(self) -> None:
        self._slots: dict[int, _Slot] = {}
        # no slot is older
        self.first_slot = 0

    def add(self, number: int, source: str, crossing: _Crossing) -> float:
        """Take a report of a slot in, and return the sum of the slot by now, in units.

        A repetition changes nothing, except that it may add that the write was refused.
        """
        slot = self._slots.get(number)
        if slot is None:
            self.first_slot = min(self.first_slot, number) if self._slots else number
            slot = self._slots[number] = _Slot()
        slot.add(source, crossing)
        return slot.units

    def forget_before(self, slot: int) -> None:
        """Drop all slots before this one."""
        if self.first_slot >= slot:
            return
        for dropped in [s for s in self._slots if s < slot]:
            del self._slots[dropped]
        self.first_slot = min(self._slots, default=slot)

    def units(self, first_slot: int, last_slot: int) -> tuple[float, ...]:
        """List the loads of slots, both ends included."""
        slots = self._slots
        return tuple([slots[n].units if n in slots else 0.0 for n in range(first_slot, last_slot + 1)])

    def mean(self, last_slot: int) -> float:
        """Return the mean load of the five seconds that end with a slot, in units a second."""
        return sum(self.units(last_slot - SUSTAINED_SLOTS + 1, last_slot)) / SUSTAINED_SECONDS

    def __bool__(self) -> bool:
        return bool(self._slots)

    def shares(self, since_slot: int) -> list[tuple[int, Share]]:
        """List the sums of the slots of writes from one on, oldest first."""
        return [(number, self._slots[number].share()) for number in sorted(self._slots) if number >= since_slot]


class ReportWindow:
    """All reports of writes, or all of reads, within the horizon, by collection.

    Memory is proportional to what the streams hold of 15 s.
    """

    def __init__(self, loud_units: float = 0.0) -> None:
        """Start empty. `to_judge` leaves out collections of which no slot has `loud_units`; 0: it lists all."""
        self._loud_units = loud_units * ROUNDING_MARGIN
        self._collections: dict[str, CollectionReports] = {}
        # by collection, the last slot that is loud or has a refused write
        self._loud: dict[str, int] = {}
        # The sources of late, so that their names are held once and not once a report.
        self._sources: dict[str, str] = {}

    def add(self, report: Report, now_ms: int) -> bool:
        """Take a report in; return False for one outside the horizon (late, or from a broken clock): it is left out."""
        collection, number, source = report[:3]
        if not -HORIZON_SLOTS <= number - now_ms // SLOT_MS <= MAX_SLOTS_AHEAD:
            return False
        reports = self._collections.get(collection)
        if reports is None:
            reports = self._collections[collection] = CollectionReports()
        crossing = report[3:7]
        units = reports.add(number, self._sources.setdefault(source, source), crossing)
        if units >= self._loud_units or crossing[-1] is True:
            self._loud[collection] = max(number, self._loud.get(collection, number))
        return True

    def forget(self, now_ms: int) -> None:
        """Drop slots that have left the horizon."""
        oldest = slot_of(now_ms) - HORIZON_SLOTS
        aged = [(c, reports) for c, reports in self._collections.items() if reports.first_slot < oldest]
        for collection, reports in aged:
            reports.forget_before(oldest)
            if not reports:
                del self._collections[collection]
        self._sources.clear()
        self._loud = {c: slot for c, slot in self._loud.items() if slot >= oldest}

    def to_judge(self) -> Sequence[str]:
        """List the collections about which anything but "below the threshold" may be decided.

        The rest, nearly all, have had no loud slot, and no refused write. A consumer decides ten times a second, so it
        cannot look at each collection that reported at all.
        """
        return list(self._loud)

    def list_above(self, units_per_second: float, now_ms_of: Callable[[str], int]) -> Sequence[str]:
        """List the collections with a mean load of as much, or more, over five seconds, up to the last read."""
        known = self._collections.items()
        return [c for c, reports in known if reports.mean(slot_of(now_ms_of(c))) >= units_per_second]

    def as_mapping(self) -> Mapping[str, CollectionReports]:
        """Show the reports by collection."""
        return self._collections
